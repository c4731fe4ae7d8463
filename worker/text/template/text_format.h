/*
 * Python's two ways of formatting text: "..." % values, and str.format with its specifications.
 */
#ifndef RG_TEMPLATE_TEXT_FORMAT_H
#define RG_TEMPLATE_TEXT_FORMAT_H

#include "worker/text/template/run.h"
#include "worker/text/template/value.h"

/* Formats text % arg. */
struct value format_percent(struct template_run *r, struct value text, struct value arg);

/* Formats text.format(*args, **named). */
struct value format_braces(struct template_run *r, struct value text, struct value args,
                           struct value named);

/* A format specification, parsed or constructed; 0 for characters that are not given. */
struct format_spec {
    struct str fill; /* absent: a space */
    char align;      /* one of < > ^ = */
    char sign;       /* one of + - and space */
    char grouping;   /* one of , and _ */
    char type;
    bool alternate, zero;
    bool percent;             /* for text % values, where integers may have a precision */
    int64_t width, precision; /* -1: not given */
};

/* Appends one formatted value. Returns false with the exception set. */
bool format_value(struct template_run *r, struct buf *out, struct value v,
                  const struct format_spec *s);

#endif
