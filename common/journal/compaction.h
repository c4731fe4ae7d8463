/*
 * struct compaction: copies the needed records of one closed segment to a new file. It works in
 * steps of bounded size. Between steps the journal may grow, and records may become dead, which are
 * then copied in vain. At the end the journal swaps the files.
 */
#ifndef RG_JOURNAL_COMPACTION_H
#define RG_JOURNAL_COMPACTION_H

#include "common/base/err.h"
#include "common/journal/liveness.h"

struct compaction;

/* Starts a compaction of segment `old` into a new file with this number. Returns 0, or -1 with e.
 */
int compaction_new(int dirfd, uint32_t old, uint32_t number, struct compaction **ret,
                   struct err *e);

/* Closes; the new file stays. */
void compaction_free(struct compaction *c);

/* Copies some more: 1 when all is copied (and on the disk, with `sync`), 0 when not, -1. */
int compaction_step(struct compaction *c, struct liveness *live, bool sync, struct err *e);

uint32_t compaction_old(const struct compaction *c);
uint32_t compaction_number(const struct compaction *c);

/* Returns the new places of the copied records; the caller frees them. */
struct moved *compaction_detach_moved(struct compaction *c, size_t *ret_n);

/* Size of the new file without its head. */
uint64_t compaction_bytes(const struct compaction *c);

/* Memory that it takes to note where records went. */
size_t compaction_table_bytes(const struct compaction *c);

#endif
