/* Renders the ids of the prompt when an upstream that was asked with messages returned the ids of
 * its answers, but of the prompt only their number. Uses the rendering if the upstream has the same
 * model and the numbers are equal. Done once for all answers; a helper renders a long chat. */
#include <string.h>

#include "common/base/vec.h"
#include "common/os/task.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/work.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"

/* Reports whether the ids are needed: answers keep ids only if all have them, after one prompt. */
static bool is_needed(const struct model_call *t)
{
    if (!t->env->model_known || !t->in.req->chat->messages)
        return false;
    for (uint32_t i = 0; i < t->n_samples; i++) {
        const struct sample *r = &t->samples[i];

        if (!r->upstream || r->n_ids == 0 || r->prompt_ids.n > 0 || r->prompt_tokens == 0 ||
            r->prompt_tokens != t->samples[0].prompt_tokens)
            return false;
    }
    return t->n_samples > 0;
}

/* Renders the chat. Sets no ids if it cannot be rendered. */
static void render(struct model_call *t, struct model_scratch *scratch)
{
    struct token_vec ids = {0};
    struct err e;
    int32_t *copy;

    if (model_prompt(t->env->model, scratch, t->in.req->chat, &ids, &e) == 0 &&
        ids.n == t->samples[0].prompt_tokens) {
        copy = arena_alloc(&t->arena, ids.n * sizeof(*copy));
        memcpy(copy, ids.at, ids.n * sizeof(*copy));
        for (uint32_t i = 0; i < t->n_samples; i++)
            t->samples[i].prompt_ids = (struct token_span){copy, ids.n};
    }
    vec_done(&ids);
}

/* Renders the prompt, perhaps in a helper (work.h), where no other thread uses the call's arena
 * meanwhile. */
static int run(void *ctx, void *tool, struct err *e)
{
    struct model_call *t = ctx;
    const struct work_tools *tools = tool;

    if (work_note(tools, t->in.work_hash, e))
        return -1;
    render(t, tools->scratch);
    return 0;
}

int call_render_prompt(struct model_call *t)
{
    size_t bytes = t->in.body_bytes;
    struct task_work w = {.fn = run,
                          .ctx = t,
                          .lane = t->in.session_id,
                          .is_short = bytes <= WORK_TEXT_MAX && !model_is_slow(t->env->model),
                          .is_long = bytes > WORK_TEXT_LONG};

    return is_needed(t) ? model_call_offload(t, &w) : 0;
}
