/* A kit for tests of sessions: conversations are JSON texts, answers are texts, and a call is one
 * line. */
#ifndef RG_UNIT_SESSION_KIT_H
#define RG_UNIT_SESSION_KIT_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat.h"

struct loop;
struct session_call_input;
struct tasks;

struct kit {
    struct session_store *store;
    struct session *s;
    struct arena arena;
    struct buf journal[4096]; /* all applied records */
    size_t n_journal;
    uint64_t now;
    unsigned answers;
    struct err err;
    int64_t max_tokens;
    uint32_t context;
    uint64_t body_hash;
    struct str key;          /* Idempotency-Key of the calls, or absent */
    struct chat_known known; /* messages of the next call; kit_ask sets .messages */
    size_t part_bytes; /* bytes of a fragment; initially so few that most calls have fragments */
};

void kit_init(struct kit *k, const char *options);
void kit_defaults(struct kit *k, const struct session_defaults *d, const char *options);
void kit_done(struct kit *k);

/* For TEST_WITH: a session with the default options. */
static inline void kit_open(struct kit *f)
{
    kit_init(f, NULL);
}

static inline void kit_close(struct kit *f)
{
    kit_done(f);
}

/* Prepares a call. tools: JSON text, or NULL. Returns NULL and k->err if the call is refused. */
struct session_plan *kit_ask(struct kit *k, const char *messages, const char *tools);

/* Records the fragments of a call that will not be committed. Returns their number. */
size_t kit_fragments(struct kit *k, struct session_plan *p);

/* Commits an answer: the bytes of the text and, unless it was cut by length, <|im_end|>. Returns 0,
 * or -1 with k->err. */
int kit_answer(struct kit *k, struct session_plan *p, const char *text, bool cut);

/* Prepares a call and commits its answer. Returns the cause, or -1 if the call is refused. */
int kit_turn(struct kit *k, const char *messages, const char *text);

int kit_end(struct kit *k, enum session_end how);

/* Returns the session's state as JSON. */
const struct json *kit_state(struct kit *k);
int64_t kit_count(struct kit *k, const char *name);

const struct json *kit_json(struct kit *k, const char *text);

/* A task with a loop of its own, which yields at each pause. */
struct kit_task {
    struct loop *loop;
    struct tasks *tasks; /* NULL: the task has ended */
};

/* Runs fn(ctx) in a task until its first pause. */
void kit_task_begin(struct kit_task *t, void (*fn)(void *ctx), void *ctx);

/* Runs the task until its next pause. Returns false if it has ended. */
bool kit_task_step(struct kit_task *t);

/* Cancels the task, which then ends. */
void kit_task_cancel(struct kit_task *t);

/* The position and the path of a call, in a task. */
struct kit_prepare {
    struct kit_task task;
    struct kit *k;
    const struct session_call_input *in;
    struct session_plan *p; /* NULL after an error */
    int rc;                 /* 1: it pauses; 0; -1 with the kit's error */
};

/* Begin, continue and cancel it. The first two return rc. */
int kit_prepare(struct kit_prepare *q, struct kit *k, const struct session_call_input *in);
int kit_prepare_step(struct kit_prepare *q);
void kit_prepare_cancel(struct kit_prepare *q);

#endif
