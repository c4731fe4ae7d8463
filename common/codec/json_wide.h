/*
 * Long arrays read many items at a time by AVX2: first the places of the commas in some hundred
 * bytes, then the items between them, which no longer wait for one another. Reads what json_quick.h
 * reads, and gives the same values. Internal to json_scan_bulk.c.
 *
 * Each call begins with the item that stands at *p, one space before it included, reads items with
 * a comma behind them, moves *p behind the last one's comma and returns their number: 0 when the
 * next item is not plainly of the shape, or too little is left before `end`. The eight bytes before
 * *p must be readable.
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

/* Whether this processor can. */
bool json_wide_able(void);

/* Ids of at most eight digits. */
size_t json_wide_ints(const char **p, const char *end, int32_t *ids);

/* Logprobs. */
size_t json_wide_floats(const char **p, const char *end, float *logprobs);

/* [logprob,id,null] */
size_t json_wide_triples(const char **p, const char *end, float *logprobs, int32_t *ids);

#endif
