/*
 * struct compaction: one closed segment on its way to a new file that has only the records somebody
 * needs. It is carried out in steps of bounded size, between which sessions may be dropped (their
 * records are then copied in vain, as those that are given up) and the journal may grow. The
 * journal swaps the files when it is through.
 */
#ifndef RG_JOURNAL_COMPACTION_H
#define RG_JOURNAL_COMPACTION_H

#include "common/base/err.h"
#include "common/journal/liveness.h"

struct compaction;

/* Makes the new file. */
int compaction_new(int dirfd, uint32_t old, uint32_t number, struct compaction **ret,
                   struct err *e);

/* Closes; the new file stays. */
void compaction_free(struct compaction *c);

/* Copies some more: 1 when all is copied (and on the disk, with `sync`), 0 when not, -1. */
int compaction_step(struct compaction *c, struct liveness *live, bool sync, struct err *e);

uint32_t compaction_old(const struct compaction *c);
uint32_t compaction_number(const struct compaction *c);

/* Where the copied records stand now; the caller's, to be freed. */
struct moved *compaction_take_moved(struct compaction *c, size_t *ret_n);

/* Size of the new file without its head. */
uint64_t compaction_bytes(const struct compaction *c);

/* Memory that it takes to note where records went. */
size_t compaction_table_bytes(const struct compaction *c);

#endif
