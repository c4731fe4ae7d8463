/* Starts the engine calls, one for each sample, and sends the listeners the answer's head.
 * sample_take.c handles the engine's events. After the end of the last sample the call continues
 * (model_call_go_on). */

#include "common/base/clock.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_images.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/call_trace.h"
#include "worker/plane/call/call_watch.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/upstream_body.h"
#include "worker/session/call/session_call.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/request/chat_request.h"

/* Sends the head. Listeners may answer their clients from here on; a listener that joins later gets
 * the head again. */
static void send_head(struct model_call *t)
{
    struct str parent = session_plan_parent(t->plan);

    t->head = (struct answer_head){
        .session_id = t->in.session_id,
        .call = t->plan->call,
        .response_id = t->samples[0].response_id,
        .created_s = clock_wall_ms() / 1000,
        .usage = t->usage,
    };
    t->head_sent = true;
    if (parent.len > 0)
        t->stands_on = arena_str(&t->arena, parent);
    call_listeners_sink.head(t, &t->head);
    call_watch_call(t, false);
}

/* Makes the call's samples, before any engine is asked. */
static void begin_samples(struct model_call *t)
{
    t->n_samples = MAX_OF(t->in.req->n, 1);
    t->samples = arena_calloc(&t->arena, t->n_samples, sizeof(*t->samples));
    for (uint32_t i = 0; i < t->n_samples; i++)
        sample_begin(t, &t->samples[i], i);
    send_head(t);
    if (t->plan->exhausted)
        return;
    if (t->asks_text)
        t->chat_body = upstream_body(t, t->asked_tokens, &t->arena);
    call_trace_mark(t, CALL_ASKED);
}

static void ask_engine(struct model_call *t, uint32_t i)
{
    const struct chat_request *req = t->in.req;
    struct engine_request er = {
        .session_id = t->in.session_id,
        .call = t->plan->call,
        .ran = t->plan->ran,
        .answer = i,
        .answers = t->n_samples,
        .prompt = t->plan->prompt,
        .sampling = t->sampling,
        .ready = t->ready,
        .top_logprobs = MAX_OF(req->logprobs ? req->top_logprobs : 0, t->wants_top_logprobs),
        .support = t->wants_support,
        .lora = t->lora,
        .thinks = t->kinds->thought != THOUGHT_CLOSED,
        .stream = req->stream,
        .unwanted = &t->failing,
        .experts_from = t->plan->rows_known[ROWS_EXPERTS],
        .indexer = {t->wants_indexer, t->plan->rows_known[ROWS_INDEXER], t->plan->indexer_row, 0,
                    0},
        .reused = (uint32_t)t->plan->reused,
        .chat_body = t->chat_body,
        .chat_texts = t->upstream_texts,
        .n_chat_texts = t->n_upstream_texts,
        .text = t->call_input->text,
        .trace = call_trace_headers(t, i),
        .held = &t->env->request_bytes,
    };

    call_images_put(t, &er);
    t->samples[i].call = engine_start(t->engines, &er, &sample_events, &t->samples[i]);
}

void call_generate(struct model_call *t)
{
    begin_samples(t);
    if (t->plan->exhausted) {
        for (uint32_t i = 0; i < t->n_samples; i++)
            t->samples[i].finish = ENGINE_LENGTH;
        t->n_taken = t->n_samples;
        return;
    }
    for (uint32_t i = 0; i < t->n_samples && !t->failing; i++)
        ask_engine(t, i);
}
