/*
 * struct entries: logprobs as a list of entries next to the ids, perhaps with fewer entries than
 * ids: an engine may leave out what it did not compute (llama.cpp: tokens of a draft, tokens within
 * a character, those of a stop word). An entry has its token's id, by which its position is found.
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
    bool valued;   /* the entry had a value for the logprob */
    bool listed;   /* the entry had a list of alternatives */
    size_t top_at; /* index of the first alternative in the owner's arrays */
    size_t n_top;  /* number of alternatives */
    uint32_t at;   /* set by entries_align: the position, or ENTRY_NOWHERE */
};

enum { ENTRY_NOWHERE = UINT32_MAX };

struct entries {
    struct logprob_item *at;
    size_t n, cap;
};

/* Gives each entry the only position among the n ids to which it can belong, with all entries in
 * order. An entry that could belong to several gets ENTRY_NOWHERE. Returns -1 if the entries do not
 * fit the ids. */
int entries_align(struct entries *e, const int32_t *ids, size_t n);

/* Reports whether the engine computed the value. Alternatives were requested, so an empty list
 * shows that it did not; 0 without a list is not a value either. */
bool entry_computed(const struct logprob_item *e);

/* Reports whether the value is a placeholder for a logprob that is not finite: -9999 (vLLM) or the
 * least float (llama.cpp). JSON has no -inf. */
bool logprob_stands_in(float logprob);

/* Returns what is wrong with the logprob of an engine's token; NULL: nothing. */
const char *logprob_fault(float logprob);

#endif
