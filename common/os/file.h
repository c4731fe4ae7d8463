/*
 * Small files, read whole.
 */
#ifndef RG_OS_FILE_H
#define RG_OS_FILE_H

#include "common/base/buf.h"
#include "common/base/err.h"

/* Appends the bytes of the file at `path`, of at most `max` bytes. -1: ERR_IO when it cannot be
 * opened or read (e->sys says why), ERR_CONFIG when it is larger; the text names the path. */
int file_read(const char *path, size_t max, struct buf *out, struct err *e);

#endif
