/*
 * struct store: the service that all nodes of a fleet share. It has the second copy of every
 * record, and it decides which node owns a place. These eight functions are all that is asked of
 * it. Each is atomic. Kinds: redis_store.h, and a file for tests.
 *
 *     entry            key             value
 *     node, block      "node:NAME"     text of its writer, with an edition
 *     orders, fleet    "orders"        text of its writer, with an edition
 *     place            "place:INDEX"   owner, epoch, beat, whole, vacant, taken, server, doubt
 *     log of a session                 records first .. next-1
 *
 * The dispatcher's place (FLEET_DISPATCHER) has the key "place:d".
 *
 * Calls on one store are done in the order in which they were made. Only claims may overtake and be
 * overtaken. Each call ends with one call of its function, never before the call has returned.
 * After STORE_LOST or STORE_FAILED nobody knows whether it was done, so the caller repeats it:
 *   - append, drop, renew, read and put may be repeated as they are;
 *   - a claim may be refused (STORE_ALIVE) because the first try was done: `owner` is then its own,
 *     and a claim with the beat of that answer succeeds.
 */
#ifndef RG_FLEET_FLEET_STORE_H
#define RG_FLEET_FLEET_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

/*
 * Epochs. A place has one owner and an epoch, which grows with each claim and release. Whatever
 * records passes its epoch. Each claim returns its `base`, the claim that the place's records stem
 * from. An owner keeps both numbers. After STORE_FENCED the caller claims again with `known` = its
 * own base, whoever is the owner now. Refused: the place has another owner, for ever. Done: the
 * store has forgotten the caller's claim, in a failover or because it was emptied. The caller as
 * owner: it has claimed the place again, and the answer was lost. Own epochs are not compared: a
 * claim with `known` gets a new epoch, and its base stays `known`. Otherwise an older owner would
 * look newer than the one that replaced it. After such a claim the place is not whole, and its
 * owner answers nothing for one lease: a node with a newer base takes the place within that time.
 * An owner that renewed the place within the last lease has the newest base, and answers at once.
 * The owner sends all records and renews with `whole`. From there on its base is its epoch, in the
 * store and in its own notes.
 *
 * The store remembers what it may have forgotten. An entry has all claims from `since` on; the
 * newest one that it knows of from before is `before`. A first entry begins with FLEET_BASE_OLDEST
 * and its own epoch. Whoever knows a claim between the two gets the place by a claim with `known`,
 * however often it was claimed meanwhile, and reads what was recorded meanwhile. `before` is then
 * `known`, and the base is above that of the owner that is replaced. So of two nodes that had a
 * place the later one gets it, in whatever order they come. A store that forgets an entry twice
 * remembers the second time only.
 *
 * Doubt. A failover or a restart of the store may lose a tail, and its owner sends it again. If the
 * owner is lost, too, nobody has it. So a place remembers the server (`server`: a number of its
 * history, which changes with each failover and restart; 0: unknown) that had all records when the
 * owner compared them last. A claim without own records (`bare`) on another server sets `doubt`:
 * the time up to which the store proves that it has all. The new owner marks the sessions, then
 * renews with its server, which ends the doubt. A server that has a release, or the renewal of an
 * owner that ends (`left`), has all. The exception: it lacks a later epoch that the claiming node
 * has seen. An owner that claims a forgotten place again before it has read all is `bare`, too. If
 * there is no entry then, the place is marked as with `incomplete`: nobody knows which sessions it
 * had.
 */

enum { STORE_APPEND_MAX = 1 << 20 /* bytes of records per append, or one record */ };

enum store_verdict {
    STORE_DONE,
    STORE_FENCED,     /* the epoch differs */
    STORE_SHORT,      /* append: the log ends before n-1; send again from `next` */
    STORE_CONFLICT,   /* append: record n has other bytes, or was dropped */
    STORE_ALIVE,      /* claim: the stored beat is another: the owner lives, or was replaced */
    STORE_INCOMPLETE, /* claim: the owner has records that the store lacks */
    STORE_UNKNOWN,    /* claim: there is no entry, and the caller may not make the first one */
    STORE_NEWER,      /* claim: the place has records of a version that the caller cannot read */
    STORE_OVERTAKEN,  /* put: another value has this edition or a newer one */
    STORE_FULL,       /* the server's memory is used up; nothing was written */
    STORE_LOST,       /* no answer; `why` has the reason */
    STORE_FAILED,     /* the server or its answer is at fault; `why` has the reason */
};

