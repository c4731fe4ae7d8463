/*
 * struct ready_texts: long values of a request as JSON text. They come from the client, and each
 * answer and each attempt at an engine sends them again. So they are written once, before the
 * engines are called and perhaps in a helper, and the wires insert the text without a copy.
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

/* Shorter values are written together with the rest of a request. */
enum { READY_LEAST = 4 << 10, READY_MAX = 8 };

struct ready_text {
    const void *of;    /* the value that the text is of: a struct json, or a string's bytes */
    struct str text;   /* JSON of the value */
    struct str quoted; /* for a schema: a JSON string with that JSON as its content; else absent */
};

struct ready_texts {
    struct ready_text at[READY_MAX];
    size_t n;
};

/* Adds the long ones of these values. Texts are in the arena. `banned`: as in ready_bias_write.
 * Reads nothing else, so it may run on any thread. */
void ready_texts_make(struct ready_texts *r, struct arena *a, const struct sampling *s,
                      struct token_span banned);

/* Returns the text of the value; NULL: it was not made. `r` may be NULL. */
const struct ready_text *ready_texts_of(const struct ready_texts *r, const void *of);

/* Writes a logit_bias, checking each id: the given one (or NULL), and -100 for each of `banned`. */
void ready_bias_write(struct json_out *o, const struct json *given, struct token_span banned);

#endif
