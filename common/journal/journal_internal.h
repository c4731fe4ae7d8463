/*
 * struct journal from the inside, for journal.c (opening, appending, compaction) and journal_read.c
 * (reading back).
 */
#ifndef RG_JOURNAL_JOURNAL_INTERNAL_H
#define RG_JOURNAL_JOURNAL_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/journal/journal.h"
#include "common/journal/liveness.h"

struct buf;
struct compaction;
struct loop;
struct metrics_page;
struct syncer;

/* A waiter for the record of that ticket to become durable. */
struct journal_waiter {
    uint64_t ticket;
    void (*durable)(void *ctx);
    void *ctx;
};

struct journal {
    struct loop *loop;
    struct metrics_page *metrics;
    enum journal_durability durability;
    uint64_t segment_bytes;
    bool in_order;                                                 /* journal_options.in_order */
    void (*last_word)(struct str session_id, struct buf *payload); /* journal_options.last_word */
    struct journal_stats stats;
    int dirfd;
    int fd;          /* the last segment */
    uint64_t length; /* length of the last segment in bytes */
    uint32_t next_number;
    struct liveness live;
    struct syncer *syncer;
    bool syncs;             /* `power`: a new file is synced before it replaces a segment */
    uint64_t asked, synced; /* newest tickets of the syncer: of what was appended, is durable */
    struct compaction *compaction; /* under way, or NULL */
    int read_fd;                   /* file of the segment that journal_read used last; -1: none */
    uint32_t read_number;

    struct {
        struct journal_waiter *at;
        size_t n, cap;
    } waiting; /* in ticket order */

    size_t told; /* number of the first waiters, while their `durable` is called */

    bool reserved; /* RESERVE_BYTES are kept */
    bool broken;   /* a failed append could not be taken back */
    bool unsure; /* an fsync failed: what a power cut would leave is unknown, so nothing is written
                    or removed */
};

#endif
