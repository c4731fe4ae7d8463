/* Takes the engine's results of one sample. Deltas are sent to the listeners as they arrive. The
 * whole answer (on_done) contains all ids again. Results that must outlive the engine's callback
 * move to the call's arena (sample_keep). */
#include <string.h>

#include "common/base/buf.h"
#include "common/codec/json.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/plane/call/answer_rules.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_watch.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/session/call/session_answer.h"
#include "worker/text/request/chat_logprobs.h"
#include "worker/text/request/chat_request.h"

/* --- answers of upstreams --- */

/* Takes the next n logprobs of a chunk, if the client asked for logprobs. Logprobs are few: an
 * event with many of them is sent in several deltas. */
static void upstream_logprobs(struct model_call *t, struct sample *r, const struct json *lps,
                              size_t n)
{
    if (!t->in.req->logprobs || n == 0)
        return;
    sample_lp_reserve(t, r, n);
    chat_logprobs_read(lps, n, r->lp + r->n_lp, &t->arena);
    r->n_lp += n;
    sample_send_logprobs(t, r);
}

static uint32_t count_of(const struct json *v)
{
    int64_t n = 0;

    return json_to_i64(v, &n) == 0 && n > 0 ? (uint32_t)MIN_OF(n, INT32_MAX) : 0;
}

/* Takes the prompt's ids, if the upstream returns them. Keeps one copy for several answers as long
 * as they are equal. */
static void keep_prompt(struct model_call *t, struct sample *r, struct token_span told)
{
    size_t bytes = told.n * sizeof(*told.at);
    int32_t *copy;

    if (told.n == 0)
        return;
    if (told.n == t->told_prompt.n && memcmp(told.at, t->told_prompt.at, bytes) == 0) {
        r->prompt_ids = t->told_prompt;
        return;
    }
    copy = arena_alloc(&t->arena, bytes);
    memcpy(copy, told.at, bytes);
    r->prompt_ids = (struct token_span){copy, told.n};
    if (t->told_prompt.n == 0)
        t->told_prompt = r->prompt_ids;
}

static void warn_of_halves(struct sample *r, const struct json *replaced)
{
    uint32_t n = count_of(replaced);
    struct buf told = {0};

    if (n == 0)
        return;
    buf_printf(&told, "%u lone surrogate%s of the upstream's text became U+FFFD.", n,
               n == 1 ? "" : "s");
    sampled_answer_warn(r->answer, buf_str(&told));
    buf_done(&told);
}

/* Moves the whole answer into the sample: its message unless the deltas contained it, ids, counts,
 * and the client's logprobs, which must still be sent (sample_taken). The sample's ids and logprobs
 * must be filled already. */
static void upstream_take(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    const struct json *choice = json_at(json_get(res->openai, "choices"), 0);
    const struct json *usage = json_get(res->openai, "usage");

    arena_absorb(&t->arena, res->openai_arena);
    r->upstream = true;
    r->prompt_tokens = count_of(json_get(usage, "prompt_tokens"));
    r->completion_tokens = MAX_OF(count_of(json_get(usage, "completion_tokens")), r->n_ids);
    for (size_t i = 0; json_at(json_get(choice, "messages"), i); i++)
        sampled_answer_feed_message(r->answer, json_at(json_get(choice, "messages"), i));
    r->answer->signed_members = json_get(choice, "signed");
    warn_of_halves(r, json_get(choice, "replaced"));
    keep_prompt(t, r, res->prompt_ids);
    t->usage.prompt_tokens = MAX_OF(r->prompt_tokens, (uint32_t)r->prompt_ids.n);
    if (json_to_i64(json_get(json_get(usage, "prompt_tokens_details"), "cached_tokens"),
                    &r->cached_tokens))
        r->cached_tokens = -1;
    t->usage.reasoning_tokens +=
        count_of(json_get(json_get(usage, "completion_tokens_details"), "reasoning_tokens"));
    if (r->n_lp == 0 && t->in.req->logprobs && res->rows && res->rows->n > 0) {
        arena_absorb(&t->arena, &res->rows->arena);
        r->lp = res->rows->at;
        r->n_rows = r->cap_lp = res->rows->n;
    }
    r->filtered = json_is_true(json_get(choice, "filtered"));
}

/* --- the engine's events --- */

/* Handles a delta: ids, or for engines of kind openai a piece of a message. */
static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct sample *r = ctx;

    if (r->model_call->failing)
        return;
    call_watch_delta(r, d);
    if (d->replica)
        r->replica = str_cstr(d->replica);
    if (d->message) {
        sampled_answer_feed_message(r->answer, d->message);
        answer_rules_watch_message(r->model_call, r);
    }
    if (d->message || d->n_chat_lps > 0) {
        upstream_logprobs(r->model_call, r, d->chat_lps, d->n_chat_lps);
        return;
    }
    sample_logprobs(r->model_call, r, d->ids, d->logprobs, d->top, d->n_top);
    sampled_answer_feed(r->answer, d->ids);
    if (!d->resumed)
        answer_rules_watch(r->model_call, r);
}

