/*
 * struct session_totals: sums over all sessions of a store, for metrics and limits.
 */
#ifndef RG_SESSION_SESSION_TOTALS_H
#define RG_SESSION_SESSION_TOTALS_H

#include <stdint.h>

#include "worker/session/store/session.h"

struct session_totals {
    uint64_t sessions; /* live sessions */
    uint64_t phases[SESSION_PHASES];
    uint64_t copying; /* copies without a phase, which are not visible yet (session_copying) */
    /* sums over all sessions, including evicted ones (nodes: as last known) */
    uint64_t nodes, tokens;
    uint64_t bytes; /* memory in bytes */
    /* sessions that are not resident; the bytes that they used in memory, or of their records,
     * plus evicted payloads of resident ones */
    uint64_t evicted, evicted_bytes;
    uint64_t evictions;                        /* sessions evicted so far */
    uint64_t payload_evictions, payload_loads; /* payloads evicted and read back so far */
    uint64_t forks[CAUSE_COUNT];
};

void session_store_totals(const struct session_store *st, struct session_totals *ret);

#endif
