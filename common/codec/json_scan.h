/*
 * struct json_scan: a pull scanner over one JSON document that arrives in pieces of any size, for
 * large answers of engines. It builds no tree. It copies only a token that the end of a piece cut
 * in two. Walk with json_scan_next. After a key, read its value in bulk (ids, logprob triples,
 * base64) or skip it.
 *
 * Every function that needs bytes returns 1 if done, 0 if it needs more bytes, and -1 on error. On
 * 0 the scanner has copied what it needs of the piece: feed the next piece and repeat the same
 * call. The grammar is checked strictly. Inside skipped values only brackets and strings are
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
    JSON_TOKEN_KEY,    /* text: decoded. Its value follows */
    JSON_TOKEN_ARRAY,
    JSON_TOKEN_ARRAY_END,
    JSON_TOKEN_OBJECT,
    JSON_TOKEN_OBJECT_END,
    JSON_TOKEN_END, /* the document is complete */
};

/* Callers read token, text and depth; all other fields are the scanner's. token and text are those
 * of the last json_scan_next. text is borrowed until the next call. depth is the number of open
 * containers. */
struct json_scan {
    enum json_token token;
    struct str text;
    unsigned depth;

    const char *at, *end; /* unread bytes, in the piece or in hold */
    struct buf hold;      /* unread bytes of earlier pieces, followed by the new piece */
    struct buf decoded;   /* text of a string with escapes */
    size_t text_max;
    size_t seen;   /* number of bytes of an unfinished string that were searched */
    uint64_t read; /* number of bytes of the document before `at`, for errors */
    uint64_t objects[JSON_DEPTH_MAX / 64]; /* one bit for each depth: 1 an object, 0 an array */
    uint8_t expect;
    uint8_t bulk;        /* inside the value of a bulk call */
    bool skip_string;    /* json_scan_skip: inside a string */
    unsigned skip_depth; /* json_scan_skip: number of open containers */
    size_t items;        /* number of items read of the array that is read in bulk */
    bool wide;           /* long arrays are read with AVX2; false: by portable code */
    struct base64_reader base64;
};

/* Growing arrays: VECs with names. The vec_ macros work. The owner calls vec_done. */
struct json_ints {
    int32_t *at;
    size_t n, cap;
};

struct json_floats {
    float *at;
    size_t n, cap;
};

/* Starts a document. Keys, strings and numbers longer than text_max bytes are an error, except in
 * skipped values. */
void json_scan_init(struct json_scan *s, size_t text_max);
void json_scan_done(struct json_scan *s);

/* Starts the next document. Keeps the memory of the buffers. */
void json_scan_reset(struct json_scan *s);

/* Passes the next piece. The scanner must have returned 0 for the previous one, or the document
 * must have ended. The piece is borrowed until a call returns 0. */
void json_scan_feed(struct json_scan *s, struct str piece);

/* Reads the next token into s->token and s->text. */
int json_scan_next(struct json_scan *s, struct err *e);

/* Moves to the next item of an array. Returns 1 if an item follows, 2 if the array has ended, 0 or
 * -1. */
int json_scan_item(struct json_scan *s, struct err *e);

/* --- instead of json_scan_next, if a value is next --- */

/* Skips the value. */
int json_scan_skip(struct json_scan *s, struct err *e);

/* Reads an array of integers that fit in 32 bits, or null. Appends the items from index `from` on;
 * earlier ones are only counted. s->items is the count so far. */
int json_scan_ints(struct json_scan *s, size_t from, struct json_ints *ints, struct err *e);

/* Reads an array of numbers, or null, in the same way. A null item becomes NaN. A number that
 * overflows becomes an infinity. */
int json_scan_floats(struct json_scan *s, size_t from, struct json_floats *floats, struct err *e);

/* Reads an array of [logprob, id] or [logprob, id, anything], or null, in the same way. A null
 * logprob becomes NaN. */
int json_scan_triples(struct json_scan *s, size_t from, struct json_floats *logprobs,
                      struct json_ints *ids, struct err *e);

/* Reads a base64 string, or null, and appends its bytes. *ret_null: the value was null. More than
 * max bytes in `out` are an error. */
int json_scan_base64(struct json_scan *s, size_t max, struct buf *out, bool *ret_null,
                     struct err *e);

/* A window of the bytes of a base64 string: from number `from` on, at most `max`. */
struct base64_window {
    uint64_t from, max;
    uint64_t seen; /* number of decoded bytes so far; the owner sets it to 0 */
    bool over;     /* the window has more than max bytes: all are dropped */
};

/* Decodes like json_scan_base64, but keeps only the window. Bytes outside of it are counted and
 * dropped. */
int json_scan_base64_window(struct json_scan *s, struct base64_window *w, struct buf *out,
                            bool *ret_null, struct err *e);

#endif
