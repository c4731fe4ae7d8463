/*
 * Copies of journal folders that a gateway may be writing, for `rollgate backup`. Segments are only
 * appended to, and a compaction names its result in the manifest before it empties what it
 * replaces. So a copy is complete if the manifest is the same before and after the copying.
 */
#ifndef RG_JOURNAL_BACKUP_H
#define RG_JOURNAL_BACKUP_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct backup_tally {
    uint64_t files, bytes;
};

/* Copies the journal in the folder `from` to the folder `to`, which exists and is empty. The copy
 * has every record that was appended before the call, and ends with a whole record. -1 with ERR_IO,
 * ERR_STORAGE_FULL or ERR_UNSUPPORTED (the format of a later version). */
int backup_copy_journal(const char *from, const char *to, struct backup_tally *tally,
                        struct err *e);

/* Returns folder/name; the caller frees it. */
char *backup_join(const char *folder, const char *name);

/* Copies a regular file and syncs it. Returns 1 if `from` is gone or was cut short meanwhile; -1
 * and e. */
int backup_copy_file(const char *from, const char *to, struct backup_tally *tally, struct err *e);

/* Paths of the journal folders of a state folder: the dispatcher's first, then those of workers. */
struct backup_folders {
    char **at;
    size_t n, cap;
};

int backup_find_journals(const char *state_dir, struct backup_folders *ret, struct err *e);
void backup_free_folders(struct backup_folders *v);

#endif