/* Why one record, or one place of a renewal, was not accepted. */
struct store_refusal {
    size_t i; /* its number in the call */
    enum store_verdict verdict;
    uint64_t next; /* STORE_SHORT: number of the record that the log lacks */
    uint64_t base; /* STORE_FENCED: the entry's */
};

/* A log in the store has the records first .. next-1. */
struct store_log {
    uint64_t first, next;
    bool complete; /* of a place that is not whole: the store has had all of its records since */
};

/* The number of renewals that a node has made. */
struct store_beat {
    struct str node;
    uint64_t beat;
};

/* The answer to a call. Fields that the function does not return are zero. Memory is the store's,
 * until the function returns. */
struct store_answer {
    enum store_verdict verdict;
    const char *why; /* STORE_LOST, STORE_FAILED */

    /* claim: as stored now. STORE_FENCED: the base alone */
    struct str owner;
    uint64_t epoch, base, beat;
    bool whole;
    uint64_t version; /* newest record version */
    uint64_t n_logs;  /* number of sessions that have a log */
    uint64_t
        doubt_ms; /* records since this time, of the store's clock, may be missing; 0: none is */

    /* renew, read without a session: the server that answers; 0: it does not say */
    uint64_t server;

    /* append and renew: what was not accepted, in the order of the call */
    const struct store_refusal *refused;
    size_t n_refused;

    /* renew: all nodes, in any order */
    const struct store_beat *beats;
    size_t n_beats;

    /* read: records first .. first+n-1 of a log that ends before next (both 0: no log), or ids */
    uint64_t first, next;
    const struct str *texts;
    size_t n_texts;
    const struct store_log *logs; /* read without a session: n_texts of them, of the ids */

    /* put, after STORE_OVERTAKEN */
    struct str value;
    uint64_t edition; /* renew: of the entry "orders" */
};

typedef void (*store_answer_fn)(void *ctx, const struct store_answer *a);

struct store_call {
    store_answer_fn fn;
    void *ctx;
};

struct store_claim {
    uint32_t place;
    uint32_t block; /* that the place's index belongs to */
    struct str me;
    uint64_t beat;   /* the last one seen; 0: there is no entry */
    uint64_t known;  /* the base that the caller owned the place with; 0: none */
    uint64_t reads;  /* the newest record version that it reads */
    uint64_t seen;   /* with bare, restores: the newest epoch that the caller saw it owned under */
    bool incomplete; /* take it although the store lacks records of it, or its entry; mark it */
    bool bare;       /* the store has records that the caller lacks, as far as the caller knows */
    /* `me` does not live, but the caller saw its claim `known`. An owner that made the entry later,
     * without records of before, keeps the place, and the entry is marked as with `incomplete`. So
     * is that of the dispatcher's place: any later owner keeps it, and without an entry `me` is the
     * caller, which saw a claim above its own `known`. If the entry is older than `seen`, the next
     * claim that is `bare` is in doubt. Refused unless the store has forgotten `known` */
    bool restores;
};

struct store_renewal {
    uint32_t place;
    uint64_t epoch;
    bool whole;       /* the store has all records of the place */
    bool left;        /* with whole: the owner records nothing more under this epoch */
    bool replicated;  /* each answer waited for a replica of the store, too */
    uint64_t server;  /* the server that was found to have all; 0: unknown */
    uint64_t version; /* newest record version that its owner writes */
};

struct store_record {
    struct str session;
    uint64_t first; /* number of the log's first record, if the store has no log */
    uint64_t n;     /* its own number */
    bool last;      /* no later one exists; needed while the place is not whole */
    struct str bytes;
};

/* An entry as watch reports it. */
struct store_entry {
    struct str key;
    struct str value; /* empty for places, and for entries that were given up */
    uint64_t edition;
    uint64_t beat; /* of a place or node */
    struct str owner;
    uint64_t epoch, base, before, since, version;
    bool whole;
    bool vacant; /* of a place without an owner: no session had a log when it was released */
    bool taken;  /* of a place that was claimed with `incomplete` or in doubt: sessions are lost */
    uint64_t doubt_ms; /* of a place: as in struct store_answer */
};

/* entry NULL: all entries have been reported, and changes follow. `why`: changes may be missed
 * until the next complete report, which begins without a call. */
typedef void (*store_watch_fn)(void *ctx, const struct store_entry *entry, const char *why);

struct store;

/* Which records of a session's log are deleted. */
struct store_cut {
    struct str session;
    bool keep;     /* all but the last one */
    uint64_t from; /* else those from this number on; 0: all */
};

