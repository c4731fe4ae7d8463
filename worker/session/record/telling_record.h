/*
 * The record of a call in steps, for GET /sessions/{id}?records=1: a prompt of a million ids, or
 * texts of megabytes, are written in parts.
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

/* State of the writing. Zeroed before the first step of a record. */
struct record_telling {
    enum record_stage stage;
    size_t at;       /* position in the stage: messages, ids */
    uint32_t answer; /* index of the call's answer */
    const struct json *messages;
    struct arena arena; /* memory of `messages` */
    /* payloads that the stage reads ids of, own; NULL: none, or not yet read */
    struct recall *recall;
};

/* Writes the next part of the session's call with that index. The session must be resident, and
 * stay so (pinned). Returns 1 after the last part, with r zeroed; 0 if more follow; -1 with e if
 * evicted data cannot be read back. */
int record_write_step(struct record_telling *r, struct json_out *o, struct session *s, size_t call,
                      struct err *e);

/* Frees r in the middle of a record. */
void record_write_done(struct record_telling *r);

/* Prepares the writing of t's ids, or with `path` of the whole path that ends in t. Reads evicted
 * payloads back, a step at a time, and holds all of them until record_release. *r, NULL at first,
 * is the caller's from then on. Returns 1 if more must be read in a further step, 0 if all is in
 * memory, -1 with e if they cannot be read back. */
int record_recall(struct recall **r, struct session *s, const struct checkpoint *t, bool path,
                  struct err *e);
void record_release(struct recall **r);

/* Writes the ids [from, from + n) of the path that ends in t, which must be in memory, as values of
 * an open array. */
void write_path_ids(struct json_out *o, const struct checkpoint *t, size_t from, size_t n);

#endif
