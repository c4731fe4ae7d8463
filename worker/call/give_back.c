/* Arenas that helpers free (give_back.h). Nobody waits for that but the memory's count. */
#include "worker/call/give_back.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/os/helpers.h"
#include "worker/call/call_env.h"

/* The loop frees less: a megabyte takes it half a millisecond at most. Debug builds leave more of
 * it to helpers, so that all tests see it. */
#ifdef NDEBUG
enum { GIVE_LEAST = 1 << 20 };
#else
enum { GIVE_LEAST = 32 << 10 };
#endif

enum { GIVE_LONG = 16 << 20 }; /* more takes a helper several milliseconds: helper_job.is_long */

struct giving {
    struct helper_job job;
    struct arena arena;
    struct list_item item; /* of env->giving */
};

/* In a helper. */
static void run(struct helper_job *j, void *tool)
{
    (void)tool;
    arena_done(&CONTAINER_OF(j, struct giving, job)->arena);
}

static void end(struct giving *g)
{
    list_remove(&g->item);
    arena_done(&g->arena);
    free(g);
}

/* What is stuck is the helper's for ever. */
static void on_done(struct helper_job *j, enum helper_end how)
{
    struct giving *g = CONTAINER_OF(j, struct giving, job);

    if (how == HELPER_STUCK)
        list_remove(&g->item);
    else
        end(g);
}

void call_give_back(struct call_env *env, struct arena *a, struct str session_id)
{
    struct buf lane = {0};
    struct giving *g;

    if (!env->helpers || a->held_bytes < GIVE_LEAST) {
        arena_done(a);
        return;
    }
    g = mem_zalloc(sizeof(*g));
    *g = (struct giving){.job = {.run = run, .done = on_done, .is_long = a->held_bytes > GIVE_LONG},
                         .arena = *a};
    *a = (struct arena){0};
    buf_printf(&lane, "memory of %.*s", (int)session_id.len, session_id.p);
    list_append(&env->giving, &g->item);
    helpers_push(env->helpers, &g->job, buf_str(&lane));
    buf_done(&lane);
}

void call_give_back_end(struct call_env *env, bool lost)
{
    struct giving *g, *next;

    LIST_EACH_SAFE(&env->giving, g, next, struct giving, item) {
        if (!lost)
            end(g);
    }
}
