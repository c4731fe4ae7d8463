/*
 * struct syncer: group commit. An owner asks for what it has written to become durable. One thread
 * calls fdatasync for all requests since its last call, and reports the result to the loop. While
 * one fsync runs the next group gathers.
 */
#ifndef RG_JOURNAL_SYNCER_H
#define RG_JOURNAL_SYNCER_H

#include <stdint.h>

#include "common/base/err.h"

struct loop;
struct syncer;

/* Called on the loop when all that was asked for up to ticket is durable; `failed` != 0 (errno):
 * the disk refused, nothing is known of the bytes. */
typedef void (*syncer_fn)(void *ctx, uint64_t ticket, int failed, uint64_t took_us);

int syncer_new(struct loop *loop, syncer_fn fn, void *ctx, struct syncer **ret, struct err *e);

/* Ends the thread after the present fsync. */
void syncer_free(struct syncer *s);

/* Asks for fd's present content to become durable; returns the ticket that will cover it. Before a
 * different fd is used, the owner syncs the old one itself. */
uint64_t syncer_ask(struct syncer *s, int fd);

#endif
