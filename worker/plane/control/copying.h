/*
 * struct copying: a new session that is made of existing records, a fork's or an import's. A task
 * writes them into journal and store; a helper reads long texts before their record is applied
 * (session_texts.h). The session is not visible before its last record is written. It is removed if
 * that record does not come: the client leaves, the journal refuses, the process dies
 * (session_copying: hidden, and deleted by the next sweep).
 *
 *     copying_begin(c); ... (pictures are stored) ... copying_write(c, e); ... copying_end(c);
 */
#ifndef RG_CONTROL_COPYING_H
#define RG_CONTROL_COPYING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/str.h"
#include "common/os/task.h"

struct answering;
struct copying;

enum copying_state { COPYING_READS, COPYING_WAITS, COPYING_WRITES };

/* Embedded in its owner, zeroed. The owner sets the first members before copying_begin; `from` and
 * `pictures` may follow. */
struct copying {
    struct answering *answer;
    struct str id; /* id of the session that will be made; the owner's */
    uint64_t now_ms;
    const char *told_as; /* the member of the answer that says what it was made of: */
    struct str from;     /* a session's id, or absent */
    bool pictures;       /* some of its pictures may be in the store */

    /* Sets the next record, which is the owner's until the next call; absent: it takes another
     * step. Returns 1 for the last one, 0 if there are more, -1 if it cannot be read. The session's
     * beginning comes first. */
    int (*next)(struct copying *c, struct str *ret, struct err *e);

    enum copying_state state;
    bool whole;              /* its last record is written */
    struct session *session; /* pinned, after its first record */
    struct waiter waiter;    /* for its place among the writers */
    struct list_item item;   /* waits for its place among the writers */
};

/* Registers the copy: its pictures are in use from now on (control_copies). */
void copying_begin(struct copying *c);

/* Writes it when there is space, and others have written theirs. Makes the answer, and returns when
 * it may be sent. */
MAY_PAUSE RG_MUSTCHECK int copying_write(struct copying *c, struct err *e);

/* Takes back what is not whole. */
void copying_end(struct copying *c);

#endif
