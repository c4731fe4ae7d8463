/*
 * JSON (RFC 8259), read strictly into an arena as a tree that keeps what the text said.
 * - Numbers keep their text (json_text); nothing is rounded. Helpers convert on request.
 * - Strings are UTF-8. \u0000 is kept. A lone surrogate escape is kept as its three-byte form
 *   (what Python's "surrogatepass" writes), or becomes U+FFFD where the caller asks for that. The
 *   string and the value that was parsed are flagged JSON_SURROGATE.
 *   Strings without escapes are slices of the input: the input must outlive the tree.
 * - Raw input must be valid UTF-8 (no overlongs, no encoded surrogates), no BOM.
 * - Duplicate keys: the last value wins, at the place of the first, as Python's dict does.
 * - Nesting deeper than JSON_DEPTH_MAX, garbage after the value, [1,] etc. are errors with offset.
 * Values are immutable once parsed; builders below make values in an arena for tests and templates.
 */
#ifndef RG_CODEC_JSON_H
#define RG_CODEC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

enum { JSON_TRUE = 1, JSON_SURROGATE = 2 }; /* flags */

struct json_member;

struct json {
    uint8_t kind;  /* enum json_kind */
    uint8_t flags; /* JSON_TRUE for true; JSON_SURROGATE */
    uint32_t n;    /* bytes of text, items or members */

    union {
        const char *text;            /* NUMBER: as written; STRING: decoded */
        struct json *items;          /* ARRAY: n values */
        struct json_member *members; /* OBJECT: n members in order */
    };
};

struct json_member {
    struct json key; /* JSON_STRING */
    struct json value;
};

/* Parses exactly one value from text. *ret points into the arena. On error e (ERR_INVALID) names
 * the byte offset and cause; ERR_BODY_TOO_LARGE: the arena's budget does not hold the values. */
int json_parse(struct arena *a, struct str text, const struct json **ret, struct err *e);

/* Like json_parse, but U+FFFD takes the place of each lone surrogate: for texts of messages. */
int json_parse_replacing(struct arena *a, struct str text, const struct json **ret, struct err *e);

/* Parses like json_parse, but a duplicate key in one object is an error that names it. For
 * requests, whose duplicates must not be dropped silently. */
int json_parse_once(struct arena *a, struct str text, const struct json **ret, struct err *e);

/* --- reading; all accept NULL and answer NULL / false / absent --- */

/* The member's value or NULL (absent, or v is no object). */
const struct json *json_get_str(const struct json *v, struct str key);

static inline const struct json *json_get(const struct json *v, const char *key)
{
    return json_get_str(v, str_cstr(key)); /* the length of a literal is known here */
}

/* Looks up n keys in one pass: ret[i] is the value of names[i], or NULL. */
void json_get_each(const struct json *v, const struct str *names, size_t n,
                   const struct json **ret);

static inline bool json_is(const struct json *v, enum json_kind kind)
{
    return v && v->kind == kind;
}

/* Bytes of the keys, strings and numbers in v; counting stops at `enough`. */
size_t json_text_bytes(const struct json *v, size_t enough);

/* Reports whether the value is absent or null. */
static inline bool json_is_null(const struct json *v)
{
    return !v || v->kind == JSON_NULL;
}

static inline bool json_is_true(const struct json *v)
{
    return v && v->kind == JSON_BOOL && (v->flags & JSON_TRUE);
}

/* Text of a string or a number; absent (p NULL) for other kinds. */
static inline struct str json_text(const struct json *v)
{
    if (!v || (v->kind != JSON_STRING && v->kind != JSON_NUMBER))
        return (struct str){0};
    return str_of(v->text, v->n);
}

/* The string's bytes, or absent when v is no string. */
static inline struct str json_string(const struct json *v)
{
    return json_is(v, JSON_STRING) ? str_of(v->text, v->n) : (struct str){0};
}

/* Item i of an array, or NULL. */
static inline const struct json *json_at(const struct json *v, size_t i)
{
    return json_is(v, JSON_ARRAY) && i < v->n ? &v->items[i] : NULL;
}

/* A number without fraction or exponent (or one whose value is integral: 1.0, 1e3) that fits;
 * 0 / -1. */
int json_to_i64(const struct json *v, int64_t *ret);

/* Nearest double of a number; 0 / -1 when v is no number or overflows. */
int json_to_double(const struct json *v, double *ret);

/* Returns the number that the member of that name is, or 0. */
double json_number_of(const struct json *v, const char *name);

