/*
 * struct shared_answers: long answers that wait to be read, one copy of each for all connections. A
 * recorded answer that is requested again and again, and never read, takes its bytes once. Answers
 * are compared by their bytes, so their origin does not matter.
 *
 * A zeroed struct is an empty set; it is empty again when all answers are dropped.
 */
#ifndef RG_SERVE_SHARED_ANSWER_H
#define RG_SERVE_SHARED_ANSWER_H

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/str.h"

/* The comparison costs about a tenth of a microsecond a kilobyte. For shorter answers it does not
 * pay; for longer ones it would delay others, and only few of these fit into what may wait for a
 * session. */
enum { SHARED_ANSWER_LEAST = 64 << 10, SHARED_ANSWER_MOST = 8 << 20 };

struct shared_answer;

struct shared_answers {
    struct map by_hash;
    size_t bytes; /* sum of all answers, each counted once */
};

/* Takes what `bytes` holds, which is empty then: an equal answer that is there already is given
 * instead. The caller has a share in it until shared_answer_drop. */
struct shared_answer *shared_answer_add(struct shared_answers *all, struct buf *bytes);

/* Gives the share up; the last one frees the answer. a may be NULL. */
void shared_answer_drop(struct shared_answers *all, struct shared_answer *a);

/* Valid until the caller gives its share up (shared_answer_drop). */
struct str shared_answer_bytes(const struct shared_answer *a);

#endif
