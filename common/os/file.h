/*
 * Small files, read and written whole.
 */
#ifndef RG_OS_FILE_H
#define RG_OS_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/buf.h"
#include "common/base/err.h"

/* Appends the file at `path`, which may have at most `max` bytes. Returns -1: ERR_IO if it cannot
 * be opened or read (e->sys has the reason), ERR_CONFIG if it is larger. The text names the path.
 */
int file_read(const char *path, size_t max, struct buf *out, struct err *e);

/* Like file_read, but reads only regular files. Others, such as named pipes, fail with ERR_IO at
 * once. For files that a different user may have made. */
int file_read_regular(const char *path, size_t max, struct buf *out, struct err *e);

/* Appends the rest of an open file, such as standard input, without closing it. Errors name it as
 * `name`. Fails like file_read. */
int file_read_rest(int fd, const char *name, size_t max, struct buf *out, struct err *e);

/* Returns 0 if the reads of f have come to its end, or -1 with ERR_IO: they failed. Call it after a
 * loop over lines, whose last read returned nothing for either reason. */
int file_check_end(FILE *f, const char *name, struct err *e);

/* Returns the next entry of the folder. NULL: its end, with errno 0, or an error, with its errno.
 */
struct dirent *file_next_entry(DIR *d);

/* Closes a folder after the last file_next_entry. d = NULL: opendir failed. Returns 0 if all
 * entries were read, or if there is no such folder. Otherwise logs a warning and returns -1 with
 * errno. */
int file_end_entries(DIR *d, const char *path);

/* Writes all bytes at the position of fd. Returns 0, or -1 with errno. */
int file_write_all(int fd, struct str bytes);

/* Makes the file `path` of these bytes, readable by its owner only. It writes `part` in the same
 * folder and renames it, so `path` is whole or does not exist. durable: the bytes are on the disk
 * before the rename (file_sync_folder does it for the name). Returns 0, or -1 with errno; then
 * `part` is removed. */
int file_write(const char *path, const char *part, struct str bytes, bool durable);

/* Returns a number that changes when file_write replaces the file, because each new file has its
 * own inode. 0: the file does not exist. */
uint64_t file_stamp(const char *path);

/* Returns the absolute path, without resolving symbolic links; the caller frees it. A relative path
 * begins in the working folder. NULL with errno if that cannot be found. */
char *file_absolute_path(const char *path);

/* Removes the folder and everything below it, as far as possible. Links are not followed. */
void file_remove_tree(const char *path);

/* Writes the names in the folder to the disk. Returns 0, or -1 with errno. */
int file_sync_folder(const char *path);

#endif
