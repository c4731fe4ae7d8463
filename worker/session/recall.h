/*
 * Reading evicted payloads back before they are read (payload.h): all that is missing in one go,
 * from the journal.
 */
#ifndef RG_SESSION_RECALL_H
#define RG_SESSION_RECALL_H

#include <stdbool.h>

#include "common/base/vec.h"

struct call_record;
struct checkpoint;
struct err;
struct payload;
struct session;

/* What is to be read next, and is to be in memory for that. */
struct recall {
    struct session *session;
    bool rows; /* long blocks of rows, too, which have payloads of their own: for exports */
    VEC(struct payload *) missing;
};

/* All that reading t's own context and answer needs. */
void recall_checkpoint(struct recall *r, const struct checkpoint *t);

/* The same for the whole path that ends in t. */
void recall_path(struct recall *r, const struct checkpoint *t);

/* Reads what is missing back, all in one go; ends the recall. -1: it cannot be read. */
int recall_end(struct recall *r, struct err *e);

/* A recall of one: of t's own context and answer, of all answers of a call, or of the path that
 * ends in t. Returns 0, or -1 with *e if the journal cannot give it back. */
int session_recall_checkpoint(struct session *s, const struct checkpoint *t, struct err *e);
int session_recall_call(struct session *s, const struct call_record *c, struct err *e);
int session_recall_path(struct session *s, const struct checkpoint *t, struct err *e);

#endif
