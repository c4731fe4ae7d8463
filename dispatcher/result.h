/*
 * What the dispatcher tells of groups and queues, as JSON text: the GroupResult that a trainer is
 * given, the rows of lists, and a queue's counts.
 */
#ifndef RG_DISPATCHER_RESULT_H
#define RG_DISPATCHER_RESULT_H

#include <stdint.h>

struct book;
struct group;
struct json_out;
struct queue;
struct runner;
struct str;

/* The whole group with its members. */
void result_write_group(const struct group *g, struct json_out *o);

/* Without members and metadata, for lists. */
void result_write_row(const struct group *g, struct json_out *o);

/* A queue's counts; q NULL: one that nothing was ever submitted to. now_ms: wall clock. */
void result_write_queue(const struct book *b, struct str name, const struct queue *q,
                        uint64_t now_ms, uint64_t mono_ms, struct json_out *o);

/* Why the runner gets no work done ("" : it does): the breaker, or nobody offers it. */
const char *result_blocked(const struct runner *r, uint64_t mono_ms);

#endif
