/*
 * Alignment is two walks over the ids. From the front each entry gets the leftmost possible
 * position, from the back the rightmost. If both are the same, that is the only one. If they
 * differ, the entry could belong to several tokens, and guessing would give a token the logprob of
 * a different one.
 */
#include "worker/engine/wire/entries.h"

#include <math.h>

/* Finds the leftmost position of each, in order. Returns -1 if an entry has none. */
static int align_left(struct entries *e, const int32_t *ids, size_t n)
{
    size_t at = 0;

    for (size_t k = 0; k < e->n; k++) {
        while (at < n && ids[at] != e->at[k].id)
            at++;
        if (at == n)
            return -1;
        e->at[k].at = (uint32_t)at++;
    }
    return 0;
}

int entries_align(struct entries *e, const int32_t *ids, size_t n)
{
    size_t at = n;

    if (align_left(e, ids, n) < 0)
        return -1;
    /* Finds the rightmost position. If it differs, either could be right. */
    for (size_t k = e->n; k-- > 0;) {
        while (ids[at - 1] != e->at[k].id)
            at--;
        at--;
        if (e->at[k].at != at)
            e->at[k].at = ENTRY_NOWHERE;
    }
    return 0;
}

bool entry_computed(const struct logprob_item *e)
{
    return e->listed ? e->n_top > 0 : e->valued && e->logprob != 0;
}

bool logprob_stands_in(float logprob)
{
    static const float vllm = -9999.0F, llamacpp = -1e38F;

    return logprob == vllm || logprob <= llamacpp;
}

/* Sums of floats may be slightly above 0. Servers that are set up to return logits use the same
 * fields, and only values above that show it. */
const char *logprob_fault(float logprob)
{
    static const float most = 0.01F;

    if (isnan(logprob))
        return "a logprob is null or no number";
    if (isinf(logprob))
        return "a logprob is out of range";
    if (logprob_stands_in(logprob))
        return "a logprob is what the engine writes for none";
    return logprob > most ? "a logprob is above 0, as logits are" : NULL;
}
