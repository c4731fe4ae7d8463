/*
 * struct shared_answers: long answers that wait to be read, with one copy of each for all
 * connections. If a client requests the same recorded answer many times and reads none, the answer
 * uses its memory only once. Answers are compared by their bytes, so their origin does not matter.
 *
 * A zeroed struct is an empty set. It is empty again when all shares are dropped.
 */
#ifndef RG_SERVE_SHARED_ANSWER_H
#define RG_SERVE_SHARED_ANSWER_H

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/str.h"

/* Range of shared sizes. The comparison costs about a tenth of a microsecond per kilobyte. Shorter
 * answers are not worth it. Longer ones would delay others, and only few of these are within the
 * limit of a session's waiting bytes. */
enum { SHARED_ANSWER_LEAST = 64 << 10, SHARED_ANSWER_MOST = 8 << 20 };

struct shared_answer;

struct shared_answers {
    struct map by_hash;
    size_t bytes; /* sum of all answers, each counted once */
};

/* Takes ownership of the content of `bytes`, which is empty then. If an equal answer exists,
 * returns that one. The caller has a share in the answer until shared_answer_drop. */
struct shared_answer *shared_answer_add(struct shared_answers *all, struct buf *bytes);

/* Ends the caller's share; the last share frees the answer. a may be NULL. */
void shared_answer_drop(struct shared_answers *all, struct shared_answer *a);

/* Returns bytes that are valid until shared_answer_drop. */
struct str shared_answer_bytes(const struct shared_answer *a);

#endif