/* Takes ownership of a block of rows. It is not copied, because it may be tens of megabytes. */
static struct str adopt_block(struct model_call *t, struct sample *r, enum rows_kind kind,
                              struct str block, struct buf *bulk)
{
    if (!block.p || !bulk)
        return block.p ? arena_str(&t->arena, block) : block;
    r->bulk[kind] = bulk->p;
    *bulk = (struct buf){0};
    return block;
}

/* Keeps the results that have a row for each token. */
static void keep_rows(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    r->rows[ROWS_EXPERTS] =
        (struct token_rows){.from = res->experts_from, .rows = res->experts_rows};
    r->rows[ROWS_INDEXER] = (struct token_rows){
        .from = res->indexer_from, .rows = res->indexer_rows, .layers = res->indexer_layers};
    r->rows[ROWS_EXPERTS].block = adopt_block(t, r, ROWS_EXPERTS, res->experts, res->experts_buf);
    r->rows[ROWS_INDEXER].block = adopt_block(t, r, ROWS_INDEXER, res->indexer, res->indexer_buf);
}

/* From this size on memory is taken over and not copied, because the pages of a copy would be
 * mapped anew. */
enum { TAKEN_BYTES = 64 << 10 };

/* Reports whether the call takes ownership of `own`, the memory of the n bytes that the engine
 * returned. */
static bool takes_over(struct model_call *t, const void *told, void *own, size_t n)
{
    if (own != told || n < TAKEN_BYTES)
        return false;
    arena_own(&t->arena, own, n);
    return true;
}

static void *copy_of(struct model_call *t, const void *told, size_t n)
{
    void *copy = arena_alloc(&t->arena, n);

    if (n > 0)
        memcpy(copy, told, n);
    return copy;
}

static void keep_ids(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    size_t n = res->ids.n * sizeof(*r->ids), n_logprobs = res->ids.n * sizeof(*r->logprobs);

    r->n_ids = res->ids.n;
    if (res->ids_own && takes_over(t, res->ids.at, *res->ids_own, n)) {
        r->ids = *res->ids_own;
        *res->ids_own = NULL;
    } else {
        r->ids = copy_of(t, res->ids.at, n);
    }
    if (!res->logprobs)
        return;
    if (res->logprobs_own && takes_over(t, res->logprobs, *res->logprobs_own, n_logprobs)) {
        r->logprobs = *res->logprobs_own;
        *res->logprobs_own = NULL;
    } else {
        r->logprobs = copy_of(t, res->logprobs, n_logprobs);
    }
}

/* Moves the results that must outlive the engine's callback to the call's arena. */
static void sample_keep(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    r->finish = res->finish;
    r->speculates = res->speculates;
    if (res->repeats)
        sampled_answer_warn(r->answer, STR("the engine cut the answer because it repeats itself"));
    r->takes_stop_ids = res->takes_stop_ids;
    r->resumed_at = res->resumed_at;
    if (res->replica)
        r->replica = arena_str(&t->arena, str_cstr(res->replica));
    keep_ids(t, r, res);
    r->versions = arena_calloc(&t->arena, res->n_versions, sizeof(*r->versions));
    for (size_t i = 0; i < res->n_versions; i++)
        r->versions[r->n_versions++] =
            (struct session_version){arena_str(&t->arena, res->versions[i].version),
                                     res->versions[i].start, res->versions[i].end};
    keep_rows(t, r, res);
    r->indexer_large = res->indexer_large;
    r->recomputed = res->recomputed;
    if (res->stop_text.p)
        r->stop_text = arena_str(&t->arena, res->stop_text);
    sample_begin_odds(t, r, res);
    r->has_support = res->support != NULL;
    r->basis = res->basis;
    r->asked = res->asked;
    r->scored = res->scored;
    r->drifted = res->drifted;
    r->unbudgeted = res->unbudgeted;
    r->cached_tokens = res->cached_tokens;
    r->queue_us = res->queue_us;
    r->engine_us = res->total_us;
}

/* Removes ids from the result of an upstream of a different pool, because they belong to a
 * different vocabulary. */
static const struct engine_result *without_ids(struct model_call *t,
                                               const struct engine_result *res)
{
    struct engine_result *text = ARENA_NEW(&t->arena, struct engine_result);

    *text = *res;
    text->ids = text->prompt_ids = (struct token_span){0};
    text->logprobs = NULL;
    text->top = NULL;
    text->n_versions = 0;
    text->support = NULL;
    text->experts = text->indexer = (struct str){0};
    return text;
}

/* Handles one complete sample. */
static void on_done(void *ctx, const struct engine_result *res)
{
    struct sample *r = ctx;
    struct model_call *t = r->model_call;

    r->call = NULL;
    r->done = true;
    if (t->failing)
        return;
    if (engine_pool_name(t->engines) && res->openai)
        res = without_ids(t, res);
    sample_keep(t, r, res);
    if (!res->openai) {
        sample_consume_end(r, res);
        return;
    }
    upstream_take(t, r, res);
    answer_rules_watch_message(t, r);
    if (!t->failing)
        sample_taken(r);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct sample *r = ctx;

    r->call = NULL;
    model_call_fail_later(r->model_call, e);
}

const struct engine_events sample_events = {
    .delta = on_delta, .done = on_done, .failed = on_failed};
