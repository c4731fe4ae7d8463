/*
 * One answer of a record -> a checkpoint that stands nowhere yet: of a commit (apply.c), and of
 * answers that were recorded before theirs (answers_ahead.c).
 */
#ifndef RG_SESSION_TAKE_ANSWER_H
#define RG_SESSION_TAKE_ANSWER_H

#include <stddef.h>
#include <stdint.h>

struct arena;
struct checkpoint;
struct commit_answer;
struct err;
struct payload;

/* Fills in what the answer tells; flags are its record's. What is kept is copied into the arena. *t
 * is zeroed before. Returns -1 and e if it makes no sense. */
int take_answer(struct checkpoint *t, const struct commit_answer *a, unsigned flags,
                struct arena *own, struct err *e);

/* Its bulk lies in the payload from byte `at` on. Returns where the next one's does. */
size_t take_bulk(struct checkpoint *t, struct payload *payload, size_t at);

/* The largest of n ids and `top`. */
uint32_t take_top(uint32_t top, const int32_t *ids, size_t n);

#endif
