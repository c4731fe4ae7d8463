/*
 * struct suspects: request bodies that workers worked at when they died. A body that was there
 * often enough is put under quarantine (struct board): no worker handles it for a while. So a death
 * by one request differs from a worker that cannot live.
 *
 * A worker works at the bodies that its loop and its helpers are busy with; calls that wait for the
 * engine or for a thread do not count. A body that was there alone twice is guilty. With other
 * bodies it takes three deaths: an innocent body that its client sends again is rarely there three
 * times, because the guilty one is found first when it is there alone.
 */
#ifndef RG_SUPERVISOR_SUSPECTS_H
#define RG_SUPERVISOR_SUSPECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct board;

enum { SUSPECTS_MAX = 256, SUSPECT_MEMORY_MS = 3600 * 1000 };

struct suspect {
    uint64_t hash;
    uint64_t last_ms; /* clock_ms of the last death; forgotten SUSPECT_MEMORY_MS later */
    unsigned weight;
};

/* A zeroed struct has none. */
struct suspects {
    struct suspect list[SUSPECTS_MAX]; /* the one not seen for longest gives way */
};

/* Records the death of a worker at now_ms with the bodies that the board lists for it.
 * from_outside: by a SIGKILL that the supervisor has not sent; six such deaths are needed. Returns
 * true if this puts a body under quarantine, and logs it. */
bool suspects_add_death(struct suspects *s, struct board *b, unsigned slot, bool from_outside,
                        uint64_t now_ms);

#endif
