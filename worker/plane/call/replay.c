/* Repeats a recorded answer (replay.h): makes the events of the original call from the data of the
 * commit. The data are messages and the text of told.h, with logprobs also ids, which session_past
 * reads back if they were evicted. */

#include "worker/plane/call/replay.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/codec/json.h"
#include "common/proc/ids.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/told.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_past.h"
#include "worker/text/model/model.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/thought_blocks.h"
#include "worker/text/tokens/tokenizer.h"

struct recorded_call {
    struct arena *arena;
    const struct tokenizer *tokenizer;
    const struct session_past_call *call;
    struct session_past_answer *answers; /* the call's answers, with copies of ids and logprobs */
    struct answer_head head;
};

/* --- on the loop --- */

/* Copies so many bytes behind those that were copied before. */
static const void *copy_behind(char *to, size_t *at, const void *from, size_t bytes)
{
    void *ret = to + *at;

    if (bytes > 0)
        memcpy(ret, from, bytes);
    *at += bytes;
    return ret;
}

/* Copies ids and logprobs, because the session may free its own while a helper reads them. Uses one
 * block: a large block has large pages, which are cheap to touch for the first time. */
static void copy_sampled(struct session_past_answer *all, uint32_t n, size_t bytes, struct arena *a)
{
    char *to = arena_alloc(a, bytes);
    size_t at = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct session_past_answer *p = &all[i];

        p->ids.at = copy_behind(to, &at, p->ids.at, p->ids.n * sizeof(int32_t));
        if (p->logprobs)
            p->logprobs = copy_behind(to, &at, p->logprobs, p->ids.n * sizeof(float));
    }
}

/* Returns the size of the copy that copy_sampled makes. */
static uint64_t sampled_bytes(const struct session_past_call *past)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < past->n_answers; i++)
        n += past->answers[i].ids.n * (sizeof(int32_t) + sizeof(float));
    return n;
}

/* Writes the head of the empty answer of a call that had no space, which no model generated. The
 * answer has a new id each time. */
static void head_of_exhausted(struct call_env *env, struct recorded_call *r)
{
    char hex[33];

    ids_hex(env->ids, hex, 16);
    r->head.response_id = arena_str(r->arena, str_of(hex, 32));
    r->head.created_s = clock_wall_ms() / 1000;
}

struct recorded_call *replay_gather(struct call_env *env, struct session *s, struct arena *a,
                                    uint64_t call, bool logprobs, struct err *e)
{
    const struct session_past_call *past = session_past(s, a, call, logprobs, e);
    struct recorded_call *r;

    /* copies count as memory, because many replays may wait for a helper, each with a copy */
    if (!past ||
        (logprobs && residency_room_more(env->residency, s, a->held_bytes, sampled_bytes(past), e)))
        return NULL;
    r = ARENA_NEW(a, struct recorded_call);
    *r = (struct recorded_call){.arena = a, .tokenizer = model_tokenizer(env->model), .call = past};
    r->head = (struct answer_head){.session_id = arena_str(a, session_id(s)),
                                   .call = call,
                                   .usage = {.prompt_tokens = past->prompt_tokens}};
    if (past->n_answers == 0)
        head_of_exhausted(env, r);
    r->answers = arena_calloc(a, past->n_answers, sizeof(*r->answers));
    for (uint32_t i = 0; i < past->n_answers; i++)
        r->answers[i] = past->answers[i];
    if (logprobs)
        copy_sampled(r->answers, past->n_answers, sampled_bytes(past), a);
    return r;
}

size_t replay_tokens(const struct recorded_call *r)
{
    return r->call->completion_tokens;
}

/* Cost of a byte of JSON that is parsed, in bytes of text that are written. */
enum { PARSED_BYTE = 6 };

size_t replay_answer_cost(const struct json *message, size_t enough)
{
    const struct json *calls = json_get(message, "tool_calls");

    return json_text_bytes(message, enough) +
           (PARSED_BYTE - 1) * (calls ? json_text_bytes(calls, enough) : 0);
}

size_t replay_cost(const struct recorded_call *r, size_t enough)
{
    size_t cost = 0;

    for (uint32_t i = 0; i < r->call->n_answers && cost < enough; i++)
        cost += replay_answer_cost(r->answers[i].message, enough - cost);
    return cost;
}

