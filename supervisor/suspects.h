/*
 * struct suspects: request bodies that workers processed when they died. A body that was present
 * often enough is quarantined (struct board): no worker handles it for a while. So a death caused
 * by one request is distinguished from a worker that cannot live.
 *
 * A worker processes the bodies that its loop and its helpers work on. Calls that wait for the
 * engine or for a thread do not count. A body that was twice alone is guilty. A body that was there
 * with others is guilty after three deaths. An innocent body that its client sends again is rarely
 * there three times, because the guilty one is found when it is there alone.
 */
#ifndef RG_SUPERVISOR_SUSPECTS_H
#define RG_SUPERVISOR_SUSPECTS_H

#include <stdbool.h>
#include <stdint.h>

struct board;

enum { SUSPECTS_MAX = 256, SUSPECT_MEMORY_MS = 3600 * 1000 };

struct suspect {
    uint64_t hash;
    /* clock_ms of the last death; the suspect is forgotten SUSPECT_MEMORY_MS later */
    uint64_t last_ms;
    unsigned weight;
};

/* A zeroed struct has no suspects. */
struct suspects {
    /* a new suspect replaces the one that was not seen for longest */
    struct suspect list[SUSPECTS_MAX];
};

/* Records the death of a worker at now_ms with the bodies that the board lists for it.
 * from_outside: by a SIGKILL that the supervisor has not sent; six such deaths are needed. Returns
 * true if this quarantines a body, and logs it. */
bool suspects_add_death(struct suspects *s, struct board *b, unsigned slot, bool from_outside,
                        uint64_t now_ms);

#endif
