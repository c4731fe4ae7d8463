/*
 * Long arrays read many items at a time by AVX2: first the places of the commas in some hundred
 * bytes, then the items between them, which no longer wait for one another. Reads what json_quick.h
 * reads, and gives the same values. Internal to json_scan_bulk.c.
 *
 * Each call begins with the item at *p, which one space may precede. It reads items that a comma
 * follows, moves *p to the byte after the last comma and returns their number. It returns 0 if the
 * next item has another shape, or if too little is left before `end`. The eight bytes before *p
 * must be readable.
 */
#ifndef RG_CODEC_JSON_WIDE_H
#define RG_CODEC_JSON_WIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JSON_WIDE_CHUNK = 1024,                   /* bytes that a call looks at, at most */
    JSON_WIDE_ITEMS = JSON_WIDE_CHUNK / 2 + 8 /* what there must be room for */
};

/* Reports whether this processor has AVX2. */
bool json_wide_able(void);

/* Ids of at most eight digits. */
size_t json_wide_ints(const char **p, const char *end, int32_t *ids);

/* Reads logprobs. */
size_t json_wide_floats(const char **p, const char *end, float *logprobs);

/* Reads triples [logprob, id, null]. */
size_t json_wide_triples(const char **p, const char *end, float *logprobs, int32_t *ids);

#endif
