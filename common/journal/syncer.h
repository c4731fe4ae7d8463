/*
 * struct syncer: group commit. Owners say that they wrote something and want to know when it is on
 * the disk; one thread calls fdatasync for all who asked since its last call, and the loop hears of
 * it. While one fsync runs the next group gathers.
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

/* Ends the thread after the fsync at hand. */
void syncer_free(struct syncer *s);

/* What fd holds now is to be made durable; returns the ticket that will cover it. Before another
 * fd is used the owner syncs the old one itself. */
uint64_t syncer_ask(struct syncer *s, int fd);

#endif
