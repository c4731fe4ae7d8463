/*
 * struct desk_answer: an answer that waits until every record that it depends on is as durable as
 * --durability promises. These are the records that it writes. If it writes none and only reads the
 * book, these are all records so far. The order of use:
 *
 *   durable_begin        takes the exchange over
 *   durable_write ...    appends and applies a record, any number of times
 *   durable_end          the answer; sent when the last of the records is durable, which may be now
 *
 * A client that leaves meanwhile changes nothing: what is written is written.
 */
#ifndef RG_DISPATCHER_DURABLE_H
#define RG_DISPATCHER_DURABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"

struct desk;
struct err;
struct exchange;

struct desk_answer {
    struct desk *desk;
    struct exchange *x; /* NULL: the client has left, or has received an error */
    size_t undurable;   /* records whose callback is still to come */
    bool wrote;         /* at least one record */
    bool ended;         /* no more records */
    int status;
    struct buf body; /* the caller's to fill until durable_end */
};

/* Never NULL. It ends by durable_end or durable_fail, and is gone afterwards. The desk is busy
 * until then. */
struct desk_answer *durable_begin(struct desk *d, struct exchange *x);

/* desk_write, with the answer waiting for it. Returns 0, or -1 with *e if nothing has changed. */
int durable_write(struct desk_answer *a, struct str group, struct str record, struct err *e);

/* Answers `status` with the body as soon as all records are durable: its own, or without any those
 * that were written so far. */
void durable_end(struct desk_answer *a, int status);

/* Answers the error at once. Records that were written before stay written. */
void durable_fail(struct desk_answer *a, const struct err *e);

#endif
