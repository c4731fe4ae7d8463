/*
 * struct fleet_keeper: the state of the keeper, which its files share.
 *
 *     fleet_keeper.c   process, beats, lists
 *     opening.c        the node's files, and the check of the server
 *     join.c           the way from the first connection to the first place
 *     ownership.c      claims and renewals
 *     releases.c       places that this node gives up
 *     folders.c        folders of places, and their bases
 *     adopting.c       claims of places of lost nodes
 *     forgotten.c      places of other nodes that the store has forgotten
 *     known_places.c   places of other nodes, in the state folder
 *     dispatcher_place.c   claims of the place of the dispatcher
 *     fleet_figures.c  metrics
 */
#ifndef RG_KEEPER_KEEPER_STATE_H
#define RG_KEEPER_KEEPER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/vec.h"
#include "common/fleet/fleet_store.h"
#include "common/fleet/place_table.h"
#include "common/fleet/store_url.h"
#include "common/os/loop.h"
#include "common/proc/child.h"
#include "keeper/fleet_view.h"
#include "keeper/node_entry.h"

enum join_step {
    JOIN_INFO,   /* the server is checked */
    JOIN_FLEET,  /* the keys are compared */
    JOIN_NAME,   /* no other node has the name */
    JOIN_NODE,   /* the node's entry is written */
    JOIN_BLOCK,  /* the block's entry is written */
    JOIN_PLACES, /* a place is claimed for each worker */
    JOINED,
};

/* The beat of a node that may live, and since when it has not changed. */
struct node_watch {
    char instance[ENTRY_TEXT_MAX]; /* "": nothing is watched */
    uint64_t beat, since_ms;
};

/* A place whose worker died again and again here. */
struct avoided_place {
    uint32_t index;
    uint64_t until_ms; /* clock_boot_ms before which this node does not claim it */
};

struct fleet_keeper {
    struct child child;
    struct loop *loop;
    const struct heritage *h;
    struct place_table *table;
    struct store_url url;
    struct store *store;
    uint64_t lease_ms;
    uint32_t usual_record;        /* version of records in places without doubt */
    bool replicated;              /* each answer waits for a replica of the store (--fleet-acks) */
    struct loop_timer beat, look; /* look: a list between two beats */
    struct loop_timer leave;      /* releases places without a worker */

    char name[FLEET_NAME_MAX];
    struct node_entry entry;   /* this node writes it */
    struct fleet_entry common; /* all nodes must have it in common */
    struct fleet_view view;
    bool listing;       /* the store is asked for all entries */
    uint64_t listed_ms; /* when the last list was asked for; 0: one is due */
    unsigned beats;

    uint32_t kept_block; /* that the sessions of the state folder have; FLEET_BLOCKS: none yet */
    bool keys_due;       /* fingerprints of changed keys are not in the store yet */
    enum join_step step;
    bool asking;             /* a call of the current step has no answer yet */
    uint64_t begun_ms;       /* when the start began */
    struct node_watch other; /* a different node of our name */

    VEC(struct store_renewal) renewals; /* the call with these has no answer yet */
    bool renewing, renews_last;         /* renews_last: the node ends after that call */
    uint64_t sent_ms;                   /* when that call was sent */
    VEC(uint32_t) claims;               /* indexes whose claim or release has no answer yet */
    VEC(struct avoided_place) avoided;
    size_t unserved;             /* places that no living node owns */
    uint64_t complained_ms;      /* when they were logged last; 0: not yet */
    uint64_t desk_complained_ms; /* when the dispatcher's place was logged last; 0: not yet */
    uint64_t desk_missed_ms;     /* since when the store has no entry of it; 0: it has one */
    uint32_t written_changes;    /* number of changes of places that `fleet-places` has */
    bool founded;  /* this new node has written the entry "fleet", which the store lacked */
    char why[256]; /* why the store does not answer; "": it does */
    const char *store_fault; /* what was wrong with its settings when it was measured; NULL: none */
    bool info_refused;       /* the last INFO was */
    bool ending;             /* the store is being freed: its calls end without effect */
};

