/*
 * A fork: a new session with copies of all that led to one answer, which goes on from there.
 *
 *   session_fork_begin   what can be forked, and from which answer
 *   session_fork_scan    record by record: which are to be copied, so that their number is known
 *                        before the first is written
 *   session_fork_next    record by record: the copies, with the new session's id, and one that
 *                        makes them a fork
 *
 * The session may go on, and end, meanwhile: what is copied is what there was at the begin.
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

/* What is asked for. */
struct session_fork {
    struct str id;          /* the new session's */
    struct str response_id; /* absent: the newest answer; read by session_fork_begin only */
    bool train_prefix;      /* the copied answers are trained there as well */
    uint64_t now_ms;
};

/* A record to be copied. Fragments of a call come only with its commit. Others are dropped sooner
 * or later, and then there would be fewer records than announced. */
struct fork_record {
    uint32_t number;
    bool fragment; /* a fragment of a call: */
    uint64_t call;
};

/* One under way. */
struct fork_reader {
    struct session *session; /* the caller pins it */
    const struct session_fork *fork;
    uint64_t last_call;              /* the one that gave the answer */
    uint32_t checkpoint;             /* the answer's */
    uint32_t at, end;                /* numbers of records that are looked at */
    bool known;                      /* all that are copied */
    VEC(struct fork_record) records; /* they; before that also fragments without a commit */
    VEC(uint64_t) calls;             /* with a commit among them */
    size_t copied;
};

/* The session is resident; f stays the caller's. -1: ERR_INVALID (no such answer; policy chains;
 * without a journal), ERR_FOREIGN, ERR_UNASSEMBLABLE (it lost records). */
int session_fork_begin(struct session *s, const struct session_fork *f, struct fork_reader *ret,
                       struct err *e);

/* The next record. 1: all are known; 0: there are more; -1: ERR_IO. */
int session_fork_scan(struct fork_reader *r, struct err *e);

/* Counts the records that make the fork, when all are known, without the first, which is
 * session_create_record's. */
size_t session_fork_records(const struct fork_reader *r);

/* Appends the next of them. 1: it is the last; 0: there are more; -1: ERR_IO. */
int session_fork_next(struct fork_reader *r, struct buf *record, struct err *e);

/* Fine for one that was not begun. */
void session_fork_done(struct fork_reader *r);

#endif
