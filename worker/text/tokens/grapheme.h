/*
 * Grapheme clusters: what a reader considers one character (extended clusters of Unicode's annex
 * 29). Pure.
 */
#ifndef RG_TOKENS_GRAPHEME_H
#define RG_TOKENS_GRAPHEME_H

#include <stddef.h>

#include "common/base/str.h"

/* Returns the length of the cluster at `at` in valid UTF-8. `at` must be < text.len and the start
 * of a cluster. */
size_t grapheme_len(struct str text, size_t at);

#endif
