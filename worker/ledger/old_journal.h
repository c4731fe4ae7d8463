/*
 * struct old_journal: the journal of a place that this node had, compared with the store's records.
 * The store may lack records that only this journal has: a failover has lost them before the node
 * was lost. Records that no answer waits for do not count. Of the others some may never have been
 * answered.
 *
 * A session without a log in the store has ended since, or is lost. Its end is remembered for
 * --tombstone-ttl. If the journal is older, the session is only counted. So is
 * a group of the dispatcher, because the end of a group is not remembered.
 */
#ifndef RG_LEDGER_OLD_JOURNAL_H
#define RG_LEDGER_OLD_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/proc/place_folder.h"

struct err;
struct store;

/* The caller sets the first four fields. */
struct old_journal {
    struct store *store;
    uint32_t index; /* of the place */
    char path[PLACE_FOLDER_MAX];
    uint64_t remembered_ms; /* time that ends are remembered */
    struct map logs;        /* struct old_log, by session */
    uint64_t age_ms;        /* since the last change of a segment */
    size_t unjudged;        /* sessions of which the store can have forgotten the end */
    uint64_t missing;       /* number of missing records */
    struct buf report;      /* a line for each session with missing records */
};

/* Reads the folder; for a helper thread (task_work.fn, ctx is the journal). */
int old_journal_read(void *ctx, void *tool, struct err *e);

/* Compares what was read. Logs an error for each session with missing records. Returns -1 if the
 * store does not answer. */
MAY_PAUSE int old_journal_compare(struct old_journal *f);

void old_journal_done(struct old_journal *f);

#endif
