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
    bool zero;     /* a zero byte must still follow */
    char *room;    /* raw bytes, followed by their base64 text */
    struct str text;
};

/* Opens a file. `bytes` is its size. `zero`: a zero byte follows the file's bytes. Returns 0, or -1
 * with errno. */
int encoded_file_open(struct encoded_file *f, const char *path, uint64_t bytes, bool zero);

/* Returns the next bytes of the text: at least one byte, valid until it is taken, or empty after
 * the end. -1 with errno if the file cannot be read or has fewer bytes than expected. */
int encoded_file_next(struct encoded_file *f, struct str *ret);

/* Marks the first n bytes of the text that was returned as taken. */
void encoded_file_take(struct encoded_file *f, size_t n);

void encoded_file_close(struct encoded_file *f);

#endif
