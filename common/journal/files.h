/*
 * The files of one journal folder: MANIFEST and segments. The manifest names the live segments in
 * replay order; a segment that it does not name is rubbish of an interrupted rotation or compaction
 * and is removed on open.
 *
 *   MANIFEST     "rollgate-journal FORMAT VERSION\n", then one segment number a line; replaced by
 *                rename. VERSION is the first that reads the format; it may be missing.
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

/* Makes the folder when it is missing. Returns its descriptor, or -1. */
int files_open_dir(const char *dir, struct err *e);

/* Locks the folder for this process, until the descriptor is closed; waits so long for another one
 * that has it. Returns -1 if it is still in use, or if its file system refuses locks. */
int files_lock(int dirfd, uint64_t wait_ms, struct err *e);

/* Whether another process has it. True also if that is not known: locks are refused. */
bool files_in_use(int dirfd);

/* Reads the manifest; a folder without one has no segments. *older: its first line is of an older
 * version and must be rewritten before any record. -1 with ERR_UNSUPPORTED if the format is of a
 * later version, which the text names. */
int files_read_manifest(int dirfd, struct numbers *ret, bool *older, struct err *e);

/* Replaces the manifest. `sync`: its bytes are on the disk before it has its name; only an fsync of
 * the folder makes the name survive a power cut. -1: the old manifest remains. */
int files_write_manifest(int dirfd, const uint32_t *numbers, size_t n, bool sync, struct err *e);

/* Whether there is a manifest, readable or not. */
bool files_has_manifest(int dirfd);

/* ERR_IO if there are segments with records and no manifest: that is a loss, not a new folder, as a
 * first start writes the manifest before the first record. */
int files_check_manifest(int dirfd, struct err *e);

/* Keeps the manifest, if there is one, under the name MANIFEST.before-repair. One that an earlier
 * repair has kept is not overwritten: that is an error. */
int files_keep_manifest(int dirfd, struct err *e);

/* Prepares a segment for repair. Keeps the old file also under the name seg-N.before-repair, and
 * returns a new file with its head, or -1. When the new file is on the disk, files_replace_segment
 * gives it the segment's name. */
int files_keep_segment(int dirfd, uint32_t number, struct err *e);
int files_replace_segment(int dirfd, uint32_t number, int fd, struct err *e);

/* Appends the numbers of the folder's segments, in ascending order. */
int files_list_segments(int dirfd, struct numbers *ret, struct err *e);

/* Removes segments that are not among the numbers. */
void files_remove_strays(int dirfd, const uint32_t *numbers, size_t n);

/* A new segment with its head, open for appending; replaces a stray of that number. On error
 * nothing is left. */
int files_create_segment(int dirfd, uint32_t number, struct err *e);
int files_open_segment(int dirfd, uint32_t number, bool writable, struct err *e);

/* Reserves bytes of the disk, and frees them again. -1: the disk has no space, or the file system
 * cannot reserve; nothing is reserved then. */
int files_make_reserve(int dirfd, size_t bytes);
void files_free_reserve(int dirfd);

/* Frees the records of a segment that will be removed; works on a full disk, too. */
void files_empty_segment(int dirfd, uint32_t number);
void files_remove_segment(int dirfd, uint32_t number);

/* The whole file in memory (mmap); bytes.p NULL and len 0 for an empty one. `now` reads it at once,
 * else pages come as they are touched. */
int files_map(int fd, bool now, struct str *ret, struct err *e);

/* A copy of the whole file, for one that another process may cut short at any moment: the pages of
 * a map would be gone. Ends where the file ends now. Also for files_unmap. -1 with ERR_IO. */
int files_copy(int fd, struct str *ret, struct err *e);

void files_unmap(struct str bytes);

/* Writes all of the parts at the end of fd. -1 with ERR_STORAGE_FULL or ERR_IO; the file may then
 * have some of the bytes. */
struct iovec;
int files_append(int fd, struct iovec *parts, int n, struct err *e);

#endif