/* --- may run in a helper --- */

/* The receiver of a repeated answer. */
struct hearer {
    const struct answer_sink *sink;
    void *ctx;
    bool stream;
};

/* Sends the deltas of a message, each part whole. */
static void send_deltas(struct arena *a, const struct json *m, uint32_t index,
                        const struct hearer *l)
{
    const struct json *calls = json_get(m, "tool_calls");
    struct str text = json_string(json_get(m, "content"));
    struct thought_block *blocks;
    size_t n = thought_blocks_read(a, m, &blocks);

    for (size_t i = 0; i < n; i++) {
        if (blocks[i].text.len > 0)
            l->sink->reasoning(l->ctx, index, blocks[i].text);
        if (blocks[i].seal.len > 0 && l->sink->sealed)
            l->sink->sealed(l->ctx, index, blocks[i].seal, blocks[i].signs_text);
    }
    if (text.len > 0)
        l->sink->text(l->ctx, index, text);
    for (uint32_t i = 0; calls && i < calls->n; i++) {
        const struct json *c = json_at(calls, i);
        const struct json *f = json_get(c, "function");

        l->sink->tool_begin(l->ctx, index, i, json_string(json_get(c, "id")),
                            json_string(json_get(f, "name")));
        l->sink->tool_args(l->ctx, index, i, json_string(json_get(f, "arguments")));
        l->sink->tool_end(l->ctx, index, i);
    }
}

/* Returns logprobs with as many alternatives as the client asked for, or NULL. */
static const struct token_logprob *logprobs_of(const struct recorded_call *r,
                                               const struct session_past_answer *p,
                                               const struct told *told)
{
    struct token_logprob *lp;

    if (!p->logprobs)
        return NULL;
    lp = arena_calloc(r->arena, p->ids.n, sizeof(*lp));
    for (size_t i = 0; i < p->ids.n; i++)
        lp[i] = (struct token_logprob){
            .id = p->ids.at[i],
            .logprob = p->logprobs[i],
            .bytes = tokenizer_text(r->tokenizer, p->ids.at[i]),
        };
    told_tops(told, r->arena, r->tokenizer, lp, p->ids.n);
    return lp;
}

static void send_exhausted(const struct recorded_call *r, const struct hearer *l)
{
    struct finished_answer out = {.finish_reason = STR_LIT("length")};

    if (json_parse(r->arena, STR("{\"role\":\"assistant\",\"content\":\"\"}"), &out.message, NULL))
        return;
    l->sink->head(l->ctx, &r->head);
    l->sink->finish(l->ctx, &out, 1, &r->head.usage);
}

/* Sends deltas if the receiver streams, then the end with all answers. */
static void send_answers(const struct recorded_call *r, const struct hearer *l)
{
    struct answer_head head = r->head;
    struct finished_answer *out = arena_calloc(r->arena, r->call->n_answers, sizeof(*out));
    struct told told;

    (void)told_read(r->answers[0].told, &told);
    head.usage.cached_tokens = told.cached_tokens;
    head.response_id = r->answers[0].response_id;
    head.created_s = told.created_s;
    l->sink->head(l->ctx, &head);
    head.usage.completion_tokens = r->call->completion_tokens;
    head.usage.reasoning_tokens = told.reasoning_tokens;
    for (uint32_t i = 0; i < r->call->n_answers; i++) {
        const struct session_past_answer *p = &r->answers[i];

        (void)told_read(p->told, &told);
        out[i] = (struct finished_answer){
            .index = i,
            .finish_reason = p->finish_reason,
            .stop_text = told.stop_text,
            .message = p->message,
            .logprobs = logprobs_of(r, p, &told),
        };
        out[i].n_logprobs = out[i].logprobs ? p->ids.n : 0;
        if (l->stream) {
            l->sink->logprobs(l->ctx, i, out[i].logprobs, out[i].n_logprobs);
            send_deltas(r->arena, out[i].message, i, l);
        }
    }
    l->sink->finish(l->ctx, out, r->call->n_answers, &head.usage);
}

void replay_tell(const struct recorded_call *r, const struct answer_sink *sink, void *ctx,
                 bool stream)
{
    const struct hearer l = {sink, ctx, stream};

    if (r->call->n_answers > 0)
        send_answers(r, &l);
    else
        send_exhausted(r, &l);
}
