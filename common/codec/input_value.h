/*
 * Kinds of values in requests of the control plane. The tables that requests are checked against
 * (worker/plane/api/inputs.def, common/codec/session_options.def) name these kinds. Pure.
 */
#ifndef RG_CODEC_INPUT_VALUE_H
#define RG_CODEC_INPUT_VALUE_H

#include <stdbool.h>

#include "common/base/arena.h"
#include "common/base/err.h"

struct json;

enum input_kind {
    INPUT_KIND_BOOL,     /* true, false */
    INPUT_KIND_SWITCH,   /* true, false, on, off, 1, 0 */
    INPUT_KIND_INTEGER,  /* min to max */
    INPUT_KIND_NUMBER,   /* min to max */
    INPUT_KIND_TEXT,     /* min to max bytes */
    INPUT_KIND_NAME,     /* one of choices */
    INPUT_KIND_OBJECT,   /* any members */
    INPUT_KIND_LOCKS,    /* a list of names of sampling parameters */
    INPUT_KIND_PREFER,   /* an object whose member "engine" is a text */
    INPUT_KIND_SCORES,   /* a list of objects (worker/session/record/score.h reads them) */
    INPUT_KIND_PICTURES, /* a list of objects (worker/plane/control/import_pictures.h reads them) */
    INPUT_KIND_URLS,     /* a list of objects (worker/plane/control/import_pictures.h reads them) */
    INPUT_KIND_REPORTS,  /* a list of objects (worker/plane/control/logprobs.c reads them) */
    INPUT_KIND_LABELS,   /* an object of texts and numbers */
    INPUT_KIND_SAMPLING, /* an object of sampling parameters */
    INPUT_KIND_PARAMETER, /* the sampling parameter that has the rule's name */
    INPUT_KIND_WEIGHTS,   /* a version of weights: an integer from 0, a text or null */
    INPUT_KIND_TEXTS,     /* a list of at most max texts that are not empty */
    INPUT_KIND_FILTER,    /* NAME=VALUE or NAME */
    INPUT_KIND_HIDDEN,    /* a value that workers send each other; not listed for clients */
};

struct input_rule {
    const char *name;
    enum input_kind kind;
    double min, max;
    const char *choices; /* allowed values of INPUT_KIND_NAME, as "a, b" */
};

/* Checks a value against a rule. A null value is accepted. `as_text`: a number may be a text,
 * because the value comes from a query. Returns 0, or -1 and ERR_INVALID with the rule's name.
 * Errors of sampling parameters have the parameter's name. */
int input_value_check(struct arena *a, const struct input_rule *in, const struct json *v,
                      bool as_text, struct err *e);

#endif
