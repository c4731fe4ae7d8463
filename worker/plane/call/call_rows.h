/* The running model calls by their sessions, so that a search for a session's calls does not pass
 * all others. */
#ifndef RG_CALL_CALL_ROWS_H
#define RG_CALL_CALL_ROWS_H

#include <stddef.h>

#include "common/base/list.h"
#include "common/base/str.h"

struct call_env;
struct model_call;

/* A session's calls (model_call.in_row), newest first. It is there as long as it has some. */
struct call_row {
    struct list_head calls;
    size_t len;
    char session[];
};

/* The call becomes the newest of its session's; it is in no row. */
void call_rows_add(struct call_env *env, struct model_call *t);

/* Takes the call out of its row, if it is in one. */
void call_rows_leave(struct model_call *t);

/* The session's row; NULL: none of its calls is in one. */
struct call_row *call_rows_find(const struct call_env *env, struct str session_id);

#endif
