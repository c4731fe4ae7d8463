/*
 * Grapheme clusters: what a reader takes for one character (extended clusters of Unicode's annex
 * 29). Pure.
 */
#ifndef RG_TOKENS_GRAPHEME_H
#define RG_TOKENS_GRAPHEME_H

#include <stddef.h>

#include "common/base/str.h"

/* Bytes of the cluster that begins at `at` of valid UTF-8; at < text.len, at a cluster's start. */
size_t grapheme_len(struct str text, size_t at);

#endif
