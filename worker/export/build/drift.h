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

enum { DRIFT_PLACES_MAX = 8, DRIFT_WANTED_MAX = 64 };

/* One difference, without the ids that both sequences begin or end with. */
struct drift_place {
    enum drift_kind kind;
    uint32_t position;                /* of the first id that differs, in the true ids */
    uint32_t n;                       /* true ids that differ */
    uint32_t n_wanted;                /* ids of the rendering in their place */
    int32_t wanted[DRIFT_WANTED_MAX]; /* the first of them */
};

struct drift_places {
    uint32_t n;
    struct drift_place at[DRIFT_PLACES_MAX];
};

struct drift {
    bool audited;
    uint32_t count;
    enum drift_kind first; /* valid when count > 0 */
    uint32_t position;     /* of the first one, in the true ids */
    struct drift_places
        *places; /* the caller's: filled with the first differences. NULL: not wanted */
};

const char *drift_kind_name(enum drift_kind k);

#endif
