/*
 * The key that the commands show to the gateway: the first line of --key-file.
 */
#ifndef RG_RUNNER_ACCESS_H
#define RG_RUNNER_ACCESS_H

#include "common/base/buf.h"

/* The caller frees it. NULL after appending a line when there is none. */
char *access_key(const char *path, struct buf *mistakes);

#endif
