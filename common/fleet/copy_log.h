/*
 * struct copy_log: a session's log in the store: its records in their order, and how many of them
 * were sent and confirmed (second_copy.h). Values only: it sends nothing.
 */
#ifndef RG_FLEET_COPY_LOG_H
#define RG_FLEET_COPY_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/str.h"
#include "common/base/vec.h"

struct copy_fragment {
    uint64_t call;
    uint32_t number;
};

struct copy_place;
struct copy_role;

struct copy_log {
    struct copy_place *place;
    VEC(uint32_t) numbers;               /* numbers of the log's records in the journal */
    VEC(struct copy_fragment) fragments; /* fragments that no commit has named yet */
    size_t sent, stored;                 /* number of records sent; confirmed by the store */
    size_t first;                        /* number of the first record that the store must have */
    uint64_t reset; /* number of an append; refusals of earlier ones are void */
    bool lost;      /* two owners have written, or records are missing */
    bool unread;    /* the store has records that the journal lacks */
    bool wanted;    /* a request waits for this unread log */
    bool ended;     /* only the last record is needed */
    bool trimmed;   /* the store has only that one, or was asked to */
    /* the store's log is deleted first, then sent from the start (ended: only its last record) */
    bool rewrite;
    bool cut;                 /* the store's records from cut_at on must be deleted first */
    size_t cut_at;            /* number of a record */
    bool seen;                /* the present comparison has handled it */
    bool doubted;             /* it may lack records, and is not marked yet */
    bool dropping;            /* the session is not needed any longer */
    bool drop_sent;           /* the store was asked to delete the log */
    struct list_item behind;  /* in copy_place.behind: there is more to send */
    struct list_item unasked; /* in copy_place.unasked: it must be read */
    struct list_head waits;   /* struct copy_wait */
    size_t id_len;
    char id[];
};

struct copy_log *copy_log_new(struct copy_place *place, struct str session);
void copy_log_free(struct copy_log *l);

struct str copy_log_id(const struct copy_log *l);

/* Adds a record, which the journal has under this number. Returns the number of records by which
 * the log grows: 0 for a fragment; a commit is added together with its fragments. */
size_t copy_log_add(struct copy_log *l, const struct copy_role *role, uint32_t number);

/* Drops the fragments of a call that will not commit. */
void copy_log_release_call(struct copy_log *l, uint64_t call);

#endif
