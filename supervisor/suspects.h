/*
 * struct suspects: request bodies that workers worked at when they died. One that stood there often
 * enough is put under quarantine (struct board): no worker touches it for a while. So a death is
 * known for the work of one request, not of a worker that cannot live.
 *
 * What a worker works at is what its loop and its helpers are busy with in that moment; calls that
 * wait for the engine or for a thread are not among it. A body that stood there alone twice is
 * guilty. In company it takes three deaths: who only happens to be there when another's request
 * kills (and comes again, as clients do) is rarely there three times, as the killer goes first
 * once it stands alone.
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

/* A worker died at now_ms, from_outside: by a SIGKILL that the supervisor has not sent, of which it
 * takes six. Takes what the board says that it worked at. True when this puts a body
 * under quarantine, which is told in the log. */
bool suspects_take(struct suspects *s, struct board *b, unsigned slot, bool from_outside,
                   uint64_t now_ms);

#endif
