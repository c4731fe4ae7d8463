/*
 * struct recall: reads evicted payloads back from the journal before they are used (payload.h): all
 * that is missing at once or, if an agent controls how much that is, in steps with pauses.
 *
 *   struct recall r = {.session = s};    collects what is missing,
 *   recall_path(&r, t);
 *   recall_read(&r, &e)                  0: all is in memory
 *   recall_done(&r)                      frees it, at any time
 *
 * In a pause the payloads that are in memory must not be evicted: the recall holds them (holds).
 * Several recalls that read the same payload share its parts.
 */
#ifndef RG_SESSION_RECALL_H
#define RG_SESSION_RECALL_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/attrs.h"
#include "common/base/vec.h"

struct call_record;
struct checkpoint;
struct err;
struct payload;
struct session;

/* Bytes that are read, checked and copied in about half a millisecond. A step reads at most one
 * record more. */
enum { RECALL_STEP = 512 << 10 };

/* Payloads that are read back and must then be in memory together. */
struct recall {
    struct session *session;
    bool rows;  /* also read long blocks of rows, which have payloads of their own: for exports */
    bool holds; /* all payloads that it reads stay in memory until recall_done */
    bool open_only;                /* recall_read fails when the session has ended: for calls */
    bool begun;                    /* it reads, so nothing more may be added */
    VEC(struct payload *) missing; /* the last payload is read next */
    VEC(struct payload *) held;
    struct payload *reading; /* a missing payload of which some parts are read; or NULL */
};

/* Adds everything that reading t's own context needs. */
void recall_context(struct recall *r, const struct checkpoint *t);

/* Adds everything that reading t's own context and answer needs. */
void recall_checkpoint(struct recall *r, const struct checkpoint *t);

/* Adds all answers of a call, without its context. */
void recall_call(struct recall *r, const struct call_record *c);

/* Adds everything that reading the whole path that ends in t needs. t may be NULL. The path is read
 * from its beginning on. */
void recall_path(struct recall *r, const struct checkpoint *t);

/* Reads all that is missing, in steps, and pauses between them. Returns -1 if that fails, or with
 * ERR_SESSION_ENDED (open_only); the recall has then ended. */
MAY_PAUSE RG_MUSTCHECK int recall_read(struct recall *r, struct err *e);

/* Stops reading, and releases what is held. Accepts a zeroed recall. The struct may be used again.
 * The session may have ended, but must still exist. */
void recall_done(struct recall *r);

/* Reads back all that is missing, and ends the recall. Returns -1 if it cannot be read. */
int recall_end(struct recall *r, struct err *e);

#endif
