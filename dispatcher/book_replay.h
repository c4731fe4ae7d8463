/*
 * struct book_replay: records of groups that come log by log, for a book that needs them in the
 * order of their changes. In a fleet the store has a log for each group, and so does a journal that
 * was filled from it.
 *
 * A log's records keep their order. Records of different groups are ordered by their times. Clocks
 * of two dispatchers may differ, so new groups are ordered by the number of their submission, and a
 * record is never earlier than its group.
 */
#ifndef RG_DISPATCHER_BOOK_REPLAY_H
#define RG_DISPATCHER_BOOK_REPLAY_H

#include <stdbool.h>

#include "common/base/str.h"

struct book_replay;
struct err;

struct book_replay *book_replay_new(void);
void book_replay_free(struct book_replay *r);

/* Adds the next record of the group's log (copied). Returns true if it begins the log again, so
 * that earlier records of the group, which were deleted, do not count. */
bool book_replay_add(struct book_replay *r, struct str group, struct str record);

/* Forgets the records of the group that were added so far. */
void book_replay_forget(struct book_replay *r, struct str group);

/* Calls fn for each record, in order, and forgets all. Returns -1 with e if fn does. */
int book_replay_run(struct book_replay *r,
                    int (*fn)(void *ctx, struct str group, struct str record, struct err *e),
                    void *ctx, struct err *e);

#endif
