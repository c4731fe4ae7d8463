/*
 * struct liveness: which segments still hold records that somebody needs. Sessions add bytes to the
 * newest segment; dropping a session takes its bytes off every segment it is in. Memory only: a
 * restart rebuilds it while replaying.
 */
#ifndef RG_JOURNAL_LIVENESS_H
#define RG_JOURNAL_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/map.h"
#include "common/base/str.h"

struct live_session;

struct live_segment {
    uint32_t number;
    uint64_t live_bytes;
    uint64_t total_bytes;
};

struct liveness {
    struct map sessions;
    struct live_segment *at;
    size_t n, cap;
};

void liveness_done(struct liveness *v);

/* A new last segment. */
void liveness_segment(struct liveness *v, uint32_t number);

/* Segment `number` is gone; its place in the order closes. */
void liveness_remove(struct liveness *v, uint32_t number);

/* Segment `old` is replaced by `number`, which has its live records only. */
void liveness_renumber(struct liveness *v, uint32_t old, uint32_t number);

/* A record of `bytes` went into that segment; `id` absent: it needs not be kept. */
void liveness_add(struct liveness *v, uint32_t number, struct str id, uint64_t bytes);

/* The session's records are needed no longer. */
void liveness_drop(struct liveness *v, struct str id);

/* Whether the session's records are needed. */
bool liveness_has(const struct liveness *v, struct str id);

/* Whether that segment holds any of the session's records. */
bool liveness_has_in(const struct liveness *v, struct str id, uint32_t number);

/* Bytes of all segments. */
uint64_t liveness_total(const struct liveness *v);

#endif
