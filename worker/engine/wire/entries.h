/*
 * struct entries: logprobs that come as a list of entries beside the ids, with fewer entries than
 * ids: an engine may leave out what it did not compute (llama.cpp: tokens of a draft, tokens within
 * a character, those of a stop word). An entry carries its token's id, by which it finds its place.
 * Filled while an answer is read, then aligned once. Pure.
 */
#ifndef RG_WIRE_ENTRIES_H
#define RG_WIRE_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct logprob_item {
    int32_t id;    /* -1: not returned */
    float logprob; /* NaN: not returned, or not a number */
    bool valued;   /* there was something in the place of its logprob */
    bool listed;   /* a list of alternatives came with it */
    size_t top_at; /* the first of them in the owner's arrays */
    size_t n_top;  /* how many came */
    uint32_t at;   /* set by entries_align: the position, or ENTRY_NOWHERE */
};

enum { ENTRY_NOWHERE = UINT32_MAX };

struct entries {
    struct logprob_item *at;
    size_t n, cap;
};

/* Gives each entry the one position among the n ids that it can belong to, all in order. An entry
 * that could belong to several gets ENTRY_NOWHERE. Returns -1 when they do not fit the ids. */
int entries_align(struct entries *e, const int32_t *ids, size_t n);

/* Reports whether the engine computed the value: alternatives were requested, so an empty list of
 * them shows that it did not, and 0 without any list is not a value either. */
bool entry_computed(const struct logprob_item *e);

/* Whether it is what an engine writes where it has no finite logprob: -9999 (vLLM) and the least
 * float (llama.cpp). JSON has no -inf. */
bool logprob_stands_in(float logprob);

/* Returns what is wrong with the logprob of an engine's token; NULL: nothing. */
const char *logprob_fault(float logprob);

#endif
