/*
 * The record of a call in steps, for GET /sessions/{id}?records=1: a prompt of a million ids, or
 * texts of megabytes, are written a few at a time.
 */
#ifndef RG_SESSION_TELLING_RECORD_H
#define RG_SESSION_TELLING_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/codec/json.h"

struct checkpoint;
struct err;
struct recall;
struct session;

enum record_stage {
    RECORD_TELLS_HEAD,
    RECORD_TELLS_MESSAGES,
    RECORD_TELLS_REQUEST_END,
    RECORD_TELLS_PROMPT,
    RECORD_TELLS_ANSWER,
    RECORD_TELLS_OUTPUT,
    RECORD_TELLS_ANSWER_END,
    RECORD_TELLS_END
};

/* Zeroed before the first step of a record. */
struct record_telling {
    enum record_stage stage;
    size_t at;       /* in the stage: messages, ids */
    uint32_t answer; /* index of the call's answer */
    const struct json *messages;
    struct arena arena;    /* memory of `messages` */
    struct recall *recall; /* own: what the stage reads ids of; NULL: it does not, or not yet */
};

/* Writes what comes next of the session's call with that index. The session is resident, and stays
 * so (pinned). Returns 1 when that was all, and r is zeroed; 0 if there is more; -1 and e if what
 * was evicted cannot be read back. */
int record_write_step(struct record_telling *r, struct json_out *o, struct session *s, size_t call,
                      struct err *e);

/* Frees what r has, in the middle of a record. */
void record_write_done(struct record_telling *r);

/* Prepares the writing of t's ids, or with `path` of the whole path that ends in t. Reads evicted
 * payloads back, a step at a time, and holds all of them until record_release. *r, NULL before, is
 * the caller's from then on. Returns 1 if there is more to read, for another step; 0 if all is
 * there; -1 and e if it cannot be read back. */
int record_recall(struct recall **r, struct session *s, const struct checkpoint *t, bool path,
                  struct err *e);
void record_release(struct recall **r);

/* Writes the ids [from, from + n) of the path that ends in t, which is there, as values of an open
 * array. */
void write_path_ids(struct json_out *o, const struct checkpoint *t, size_t from, size_t n);

#endif
