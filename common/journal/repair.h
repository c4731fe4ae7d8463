/*
 * Repairs a damaged journal folder, for `rollgate journal repair`. A segment with damage is
 * rewritten with its whole records, and the manifest without missing segments. The old files stay
 * as seg-N.before-repair and MANIFEST.before-repair.
 */
#ifndef RG_JOURNAL_REPAIR_H
#define RG_JOURNAL_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct repair_events {
    /* The manifest is missing or damaged. The new one names all segments of the folder, by number.
     */
    void (*manifest_rebuilt)(void *ctx, const char *why);
    /* The manifest names a segment that is not in the folder. Its records are lost. */
    void (*segment_missing)(void *ctx, uint32_t number);
    /* These bytes of a segment are not copied: they are damaged or, with `last`, a torn tail. */
    void (*bytes_lost)(void *ctx, uint32_t number, uint64_t offset, uint64_t bytes, bool last);
};

/* Returns 1 if something was repaired, and 0 if the folder is whole. Fails with ERR_IO (no folder,
 * in use, an unreadable file, a seg-N.before-repair of an earlier repair) or ERR_UNSUPPORTED (a
 * format of a later version). Segments that were rewritten before the error are whole. */
int journal_repair(const char *dir, const struct repair_events *events, void *ctx, struct err *e);

#endif
