/* Sends viewers of running calls (call_env.watch) the calls' events. Without viewers a call or a
 * delta costs one comparison. */
#include "worker/plane/call/model_call_internal.h"

#include "common/codec/json.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_rows.h"
#include "worker/plane/call/call_watch.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"

void call_watch_call(const struct model_call *t, bool ended)
{
    const struct call_watch *w = t->env->watch;

    if (w && t->head_sent)
        w->call(w->ctx, t->in.session_id,
                &(struct call_place){.call = t->head.call, .parent = t->stands_on}, ended);
}

/* Sends viewers only the new tokens, or the new text if there are no ids. */
void call_watch_delta(const struct sample *r, const struct engine_delta *d)
{
    const struct model_call *t = r->model_call;
    const struct call_watch *w = t->env->watch;

    if (!w || (!d->message && d->n_chat_lps > 0)) /* viewers do not get these deltas */
        return;
    w->tokens(w->ctx, &(struct call_tokens){
                          .session_id = t->in.session_id,
                          .call = t->head.call,
                          .index = r->answer->opt.index,
                          .n = d->ids.n,
                          .ids = d->ids,
                          .logprobs = d->logprobs,
                          .text = json_string(json_get(d->message, "content")),
                      });
}

/* Sends a sample's text so far. */
static void repeat_sample(const struct model_call *t, const struct sample *r)
{
    const struct call_watch *w = t->env->watch;
    struct buf text = {0};

    if (!r->answer)
        return;
    buf_add_str(&text, buf_str(&r->answer->reasoning));
    buf_add_str(&text, buf_str(&r->answer->text));
    if (r->answer->fed > 0 || text.len > 0)
        w->tokens(w->ctx, &(struct call_tokens){
                              .session_id = t->in.session_id,
                              .call = t->head.call,
                              .index = r->answer->opt.index,
                              .so_far = true,
                              .n = r->answer->fed,
                              .text = buf_str(&text),
                          });
    buf_done(&text);
}

/* Repeats the text so far for a new viewer. */
void call_watch_repeat(struct call_env *env, struct str session_id)
{
    const struct call_row *row = call_rows_find(env, session_id);
    const struct model_call *t;

    if (!env->watch || !row)
        return;
    LIST_EACH(&row->calls, t, struct model_call, in_row) {
        if (!t->head_sent)
            continue;
        call_watch_call(t, false);
        for (uint32_t i = 0; i < t->n_samples; i++)
            repeat_sample(t, &t->samples[i]);
    }
}
