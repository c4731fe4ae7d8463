/* Counts the tokens of a request's prompt: runs only the first half of a call. */

#include "common/base/arena.h"
#include "common/os/task.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call.h"
#include "worker/plane/call/prepare_input.h"
#include "worker/plane/call/work.h"
#include "worker/residency/residency.h"
#include "worker/session/call/session_call.h"
#include "worker/session/store/session.h"
#include "worker/text/request/chat_request.h"

struct token_count {
    const struct call_input *in;
    struct arena *arena;
    struct session_call_input input;
    struct session_plan *plan; /* plan of a chat or of token ids */
    size_t n;                  /* tokens of the prompt */
};

/* Renders the prompt, perhaps in a helper. */
static int render_count(void *ctx, void *tool, struct err *e)
{
    struct token_count *c = ctx;
    const struct work_tools *tools = tool;
    struct token_parts prompt = {0};
    struct token_span text = {0};
    int rc;

    if (work_note(tools, c->in->work_hash, e))
        return -1;
    rc = c->plan ? session_prepare_render(c->plan, tools->scratch, &prompt, e)
                 : prepare_encode(tools->encoder, c->arena, c->in->req, &text, e);
    c->n = prompt.n + text.n;
    return rc;
}

MAY_PAUSE static int render_prompt(struct token_count *c, struct err *e)
{
    size_t bytes =
        c->plan ? session_prompt_bytes(c->plan, WORK_TEXT_LONG + 1) : c->in->req->prompt.len;
    struct task_work w = {.fn = render_count,
                          .ctx = c,
                          .lane = c->in->session_id,
                          .is_short = bytes <= WORK_TEXT_MAX,
                          .is_long = bytes > WORK_TEXT_LONG};

    return task_offload(&w, e);
}

/* Counts the tokens of the prompt. The session must be pinned. */
MAY_PAUSE static int count_prompt(struct token_count *c, struct session *s, struct err *e)
{
    if (!prepare_is_text(c->in->req) &&
        (session_prepare_position(s, c->arena, &c->input, &c->plan, e) ||
         session_prepare_path(c->plan, e)))
        return -1;
    return render_prompt(c, e);
}

static int check_engines(const struct call_env *env, const struct session *s,
                         const struct engine_pool *engines, const struct token_count *c,
                         struct err *e)
{
    if (residency_room(env->residency, s,
                       c->in->body_bytes + c->in->shared_bytes + c->arena->held_bytes, e))
        return -1;
    if (!engines || engine_pool_name(engines))
        return err_field(e, "model",
                         "model: the engines of this pool have a model of their own, whose tokens "
                         "cannot be counted here");
    return 0;
}

int call_count_tokens(struct call_env *env, struct arena *arena, const struct call_input *in,
                      size_t *ret, struct err *e)
{
    struct token_count c = {.in = in, .arena = arena};
    bool ended = false;
    struct session *s = session_find(env->store, in->session_id, &ended);
    const struct engine_pool *engines;
    int rc;

    if (!s)
        return err_set(e, ended ? ERR_SESSION_ENDED : ERR_UNKNOWN_SESSION, "no such session");
    engines = call_engines(env, in->req->model, s);
    if (check_engines(env, s, engines, &c, e) ||
        prepare_input(env, engines, in, in->req->sampling, &c.input, e))
        return -1;
    session_pin(s);
    c.input.look = true;
    c.input.text = false;
    rc = count_prompt(&c, s, e);
    *ret = c.n + (c.plan ? (size_t)c.plan->image_extra : 0);
    if (c.plan)
        session_release_unused(env->store, c.plan);
    session_unpin(env->store, s);
    return rc;
}