/* --- fleet_keeper.c --- */

/* Asks the store for all entries again. */
void keeper_list(struct fleet_keeper *k);

/* Uses the beats of all nodes, which a renewal has returned. */
void keeper_use_beats(struct fleet_keeper *k, const struct store_answer *a);

/* Records that a call failed, because of the store, or succeeded. Logs the first one of a kind. */
void keeper_check_answer(struct fleet_keeper *k, const struct store_answer *a);

/* Ends the process after the last renewal, which reports the places that the node's workers have
 * left. Sends it first if it is not sent yet. */
void keeper_end_drain(struct fleet_keeper *k);

/* Ends the process, because this node cannot be part of the fleet. */
void keeper_fail(struct fleet_keeper *k, const char *why);

/* --- fleet_figures.c --- */

void keeper_publish_figures(struct fleet_keeper *k);

/* Returns what is wrong with the server's settings, as its answer to INFO says, or NULL. Logs a
 * refusal, once until INFO is allowed again: nothing is checked then. */
const char *keeper_check_store(struct fleet_keeper *k, const struct store_answer *a);

/* Asks the server how much memory it uses, and whether its settings still fit. */
void keeper_measure_store(struct fleet_keeper *k);

/* --- opening.c --- */

/* Reads the node's files and makes the store. -1 with the reason. */
int opening_open(struct fleet_keeper *k, struct err *e);

/* Asks the server about itself. The step is JOIN_FLEET after an answer that fits. */
void opening_ask(struct fleet_keeper *k);

/* Writes the node's block next to the instance. -1 with the reason. */
int opening_keep_block(struct fleet_keeper *k, struct err *e);

/* Reads the keys again. True: they have changed. */
bool opening_read_keys(struct fleet_keeper *k);

/* --- join.c --- */

/* Takes the next step, if the store's entries allow it. Called after each list. */
void join_continue(struct fleet_keeper *k);

/* Writes the fingerprints of changed keys. */
void join_write_keys(struct fleet_keeper *k);

/* Writes entries of this node again that the store has lost, or that are out of date. Ends the
 * process if a different node has its name now. Called after each list. */
void join_restore(struct fleet_keeper *k);

/* --- ownership.c --- */

/* Claims all places that the store says are this node's, those of its block without an owner that
 * have sessions, and at the start those in its state folder that the store lacks. Then claims
 * vacant and new ones until `wanted` of the block are owned or claimed. Returns the number of those
 * that are owned now. Ends the process if the block has too few. A node that leaves claims nothing.
 */
size_t ownership_claim_block(struct fleet_keeper *k, size_t wanted);

/* Claims new places that workers of this node need, and those whose claim had no answer. */
void ownership_claim_needed(struct fleet_keeper *k);

/* True if a claim or release of the place has no answer yet. */
bool ownership_is_claimed(const struct fleet_keeper *k, uint32_t index);

/* Ends the claim or release of the place, which was answered. */
void ownership_end_call(struct fleet_keeper *k, uint32_t index);

/* True if a claim of this node was done, but its answer was lost. */
bool ownership_is_unheard(const struct fleet_keeper *k, const struct seen_place *p);

/* True if the store says that this node has the place, whose journal is gone, and the store may
 * lack records of it: no node claims it. */
bool ownership_is_incomplete(const struct fleet_keeper *k, const struct seen_place *p);

/* Makes the entry of a place that the store lacks, or whose claim by this node it has forgotten. If
 * this node has its folder, the place is not whole until the store has the records. `lost`: a lost
 * node had the dispatcher's place later. */
void ownership_claim_first(struct fleet_keeper *k, uint32_t index, bool lost);

/* Enters a place that this node had before its upgrade, without a claim. False: it did not. */
bool ownership_continue(struct fleet_keeper *k, const struct seen_place *p);

