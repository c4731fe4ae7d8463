/*
 * struct json_scan: a pull scanner over one JSON document that arrives in pieces of any size, for
 * large answers of engines. It builds no tree. It keeps only a token that the end of a piece cut in
 * two. Walk with json_scan_next; on a key take its value in bulk (ids, logprob triples, base64) or
 * skip it.
 *
 * Every function that needs bytes answers 1 done, 0 more bytes wanted, -1 error. On 0 the scanner
 * has put aside what it needs of the piece: feed the next one and make the same call again. The
 * grammar is checked strictly, except inside skipped values, where only brackets and strings are
 * matched. Pure.
 */
#ifndef RG_CODEC_JSON_SCAN_H
#define RG_CODEC_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/base/str.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"

enum json_token {
    JSON_TOKEN_NULL,
    JSON_TOKEN_FALSE,
    JSON_TOKEN_TRUE,
    JSON_TOKEN_NUMBER, /* text: as written */
    JSON_TOKEN_STRING, /* text: decoded */
    JSON_TOKEN_KEY,    /* text: decoded; its value comes next */
    JSON_TOKEN_ARRAY,
    JSON_TOKEN_ARRAY_END,
    JSON_TOKEN_OBJECT,
    JSON_TOKEN_OBJECT_END,
    JSON_TOKEN_END, /* the document is complete */
};

/* Fields are the scanner's, except token and text (of the last json_scan_next; text is borrowed
 * until the next call) and depth (containers open). */
struct json_scan {
    enum json_token token;
    struct str text;
    unsigned depth;

    const char *at, *end; /* unread bytes, of the piece or of hold */
    struct buf hold;      /* unread bytes of earlier pieces, followed by the new piece */
    struct buf decoded;   /* text of a string with escapes */
    size_t text_max;
    size_t seen;                           /* bytes of an unfinished string that were scanned */
    uint64_t read;                         /* bytes of the document before `at`, for messages */
    uint64_t objects[JSON_DEPTH_MAX / 64]; /* bit per depth: an object, not an array */
    uint8_t expect;
    uint8_t bulk;        /* inside the value of a bulk call */
    bool skip_string;    /* json_scan_skip: inside a string */
    unsigned skip_depth; /* json_scan_skip: containers open */
    size_t items;        /* items read of the array that is read in bulk */
    bool wide;           /* long arrays by vector instructions; off: by the portable way */
    struct base64_reader base64;
};

/* Growing arrays: VECs with names (vec_ macros work; the maker of one calls vec_done). */
struct json_ints {
    int32_t *at;
    size_t n, cap;
};

struct json_floats {
    float *at;
    size_t n, cap;
};

/* Keys, strings and numbers longer than text_max bytes are an error (not in skipped values). */
void json_scan_init(struct json_scan *s, size_t text_max);
void json_scan_done(struct json_scan *s);

/* Ready for another document; memory stays. */
void json_scan_reset(struct json_scan *s);

/* The next piece. Everything fed before must have been asked for until a call answered 0 (or the
 * document ended). Borrowed until a call answers 0. */
void json_scan_feed(struct json_scan *s, struct str piece);

/* The next token: s->token and s->text. */
int json_scan_next(struct json_scan *s, struct err *e);

/* Whether the document is complete and nothing but white space was left. */
bool json_scan_complete(const struct json_scan *s);

/* Moves on inside an array: 1 an item comes next, 2 the array has ended, 0, -1. */
int json_scan_item(struct json_scan *s, struct err *e);

/* --- instead of json_scan_next, where a value stands next --- */

/* Skips the value. */
int json_scan_skip(struct json_scan *s, struct err *e);

/* An array of integers that fit in 32 bits, or null. Items from number `from` on are appended;
 * those before are only counted. s->items is the count so far. */
int json_scan_ints(struct json_scan *s, size_t from, struct json_ints *ints, struct err *e);

/* An array of numbers, or null; the same. A null item becomes NaN, what is too large infinite. */
int json_scan_floats(struct json_scan *s, size_t from, struct json_floats *floats, struct err *e);

/* An array of [logprob, id] or [logprob, id, anything], or null; appended as above. A null
 * logprob becomes NaN. */
int json_scan_triples(struct json_scan *s, size_t from, struct json_floats *logprobs,
                      struct json_ints *ids, struct err *e);

/* A base64 string, decoded and appended, or null (*ret_null). More than max bytes: error. */
int json_scan_base64(struct json_scan *s, size_t max, struct buf *out, bool *ret_null,
                     struct err *e);

/* A window of a base64 string: the bytes from `from` on, at most `max` of them. */
struct base64_window {
    uint64_t from, max;
    uint64_t seen; /* bytes so far; the owner sets it to 0 */
    bool over;     /* there are more than max: none are kept */
};

/* Decodes like json_scan_base64, but keeps the window only. Bytes outside of it are decoded,
 * counted and dropped. */
int json_scan_base64_window(struct json_scan *s, struct base64_window *w, struct buf *out,
                            bool *ret_null, struct err *e);

#endif
