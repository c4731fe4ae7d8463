/*
 * A fork: a new session with copies of all records that led to one answer, from which it continues.
 *
 *   session_fork_begin   checks that the session can be forked, and finds the answer
 *   session_fork_scan    record by record: finds which are copied, so that their number is known
 *                        before the first is written
 *   session_fork_next    record by record: makes the copies, with the new session's id, and a last
 *                        record that makes them a fork
 *
 * The session may change and end meanwhile: only what existed at the begin is copied.
 */
#ifndef RG_SESSION_SESSION_FORK_H
#define RG_SESSION_SESSION_FORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/base/vec.h"

struct buf;
struct err;
struct session;

/* A request for a fork. */
struct session_fork {
    struct str id;          /* id of the new session */
    struct str response_id; /* absent: the newest answer; only session_fork_begin reads it */
    bool train_prefix;      /* the copied answers are trained in the fork, too */
    uint64_t now_ms;
};

/* A record that is copied. Fragments of a call are copied only with its commit, because others will
 * be dropped at some time, and the fork would then have fewer records than it announced. */
struct fork_record {
    uint32_t number;
    bool fragment; /* a fragment of a call: */
    uint64_t call;
    bool rows; /* one that the second copy lacks: it does not count among the fork's records */
};

/* A fork in progress. */
struct fork_reader {
    struct session *session; /* the session that is forked; pinned by the caller */
    const struct session_fork *fork;
    uint64_t last_call;  /* number of the call that gave the answer */
    uint32_t checkpoint; /* id of the answer's checkpoint */
    uint32_t at, end;    /* numbers of the next record to read, and of the end */
    bool known;          /* all records to copy are known */
    /* the records to copy; until `known` also fragments without a commit */
    VEC(struct fork_record) records;
    VEC(uint64_t) calls; /* calls that have a commit among them */
    size_t copied;
};

/* Begins a fork. The session must be resident; f stays the caller's. Returns -1 with ERR_INVALID
 * (no such answer; policy chains; without a journal), ERR_FOREIGN, or ERR_UNASSEMBLABLE (records
 * were lost). */
int session_fork_begin(struct session *s, const struct session_fork *f, struct fork_reader *ret,
                       struct err *e);

/* Reads the next record. Returns 1 when all are known, 0 if more follow, -1 with ERR_IO. */
int session_fork_scan(struct fork_reader *r, struct err *e);

/* When all are known: returns the number of records that make the fork, without the first, which
 * session_create_record writes. */
size_t session_fork_records(const struct fork_reader *r);

/* Appends the next record. Returns 1 if it is the last, 0 if more follow, -1 with ERR_IO. */
int session_fork_next(struct fork_reader *r, struct buf *record, struct err *e);

/* Frees the reader; also allowed if it was not begun. */
void session_fork_done(struct fork_reader *r);

#endif
