/*
 * Why groups wait: the reasons in the gateway, a queue and a runner why attempts do not begin.
 * Pure: everything is computed from the book and from struct waits_now when it is asked for.
 */
#ifndef RG_DISPATCHER_WAITS_H
#define RG_DISPATCHER_WAITS_H

#include <stdbool.h>
#include <stdint.h>

struct book;
struct buf;
struct group;
struct queue;
struct runner;
struct str;

/* Facts that are not in the book. */
struct waits_now {
    uint64_t wall_ms, mono_ms;
    const char *pause;    /* why no attempt may begin; NULL: attempts may begin */
    uint64_t settled_max; /* --queue-max-settled; 0: no limit */
    bool engines_away;    /* no engine answers */
};

/* Appends why no attempt of the runner begins in the queue (NULL: groups without a queue). Appends
 * nothing if attempts begin, or if only a free slot is missing. */
void waits_of_runner(const struct runner *r, const struct queue *q, const struct waits_now *now,
                     struct buf *out);

/* Appends why rollouts of the group wait; nothing if none waits. */
void waits_of_group(const struct book *b, const struct group *g, const struct waits_now *now,
                    struct buf *out);

/* Reports whether an executor has offered the runner in the last minute, or runs an attempt of it.
 */
bool waits_is_offered(const struct runner *r, uint64_t mono_ms);

/* Appends that no executor offers the runner, and which runners are offered. */
void waits_not_offered(const struct book *b, const struct runner *r, uint64_t mono_ms,
                       struct buf *out);

/* Appends that the book has no queue of that name, the names of queues that it has, and whether
 * groups may be lost. */
void waits_no_queue(const struct book *b, struct str name, struct buf *out);

#endif
