/*
 * The files of one journal folder: MANIFEST and segments. The manifest names the live segments in
 * replay order. Other segments are left over from an interrupted rotation or compaction, and are
 * removed on open.
 *
 *   MANIFEST     "rollgate-journal FORMAT VERSION\n", then one segment number a line; replaced by
 *                rename. VERSION is the first that reads the format. It may be missing.
 *   seg-%08u     see segment.h
 */
#ifndef RG_JOURNAL_FILES_H
#define RG_JOURNAL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/base/vec.h"

struct numbers {
    uint32_t *at;
    size_t n, cap;
};

/* Opens the folder and makes it if it is missing. Returns its descriptor, or -1 with e. */
int files_open_dir(const char *dir, struct err *e);

/* Locks the folder for this process until the descriptor is closed. Waits up to wait_ms for a
 * different process to release it. Returns 0. Returns -1 with e if the folder is still in use, or
 * if its file system refuses locks. */
int files_lock(int dirfd, uint64_t wait_ms, struct err *e);

/* Reports whether a different process uses the folder. Also true if the file system refuses locks,
 * because the answer is unknown then. */
bool files_in_use(int dirfd);

/* Reads the manifest. A folder without one has no segments. *older: the first line is of an older
 * version, so the manifest must be rewritten before any record. Fails with ERR_UNSUPPORTED if the
 * format is of a later version; the error names that version. */
int files_read_manifest(int dirfd, struct numbers *ret, bool *older, struct err *e);

/* Replaces the manifest. `sync`: its bytes are on disk before the rename. Only an fsync of the
 * folder lets the rename survive a power cut. On -1 the old manifest remains. */
int files_write_manifest(int dirfd, const uint32_t *numbers, size_t n, bool sync, struct err *e);

/* Reports whether there is a manifest, even an unreadable one. */
bool files_has_manifest(int dirfd);

/* Fails with ERR_IO if there are segments with records, but no manifest. Such a folder has lost its
 * manifest: a first start writes the manifest before the first record. */
int files_check_manifest(int dirfd, struct err *e);

/* Keeps the manifest, if it exists, also as MANIFEST.before-repair. Fails if an earlier repair has
 * left such a file. */
int files_keep_manifest(int dirfd, struct err *e);

/* Prepares a segment for repair. Keeps the old file also as seg-N.before-repair. Returns the
 * descriptor of a new file with its head, or -1. files_replace_segment syncs that file and renames
 * it to the segment's name. */
int files_keep_segment(int dirfd, uint32_t number, struct err *e);
int files_replace_segment(int dirfd, uint32_t number, int fd, struct err *e);

/* Appends the numbers of the folder's segments in ascending order. */
int files_list_segments(int dirfd, struct numbers *ret, struct err *e);

/* Removes all segments except those with these n numbers. */
void files_remove_strays(int dirfd, const uint32_t *numbers, size_t n);

/* Creates a segment with its head and opens it for appending. Replaces a stray file of that number.
 * Returns the descriptor. On -1 no file is left. */
int files_create_segment(int dirfd, uint32_t number, struct err *e);
int files_open_segment(int dirfd, uint32_t number, bool writable, struct err *e);

/* Reserves bytes of the disk, and frees them again. -1: the disk has no space, or the file system
 * cannot reserve it; nothing is reserved then. */
int files_make_reserve(int dirfd, size_t bytes);
void files_free_reserve(int dirfd);

/* Frees the disk space of a segment that will be removed. Works on a full disk, too. */
void files_empty_segment(int dirfd, uint32_t number);
void files_remove_segment(int dirfd, uint32_t number);

/* Maps the whole file into memory. An empty file becomes an absent str. `now`: reads it at once;
 * otherwise pages are read on access. files_unmap ends the map. */
int files_map(int fd, bool now, struct str *ret, struct err *e);

/* Copies the whole file into memory up to its current end. For files that a different process may
 * truncate, which would invalidate the pages of a map. files_unmap frees the copy. Fails with
 * ERR_IO. */
int files_copy(int fd, struct str *ret, struct err *e);

void files_unmap(struct str bytes);

/* Writes all n parts at the end of fd. Fails with ERR_STORAGE_FULL or ERR_IO; the file may have
 * some of the bytes then. */
struct iovec;
int files_append(int fd, struct iovec *parts, int n, struct err *e);

#endif
