/*
 * struct compaction: copies the needed records of one closed segment to a new file, in steps of
 * bounded size. Between steps the journal may grow. Records that become dead after they were copied
 * stay in the new file. At the end the journal replaces the old file.
 */
#ifndef RG_JOURNAL_COMPACTION_H
#define RG_JOURNAL_COMPACTION_H

#include "common/base/err.h"
#include "common/journal/liveness.h"

struct compaction;

/* Starts a compaction of segment `old` into a new file with this number. Returns 0, or -1 with e;
 * no file is left then. */
int compaction_new(int dirfd, uint32_t old, uint32_t number, struct compaction **ret,
                   struct err *e);

/* Frees c and closes both files. Does not remove the new file. Accepts NULL. */
void compaction_free(struct compaction *c);

/* Copies one batch. Returns 1 if all is copied, 0 if more remains, and -1 with e on error. `sync`:
 * the batch is on disk before this returns. */
int compaction_step(struct compaction *c, struct liveness *live, bool sync, struct err *e);

uint32_t compaction_old(const struct compaction *c);
uint32_t compaction_number(const struct compaction *c);

/* Returns the new offsets of the copied records. The caller frees them. */
struct moved *compaction_detach_moved(struct compaction *c, size_t *ret_n);

/* Returns the size of the new file without its head, in bytes. */
uint64_t compaction_bytes(const struct compaction *c);

/* Returns the memory of the table of new offsets, in bytes. */
size_t compaction_table_bytes(const struct compaction *c);

#endif
