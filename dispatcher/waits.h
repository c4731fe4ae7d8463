/*
 * Why groups wait: what the gateway, a queue and a runner say about attempts that do not begin.
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

/* The state outside of the book. */
struct waits_now {
    uint64_t wall_ms, mono_ms;
    const char *pause;    /* why no attempt at all may begin; NULL: they may */
    uint64_t settled_max; /* --queue-max-settled; 0: no limit */
    bool engines_away;    /* no engine answers */
};

/* Appends why no attempt of the runner begins in that queue (NULL: groups of no queue); nothing if
 * attempts begin, or wait for a free slot alone. */
void waits_of_runner(const struct runner *r, const struct queue *q, const struct waits_now *now,
                     struct buf *out);

/* Appends why rollouts of the group wait; nothing if none waits. */
void waits_of_group(const struct book *b, const struct group *g, const struct waits_now *now,
                    struct buf *out);

/* True if an executor has offered the runner in the last minute, or runs an attempt of it. */
bool waits_is_offered(const struct runner *r, uint64_t mono_ms);

/* Appends that no executor offers the runner, and which runners are offered. */
void waits_not_offered(const struct book *b, const struct runner *r, uint64_t mono_ms,
                       struct buf *out);

/* Appends that the book has no queue of that name, and which it has. */
void waits_no_queue(const struct book *b, struct str name, struct buf *out);

#endif
