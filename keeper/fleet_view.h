/*
 * struct fleet_view: the entries of the store as the keeper has seen them last, and since when
 * each beat has not changed. Renewals return the beats of nodes, which advance with those of their
 * places. An entry that a list lacks is gone (store_watch). Pure: times are the caller's, on
 * clock_boot_ms.
 */
#ifndef RG_KEEPER_FLEET_VIEW_H
#define RG_KEEPER_FLEET_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "keeper/node_entry.h"

struct seen_node {
    char name[FLEET_NAME_MAX];
    struct node_entry entry;
    bool valid; /* the entry could be read */
    uint64_t edition, beat;
    uint64_t beat_ms, seen_ms; /* when this beat was seen first and last */
    uint32_t round;
    uint32_t slot;   /* in the place table; FLEET_NO_NODE: none yet */
    uint32_t places; /* that it owns, if they are counted */
};

struct seen_block {
    char key[16];               /* its number */
    char owner[FLEET_NAME_MAX]; /* "": free */
    uint64_t edition;
    uint32_t round;
};

struct seen_place {
    char key[16]; /* its index */
    uint32_t index;
    char owner[FLEET_NAME_MAX]; /* "": no owner */
    uint64_t epoch, base, before, since, beat, version;
    uint64_t newest;           /* highest epoch that it was owned under, also at other servers */
    uint64_t told;             /* such an epoch of which the store knows that it has lost it */
    uint64_t beat_ms, seen_ms; /* when this beat and owner were listed first and last */
    uint64_t claim_ms;         /* when this epoch was seen first */
    uint64_t doubt_ms;         /* records since this time may be missing; 0: none is */
    bool whole, taken;
    bool vacant; /* no owner, no sessions: only the node of its block claims it */
    bool stale;  /* this node has released it since */
    uint32_t round;
    bool lost;           /* the store lost the entry when it was emptied */
    uint64_t gone_ms;    /* when a list lacked it, or had an entry that was made anew */
    uint32_t gone_round; /* the number of that list */
};

struct fleet_view {
    const char *self; /* name of this node, whose slot no other gets */
    struct map nodes, blocks, places;
    struct map gone;        /* places that the store had, as seen last; vacant ones only if taken */
    uint32_t emptied_round; /* list at which the store was seen to lack a place of this node */
    struct buf fleet;       /* value of the entry "fleet"; empty: there is none */
    uint64_t fleet_edition;
    uint32_t fleet_round;
    struct buf orders; /* newest value of the entry "orders" that was seen; empty: none */
    uint64_t orders_edition;
    /* edition of the orders that the store has now; 0: it has none. A renewal or an entry only
     * raises it, a complete list sets it */
    uint64_t stored_edition;
    uint64_t listed_edition; /* edition in the entry that was reported last */
    uint32_t orders_round;
    uint32_t round;               /* number of lists that have ended */
    uint64_t unbroken_ms;         /* since when changes are seen without a gap; 0: not yet */
    bool places_gone, nodes_gone; /* since the last publication */
    bool counted;                 /* the places of nodes, for this publication */
    uint32_t places_of_block[FLEET_BLOCKS]; /* those that are not vacant */
};

void fleet_view_done(struct fleet_view *v);

/* Adds an entry, or replaces what is known of it. */
void fleet_view_add(struct fleet_view *v, const struct store_entry *e, uint64_t now_ms);

/* Adds the beat of a node that a renewal has returned. Returns false if the node is unknown. */
bool fleet_view_beat(struct fleet_view *v, const struct store_beat *b, uint64_t now_ms);

/* A list has ended: removes what was reported neither by it nor since the list before. */
void fleet_view_end_list(struct fleet_view *v, uint64_t now_ms);

/* Adds the edition of the orders that a renewal has returned. */
void fleet_view_raise_edition(struct fleet_view *v, uint64_t edition);

/* Keeps a place that the store has no longer, instead of what was kept of it before. */
void fleet_view_keep_gone(struct fleet_view *v, struct seen_place *p, uint64_t now_ms);

/* The store has no entry of a place of this node: it was emptied. */
void fleet_view_note_emptied(struct fleet_view *v);

/* True if the store has lost the entry when it was emptied, and not by a command. That stays true
 * if it is emptied again. */
bool fleet_view_has_lost(const struct fleet_view *v, struct seen_place *gone);

/* NULL: the place is not gone. */
struct seen_place *fleet_view_gone(const struct fleet_view *v, uint32_t index);

/* Forgets a place that is gone, and frees it. */
void fleet_view_drop_gone(struct fleet_view *v, struct seen_place *gone);

/* The connection broke: a beat that did not change meanwhile proves nothing. */
void fleet_view_interrupt(struct fleet_view *v);

/* True if the store has lost orders that were seen. */
bool fleet_view_lacks_orders(const struct fleet_view *v);

/* NULL: the store has no such entry. */
struct seen_node *fleet_view_node(const struct fleet_view *v, const char *name);
struct seen_block *fleet_view_block(const struct fleet_view *v, uint32_t block);
struct seen_place *fleet_view_place(const struct fleet_view *v, uint32_t index);

/* True if the store does not know of this claim of the place, so that whoever made it gets the
 * place back (fleet_store.h). */
bool fleet_view_lacks_claim(const struct seen_place *p, uint64_t base);

/* Returns the block `kept` if no other node has it, else one that the node has, else the smallest
 * free one. A block has `wanted` indexes that are vacant, new or the node's own. FLEET_BLOCKS:
 * `kept` is none; all are used. */
uint32_t fleet_view_choose_block(const struct fleet_view *v, const char *name, uint32_t kept,
                                 size_t wanted);

/* True if the node's beat has changed since the connection was made: it lives. */
bool fleet_view_has_beaten(const struct fleet_view *v, const struct seen_node *n);

/* True if the same beat was seen for a whole lease, without a break of the connection. */
bool fleet_view_is_lost(const struct fleet_view *v, const struct seen_node *n, uint64_t lease_ms);

/* Returns when the place counts as lost if the beat of its owner does not change: a lease after the
 * last change, claim or break of the connection. A place without an owner is lost at once. Returns
 * 0 if the connection is broken. */
uint64_t fleet_view_silent_ms(const struct fleet_view *v, const struct seen_place *p,
                              uint64_t lease_ms);

/* Like fleet_view_silent_ms, but earlier if lists show that the owner beats without renewing the
 * place. */
uint64_t fleet_view_lost_ms(const struct fleet_view *v, const struct seen_place *p,
                            uint64_t lease_ms);

/* Writes all of it to the place table. If its slots are used up, nodes that are lost and own no
 * place give theirs to others. Returns the number of places that did not fit. */
size_t fleet_view_publish(struct fleet_view *v, struct place_table *t, uint64_t lease_ms);

#endif