/* Claims a place that was claimed before, by this node or another. */
void ownership_claim_seen(struct fleet_keeper *k, const struct seen_place *p);

/* Claims a place without a living owner. Releases it again if it has no sessions. */
void ownership_adopt(struct fleet_keeper *k, const struct seen_place *p);

/* Renews the owned places that are not being claimed, unless a renewal has no answer yet. */
void ownership_renew(struct fleet_keeper *k);

/* True if this node gives its places to others. */
bool ownership_is_leaving(const struct fleet_keeper *k);

/* True if the gateway ends, not only its processes of the binary before an upgrade. */
bool ownership_is_ending(const struct fleet_keeper *k);

/* --- releases.c --- */

/* Releases a place, which no worker serves. */
void ownership_release(struct fleet_keeper *k, uint32_t index, uint64_t epoch);

/* Releases the places that this node gives up, when their workers have ended and the store has all
 * records. */
void ownership_release_idle(struct fleet_keeper *k);

/* True if this node has released the place lately, because its process died again and again. */
bool ownership_is_avoided(const struct fleet_keeper *k, uint32_t index);

/* --- folders.c --- */

/* True if the state folder has sessions of the place. */
bool ownership_has_folder(const struct fleet_keeper *k, uint32_t index);

/* True if the state folder has any place, with sessions or not. */
bool ownership_has_folders(const struct fleet_keeper *k);

/* Claims the places of which this node has sessions and that the store has forgotten. Returns the
 * number of those of the block. _has_forgotten: reports whether there are any. */
size_t ownership_claim_folders(struct fleet_keeper *k);
bool ownership_has_forgotten(const struct fleet_keeper *k);

/* Returns the base of the place's records here, as its folder says. 0: there is no folder. _unread:
 * reports whether the store has, or had, records that the folder lacks. */
uint64_t ownership_read_base(const struct fleet_keeper *k, uint32_t index);
bool ownership_is_unread(const struct fleet_keeper *k, uint32_t index);

/* Writes the base of an own place to its folder. */
void ownership_write_base(const struct fleet_keeper *k, uint32_t index, uint64_t base, bool unread);

/* Renames the folder of a vacant place, whose sessions ended at another node. Returns false if it
 * cannot be renamed, or a worker still uses it. */
bool ownership_put_vacant(const struct fleet_keeper *k, uint32_t index);

/* True if the store, which was replaced, has forgotten that this node had the place, whoever has it
 * now. */
bool ownership_is_forgotten(const struct fleet_keeper *k, const struct seen_place *p);

/* --- adopting.c --- */

/* Claims this node's share of the places that no living node owns, and those whose claim was done
 * unheard. Returns when the next one may be due; 0: not before the next beat. Called after each
 * list. */
uint64_t adopting_claim_lost(struct fleet_keeper *k);

/* --- forgotten.c --- */

/* Restores the entries of places whose owner was lost when the store was emptied: they wait for it,
 * not whole, or `rollgate fleet take` makes their sessions lost. Tells the store of claims that it
 * has lost. Called after lists and renewals. */
void forgotten_restore(struct fleet_keeper *k);

/* --- known_places.c --- */

/* Writes the places that the store has, or had, to the state folder, if they have changed. */
void known_places_write(struct fleet_keeper *k);

/* Uses the places in the state folder's file, which is made if there is none: as places that the
 * store has lost or, if it has them and is not a new one, as claims that this node saw before its
 * start. */
void known_places_read(struct fleet_keeper *k, bool is_new);

/* -1 with the reason if the state folder has places of another fleet, which may go on there, or its
 * file cannot be read. */
int known_places_check(const struct fleet_keeper *k, struct err *e);

/* --- dispatcher_place.c --- */

/* Claims the dispatcher's place if no living node owns it. Returns like adopting_claim_lost. */
uint64_t dispatcher_place_claim(struct fleet_keeper *k);

#endif
