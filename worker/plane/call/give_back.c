/* Memory that helpers free (give_back.h). It counts as used until it is freed; nothing else waits
 * for it. */
#include "worker/plane/call/give_back.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/os/helpers.h"
#include "worker/plane/call/call_env.h"
#include "worker/session/store/remains.h"

/* Memory that the loop frees itself, in a millisecond at most: a turn on a long history has one or
 * two megabytes, and waking a helper costs more than freeing them. Debug builds leave more to
 * helpers, so that all tests cover them. */
#ifdef NDEBUG
enum { GIVE_LEAST = 4 << 20 };
#else
enum { GIVE_LEAST = 32 << 10 };
#endif

struct giving {
    struct helper_job job;
    struct arena arena;
    /* remains of a session to free instead; NULL: none, or freed */
    struct session_remains *remains;
    struct list_item item; /* memory of a session to free instead; NULL: none, or freed */
    struct call_env *env;
    struct buf lane;
};

/* Frees the memory in a helper. */
static void run_giving(struct helper_job *j, void *tool)
{
    struct giving *g = CONTAINER_OF(j, struct giving, job);

    (void)tool;
    arena_done(&g->arena);
    if (g->remains)
        remains_free(g->remains);
    g->remains = NULL;
}

static void end_giving(struct giving *g)
{
    list_remove(&g->item);
    arena_done(&g->arena);
    if (g->remains)
        remains_free(g->remains);
    buf_done(&g->lane);
    free(g);
}

/* Ends the job. The memory of a job whose thread hangs is never freed. */
static void on_done(struct helper_job *j, enum helper_end how)
{
    struct giving *g = CONTAINER_OF(j, struct giving, job);

    if (how == HELPER_STUCK)
        list_remove(&g->item);
    else
        end_giving(g);
}

static void push_giving(struct call_env *env, struct giving what, struct str session_id)
{
    struct giving *g = mem_alloc(sizeof(*g));

    *g = what;
    g->job = (struct helper_job){.run = run_giving, .done = on_done};
    g->env = env;
    buf_printf(&g->lane, "memory of %.*s", (int)session_id.len, session_id.p);
    list_append(&env->giving, &g->item);
    helpers_push(env->helpers, &g->job, buf_str(&g->lane));
}

void call_free_later(struct call_env *env, struct arena *a, struct str session_id)
{
    if (!env->helpers || a->held_bytes < GIVE_LEAST) {
        arena_done(a);
        return;
    }
    push_giving(env, (struct giving){.arena = *a}, session_id);
    *a = (struct arena){0};
}

/* Uses one lane for all sessions, so that many sessions that end at once share one helper. In a
 * helper, which held the messages last, frees them at once. */
void call_bury(void *ctx, struct session_remains *r)
{
    struct call_env *env = ctx;

    if (!helpers_within() && env->helpers)
        push_giving(env, (struct giving){.remains = r}, STR("ended sessions"));
    else
        remains_free(r);
}

void call_free_later_end(struct call_env *env, bool lost)
{
    struct giving *g, *next;

    LIST_EACH_SAFE(&env->giving, g, next, struct giving, item) {
        if (!lost)
            end_giving(g);
    }
}
