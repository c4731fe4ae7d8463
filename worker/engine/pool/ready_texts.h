/*
 * struct ready_texts: values of a request that are long, as JSON text. They are the client's, and
 * each answer and each try at an engine sends them once more: they are written once, before
 * the engines are asked and maybe in a helper, and the wires put the text where the value would
 * stand, without a copy.
 */
#ifndef RG_ENGINE_READY_TEXTS_H
#define RG_ENGINE_READY_TEXTS_H

#include <stddef.h>

#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct arena;
struct json;
struct json_out;
struct sampling;

/* Shorter values are written with the rest of a request. */
enum { READY_LEAST = 4 << 10, READY_MAX = 8 };

struct ready_text {
    const void *of;    /* the value: a struct json, or a string's bytes */
    struct str text;   /* its JSON */
    struct str quoted; /* a schema as a JSON string that has that JSON; else absent */
};

struct ready_texts {
    struct ready_text at[READY_MAX];
    size_t n;
};

/* Adds what is long of these; texts lie in the arena. `banned`: as of ready_bias_write. Reads
 * nothing else: on any thread. */
void ready_texts_make(struct ready_texts *r, struct arena *a, const struct sampling *s,
                      struct token_span banned);

/* The value's; NULL: it was not made. `r` may be NULL. */
const struct ready_text *ready_texts_of(const struct ready_texts *r, const void *of);

/* Writes a logit_bias, whose ids are looked at one by one: what was given (or NULL), and -100 for
 * each of `banned`. */
void ready_bias_write(struct json_out *o, const struct json *given, struct token_span banned);

#endif
