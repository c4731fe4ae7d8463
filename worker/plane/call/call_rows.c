/* Makes a row with a session's first call and frees it with the last one (call_rows.h). */
#include "worker/plane/call/call_rows.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"

static struct call_row *row_new(struct call_env *env, struct str session_id)
{
    struct call_row *r = mem_zalloc(sizeof(*r) + session_id.len);

    r->len = session_id.len;
    if (session_id.len > 0)
        memcpy(r->session, session_id.p, session_id.len);
    if (!env->rows)
        env->rows = mem_zalloc(sizeof(*env->rows));
    (void)map_set(env->rows, str_of(r->session, r->len), r);
    return r;
}

struct call_row *call_rows_find(const struct call_env *env, struct str session_id)
{
    return env->rows ? map_get(env->rows, session_id) : NULL;
}

void call_rows_add(struct call_env *env, struct model_call *t)
{
    struct call_row *r = call_rows_find(env, t->in.session_id);

    if (!r)
        r = row_new(env, t->in.session_id);
    t->row = r;
    list_prepend(&r->calls, &t->in_row);
}

void call_rows_leave(struct model_call *t)
{
    struct call_row *r = t->row;

    if (!r)
        return;
    t->row = NULL;
    list_remove(&t->in_row);
    if (!list_is_empty(&r->calls))
        return;
    (void)map_take(t->env->rows, str_of(r->session, r->len));
    free(r);
}

void call_rows_free(struct call_env *env)
{
    if (env->rows)
        map_done(env->rows);
    free(env->rows);
}
