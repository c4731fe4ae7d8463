/*
 * struct new_messages: the messages that a long request adds to a session, prepared before its call
 * is recorded, perhaps in a helper: their texts in the form of the commit record (commit.h), and
 * the forest's copies of them in nodes that only need to be linked (forest_hang). The loop, which
 * writes and applies the record, thus neither writes nor parses JSON for them and touches no new
 * memory: it links 60,000 in a few milliseconds. The copies are made from the texts, so they equal
 * those of a replay. When a long record is read back, the same copies are made from its texts.
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

/* New messages with fewer bytes are written and read when they are recorded. */
enum { NEW_MESSAGES_MIN = 64 << 10 };

struct new_messages {
    uint32_t from, n; /* messages [from, from + n) of the request */
    struct buf texts; /* n texts, as record_put_json writes them */
    /* start of each text in `texts`, which fragments may have dropped */
    size_t *starts;
    struct arena copy; /* memory that the forest takes over (arena_absorb) */
    /* n nodes in `copy`, each right before its message, which is read and has its hashes; the
     * forest sets the other fields */
    struct message_node **nodes;
    bool has_images;    /* some message has a picture */
    atomic_size_t *sum; /* sum to which this memory is added, as arena.sum; or NULL */
};

/* Makes those of `messages` (a JSON array) from index `from` on, to be compared by `mt`. Uses
 * nothing else. Returns NULL if one cannot be read back from its text; the commit then reports
 * this. The caller frees the result. */
struct new_messages *new_messages_make(const struct json *messages, uint32_t from,
                                       const struct matcher *mt, atomic_size_t *sum);

/* Makes messages from the next n texts of a commit record that is read back; `texts` stays empty.
 * Returns NULL if one cannot be read, or if the thread's job is cancelled. */
struct record_in;
struct new_messages *new_messages_read(struct record_in texts, uint32_t n, const struct matcher *mt,
                                       atomic_size_t *sum);

/* Makes the node of an answer's message, for its checkpoint, with the hash by which its echoes are
 * found (forest_hang_answer). Returns NULL as above. */
struct new_messages *new_answer_make(const struct json *message, const struct matcher *mt,
                                     atomic_size_t *sum);

/* Makes the node from an answer's JSON, as stored in a record. Leaves `texts` empty. */
struct new_messages *new_answer_read(struct str text, const struct matcher *mt, atomic_size_t *sum);

/* Returns the texts of the last k messages. */
struct str new_messages_texts(const struct new_messages *m, uint32_t k);

/* Accepts NULL. */
void new_messages_free(struct new_messages *m);

/* Messages of a call's answers (new_answer_make, new_answer_read): of the call that is recorded
 * (plan.h), or of a record that is read back (session_texts.h). */
struct ready_answers {
    uint32_t n;
    struct new_messages *at[]; /* own; NULL: the message is short, or was not made */
};

/* Makes the list for n answers, without messages. */
struct ready_answers *ready_answers_new(uint32_t n);

/* Returns the prepared message of an answer, or NULL if there is none. `all` may be NULL. */
struct new_messages *ready_answers_get(const struct ready_answers *all, uint32_t answer);

/* Accepts NULL. */
void ready_answers_free(struct ready_answers *all);

#endif
