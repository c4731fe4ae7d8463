/* The running model calls, grouped by session, so that a search for a session's calls does not pass
 * all others. */
#ifndef RG_CALL_CALL_ROWS_H
#define RG_CALL_CALL_ROWS_H

#include <stddef.h>

#include "common/base/list.h"
#include "common/base/str.h"

struct call_env;
struct model_call;

/* A session's running calls (model_call.in_row), newest first. Exists while the session has any. */
struct call_row {
    struct list_head calls;
    size_t len;
    char session[];
};

/* Adds a call that is in no row as the newest of its session's calls. */
void call_rows_add(struct call_env *env, struct model_call *t);

/* Takes the call out of its row. Does nothing if the call is in none. */
void call_rows_leave(struct model_call *t);

/* Returns the session's row. Returns NULL if the session has no call in a row. */
struct call_row *call_rows_find(const struct call_env *env, struct str session_id);

#endif
