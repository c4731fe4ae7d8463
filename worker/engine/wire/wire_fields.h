/*
 * struct fields: picks the fields named in a table out of a JSON document that arrives in pieces
 * and passes over the rest. A path is keys joined by '.', with "[]" behind an array:
 * "choices[].logprobs.content[].logprob"; a last key "*" stands for any. Scalars come as they are
 * met; bulk values go straight into arrays that the owner names. Pure.
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
    FIELD_MARK, /* each value at that path is reported as a bulk of no items before its content */
};

struct field {
    const char *path;
    uint8_t len; /* length of path */
    enum field_type type;
    int id; /* the owner's */
};

/* A row: FIELD("a.b", FIELD_SCALAR, 7). */
#define FIELD(path, type, id)                   \
    {                                           \
        (path), sizeof(path) - 1, (type), (id), \
    }

/* Where a bulk value goes; only what its type needs. */
struct field_target {
    struct json_ints *ints;
    struct json_floats *floats;
    struct buf *bytes;
    size_t from;                  /* items before this one are only counted */
    size_t max_bytes;             /* base64: more are an error, */
    struct base64_window *window; /* unless a part is wanted; NULL: all */
};

struct field_sink {
    /* A scalar: s->token, s->text; key is the last one of its path. */
    void (*scalar)(void *ctx, int id, const struct json_scan *s, struct str key);
    /* Before a bulk value. */
    void (*target)(void *ctx, int id, struct field_target *t);
    /* Behind it: the items it had (null: 0 and null is set). */
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
    size_t level[FIELDS_DEPTH]; /* bytes of path that belong to the container itself */
    bool array[FIELDS_DEPTH];
    unsigned depth;
    size_t key_at;             /* where the last key starts in path */
    const struct field *value; /* field of the next value, NULL: containers to look into */
    struct field_target target;
    uint8_t mode;
};

void fields_init(struct fields *f, const struct field *table, size_t n,
                 const struct field_sink *sink, void *ctx);
void fields_done(struct fields *f);

/* Gets ready for another document. */
void fields_reset(struct fields *f);

/* The next piece: 1 the document is complete, 0 more, -1 ERR_INVALID. */
int fields_feed(struct fields *f, struct str piece, struct err *e);

#endif
