/*
 * struct support_archive: writes small files to a new folder, or to one tar file if the name ends
 * with ".tar". Only their owner can read them.
 */
#ifndef RG_SUPERVISOR_SUPPORT_ARCHIVE_H
#define RG_SUPERVISOR_SUPPORT_ARCHIVE_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct support_archive {
    const char *path; /* borrowed */
    bool tar;
    int fd; /* descriptor of the folder or of the tar file */
};

/* Makes the folder or file, which must not exist. */
int support_archive_open(struct support_archive *a, const char *path, struct err *e);

/* Adds a file. `name` has at most 90 bytes and no slash. */
int support_archive_add(struct support_archive *a, const char *name, struct str bytes,
                        struct err *e);

/* Writes the end of the archive and closes it. */
int support_archive_close(struct support_archive *a, struct err *e);

#endif
