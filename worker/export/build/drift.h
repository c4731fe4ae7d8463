/*
 * struct drift: what a re-rendering of the same messages would have got wrong. The canonical
 * rendering, encoded, is compared with the true ids between special tokens (drift_audit.h); nothing
 * is repaired.
 */
#ifndef RG_EXPORT_DRIFT_H
#define RG_EXPORT_DRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum drift_kind {
    DRIFT_SPECIAL_TOKEN_COUNT,
    DRIFT_SPECIAL_TOKEN_TYPE,
    DRIFT_NON_ASSISTANT_TEXT,
    DRIFT_ASSISTANT_TEXT,
    DRIFT_KIND_COUNT
};

struct drift {
    bool audited;
    uint32_t count;
    enum drift_kind first; /* valid when count > 0 */
    uint32_t position;     /* of the first one, in the true ids */
};

const char *drift_kind_name(enum drift_kind k);

#endif
