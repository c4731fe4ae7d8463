/*
 * Reading a journal folder without opening it for writing: for `rollgate journal check|dump`.
 * Repairs and removes nothing. A running gateway's folder may be read, too: the scan sees all that
 * is in it at the beginning.
 */
#ifndef RG_JOURNAL_SCAN_H
#define RG_JOURNAL_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct scan_record {
    uint32_t segment;
    uint64_t offset; /* in the segment's file */
    struct str id, payload;
};

struct scan_events {
    void (*record)(void *ctx, const struct scan_record *r);
    /* The rest of a segment does not fit; `last` when nothing can follow it (a torn tail). */
    void (*damage)(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last);
    /* A segment begins, before its records; or NULL. */
    void (*segment)(void *ctx, uint32_t segment, uint64_t bytes);
};

/* -1 when the folder is no journal. */
int scan_check(const char *dir, struct err *e);

/* All records in replay order. -1 with ERR_IO when the folder or its manifest cannot be read. */
int scan_journal(const char *dir, const struct scan_events *events, void *ctx, struct err *e);

#endif
