/*
 * Reads a journal folder without opening it for writing, for `rollgate journal check` and `dump`.
 * Repairs and removes nothing. The folder may be in use by a gateway: the scan sees all records
 * that exist at its start.
 */
#ifndef RG_JOURNAL_SCAN_H
#define RG_JOURNAL_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct scan_record {
    uint32_t segment;
    uint64_t offset; /* in the segment's file, in bytes */
    struct str id, payload;
};

struct scan_events {
    void (*record)(void *ctx, const struct scan_record *r);
    /* These bytes of a segment are not records. `last`: no record can follow them (a torn tail). */
    void (*damage)(void *ctx, uint32_t segment, uint64_t offset, uint64_t bytes, bool last);
    /* Called at the start of a segment, before its records; or NULL. */
    void (*segment)(void *ctx, uint32_t segment, uint64_t bytes);
};

/* Checks that the folder is a journal. Returns 0, or -1 and e. */
int scan_check(const char *dir, struct err *e);

/* Reports all records in replay order. Fails with ERR_IO if the folder or its manifest cannot be
 * read. */
int scan_journal(const char *dir, const struct scan_events *events, void *ctx, struct err *e);

#endif
