/*
 * Reading evicted payloads back before they are read (payload.h), from the journal: all that is
 * missing in one go, or, where an agent chooses how much that is, a part in each turn of the loop.
 *
 *   struct recall r = {.session = s};    what is missing is noted,
 *   recall_path(&r, t);
 *   recall_step(&r, RECALL_STEP, &e)     1: read on in a later turn; 0: all is there; -1
 *   recall_done(&r)                      frees it, at whatever point
 *
 * Between two steps the payloads that are there must not be evicted: a call holds its path
 * (payload_hold_path), others let the recall itself hold them (holds). Several recalls that read
 * the same payload share its parts.
 */
#ifndef RG_SESSION_RECALL_H
#define RG_SESSION_RECALL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/vec.h"

struct call_record;
struct checkpoint;
struct err;
struct payload;
struct session;

/* So many bytes are read, checked and copied in about half a millisecond; a step reads a record
 * more than that at most. */
enum { RECALL_STEP = 512 << 10 };

/* What is to be read next, and is to be in memory for that. */
struct recall {
    struct session *session;
    bool rows;  /* long blocks of rows, too, which have payloads of their own: for exports */
    bool holds; /* all payloads that it gets stay in memory until recall_done */
    bool begun; /* recall_step was called: nothing more is noted */
    VEC(struct payload *) missing; /* the last one is read next */
    VEC(struct payload *) held;
    struct payload *reading; /* one of these of which some parts are there; or NULL */
};

/* Notes all that reading t's own context needs. */
void recall_context(struct recall *r, const struct checkpoint *t);

/* Notes all that reading t's own context and answer needs. */
void recall_checkpoint(struct recall *r, const struct checkpoint *t);

/* Adds all answers of a call, without its context. */
void recall_call(struct recall *r, const struct call_record *c);

/* Notes what reading the whole path needs that ends in t, which may be NULL: it is read from its
 * beginning on.
 */
void recall_path(struct recall *r, const struct checkpoint *t);

/* Reads back some of what is missing, max_bytes of it or a record more; nothing if all is there.
 * Returns 0 when all is there; 1 if there is more, for a later call; -1 and e if the journal cannot
 * give it back: then nothing of it is kept that is not whole, and the recall is over. */
int recall_step(struct recall *r, size_t max_bytes, struct err *e);

/* Gives up what is not read yet, and lets go what is held. A zeroed recall is fine; it can be used
 * for another one. The session may have ended, and must still be there. */
void recall_done(struct recall *r);

/* One that holds, in memory of its own, and what frees it (NULL is fine). */
struct recall *recall_new(struct session *s);
void recall_free(struct recall *r);

/* Reads what is missing back, all in one go; ends the recall. -1: it cannot be read. */
int recall_end(struct recall *r, struct err *e);

/* A recall of one, in one go: of t's own context; or of all answers of a call, without its context.
 * Returns 0, or -1 with *e if the journal cannot give it back. */
int session_recall_context(struct session *s, const struct checkpoint *t, struct err *e);
int session_recall_call(struct session *s, const struct call_record *c, struct err *e);

#endif
