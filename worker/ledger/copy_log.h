/*
 * struct copy_log: which records of a session its log in the store has, in which order, and how far
 * they have come (second_copy.h). Values only: it sends nothing.
 */
#ifndef RG_LEDGER_COPY_LOG_H
#define RG_LEDGER_COPY_LOG_H

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

struct copy_log {
    struct copy_place *place;
    VEC(uint32_t) numbers;               /* numbers of the log's records in the journal */
    VEC(struct copy_fragment) fragments; /* no commit has named them yet */
    size_t sent, stored;                 /* the first so many records */
    size_t first;                        /* number of the first record that the store is to have */
    uint64_t reset;                      /* refusals of calls before this one are void */
    bool lost;                           /* two owners have written, or records are missing */
    bool unread;                         /* the store has records that the journal lacks */
    bool wanted;                         /* unread, and a request waits for it */
    bool ended;                          /* the last record is all that is needed */
    bool trimmed;                        /* the store has that one alone, or was asked for it */
    bool rewrite; /* the store's log is deleted first, then sent from the start; ended: by its last
                   * record alone */
    bool cut;     /* the store's log must end before record cut_at first */
    size_t cut_at;
    bool seen;     /* by the comparison under way */
    bool dropping; /* the session is not needed any more */
    bool drop_sent;
    struct list_item behind;  /* among the logs that have more to send */
    struct list_item unasked; /* unread: among the logs that are to be read */
    struct list_head waits;   /* struct copy_wait */
    size_t id_len;
    char id[];
};

struct copy_log *copy_log_new(struct copy_place *place, struct str session);
void copy_log_free(struct copy_log *l);

struct str copy_log_id(const struct copy_log *l);

/* The journal has the record as that number. Returns how many records the log has more. */
size_t copy_log_add(struct copy_log *l, struct str record, uint32_t number);

/* The call will not commit. */
void copy_log_release_call(struct copy_log *l, uint64_t call);

#endif
