/*
 * struct fields: extracts the fields named in a table from a JSON document that arrives in pieces,
 * and skips the rest. A path is keys joined by '.', with "[]" after an array:
 * "choices[].logprobs.content[].logprob". A last key "*" matches any. Scalars are reported as they
 * are met; bulk values are written directly into the owner's arrays. Pure.
 */
#ifndef RG_WIRE_WIRE_FIELDS_H
#define RG_WIRE_WIRE_FIELDS_H

#include "common/codec/json_scan.h"

enum field_type {
    FIELD_SCALAR,  /* string, number, true, false, null */
    FIELD_INTS,    /* array of ids */
    FIELD_FLOATS,  /* array of logprobs */
    FIELD_TRIPLES, /* array of [logprob, id, ...] */
    FIELD_BASE64,
    FIELD_MARK, /* each value at that path is reported as a bulk of no items, before its content */
};

struct field {
    const char *path;
    uint8_t len; /* length of `path` */
    enum field_type type;
    int id; /* chosen by the owner */
};

/* Makes a row: FIELD("a.b", FIELD_SCALAR, 7). */
#define FIELD(path, type, id)                   \
    {                                           \
        (path), sizeof(path) - 1, (type), (id), \
    }

/* Destination of a bulk value; only the members for its type are used. */
struct field_target {
    struct json_ints *ints;
    struct json_floats *floats;
    struct buf *bytes;
    size_t from;                  /* earlier items are only counted */
    size_t max_bytes;             /* for base64: limit of bytes; more are an error */
    struct base64_window *window; /* wanted range; NULL: all */
};

struct field_sink {
    /* reports a scalar: s->token, s->text; key is the last one of its path */
    void (*scalar)(void *ctx, int id, const struct json_scan *s, struct str key);
    /* asks for the destination of a bulk value, before it */
    void (*target)(void *ctx, int id, struct field_target *t);
    /* reports the number of items, after it (for the value null: 0, and null is set) */
    void (*bulk)(void *ctx, int id, size_t items, bool null);
};

enum { FIELDS_DEPTH = 16 };

struct fields {
    const struct field *table;
    size_t n;
    const struct field_sink *sink;
    void *ctx;
    struct json_scan scan;
    struct buf path;
    size_t level[FIELDS_DEPTH]; /* bytes of `path` that belong to each open container */
    bool array[FIELDS_DEPTH];
    unsigned depth;
    size_t key_at;             /* start of the last key in `path` */
    const struct field *value; /* field of the next value; NULL: a container that may have fields */
    struct field_target target;
    uint8_t mode;
};

void fields_init(struct fields *f, const struct field *table, size_t n,
                 const struct field_sink *sink, void *ctx);
void fields_done(struct fields *f);

/* Prepares for the next document. */
void fields_reset(struct fields *f);

/* Reads the next piece. Returns 1 when the document is complete, 0 if more must follow, -1 with
 * ERR_INVALID. */
int fields_feed(struct fields *f, struct str piece, struct err *e);

#endif
