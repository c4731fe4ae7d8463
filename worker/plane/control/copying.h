/*
 * struct copying: a new session that is made of existing records: a fork or an import. A task
 * writes the records to journal and store; a helper reads long texts before their record is applied
 * (session_texts.h). The session is not visible before its last record is written. It is removed if
 * that does not happen because the client leaves, the journal refuses, or the process dies
 * (session_copying: hidden, and deleted by the next sweep).
 *
 *     copying_begin(c);
 *       ... (pictures are stored)
 *       copying_wait(c, e);
 *       copying_write(c, record, last, e);    for each record; the session's beginning comes first
 *     copying_end(c);
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

enum copying_state { COPYING_READS, COPYING_WAITS, COPYING_WRITES };

/* A copy in progress. Embedded in its owner, zeroed. The owner sets the first members before
 * copying_begin; `from` and `pictures` may be set later. */
struct copying {
    struct answering *answer;
    struct str id; /* id of the new session; the owner's memory */
    uint64_t now_ms;
    const char *told_as; /* name of the member of the answer that contains `from` */
    struct str from;     /* id of the session that was copied; absent: unknown */
    bool pictures;       /* some pictures of the new session may be in the store */

    enum copying_state state;
    bool whole;              /* the last record is written */
    struct session *session; /* the new session, pinned; NULL before its first record */
    struct waiter waiter;    /* waits for a place among the writers */
    struct list_item item;   /* in the list of those that wait for such a place */
};

/* Registers the copy: from now on its pictures count as in use (control_copies). */
void copying_begin(struct copying *c);

/* Waits until others have written theirs. Fails if there is no space. */
MAY_PAUSE RG_MUSTCHECK int copying_wait(struct copying *c, struct err *e);

/* Writes a record. With the last one it makes the answer, and returns when that may be sent. */
MAY_PAUSE RG_MUSTCHECK int copying_write(struct copying *c, struct str record, bool last,
                                         struct err *e);

/* Ends the copy. Removes a session that was not written completely. */
void copying_end(struct copying *c);

#endif
