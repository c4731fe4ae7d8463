/*
 * Repair of a journal folder whose files do not fit its manifest, for `rollgate journal repair`.
 * Segments are never changed or removed: only the manifest is written anew, after a copy of the old
 * one was kept as MANIFEST.before-repair.
 */
#ifndef RG_JOURNAL_REPAIR_H
#define RG_JOURNAL_REPAIR_H

#include <stdint.h>

#include "common/base/err.h"

struct repair_events {
    /* The manifest is missing or damaged: all segments of the folder are named, by number. */
    void (*manifest_rebuilt)(void *ctx, const char *why);
    /* The manifest names a segment that is not in the folder: its records are lost. */
    void (*segment_missing)(void *ctx, uint32_t number);
};

/* Returns 1 if something was repaired, 0 if the folder is whole; -1 with ERR_IO (no folder, in use,
 * a file that cannot be read) or ERR_UNSUPPORTED (another version), and nothing was changed. */
int journal_repair(const char *dir, const struct repair_events *events, void *ctx, struct err *e);

#endif
