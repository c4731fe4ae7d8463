/* struct listing: one request of GET /sessions (listing.c), and its rows of this process
 * (listing_own.c). */
#ifndef RG_CONTROL_LISTING_INTERNAL_H
#define RG_CONTROL_LISTING_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/fleet/place_table.h"
#include "common/serve/reach.h"

struct answering;
struct err;
struct listing_own;
struct service;

struct listing {
    struct service *service;
    struct answering *answer; /* its `out` has the rows that are not sent yet */
    struct arena arena;
    struct str phase, label, reseeded; /* filters, decoded */
    bool archived;                     /* also list finalized sessions that have left the store */
    enum reach reach;
    bool whole;        /* the page is sent in one piece: the request is from a sibling or a node */
    struct str query;  /* the query as given */
    struct str cursor; /* cursor of the query; absent: none */
    uint64_t limit, got;
    uint32_t *workers; /* indexes of workers, or of places, in the arena */
    size_t n_workers, at;
    bool by_place; /* each of `workers` is one place, whose worker may have others, too */
    bool silent[FLEET_NODES_MAX]; /* nodes that did not answer, by slot */
    struct str after; /* cursor in workers[at], without the index; absent: from the start */
    struct buf last;  /* cursor of the last row */
    /* indexes of workers and names of nodes that did not answer, then peers, separated by commas */
    struct buf unreachable;
    struct listing_own *own; /* the walk over the sessions of this process; NULL: none yet */
};

/* Adds a row, which is copied as text. */
void listing_add_row(struct listing *v, struct str text);

/* Reports whether the page needs no further rows. */
bool listing_is_full(const struct listing *v);

/* Sends the rows so far. Call it after each row. */
MAY_PAUSE int listing_send_rows(struct listing *v, struct err *e);

/* Adds rows of this process after the cursor v->after, until the page is full: those of the place
 * workers[at] with by_place. */
MAY_PAUSE int listing_add_own(struct listing *v, struct err *e);

/* Reports whether this process lists the sessions of that index. */
bool listing_is_own(const struct listing *v, uint32_t index);

/* Ends the walk over this process's sessions; another one may begin. */
void listing_end_own(struct listing *v);

#endif