struct store_kind {
    void (*claim)(struct store *s, const struct store_claim *claim, struct store_call call);
    void (*renew)(struct store *s, struct str node, const struct store_renewal *at, size_t n,
                  struct store_call call);
    void (*append)(struct store *s, uint32_t place, uint64_t epoch, const struct store_record *at,
                   size_t n, struct store_call call);
    void (*drop)(struct store *s, uint32_t place, uint64_t epoch, const struct store_cut *cut,
                 struct store_call call);
    void (*read)(struct store *s, uint32_t place, struct str session, uint64_t from,
                 struct store_call call);
    void (*put)(struct store *s, struct str key, struct str value, uint64_t edition,
                struct store_call call);
    void (*watch)(struct store *s, store_watch_fn fn, void *ctx);
    void (*release)(struct store *s, uint32_t place, uint64_t epoch, uint64_t server,
                    struct store_call call);
    void (*free)(struct store *s);
};

struct store {
    const struct store_kind *kind;
};

/* Makes the caller the owner under a new epoch: above the stored one, `known`, each `seen` that
 * was told, and the store's clock in ms. A `seen` that is a day ahead of both the stored one and
 * the clock raises no epoch. How far above depends on the server, but for the clock, so that two
 * of them hardly ever give the same epoch.
 * If the store has a replica, it has the claim, too, before the answer. Only the node of the block
 * makes a first entry, which is whole: such a node has no records yet. A place that is not whole
 * is claimed by its owner alone, or with `incomplete`. If `known` is newer than the claim that the
 * entry stems from, or there is no entry, the claim succeeds whatever the beat and the owner are,
 * and the place is not whole afterwards. */
static inline void store_claim(struct store *s, const struct store_claim *claim,
                               struct store_call call)
{
    s->kind->claim(s, claim, call);
}

/* Increments the beats of the node and of its places, and returns those of all nodes. Refuses
 * places whose epoch differs. A place that becomes whole stems from its owner's claim: base =
 * epoch. Returns the edition of the entry "orders", so that a node which has missed a change learns
 * of it before it answers again. */
static inline void store_renew(struct store *s, struct str node, const struct store_renewal *at,
                               size_t n, struct store_call call)
{
    s->kind->renew(s, node, at, n, call);
}

/* Puts each record n after record n-1 of its log. A record that is there with the same bytes is
 * accepted; one that was dropped is not. After a refusal later records of that session are refused,
 * too. At most STORE_APPEND_MAX bytes, or one record. The records are copied. */
static inline void store_append(struct store *s, uint32_t place, uint64_t epoch,
                                const struct store_record *at, size_t n, struct store_call call)
{
    s->kind->append(s, place, epoch, at, n, call);
}

/* Deletes records of a log. The session's text is copied. */
static inline void store_drop(struct store *s, uint32_t place, uint64_t epoch,
                              const struct store_cut *cut, struct store_call call)
{
    s->kind->drop(s, place, epoch, cut, call);
}

/* Reads records from number `from` on: at most 1 MiB, or one. Without a session: the ids that have
 * a log, and how long it is. */
static inline void store_read(struct store *s, uint32_t place, struct str session, uint64_t from,
                              struct store_call call)
{
    s->kind->read(s, place, session, from, call);
}

/* Writes an entry that is no place. Refuses an edition that is not above the stored one, unless the
 * value is the same. An empty value releases the entry, and removes the beat of its node. With
 * edition 0 and an empty value the call only reads: STORE_DONE means that there is no value. */
static inline void store_put(struct store *s, struct str key, struct str value, uint64_t edition,
                             struct store_call call)
{
    s->kind->put(s, key, value, edition, call);
}

/* Reports all entries, then each that changes by claim, put, release or "whole". Beats alone are
 * not reported. A second call begins again, with the new function. */
static inline void store_watch(struct store *s, store_watch_fn fn, void *ctx)
{
    s->kind->watch(s, fn, ctx);
}

/* Leaves the place without an owner, whole, and with an epoch of its own, so that nothing more is
 * recorded to it. Marks it as vacant if no session has a log. `server`: as in a renewal. */
static inline void store_release(struct store *s, uint32_t place, uint64_t epoch, uint64_t server,
                                 struct store_call call)
{
    s->kind->release(s, place, epoch, server, call);
}

/* Calls that have not ended end with STORE_LOST first. Not from within a function of the store.
 * NULL is accepted. */
static inline void store_free(struct store *s)
{
    if (s)
        s->kind->free(s);
}

/* "fenced", "short" ...: a verdict in logs and tables. */
const char *store_verdict_name(enum store_verdict v);

#endif
