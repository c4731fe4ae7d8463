/*
 * struct template: a chat template (Jinja as transformers sets it up), compiled once into an
 * immutable tree that forked processes share; rendering allocates from the caller's arena only.
 *
 * Semantics are those of jinja2 3.1 in transformers' immutable sandbox: trim_blocks,
 * lstrip_blocks, loop controls, the `generation` tag, tojson = json.dumps, raise_exception,
 * strftime_now, Python printing. include, import and extends fail when they are reached, as they
 * do there (no loader). Pure: no I/O, no log, no clock; the caller brings the time.
 */
#ifndef RG_TEMPLATE_TEMPLATE_H
#define RG_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"
#include "common/codec/json.h"

struct template;

/* Why a template failed, in the reference's terms. The strings live in the arena of the render,
 * or, after a failed compile, are static or inside the struct. */
struct template_error {
    const char *kind; /* "TemplateError", "UndefinedError", "TypeError", ...; NULL: no error */
    struct str message;
    uint32_t line;  /* line in the template; 0: unknown */
    char text[256]; /* storage of a compile error's message */
};

/* Zero means the default. */
struct template_options {
    const struct tm *now;         /* local time for strftime_now; NULL: the call fails */
    bool continue_final_message;  /* cut the output after the last message's content */
    struct str continue_field;    /* or after this field of it, e.g. reasoning_content */
    uint64_t max_steps;           /* nodes evaluated; default 50 million */
    size_t max_output_bytes;      /* default 256 MiB */
    size_t max_memory_bytes;      /* limit of the arena; default 1 GiB */
    uint32_t max_depth;           /* nested calls and expressions; default 800 */
    struct template_error *error; /* filled on failure when given */
};

/* Compiles source; `name` is for messages ("chat template") and is copied. e: ERR_INVALID with
 * line and cause. detail may be NULL. */
int template_compile(struct str source, const char *name, struct template **ret,
                     struct template_error *detail, struct err *e);
void template_free(struct template *t);

/* Renders with the context's members as variables and appends to out. On error nothing is
 * appended and e (ERR_INVALID) names template line, kind and cause. */
int template_render(const struct template *t, struct arena *a, const struct json *context,
                    const struct template_options *o, struct buf *out, struct err *e);

/* Whether the template reads a variable, attribute or string constant of this name anywhere; the
 * model layer asks it about kwargs such as "enable_thinking". */
bool template_mentions(const struct template *t, const char *name);

/* The source as given; lives as long as the template. */
struct str template_source(const struct template *t);

#endif
