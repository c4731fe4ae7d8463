/*
 * Reads many items of a long array at a time, with AVX2. First it finds the commas in up to
 * JSON_WIDE_CHUNK bytes. Then it reads the items between them, which do not depend on each other.
 * It accepts the same items as json_quick.h, and gives the same values. Internal to
 * json_scan_bulk.c.
 *
 * Each call begins with the item at *p; one space may precede the item. It reads items that a comma
 * follows, moves *p to the byte after the last comma and returns their number. It returns 0 if the
 * next item has a different form, or if too few bytes remain before `end`. The eight bytes before
 * *p must be readable.
 */
#ifndef RG_CODEC_JSON_WIDE_H
#define RG_CODEC_JSON_WIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JSON_WIDE_CHUNK = 1024,                   /* most bytes that a call reads items from */
    JSON_WIDE_ITEMS = JSON_WIDE_CHUNK / 2 + 8 /* capacity that the caller must reserve */
};

/* Reports whether this processor has AVX2. */
bool json_wide_able(void);

/* Reads ids of at most eight digits. */
size_t json_wide_ints(const char **p, const char *end, int32_t *ids);

/* Reads logprobs. */
size_t json_wide_floats(const char **p, const char *end, float *logprobs);

/* Reads triples [logprob, id, null]. */
size_t json_wide_triples(const char **p, const char *end, float *logprobs, int32_t *ids);

#endif
