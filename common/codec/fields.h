/*
 * Reads the fields of a JSON object that a client of the control plane sent. Every error is
 * ERR_INVALID. Its text has the field's name, the value and the allowed values.
 *
 * struct field_reader reads one object field by field. If a field is absent or null, *ret keeps the
 * caller's default. The functions fields_* return 0, or -1 and the error. The functions field_*
 * build the errors; readers by table (worker/plane/api/inputs.h) use them, too.
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
    const struct json *defaults; /* values of fields that the body does not have; or NULL */
    const char *where;           /* prefix of the names in errors; "" or NULL: no prefix */
    struct err *e;
};

/* Refuses a member of the body that is not one of the n known names. The error names the nearest
 * known name. `of` is the object's own name, "" for the body. Returns -1 for the first unknown
 * member. */
int fields_known(struct field_reader *f, const char *of, const char *const known[], size_t n);

/* Reads an integer from min to max. */
int fields_integer(struct field_reader *f, const char *name, int64_t min, int64_t max,
                   int64_t *ret);

/* Reads a finite number from min to max. An infinite bound means no limit. */
int fields_number(struct field_reader *f, const char *name, double min, double max, double *ret);

/* Reads one of n words. Sets *ret to the index of the word. */
int fields_word(struct field_reader *f, const char *name, const char *const words[], size_t n,
                unsigned *ret);

/* Reads a string of at most max bytes. *ret points into the body. */
int fields_text(struct field_reader *f, const char *name, size_t max, struct str *ret);

int fields_bool(struct field_reader *f, const char *name, bool *ret);

/* Checks that the field is an object, absent or null. */
int fields_object(struct field_reader *f, const char *name);

/* Checks that all members of `labels` are strings or numbers. Accepts a value that is not an
 * object: fields_object refuses that one. */
int fields_labels(struct field_reader *f, const struct json *labels);

/* Fails with ERR_INVALID and the field's name, followed by the formatted text. Returns -1. */
int fields_fault(struct field_reader *f, const char *name, const char *fmt, ...) RG_PRINTF(3, 4);

/* Fails with the field's name, "must be ALLOWED, not VALUE". Returns -1. */
int fields_bad(struct field_reader *f, const char *name, const struct json *v, const char *allowed);

/* A value as an error shows it. Numbers and strings are cut to whole characters. Other kinds are
 * named. */
struct field_shown {
    char text[64];
};

/* Writes a field's name as the client spelt it, cut to whole characters. Returns ret->text. */
const char *field_show_name(struct str name, struct field_shown *ret);

/* Fails with "NAME must be ALLOWED, not VALUE". Returns -1. */
int field_bad(const char *name, const struct json *v, const char *allowed, struct err *e);

/* Fails with: unknown WHAT "PATH" (did you mean "NEAR"?). Known: NAMES. `near` may be NULL. If
 * `known` is empty, the error says that the request has no such fields. Returns -1. */
int field_unknown(const char *what, const char *path, const char *near, struct str known,
                  struct err *e);

#endif
