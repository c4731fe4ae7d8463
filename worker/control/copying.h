/*
 * struct copying: a new session that is made of records that there are, a fork's or an import's.
 * They go into journal and store in slices, everybody else having turns between; a helper reads
 * long texts before their record is applied (text_help.h). Nobody finds the session before its last
 * record is there, and nothing of it stays when that does not come: the client leaves, the journal
 * refuses, the process dies (session_copying: hidden, and deleted by the next sweep).
 *
 *   copying_enter -> (pictures are stored) -> copying_write -> the answer, behind the last record
 *                                          \-> copying_fail, copying_drop: nothing of it stays
 *
 * Each of the last three ends in `free`, at once or later.
 */
#ifndef RG_CONTROL_COPYING_H
#define RG_CONTROL_COPYING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/str.h"
#include "common/os/loop.h"
#include "worker/residency/text_help.h"
#include "worker/service/service.h"

struct copying;
struct err;

enum copying_state { COPYING_READS, COPYING_WAITS, COPYING_WRITES };

/* Embedded in its owner, zeroed. The owner sets the first part before copying_enter, but for
 * `from`, which may come later. */
struct copying {
    struct service_request request; /* strings are the exchange's */
    struct str id;                  /* of the session that is to be; the owner's */
    uint64_t now_ms;
    const char *told_as; /* the member of the answer that says what it was made of: */
    struct str from;     /* a session's id, or absent */
    bool pictures;       /* some of its pictures may be in the store */

    /* The next record, the owner's until the next call; absent: it takes another step. 1: it is the
     * last; 0: there are more; -1: it cannot be read. The session's beginning comes first. */
    int (*next)(struct copying *c, struct str *ret, struct err *e);
    /* Frees the struct around this one; what is below has been freed. */
    void (*free)(struct copying *c);

    enum copying_state state;
    struct session *session; /* pinned, once it has its first record */
    struct str record;       /* to be written next; or absent */
    bool last, helped;       /* that one; it was looked at for its texts */
    struct text_help help;
    struct loop_task later;
    struct list_item item; /* of service->copies */
};

/* From now on its pictures are wanted (control_copies). */
void copying_enter(struct copying *c);

/* Writes it, when there is room and others are through. */
void copying_write(struct copying *c);

/* Answers the error. */
void copying_fail(struct copying *c, const struct err *e);

/* The client left. */
void copying_drop(struct copying *c);

#endif