/* Equal as JSON values: objects regardless of member order, numbers by value (1 = 1.0 = 1e0,
 * exact for integers of any size), strings by bytes. */
bool json_equal(const struct json *a, const struct json *b);

/* --- making values in an arena --- */
struct json json_make_string(struct str s); /* borrows the bytes */
struct json json_make_bool(bool b);
struct json json_make_i64(struct arena *a, int64_t v);

/* --- writing (compact, no spaces) --- */

/* Appends "..." with escapes for quotes, backslash and controls; other bytes as they are. Lone
 * surrogates (three-byte form) become \udXXX so that the output stays valid JSON. */
void json_write_string(struct buf *b, struct str s);

/* Appends the value; numbers as their text. */
void json_write(struct buf *b, const struct json *v);

/* Shortest text that reads back to the same double ("1.5", "1e+16" as Python's repr); NaN and
 * infinities become null. */
void json_write_double(struct buf *b, double d);

/*
 * struct json_out: writes JSON text without building a tree; puts commas by itself.
 *     struct json_out o = json_out_to(&buf);
 *     json_out_obj(&o); json_out_key(&o, "n"); json_out_i64(&o, 3); json_out_end_obj(&o);
 */
struct json_out {
    struct buf *b;
    bool comma; /* the next value or key needs a comma before it */
};

static inline struct json_out json_out_to(struct buf *b)
{
    return (struct json_out){b, false};
}

void json_out_obj(struct json_out *o);
void json_out_end_obj(struct json_out *o);
void json_out_arr(struct json_out *o);
void json_out_end_arr(struct json_out *o);
void json_out_key_str(struct json_out *o, struct str key);
void json_out_str(struct json_out *o, struct str s); /* absent str: null */
void json_out_cstr(struct json_out *o, const char *s);
void json_out_i64(struct json_out *o, int64_t v);
void json_out_double(struct json_out *o, double v);
void json_out_seconds(struct json_out *o,
                      uint64_t ms); /* ms / 1000, like json_out_double but faster */
void json_out_bool(struct json_out *o, bool v);
void json_out_null(struct json_out *o);
void json_out_value(struct json_out *o, const struct json *v); /* NULL: null */
void json_out_raw(struct json_out *o, struct str json_text);   /* already JSON */

/* The functions below are inline for their keys, which are literals mostly: the compiler counts
 * their length. */
static inline void json_out_key(struct json_out *o, const char *key)
{
    json_out_key_str(o, str_cstr(key));
}

/* A member of an object: its key, and its value as above. */
static inline void json_out_member_of(struct json_out *o, struct str key, const struct json *v)
{
    json_out_key_str(o, key);
    json_out_value(o, v);
}

static inline void json_out_member_str(struct json_out *o, const char *key, struct str v)
{
    json_out_key(o, key);
    json_out_str(o, v);
}

static inline void json_out_member_cstr(struct json_out *o, const char *key, const char *v)
{
    json_out_key(o, key);
    json_out_cstr(o, v);
}

static inline void json_out_member_i64(struct json_out *o, const char *key, int64_t v)
{
    json_out_key(o, key);
    json_out_i64(o, v);
}

static inline void json_out_member_bool(struct json_out *o, const char *key, bool v)
{
    json_out_key(o, key);
    json_out_bool(o, v);
}

static inline void json_out_member_seconds(struct json_out *o, const char *key, uint64_t ms)
{
    json_out_key(o, key);
    json_out_seconds(o, ms);
}

static inline void json_out_member_double(struct json_out *o, const char *key, double v)
{
    json_out_key(o, key);
    json_out_double(o, v);
}

static inline void json_out_member_value(struct json_out *o, const char *key, const struct json *v)
{
    json_out_key(o, key);
    json_out_value(o, v);
}

static inline void json_out_member_raw(struct json_out *o, const char *key, struct str json_text)
{
    json_out_key(o, key);
    json_out_raw(o, json_text);
}

static inline void json_out_member_null(struct json_out *o, const char *key)
{
    json_out_key(o, key);
    json_out_null(o);
}

/* The member that begins is an object, or an array, which stays open. */
static inline void json_out_member_obj(struct json_out *o, const char *key)
{
    json_out_key(o, key);
    json_out_obj(o);
}

static inline void json_out_member_arr(struct json_out *o, const char *key)
{
    json_out_key(o, key);
    json_out_arr(o);
}

#endif
