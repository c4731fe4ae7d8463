/*
 * struct session_totals: sums over all sessions of a store, for metrics and limits.
 */
#ifndef RG_SESSION_SESSION_TOTALS_H
#define RG_SESSION_SESSION_TOTALS_H

#include <stdint.h>

#include "worker/session/store/session.h"

struct session_totals {
    uint64_t sessions; /* live */
    uint64_t phases[SESSION_PHASES];
    uint64_t copying; /* copies without a phase, which are not visible yet (session_copying) */
    uint64_t nodes, tokens; /* sums of all, also of those not in memory (nodes: as last seen) */
    uint64_t bytes;         /* memory in bytes */
    uint64_t evicted, evicted_bytes; /* sessions that are not resident; what they took, or their
                                  records, and what resident ones evicted */
    uint64_t evictions;              /* sessions evicted so far */
    uint64_t payload_evictions, payload_loads; /* bulks of calls evicted and read back so far */
    uint64_t forks[CAUSE_COUNT];
};

void session_store_totals(const struct session_store *st, struct session_totals *ret);

#endif
