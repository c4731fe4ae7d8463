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

enum { GIVE_PIECE = 16 << 20 }; /* of one job, some milliseconds: others come between */

struct giving {
    struct helper_job job;
    struct arena arena;
    struct list_item item; /* of env->giving */
    struct call_env *env;
    struct buf lane;
};

/* In a helper. */
static void run(struct helper_job *j, void *tool)
{
    (void)tool;
    (void)arena_done_part(&CONTAINER_OF(j, struct giving, job)->arena, GIVE_PIECE);
}

static void end(struct giving *g)
{
    list_remove(&g->item);
    arena_done(&g->arena);
    buf_done(&g->lane);
    free(g);
}

/* What is stuck is the helper's for ever. */
static void on_done(struct helper_job *j, enum helper_end how)
{
    struct giving *g = CONTAINER_OF(j, struct giving, job);

    if (how == HELPER_STUCK)
        list_remove(&g->item);
    else if (g->arena.held_bytes > 0)
        helpers_push(g->env->helpers, &g->job, buf_str(&g->lane));
    else
        end(g);
}

void call_give_back(struct call_env *env, struct arena *a, struct str session_id)
{
    struct giving *g;

    if (!env->helpers || a->held_bytes < GIVE_LEAST) {
        arena_done(a);
        return;
    }
    g = mem_zalloc(sizeof(*g));
    *g = (struct giving){.job = {.run = run, .done = on_done}, .arena = *a, .env = env};
    *a = (struct arena){0};
    buf_printf(&g->lane, "memory of %.*s", (int)session_id.len, session_id.p);
    list_append(&env->giving, &g->item);
    helpers_push(env->helpers, &g->job, buf_str(&g->lane));
}

void call_give_back_end(struct call_env *env, bool lost)
{
    struct giving *g, *next;

    LIST_EACH_SAFE(&env->giving, g, next, struct giving, item) {
        if (!lost)
            end(g);
    }
}
