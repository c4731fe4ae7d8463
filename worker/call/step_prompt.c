/* The step PROMPT: the prompt's ids where an upstream that was asked with messages told those of
 * its answers and, of the prompt, only how many there are: our own rendering, when the model is the
 * upstream's and the count is the same. Once for all answers; a long chat is a helper's. */
#include <string.h>

#include "common/base/vec.h"
#include "worker/call/call_env.h"
#include "worker/call/call_work.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/work.h"
#include "worker/model/model.h"
#include "worker/request/chat.h"
#include "worker/request/chat_request.h"

/* Answers' ids are kept when all have them, behind one prompt. */
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

/* A chat that cannot be rendered has no such ids. */
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

/* In a helper, maybe: see work.h. The call's arena is this function's meanwhile. */
static int run(struct long_work *w, struct work_tools *tools, struct err *e)
{
    if (work_note(tools, w->body_hash, e))
        return -1;
    render(call_work_of(w), tools->scratch);
    return 0;
}

static void on_rendered(struct long_work *w, const struct err *e)
{
    struct model_call *t = call_work_of(w);

    if (e) {
        model_call_fail_now(t, e);
        return;
    }
    t->step++;
    model_call_advance(t);
}

enum step_result step_prompt(struct model_call *t)
{
    struct long_work *w;
    size_t bytes = t->in.body_bytes;

    if (!is_needed(t))
        return STEP_NEXT;
    w = call_work_begin(t, run, on_rendered);
    w->is_long = bytes > WORK_TEXT_LONG;
    switch (work_begin(t->env, w, t->in.session_id, bytes <= WORK_TEXT_MAX, &t->err)) {
    case WORK_DONE:
        return STEP_NEXT;
    case WORK_HELPED:
        return STEP_WAIT;
    case WORK_FAILED:
        break;
    }
    return STEP_FAILED;
}
