/*
 * JSON (RFC 8259), read strictly into a tree in an arena. The tree keeps what the text said:
 * - Numbers keep their text (json_text). Nothing is rounded. Functions convert on request.
 * - Strings are UTF-8; \u0000 is allowed. The string and the parsed value of a lone surrogate
 *   escape get the flag JSON_SURROGATE. Its three-byte form is kept, as Python's "surrogatepass"
 *   writes it. json_parse_replacing writes U+FFFD instead.
 * - Strings without escapes are slices of the input. The input must outlive the tree.
 * - Raw input must be valid UTF-8 (no overlongs, no encoded surrogates) without BOM.
 * - Duplicate keys: the last value takes the position of the first, as in Python's dict.
 * - Nesting deeper than JSON_DEPTH_MAX, text after the value and [1,] are errors with an offset.
 *
 * Parsed values are immutable. The functions json_make_* make values in an arena.
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
    uint32_t n;    /* number of bytes of text, of items or of members */

    union {
        const char *text;            /* NUMBER: as written. STRING: decoded, without a NUL */
        struct json *items;          /* ARRAY: n values */
        struct json_member *members; /* OBJECT: n members in order */
    };
};

struct json_member {
    struct json key; /* JSON_STRING */
    struct json value;
};

/* Parses text that holds exactly one value. *ret points into the arena. Fails with ERR_INVALID,
 * which has the cause and the byte offset. Fails with ERR_BODY_TOO_LARGE if the values exceed the
 * arena's budget. */
int json_parse(struct arena *a, struct str text, const struct json **ret, struct err *e);

/* Parses like json_parse, but replaces each lone surrogate with U+FFFD. For texts of messages. */
int json_parse_replacing(struct arena *a, struct str text, const struct json **ret, struct err *e);

/* Parses like json_parse, but refuses a duplicate key in an object and names it. For requests,
 * whose values must not be dropped silently. */
int json_parse_once(struct arena *a, struct str text, const struct json **ret, struct err *e);

/* --- reading: all functions accept NULL, which means an absent value --- */

/* Returns the member's value. NULL: the member is absent, or v is not an object. */
const struct json *json_get_str(const struct json *v, struct str key);

static inline const struct json *json_get(const struct json *v, const char *key)
{
    return json_get_str(v, str_cstr(key)); /* the compiler knows the length of a literal */
}

/* Looks up n keys in one pass. Sets ret[i] to the value of names[i], or to NULL. If a key occurs
 * twice, the first one counts. */
void json_get_each(const struct json *v, const struct str *names, size_t n,
                   const struct json **ret);

static inline bool json_is(const struct json *v, enum json_kind kind)
{
    return v && v->kind == kind;
}

/* Returns the bytes of the keys, strings and numbers in v, and one for each item or member. Stops
 * counting at `enough`. For limits. */
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

/* Returns the text of a string or a number. Absent (p is NULL) for other kinds. */
static inline struct str json_text(const struct json *v)
{
    if (!v || (v->kind != JSON_STRING && v->kind != JSON_NUMBER))
        return (struct str){0};
    return str_of(v->text, v->n);
}

/* Returns the string's bytes. Absent (p is NULL) if v is not a string. */
static inline struct str json_string(const struct json *v)
{
    return json_is(v, JSON_STRING) ? str_of(v->text, v->n) : (struct str){0};
}

/* Returns item i of an array, or NULL. */
static inline const struct json *json_at(const struct json *v, size_t i)
{
    return json_is(v, JSON_ARRAY) && i < v->n ? &v->items[i] : NULL;
}

/* Converts a number whose value is an integer (12, 1.0, 1e3). Returns 0, or -1 if it is not one or
 * exceeds 64 bits. */
int json_to_i64(const struct json *v, int64_t *ret);

/* Converts a number to the nearest double. Returns 0, or -1 if v is not a number or overflows. */
int json_to_double(const struct json *v, double *ret);

/* Returns the number of the named member. 0: the member is absent or not a number. */
double json_number_of(const struct json *v, const char *name);

/* Compares two values; both may be NULL. The order of members does not matter. Numbers are equal by
 * value (1 = 1.0 = 1e0), exactly for integers of any size. Strings are equal by bytes. */
bool json_equal(const struct json *a, const struct json *b);

/* --- making values in an arena --- */
struct json json_make_string(struct str s); /* borrows the bytes */
struct json json_make_bool(bool b);
struct json json_make_i64(struct arena *a, int64_t v);

/* --- writing (compact, no spaces) --- */

/* Appends the string in quotes, with escapes for quotes, backslashes and control bytes. Other bytes
 * are copied. Lone surrogates (in three-byte form) become \udXXX, so that the output is valid JSON.
 */
void json_write_string(struct buf *b, struct str s);

/* Appends the value. Numbers keep their text. */
void json_write(struct buf *b, const struct json *v);

/* Appends the shortest text that reads back to the same double ("1.5", "1e+16" as Python's repr).
 * NaN and infinities become null. */
void json_write_double(struct buf *b, double d);

/*
 * struct json_out: writes JSON text without a tree, and adds the commas.
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
                      uint64_t ms); /* ms / 1000, as json_out_double writes it, but faster */
void json_out_bool(struct json_out *o, bool v);
void json_out_null(struct json_out *o);
void json_out_value(struct json_out *o, const struct json *v); /* NULL: null */
void json_out_raw(struct json_out *o, struct str json_text);   /* text that is JSON already */

/* The functions below are inline because their keys are literals mostly: the compiler then knows
 * the length. */
static inline void json_out_key(struct json_out *o, const char *key)
{
    json_out_key_str(o, str_cstr(key));
}

/* Writes a member: its key and its value. */
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

/* Writes the key of a member and opens its object or array. The caller closes it. */
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
