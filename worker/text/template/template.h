/*
 * struct template: a chat template (Jinja as transformers sets it up). It is compiled once into an
 * immutable tree that forked processes share. Rendering allocates only from the caller's arena.
 *
 * Semantics are those of jinja2 3.1 in transformers' immutable sandbox: trim_blocks, lstrip_blocks,
 * loop controls, the `generation` tag, tojson = json.dumps, raise_exception, strftime_now, Python
 * printing. include, import and extends fail when they are reached, as in transformers (no loader).
 * Pure: no I/O, no log, no clock; the caller gives the time.
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

/* Why a template failed, in jinja2's terms. After a rendering, the strings are in its arena. After
 * a failed compilation they are static or inside the struct. */
struct template_error {
    const char *kind; /* "TemplateError", "UndefinedError", "TypeError", ...; NULL: no error */
    struct str message;
    uint32_t line;  /* line in the template; 0: unknown */
    char text[256]; /* storage for the message of a compile error */
};

/* Zero means the default of a field. */
struct template_options {
    const struct tm *now;        /* local time for strftime_now; NULL: strftime_now fails */
    bool continue_final_message; /* cut the output after the last message's content */
    /* cut after this field of the message instead, e.g. reasoning_content */
    struct str continue_field;
    uint64_t max_steps;           /* limit of evaluated nodes; default 50 million */
    size_t max_output_bytes;      /* default 256 MiB */
    size_t max_memory_bytes;      /* limit of the arena; default 1 GiB */
    uint32_t max_depth;           /* limit of nested calls and expressions; default 800 */
    struct template_error *error; /* filled on failure; or NULL */
    uint64_t *ret_steps;          /* set to the steps that were taken; or NULL */
};

/* Compiles source. `name` is for messages ("chat template") and is copied. Fails with ERR_INVALID,
 * line and cause. detail may be NULL. */
int template_compile(struct str source, const char *name, struct template **ret,
                     struct template_error *detail, struct err *e);
void template_free(struct template *t);

/* Renders with the context's members as variables and appends to out. On error nothing is appended,
 * and e (ERR_INVALID) has template line, kind and cause. */
int template_render(const struct template *t, struct arena *a, const struct json *context,
                    const struct template_options *o, struct buf *out, struct err *e);

/* Reports whether the template reads a variable, attribute or string constant of this name
 * anywhere. The model layer uses it for kwargs such as "enable_thinking". */
bool template_mentions(const struct template *t, const char *name);

/* Returns the source as given. It lives as long as the template. */
struct str template_source(const struct template *t);

#endif
