/*
 * struct normalizer: the "normalizer" of a tokenizer.json as a flat list of steps. Read-only after
 * parsing.
 *
 * `head` is kept with a text: the number of its leading bytes that the library would align to
 * offset 0 of the original text. Metaspace with the scheme "first" needs it.
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

/* Parses the steps. v NULL or null: no steps. On error n is as after normalizer_done. */
int normalizer_parse(struct normalizer *n, const struct json *v, struct err *e);
void normalizer_done(struct normalizer *n);

/* Reports whether the only effect is at most composing characters (NFC). */
bool normalizer_only_composes(const struct normalizer *n);

/* Calls `see` with each pattern of the steps, for notes about the patterns' engines. */
struct pattern;
void normalizer_patterns(const struct normalizer *n, void (*see)(void *, const struct pattern *),
                         void *arg);

struct normalizer_scratch {
    struct buf bufs[2];
    struct regex_scratch *regex; /* borrowed; all steps use its budget */
};

void normalizer_scratch_done(struct normalizer_scratch *s);

/* *text becomes the normalized text: itself if nothing changes, else a view into s that lives until
 * the next call. *head is kept up to date. Returns -1 if the budget is exhausted; the error names
 * the step. */
int normalizer_apply(const struct normalizer *n, struct normalizer_scratch *s, struct str *text,
                     size_t *head, struct err *e);

#endif
