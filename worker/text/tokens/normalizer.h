/*
 * struct normalizer: the "normalizer" of a tokenizer.json as a flat list of steps. Read-only once
 * parsed.
 *
 * `head` travels with a text: how many of its leading bytes the library would align to offset 0 of
 * the original text. Metaspace with the scheme "first" asks for it.
 */
#ifndef RG_TOKENS_NORMALIZER_H
#define RG_TOKENS_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct json;
struct normalizer_step;
struct regex_scratch;

enum { NORMALIZER_STEPS_MAX = 256 };

struct normalizer {
    struct normalizer_step *at;
    size_t n, cap;
};

/* v NULL or null: no steps. On error n is as after normalizer_done. */
int normalizer_parse(struct normalizer *n, const struct json *v, struct err *e);
void normalizer_done(struct normalizer *n);

/* Whether it does nothing but, at most, compose characters (NFC). */
bool normalizer_only_composes(const struct normalizer *n);

/* Names of the patterns' engines for the notes: calls `see` with each pattern of the steps. */
struct pattern;
void normalizer_patterns(const struct normalizer *n, void (*see)(void *, const struct pattern *),
                         void *arg);

struct normalizer_scratch {
    struct buf bufs[2];
    struct regex_scratch *regex; /* borrowed; all steps draw on its budget */
};

void normalizer_scratch_done(struct normalizer_scratch *s);

/* *text becomes the normalized text: itself when nothing changes, else a view into s that lives
 * until the next call. *head is kept up to date. -1: the budget has run out; the error names the
 * step. */
int normalizer_apply(const struct normalizer *n, struct normalizer_scratch *s, struct str *text,
                     size_t *head, struct err *e);

#endif
