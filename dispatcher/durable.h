/*
 * struct desk_answer: an answer that waits until every record that it depends on is as durable as
 * --durability promises. These are the records that it writes. An answer that only reads the book
 * depends on all records so far. The order of use:
 *
 *   durable_begin        takes ownership of the exchange
 *   durable_write ...    appends and applies a record, any number of times
 *   durable_end          the answer; sent when the last of the records is durable, which may be now
 *
 * If the client leaves meanwhile, the records remain.
 */
#ifndef RG_DISPATCHER_DURABLE_H
#define RG_DISPATCHER_DURABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct desk;
struct exchange;

struct desk_answer {
    struct desk *desk;
    struct exchange *x; /* NULL: the client has left, or has received an error */
    size_t undurable;   /* records that are not durable yet */
    struct err failure; /* in a fleet: why a record is not in the store; kind ERR_NONE: it is */
    bool wrote;         /* at least one record was written */
    bool ended;         /* durable_end was called */
    int status;
    struct buf body; /* filled by the caller until durable_end */
};

/* Begins an answer. Never returns NULL. durable_end or durable_fail ends it and frees it. The desk
 * counts as busy until then. */
struct desk_answer *durable_begin(struct desk *d, struct exchange *x);

/* Writes a record like desk_write; the answer waits for it. Returns 0, or -1 with *e if nothing has
 * changed. */
int durable_write(struct desk_answer *a, struct str group, struct str record, struct err *e);

/* Answers `status` with the body when all its records are durable. If it has none, it waits for all
 * records that were written so far. */
void durable_end(struct desk_answer *a, int status);

/* Answers the error at once. Records that were written before are kept. */
void durable_fail(struct desk_answer *a, const struct err *e);

#endif
