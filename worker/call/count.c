/* How many tokens a request's prompt has: the first half of a call, and no more. */

#include "common/base/arena.h"
#include "common/os/loop.h"
#include "worker/call/call_env.h"
#include "worker/call/give_back.h"
#include "worker/call/model_call.h"
#include "worker/call/prepare_input.h"
#include "worker/call/work.h"
#include "worker/engine/engine_pool.h"
#include "worker/request/chat_request.h"
#include "worker/residency/residency.h"
#include "worker/session/session.h"
#include "worker/session/session_call.h"

struct token_count {
    struct call_env *env;
    struct arena arena; /* in which it lies */
    struct call_input in;
    struct session_call_input input;
    struct session_plan *plan; /* of a chat or of ids */
    struct session *session;   /* pinned */
    bool walks;                /* a long history is gone through, in */
    struct loop_task walk;
    struct long_work work;
    struct token_span prompt;
    token_count_fn fn;
    void *ctx;
};

/* The arena, in which the count itself lies, goes to the caller. */
static void free_count(struct token_count *c, struct arena *ret)
{
    struct call_env *env = c->env;
    struct session *s = c->session;

    *ret = c->arena;
    if (c->plan)
        session_release_unused(env->store, c->plan);
    if (s)
        session_unpin(env->store, s);
}

static void on_drop(struct long_work *w)
{
    struct token_count *c = CONTAINER_OF(w, struct token_count, work);
    struct call_env *env = c->env;
    struct str id = c->in.session_id; /* in the arena */
    struct arena arena;

    free_count(c, &arena);
    call_give_back(env, &arena, id);
}

/* Ends the count. A stuck helper still has its memory: then it is left there. */
static void tell(struct token_count *c, const struct err *e)
{
    struct call_env *env = c->env;
    struct str id = c->in.session_id; /* in the arena */
    token_count_fn fn = c->fn;
    void *ctx = c->ctx;
    size_t n = c->prompt.n + (c->plan ? (size_t)c->plan->image_extra : 0);
    struct arena arena = {0};

    if (!c->work.stuck)
        free_count(c, &arena);
    fn(ctx, &arena, e ? 0 : n, e);
    call_give_back(env, &arena, id);
}

/* In a helper, maybe. */
static int render(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct token_count *c = CONTAINER_OF(w, struct token_count, work);

    if (work_note(tools, w->body_hash, e))
        return -1;
    if (c->plan)
        return session_prepare_render(c->plan, tools->scratch, &c->prompt, e);
    return prepare_encode(tools->encoder, &c->arena, c->in.req, &c->prompt, e);
}

static void on_rendered(struct long_work *w, const struct err *e)
{
    tell(CONTAINER_OF(w, struct token_count, work), e);
}

/* 0, or -1 and e: it can be told now. 1: a helper is at it. */
static int begin_render(struct token_count *c, struct err *e)
{
    size_t bytes =
        c->plan ? session_prompt_bytes(c->plan, WORK_TEXT_LONG + 1) : c->in.req->prompt.len;
    enum work_state state;

    c->work.is_long = bytes > WORK_TEXT_LONG;
    state = work_begin(c->env, &c->work, c->in.session_id, bytes <= WORK_TEXT_MAX, e);
    return state == WORK_HELPED ? 1 : state == WORK_DONE ? 0 : -1;
}

static void on_walk(struct loop_task *t);

/* rc: of session_prepare_begin or _go_on. */
static int walked(struct token_count *c, int rc, struct err *e)
{
    c->walks = rc == 1;
    if (c->walks)
        loop_task_post_behind(c->env->loop, &c->walk, on_walk);
    return rc ? rc : begin_render(c, e);
}

static void on_walk(struct loop_task *t)
{
    struct token_count *c = CONTAINER_OF(t, struct token_count, walk);
    struct err e = {0};
    int rc = walked(c, session_prepare_go_on(&c->plan, &e), &e);

    if (rc != 1)
        tell(c, rc ? &e : NULL);
}

/* As begin_render. 1, too: the history is gone through. */
static int begin(struct token_count *c, struct err *e)
{
    struct call_env *env = c->env;
    const struct chat_request *req = c->in.req;
    bool ended = false;
    struct session *s = session_find(env->store, c->in.session_id, &ended);
    const struct engine_pool *engines;

    if (!s)
        return err_set(e, ended ? ERR_SESSION_ENDED : ERR_UNKNOWN_SESSION, "no such session");
    if (residency_room(env->residency, s,
                       c->in.body_bytes + c->in.shared_bytes + c->arena.held_bytes, e))
        return -1;
    engines = call_engines(env, req->model, s);
    if (!engines || engine_pool_name(engines))
        return err_field(e, "model",
                         "model: the engines of this pool have a model of their own, whose tokens "
                         "cannot be counted here");
    if (prepare_input(env, engines, &c->in, req->sampling, &c->input, e))
        return -1;
    session_pin(s);
    c->session = s;
    c->input.look = true;
    c->input.text = false;
    if (prepare_is_text(req))
        return begin_render(c, e);
    return walked(c, session_prepare_begin(s, &c->arena, &c->input, &c->plan, e), e);
}

/* NULL: it was told already. The arena is taken over, and given back to fn. */
struct token_count *call_count_tokens(struct call_env *env, struct arena *arena,
                                      const struct call_input *in, token_count_fn fn, void *ctx)
{
    struct token_count *c = ARENA_NEW(arena, struct token_count);
    struct err e = {0};
    int rc;

    c->env = env;
    c->in = *in;
    c->fn = fn;
    c->ctx = ctx;
    c->work.run = render;
    c->work.done = on_rendered;
    c->work.drop = on_drop;
    c->work.body_hash = in->work_hash;
    c->arena = *arena;
    *arena = (struct arena){0};
    rc = begin(c, &e);
    if (rc == 1)
        return c;
    tell(c, rc ? &e : NULL);
    return NULL;
}

void token_count_drop(struct token_count *c)
{
    if (!c)
        return;
    if (c->walks) {
        loop_task_cancel(c->env->loop, &c->walk);
        on_drop(&c->work);
    } else {
        work_drop(&c->work);
    }
}
