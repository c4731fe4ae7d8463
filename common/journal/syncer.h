/*
 * struct syncer: group commit. An owner requests that its written bytes become durable. One thread
 * calls fdatasync for all requests since its last call, and reports the result to the loop.
 * Requests that arrive while one fsync runs are covered by the next one.
 */
#ifndef RG_JOURNAL_SYNCER_H
#define RG_JOURNAL_SYNCER_H

#include <stdint.h>

#include "common/base/err.h"

struct loop;
struct syncer;

/* Called on the loop when all requests up to `ticket` are durable, after an fsync of took_us.
 * `failed` is 0, or the errno of a failed fsync: the state of the bytes is unknown then. */
typedef void (*syncer_fn)(void *ctx, uint64_t ticket, int failed, uint64_t took_us);

int syncer_new(struct loop *loop, syncer_fn fn, void *ctx, struct syncer **ret, struct err *e);

/* Ends the thread after its pending fsync, and frees s. Accepts NULL. */
void syncer_free(struct syncer *s);

/* Requests that fd's current content becomes durable. Returns the ticket that will cover it. The
 * owner syncs an fd itself before it passes a different one. */
uint64_t syncer_ask(struct syncer *s, int fd);

#endif
