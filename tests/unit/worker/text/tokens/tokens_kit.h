/*
 * What the tokenizer tests share: reading files, loading, encoding to a vector.
 */
#ifndef RG_UNIT_TOKENS_KIT_H
#define RG_UNIT_TOKENS_KIT_H

#include <stdio.h>
#include <stdlib.h>

#include "file_text.h"
#include "testing.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

static inline struct buf kit_file(const char *path)
{
    struct buf b = {0};

    cr_assert(file_bytes(path, &b), "%s", path);
    return b;
}

static inline struct tokenizer *kit_parse(const char *json)
{
    struct tokenizer *t = NULL;
    struct err e = {0};

    cr_assert_eq(tokenizer_parse(str_cstr(json), &t, &e), 0, "%s", e.text);
    return t;
}

static inline struct tokenizer *kit_tiny(const char *name)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    char path[512];

    snprintf(path, sizeof(path), "%s/tokens/tiny-%s/tokenizer.json", RG_TEST_DATA, name);
    cr_assert_eq(tokenizer_load(path, &t, &e), 0, "%s", e.text);
    return t;
}

static inline struct token_vec kit_encode(struct encoder *enc, struct str text, bool special)
{
    struct token_vec ids = {0};
    struct err e = {0};

    cr_assert_eq(encoder_encode(enc, text, special, &ids, &e), 0, "%s", e.text);
    return ids;
}

/* Returns a pseudo-random number below `below`. The sequence is the same in every run. */
static inline unsigned kit_random(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

#endif
