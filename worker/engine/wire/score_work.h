/*
 * struct score_work: the probability that a token was sampled with (processed.h), of so many
 * alternatives that a helper computes it, while its scoring waits.
 */
#ifndef RG_WIRE_SCORE_WORK_H
#define RG_WIRE_SCORE_WORK_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/str.h"

struct engine_options;
struct processed;
struct score_work;

/* Whether so many alternatives take longer than the loop has. */
bool score_work_is_long(size_t n);

/* The pool has a helper. Takes over p's logprobs; *ret is there until `done`, on the loop, maybe
 * before this returns: with what processed_logprob says, or -1: the helper did not come to its
 * end. */
void score_work_begin(const struct engine_options *o, struct str session_id, struct processed *p,
                      void (*done)(void *ctx, int rc, float logprob), void *ctx,
                      struct score_work **ret);

/* It is given up. NULL is fine. */
void score_work_drop(struct score_work *w);

#endif
