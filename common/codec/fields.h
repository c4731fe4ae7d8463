/*
 * Reads the fields of a JSON object from a client of the control plane. Every error is ERR_INVALID
 * and contains the field's name, its value and what is allowed.
 *
 * struct field_reader reads one object field by field. A field that is absent or null keeps what
 * the caller had. The functions field_* make the errors; readers by table
 * (worker/plane/api/inputs.h) use them, too.
 */
#ifndef RG_CODEC_FIELDS_H
#define RG_CODEC_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/base/str.h"

struct json;

struct field_reader {
    const struct json *body;
    const struct json *defaults; /* for what the body leaves out; or NULL */
    const char *where;           /* prefix of the names in errors; "" or NULL: none */
    struct err *e;
};

/* Refuses members that are not among the n known names, and names the nearest one. `of` is the
 * object's own name ("" for the body). Returns -1 for the first such member. */
int fields_known(struct field_reader *f, const char *of, const char *const known[], size_t n);

/* An integer from min to max. */
int fields_integer(struct field_reader *f, const char *name, int64_t min, int64_t max,
                   int64_t *ret);

/* A finite number from min to max (infinities: no limit). */
int fields_number(struct field_reader *f, const char *name, double min, double max, double *ret);

/* One of n words; *ret becomes its place. */
int fields_word(struct field_reader *f, const char *name, const char *const words[], size_t n,
                unsigned *ret);

/* A string of at most max bytes; *ret is borrowed from the tree. */
int fields_text(struct field_reader *f, const char *name, size_t max, struct str *ret);

int fields_bool(struct field_reader *f, const char *name, bool *ret);

/* An object, or absent, or null. */
int fields_object(struct field_reader *f, const char *name);

/* `labels` has strings and numbers only; other kinds than an object are left to fields_object. */
int fields_labels(struct field_reader *f, const struct json *labels);

/* ERR_INVALID for this field; returns -1. */
int fields_fault(struct field_reader *f, const char *name, const char *fmt, ...) RG_PRINTF(3, 4);

/* A value as errors show it: numbers and strings cut to whole characters, other kinds by name. */
struct field_shown {
    char text[64];
};

/* The name of a field as a client spelt it, cut to whole characters. */
const char *field_show_name(struct str name, struct field_shown *ret);

/* "NAME must be ALLOWED, not VALUE". Returns -1. */
int field_bad(const char *name, const struct json *v, const char *allowed, struct err *e);

/* "unknown WHAT "PATH" (did you mean "NEAR"?). Known: NAMES". near may be NULL; known may be
 * empty. Returns -1. */
int field_unknown(const char *what, const char *path, const char *near, struct str known,
                  struct err *e);

#endif
