/*
 * struct drift: the differences that a new rendering of the same messages would have. The canonical
 * rendering, encoded, is compared with the true ids between special tokens (drift_audit.h). Nothing
 * is repaired.
 */
#ifndef RG_EXPORT_DRIFT_H
#define RG_EXPORT_DRIFT_H

#include <stdbool.h>
#include <stdint.h>

enum drift_kind {
    DRIFT_SPECIAL_TOKEN_COUNT,
    DRIFT_SPECIAL_TOKEN_TYPE,
    DRIFT_NON_ASSISTANT_TEXT,
    DRIFT_ASSISTANT_TEXT,
    DRIFT_KIND_COUNT
};

enum { DRIFT_PLACES_MAX = 8, DRIFT_WANTED_MAX = 64 };

/* One difference, without the ids with which both sequences begin or end. */
struct drift_place {
    enum drift_kind kind;
    uint32_t position;                /* position of the first id that differs, in the true ids */
    uint32_t n;                       /* number of true ids that differ */
    uint32_t n_wanted;                /* number of ids that the rendering has instead */
    int32_t wanted[DRIFT_WANTED_MAX]; /* the first of these ids */
};

struct drift_places {
    uint32_t n;
    struct drift_place at[DRIFT_PLACES_MAX];
};

struct drift {
    bool audited;
    uint32_t count;
    enum drift_kind first; /* kind of the first difference; valid if count > 0 */
    uint32_t position;     /* position of the first difference, in the true ids */
    struct drift_places
        *places; /* the caller's array for the first differences; NULL: not wanted */
};

const char *drift_kind_name(enum drift_kind k);

#endif
