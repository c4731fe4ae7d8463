/* A harness for tests of sessions: conversations as JSON text, answers as text, one line a call. */
#ifndef RG_UNIT_SESSION_KIT_H
#define RG_UNIT_SESSION_KIT_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"

struct kit {
    struct session_store *store;
    struct session *s;
    struct arena arena;
    struct buf journal[4096]; /* every record that was applied */
    size_t n_journal;
    uint64_t now;
    unsigned answers;
    struct err err;
    int64_t max_tokens;
    uint32_t context;
    uint64_t body_hash;
    struct str key;          /* the calls' Idempotency-Key, or absent */
    struct chat_known known; /* of the next one's messages; .messages is set by kit_ask */
    size_t part_bytes;       /* of a fragment; at first so few that most calls have some */
};

void kit_init(struct kit *k, const char *options);
void kit_defaults(struct kit *k, const struct session_defaults *d, const char *options);
void kit_done(struct kit *k);

/* Prepares a call; NULL and k->err when it is refused. tools: JSON text or NULL. */
struct session_plan *kit_ask(struct kit *k, const char *messages, const char *tools);

/* Records the fragments of a call that will not commit; how many they are. */
size_t kit_fragments(struct kit *k, struct session_plan *p);

/* Commits an answer of bytes and <|im_end|> (none when cut by length). 0 / -1 with k->err. */
int kit_answer(struct kit *k, struct session_plan *p, const char *text, bool cut);

/* Both. The cause, or -1 when refused. */
int kit_turn(struct kit *k, const char *messages, const char *text);

int kit_end(struct kit *k, enum session_end how);

/* State as JSON value. */
const struct json *kit_state(struct kit *k);
int64_t kit_count(struct kit *k, const char *name);

const struct json *kit_json(struct kit *k, const char *text);

#endif
