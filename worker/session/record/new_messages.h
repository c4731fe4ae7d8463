/*
 * struct new_messages: what a long request adds to a session's messages, made ready before its call
 * is recorded, maybe in a helper: their texts as the commit record has them (commit.h), and the
 * forest's copies of them in nodes that only need a place (forest_hang). So the loop, on which the
 * record is written and applied, neither writes JSON nor reads it for them, and touches no new
 * memory: 60,000 of them are hung in a few milliseconds. The copies are made from the texts, thus
 * are what a replay of the record makes. Of a long record that is read back the same copies are
 * made from its texts.
 */
#ifndef RG_SESSION_NEW_MESSAGES_H
#define RG_SESSION_NEW_MESSAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "worker/session/forest/message.h"

struct json;
struct message_node;

/* Fewer bytes of new messages than this are written and read where they are recorded. */
enum { NEW_MESSAGES_MIN = 64 << 10 };

struct new_messages {
    uint32_t from, n;            /* messages [from, from + n) of the request */
    struct buf texts;            /* n of them, as record_put_json writes them */
    size_t *starts;              /* start of each in `texts`, which fragments may have dropped */
    struct arena copy;           /* memory that the forest takes over (arena_absorb) */
    struct message_node **nodes; /* n of them in `copy`, each right before its message, which is
                                    read and has its hashes; the rest of them is the forest's */
    bool has_images;             /* some message has a picture */
    atomic_size_t *sum; /* where the memory of all this is counted, as arena.sum; or NULL */
};

/* Makes those of messages (a JSON array) from number `from` on, to be compared by `mt`. Touches
 * nothing else. NULL if one cannot be read back from its text, which its commit will say. The
 * caller frees it. */
struct new_messages *new_messages_make(const struct json *messages, uint32_t from,
                                       const struct matcher *mt, atomic_size_t *sum);

/* The next n texts as a commit record has them, for a record that is read back: `texts` stays
 * empty. NULL if one cannot be read, or the thread's job is cancelled. */
struct record_in;
struct new_messages *new_messages_read(struct record_in texts, uint32_t n, const struct matcher *mt,
                                       atomic_size_t *sum);

/* Makes the node of an answer's message, which will have its checkpoint: it knows the hash by which
 * its echoes are found (forest_hang_answer). NULL as above. */
struct new_messages *new_answer_make(const struct json *message, const struct matcher *mt,
                                     atomic_size_t *sum);

/* Makes the node from an answer's JSON, as stored in a record. Leaves `texts` empty. */
struct new_messages *new_answer_read(struct str text, const struct matcher *mt, atomic_size_t *sum);

/* The texts of the last k of them. */
struct str new_messages_texts(const struct new_messages *m, uint32_t k);

/* Frees the messages; accepts NULL. */
void new_messages_free(struct new_messages *m);

/* Messages of a call's answers (new_answer_make, new_answer_read): of the call that is recorded
 * (plan.h), or of a record that is read back (session_texts.h). */
struct ready_answers {
    uint32_t n;
    struct new_messages *at[]; /* own; NULL: it is short, or was not made */
};

/* Makes n answers without messages. */
struct ready_answers *ready_answers_new(uint32_t n);

/* NULL: it has none of that answer; all may be NULL. */
struct new_messages *ready_answers_get(const struct ready_answers *all, uint32_t answer);

/* Frees the answers; accepts NULL. */
void ready_answers_free(struct ready_answers *all);

#endif
