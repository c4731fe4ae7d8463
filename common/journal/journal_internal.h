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

/* Who waits until the record of that ticket is durable. */
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
    bool in_order;                                                 /* of the options */
    void (*last_word)(struct str session_id, struct buf *payload); /* likewise */
    struct journal_stats stats;
    int dirfd;
    int fd;          /* the last segment */
    uint64_t length; /* of the last segment */
    uint32_t next_number;
    struct liveness live;
    struct syncer *syncer;
    bool syncs;             /* what takes a segment's place is on the disk first */
    uint64_t asked, synced; /* newest tickets of the syncer: of what was appended, is durable */
    struct compaction *compaction; /* under way, or NULL */
    int read_fd;                   /* of the segment that journal_read used last; -1: none */
    uint32_t read_number;

    struct {
        struct journal_waiter *at;
        size_t n, cap;
    } waiting; /* in ticket order */

    size_t told; /* of those, the first ones, while they are told */

    bool reserved; /* RESERVE_BYTES are kept */
    bool broken;   /* a failed append could not be taken back */
    bool unsure;   /* an fsync failed, so nobody knows what a power cut would leave: nothing is
                    * written or removed any more */
};

#endif
