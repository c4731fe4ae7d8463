/*
 * The engine reports the best tokens before sampling. This file does what samplers do with them:
 * divide by the temperature, keep top-k, top-p, min-p, and normalise. Weights are relative to the
 * best token's, so nothing overflows.
 *
 * Tokens that were not reported count in the sum, too. untold() bounds their possible weight. If
 * that is more than 1 in 100000, the result would not be accurate, and more tokens are requested
 * (SCORE_WIDER).
 */
#include "worker/engine/wire/processed.h"

#include <math.h>

#include "common/codec/sampling.h"
#include "worker/engine/wire/scoring.h"

#define SURE 1e-5 /* largest weight of unreported tokens, as a fraction of the whole */

/* Returns the largest weight that the unreported tokens can have together after temperature. The
 * best token weighs 1. */
static double untold(const struct processed *p)
{
    const struct json_floats *l = &p->logprobs;
    double t = p->sampling->temperature, mass = 1;
    double others = (double)p->vocab_size - (double)l->n;

    if (p->vocab_size > 0 && others <= 0)
        return 0;
    for (size_t i = 0; i < l->n; i++)
        mass -= exp((double)l->at[i]);
    mass = mass > 1e-7 ? mass : 1e-7; /* sums of floats are not more accurate */
    /* no unreported token is more likely than the last reported one */
    if (t <= 1)
        return mass * exp((double)l->at[l->n - 1] * (1 / t - 1) - (double)l->at[0] / t);
    if (p->vocab_size == 0)
        return HUGE_VAL;
    return others * exp((log(mass / others) - (double)l->at[0]) / t);
}

static double weight(const struct processed *p, double logprob)
{
    return exp((logprob - (double)p->logprobs.at[0]) / p->sampling->temperature);
}

/* Returns how many of the n best tokens, whose weights sum up to `sum`, top-p keeps. */
static size_t cut_top_p(const struct processed *p, size_t n, double sum)
{
    double so_far = 0;

    for (size_t i = 0; i < n; i++) {
        so_far += weight(p, (double)p->logprobs.at[i]);
        if (so_far >= p->sampling->top_p * sum)
            return i + 1;
    }
    return n;
}

static double sum_of(const struct processed *p, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += weight(p, (double)p->logprobs.at[i]);
    return sum;
}

int processed_logprob(const struct processed *p, float *ret)
{
    const struct sampling *s = p->sampling;
    size_t n = p->logprobs.n, summed;
    float own = p->own;
    double rest, sum;

    if (sampling_bends_logits(s) || n == 0)
        return SCORE_NONE;
    if (s->temperature <= 0) { /* always the best token */
        *ret = 0;
        return own >= p->logprobs.at[0] ? SCORE_FOUND : SCORE_NONE;
    }
    rest = untold(p);
    if (s->top_k > 0 && (uint64_t)s->top_k <= n) {
        n = (size_t)s->top_k;
        rest = 0;
    }
    sum = sum_of(p, n);
    if (rest > SURE * sum)
        return SCORE_WIDER;
    summed = n;
    if (s->top_p < 1)
        n = cut_top_p(p, n, sum);
    while (n > 1 && weight(p, (double)p->logprobs.at[n - 1]) < s->min_p)
        n--;
    if (n < p->logprobs.n && own < p->logprobs.at[n - 1])
        return SCORE_NONE;
    if (n < summed)
        sum = sum_of(p, n);
    *ret = (float)log(weight(p, (double)own) / sum);
    return isfinite(*ret) ? SCORE_FOUND : SCORE_NONE;
}
