/*
 * struct feed: server-sent events about changes, for all viewers. A changed object is recorded by
 * its key. A tick later the key's event is written once and sent to all viewers. So an object that
 * changes a thousand times a second causes one event per tick. Without viewers nothing is kept, and
 * a change costs one call of feed_watched.
 *
 * A viewer that does not keep up loses events; its memory stays bounded. Beyond FEED_BEHIND_BYTES
 * it gets nothing until it has read everything. Then it gets the event `reset`, and must fetch the
 * lists again.
 */
#ifndef RG_SERVE_FEED_H
#define RG_SERVE_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/os/loop.h"
#include "common/serve/reach.h"

struct exchange;
struct loop;

enum { FEED_BEHIND_BYTES = 1 << 20 };

struct feed {
    struct loop *loop;
    /* Appends the present events of the key (feed_event), or nothing. */
    void (*write)(void *ctx, struct str key, struct buf *out);
    /* called when a viewer has left; must not free the feed. NULL: no call */
    void (*left)(void *ctx);
    void *ctx;
    uint64_t tick_ms;
    struct list_head viewers;
    uint32_t n_viewers;
    uint32_t n_reach[REACH_FLEET + 1]; /* of them, those of each reach */
    struct map noted;                  /* key -> struct feed_note, not written yet */
    struct list_head waiting;          /* the notes of `noted`, the oldest first */
    struct buf ready;                  /* events that wait for the tick */
    uint64_t pause_ms; /* time until the next tick; longer after a tick with many events */
    struct loop_timer tick, alive;
};

/* Starts a feed without viewers. `write`, `left` and ctx are set by the caller and do not change.
 */
void feed_init(struct feed *f, struct loop *loop, uint64_t tick_ms);

static inline bool feed_watched(const struct feed *f)
{
    return f->n_viewers > 0;
}

/* Takes ownership of the exchange. Begins the answer with the event `hello`, whose data is `hello`
 * (JSON; empty: {}), then sends `first` (may be empty). If there are FEED_VIEWERS_MAX viewers,
 * returns -1 with ERR_OVERLOADED, and the exchange remains the caller's. */
int feed_join(struct feed *f, struct exchange *x, enum reach reach, struct str hello,
              struct str first, struct err *e);

/* Records a change of the object with this key. Call it only while feed_watched. */
void feed_record(struct feed *f, struct str key);

/* Returns a buffer for events that are sent with the next tick, in order. Events of recorded keys
 * precede them. */
struct buf *feed_queue(struct feed *f);

/* Sends whole events of a different feed, at once, to the viewers that get events `from` there. */
void feed_relay(struct feed *f, struct str events, enum reach from);

/* Ends the answers of all viewers; `left` is not called. */
void feed_end(struct feed *f);

/* Appends one event: a name, and JSON text without a line feed. */
void feed_event(struct buf *out, const char *name, struct str json);

#endif
