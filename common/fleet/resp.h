/*
 * RESP2, the protocol of Redis and Valkey: commands are written, replies are cut from a stream and
 * read as a tree. Pure.
 *
 *     +OK   -ERR text   :7   $5 and five bytes   *2 and two replies   $-1 and *-1: null
 *
 *     while ((rc = resp_scan_reply(&scan, bytes, &e)) > 0) {
 *         reply = resp_read(&arena, str_sub(bytes, 0, scan.at));
 *         ... drop scan.at bytes ...
 *         scan = (struct resp_scan){0};
 *     }
 */
#ifndef RG_FLEET_RESP_H
#define RG_FLEET_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct arena;
struct buf;

enum {
    RESP_DEPTH_MAX = 8,         /* arrays in arrays */
    RESP_LINE_MAX = 4096,       /* bytes of a line without its end */
    RESP_ITEMS_MAX = 1 << 20,   /* replies within one reply */
    RESP_BYTES_MAX = 600 << 20, /* of one reply */
};

enum resp_kind { RESP_NULL, RESP_STATUS, RESP_ERROR, RESP_INTEGER, RESP_BULK, RESP_ARRAY };

struct resp {
    enum resp_kind kind;
    size_t n;        /* array: number of items */
    int64_t number;  /* integer */
    struct str text; /* status, error and bulk; within the bytes that were read */
    const struct resp *items;
};

/* State of one reply that arrives in pieces. Zeroed at its start. */
struct resp_scan {
    size_t at; /* bytes that were accepted */
    size_t items;
    unsigned depth;
    size_t left[RESP_DEPTH_MAX]; /* items that each open array lacks */
};

/* Continues in `bytes`, which begin with the reply. Returns 1 if s->at is the end of the reply, 0
 * if more bytes are needed, -1 with ERR_IO if they are no reply, or one over the limits. */
RG_MUSTCHECK int resp_scan_reply(struct resp_scan *s, struct str bytes, struct err *e);

/* Reads one whole reply that resp_scan_reply accepted. The result is in the arena, its texts are in
 * `bytes`. */
const struct resp *resp_read(struct arena *a, struct str bytes);

/* True for an array of at least n items. */
bool resp_has_items(const struct resp *r, size_t n);

/* Item i as text, or absent if the item is missing or no text. */
struct str resp_text(const struct resp *r, size_t i);

/* Item i as a number from 0 on: an integer, or a text of digits. Returns `otherwise` for others. */
uint64_t resp_number(const struct resp *r, size_t i, uint64_t otherwise);

/* Appends the head of a command of n words. The words follow by resp_add_word. */
void resp_begin_command(struct buf *out, size_t n);
void resp_add_word(struct buf *out, struct str word);
void resp_add_number(struct buf *out, uint64_t number);

#endif
