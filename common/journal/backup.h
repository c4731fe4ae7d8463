/*
 * Copies journal folders that a gateway may be writing, for `rollgate backup`. Segments are only
 * appended to. A compaction writes its result to the manifest before it empties the segment that it
 * replaces. So a copy is complete if the manifest is the same before and after copying.
 */
#ifndef RG_JOURNAL_BACKUP_H
#define RG_JOURNAL_BACKUP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct backup_tally {
    uint64_t files, bytes;
};

/* Copies the journal in folder `from` to folder `to`, which exists and is empty. The copy has every
 * record that was appended before the call, and ends with a whole record. Adds to *tally. Fails
 * with ERR_IO, ERR_STORAGE_FULL or ERR_UNSUPPORTED (a format of a later version). */
int backup_copy_journal(const char *from, const char *to, struct backup_tally *tally,
                        struct err *e);

/* Copies a regular file and syncs the copy. Returns 1 if `from` does not exist or was truncated
 * meanwhile, and -1 with e on error. */
int backup_copy_file(const char *from, const char *to, struct backup_tally *tally, struct err *e);

/* Paths of the journal folders of a state folder: the dispatcher's first, then the workers'.
 * backup_free_folders frees them. */
struct backup_folders {
    char **at;
    size_t n, cap;
};

int backup_find_journals(const char *state_dir, struct backup_folders *ret, struct err *e);
void backup_free_folders(struct backup_folders *v);

#endif
