/*
 * struct encoded_file: a file's bytes as base64 text, made a piece at a time as it is taken, so
 * that the text is never whole in memory.
 */
#ifndef RG_NET_ENCODED_FILE_H
#define RG_NET_ENCODED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

struct encoded_file {
    int fd;
    uint64_t left; /* bytes that were not read yet */
    bool zero;     /* still to come behind them */
    char *room;    /* raw bytes, followed by their base64 text */
    struct str text;
};

/* `bytes` is how many the file has; zero: one byte of zero goes behind them. 0, or -1 with errno.
 */
int encoded_file_open(struct encoded_file *f, const char *path, uint64_t bytes, bool zero);

/* Returns the next bytes of the text: at least one byte, valid until it is taken, or empty after
 * the end. -1 with errno if the file cannot be read or has fewer bytes than expected. */
int encoded_file_next(struct encoded_file *f, struct str *ret);

/* The first n bytes of what came next are done with. */
void encoded_file_take(struct encoded_file *f, size_t n);

void encoded_file_close(struct encoded_file *f);

#endif
