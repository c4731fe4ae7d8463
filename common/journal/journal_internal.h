/*
 * Fields of struct journal, for journal.c (opening, appending, compaction) and journal_read.c
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

/* A waiter for the durability of the record with this ticket. */
struct journal_waiter {
    uint64_t ticket;
    void (*durable)(void *ctx);
    void *ctx;
};

struct journal {
    struct metrics_page *metrics;
    enum journal_durability durability;
    uint64_t segment_bytes;
    bool in_order;                                                 /* journal_options.in_order */
    void (*last_word)(struct str session_id, struct buf *payload); /* journal_options.last_word */
    struct journal_stats stats;
    int dirfd;
    int fd;          /* descriptor of the last segment */
    uint64_t length; /* length of the last segment in bytes */
    uint32_t next_number;
    struct liveness live;
    struct syncer *syncer;
    bool syncs;             /* `power`: a new file is synced before it replaces a segment */
    uint64_t asked, synced; /* newest tickets of the syncer: of appended records; of durable ones */
    struct compaction *compaction; /* in progress, or NULL */
    int read_fd;                   /* descriptor of the segment that was read last; -1: none */
    uint32_t read_number;

    struct {
        struct journal_waiter *at;
        size_t n, cap;
    } waiting; /* in ticket order */

    size_t told; /* number of first waiters that were called in the current round */

    bool reserved; /* the disk has the reserve of RESERVE_BYTES */
    bool broken;   /* a failed append could not be undone */
    bool unsure;   /* an fsync failed: nothing is written or removed any longer */
};

#endif
