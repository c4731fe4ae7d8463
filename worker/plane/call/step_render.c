/* Makes the exact ids of the prompt, the grammar and the tree of stop strings. Long ones are made
 * in a helper (work.h), so the session may have changed or ended when the helper has finished. Also
 * encodes a text completion. */

#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/os/task.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_images.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/prepare_input.h"
#include "worker/plane/call/prompt_look.h"
#include "worker/plane/call/stop_text.h"
#include "worker/plane/call/upstream_body.h"
#include "worker/plane/call/work.h"
#include "worker/session/call/session_call.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/request/chat_request.h"

enum {
    GRAMMAR_COST = 4,
    STOP_COST = 8,
    JSON_COST = 8 /* bytes of JSON that take as long to write as one byte to render */
};

/* Renders the prompt, perhaps in a helper (work.h), where no other thread uses the call's arena
 * meanwhile. */
static int render_prompt(void *ctx, void *tool, struct err *e)
{
    struct model_call *t = ctx;
    const struct work_tools *tools = tool;
    struct token_parts prompt;

    if (work_note(tools, t->in.work_hash, e))
        return -1;
    t->stops = stop_tree_new(&t->arena, t->sampling->stop);
    if (t->asks_text)
        upstream_texts(t);
    if (prepare_is_text(t->in.req) && prompt_may_fit(t, e) != 0)
        return -1;
    if (prepare_is_text(t->in.req)) {
        if (prepare_encode(tools->encoder, &t->arena, t->in.req, &t->call_input->raw, e))
            return -1;
        t->kinds->thought = THOUGHT_MAYBE;
        return model_call_constrain(t, e);
    }
    if (session_prepare_render(t->plan, tools->scratch, &prompt, e))
        return -1;
    if (t->plan->images > 0 && (call_images_keep(t, e) || call_images_gather(t, e)))
        return -1;
    t->kinds->thought = prompt_thought(t, prompt);
    return model_call_constrain(t, e);
}

/* Returns the bytes from which a grammar is made. A byte of a schema becomes several of a grammar,
 * and counts as such. */
static size_t constraint_bytes(const struct model_call *t)
{
    const struct chat_request *req = t->in.req;
    bool forced = chat_request_needs_call(req) || t->sampling->grammar;

    return t->constrains && forced ? GRAMMAR_COST * t->in.body_bytes : 0;
}

/* Returns the bytes of stop strings. The tree gets a node for each. */
static size_t stop_bytes(const struct model_call *t)
{
    size_t bytes = 0;

    for (size_t i = 0; json_at(t->sampling->stop, i); i++)
        bytes += json_string(json_at(t->sampling->stop, i)).len;
    return STOP_COST * bytes;
}

/* Returns the bytes of values that are written for engines as they were received. Stops counting
 * when there are enough for a helper. */
static size_t value_bytes(const struct model_call *t)
{
    const struct sampling *s = t->sampling;
    const struct json *all[] = {s->allowed_token_ids, s->bad_words, s->logit_bias, s->grammar};
    size_t bytes = 0, enough = (size_t)JSON_COST * (WORK_TEXT_LONG + 1);

    for (size_t i = 0; i < ARRAY_LEN(all) && bytes < enough; i++)
        bytes += json_text_bytes(all[i], enough - bytes);
    return bytes;
}

/* Reports whether images must be read and written. */
static bool has_images(const struct model_call *t)
{
    return t->plan && t->plan->images > 0;
}

/* A prompt is short or long by its bytes, because nothing else is known yet. Images are always left
 * to a helper. */
int call_render(struct model_call *t)
{
    struct task_work w = {.fn = render_prompt, .ctx = t, .lane = t->in.session_id};
    size_t bytes = prepare_is_text(t->in.req) ? t->in.req->prompt.len
                                              : session_prompt_bytes(t->plan, WORK_TEXT_LONG + 1);

    t->asks_text = engine_pool_some_text(t->engines);
    if (t->asks_text && t->plan)
        t->signed_answers = session_plan_signed(t->plan, &t->arena);
    bytes += constraint_bytes(t) + stop_bytes(t) + value_bytes(t) / JSON_COST;
    bytes += t->asks_text ? t->in.body_bytes / JSON_COST : 0;
    w.is_long = bytes > WORK_TEXT_LONG || (has_images(t) && t->in.body_bytes > WORK_JSON_LONG);
    w.is_short = !has_images(t) && bytes <= WORK_TEXT_MAX;
    if (model_call_offload(t, &w)) {
        model_call_note_leak(t, &t->err);
        return -1;
    }
    t->rendered = true;
    return 0;
}
