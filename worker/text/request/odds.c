/*
 * The block, in words of 32 bits:
 *
 *   n_top | flags | n_ids | top_ids     top_logprobs | counts | ids    logprobs
 *                           n * n_top   n * n_top      n        n_ids  n_ids
 *
 * The flags say whether the last three are present. Reading copies nothing: the arrays point into
 * the block. So its length must be exact, and counts must be positive and sum up to n_ids. The
 * block does not contain the number of tokens, which its owner stores.
 */
#include "worker/text/request/odds.h"

#include <string.h>

enum { HEAD_WORDS = 3, HAS_SUPPORT = 1, HAS_LOGPROBS = 2 };

static const size_t WORD = 4;

static unsigned flags_of(const struct odds_support *s)
{
    if (!s->counts)
        return 0;
    return s->logprobs ? HAS_SUPPORT | HAS_LOGPROBS : HAS_SUPPORT;
}

static size_t words_of(uint64_t n, uint64_t tops, unsigned flags, uint64_t n_ids)
{
    return HEAD_WORDS + 2 * tops + (flags & HAS_SUPPORT ? n + n_ids : 0) +
           (flags & HAS_LOGPROBS ? n_ids : 0);
}

size_t odds_bytes(const struct odds *o)
{
    return WORD * words_of(o->n, (uint64_t)o->n * o->n_top, flags_of(&o->support),
                           o->support.counts ? o->support.n_ids : 0);
}

static char *put_words(char *to, const void *p, size_t words)
{
    if (words > 0)
        memcpy(to, p, words * WORD);
    return to + words * WORD;
}

void odds_begin(const struct odds *o, char *block, int32_t **ret_ids, float **ret_logprobs)
{
    const struct odds_support *s = &o->support;
    uint32_t head[HEAD_WORDS] = {o->n_top, flags_of(s), s->counts ? (uint32_t)s->n_ids : 0};
    size_t tops = (size_t)o->n * o->n_top;
    char *to = put_words(block, head, HEAD_WORDS);

    *ret_ids = (void *)to;
    *ret_logprobs = (void *)(to + tops * WORD);
    to += 2 * tops * WORD;
    if (!s->counts)
        return;
    to = put_words(put_words(to, s->counts, o->n), s->ids, s->n_ids);
    if (s->logprobs)
        (void)put_words(to, s->logprobs, s->n_ids);
}

static int32_t word_at(const char *p, size_t i)
{
    int32_t v;

    memcpy(&v, p + i * WORD, sizeof(v));
    return v;
}

/* Checks that the counts are positive and that their sum is the number of ids. */
static bool counts_fit(const char *counts, uint32_t n, uint64_t n_ids)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        int32_t c = word_at(counts, i);

        if (c < 1)
            return false;
        sum += (uint64_t)c;
    }
    return sum == n_ids;
}

int odds_read(struct str block, uint32_t n, struct odds *ret)
{
    uint32_t flags;
    uint64_t tops, words, n_ids;
    const char *p = block.p;

    *ret = (struct odds){.n = n};
    if (block.len < HEAD_WORDS * WORD)
        return -1;
    ret->n_top = (uint32_t)word_at(p, 0);
    flags = (uint32_t)word_at(p, 1);
    n_ids = (uint32_t)word_at(p, 2);
    tops = (uint64_t)n * ret->n_top;
    words = words_of(n, tops, flags, n_ids);
    if (flags > (HAS_SUPPORT | HAS_LOGPROBS) || flags == HAS_LOGPROBS || tops > block.len ||
        words * WORD != block.len)
        return -1;
    p += HEAD_WORDS * WORD;
    ret->top_ids = tops ? (const void *)p : NULL;
    ret->top_logprobs = tops ? (const void *)(p + tops * WORD) : NULL;
    p += 2 * tops * WORD;
    if (!(flags & HAS_SUPPORT))
        return n_ids == 0 ? 0 : -1;
    if (!counts_fit(p, n, n_ids))
        return -1;
    ret->support.counts = (const void *)p;
    ret->support.ids = (const void *)(p + (size_t)n * WORD);
    ret->support.logprobs = flags & HAS_LOGPROBS ? (const void *)(p + (n + n_ids) * WORD) : NULL;
    ret->support.n_ids = n_ids;
    return 0;
}
