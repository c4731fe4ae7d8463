/*
 * Groups and queues as JSON text: the GroupResult for a trainer, the rows of lists, and a queue's
 * counts.
 */
#ifndef RG_DISPATCHER_RESULT_H
#define RG_DISPATCHER_RESULT_H

struct book;
struct group;
struct json_out;
struct queue;
struct str;
struct waits_now;

/* Writes the whole group with its members. If it has not settled, also why it waits. b and now may
 * be NULL for a settled group. */
void result_write_group(const struct group *g, const struct book *b, const struct waits_now *now,
                        struct json_out *o);

/* Writes the group without members and metadata, for lists. */
void result_write_row(const struct group *g, const struct book *b, const struct waits_now *now,
                      struct json_out *o);

/* Writes a member `warning` if no known group has that queue: its name is probably mistyped. */
void result_write_queue_warning(const struct book *b, struct str name, struct json_out *o);

/* Writes a queue's counts. q NULL: no known group has the queue. */
void result_write_queue(const struct book *b, struct str name, const struct queue *q,
                        const struct waits_now *now, struct json_out *o);

/* Writes the members of a queue's object, without its braces. */
void result_write_queue_members(const struct book *b, struct str name, const struct queue *q,
                                const struct waits_now *now, struct json_out *o);

#endif
