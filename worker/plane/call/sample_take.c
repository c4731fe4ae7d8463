/* Takes the engine's results of one sample. Deltas are sent to the listeners as they arrive. The
 * whole answer (on_done) contains all ids again. Results that must outlive the engine's callback
 * move to the call's arena (sample_keep). */
#include <string.h>

#include "common/base/buf.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/plane/call/answer_rules.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_watch.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/plane/call/upstream.h"
#include "worker/session/call/session_answer.h"

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

/* Reports whether the engine should begin the sample: not if the call is about to fail. */
static bool is_wanted(void *ctx)
{
    const struct sample *r = ctx;

    return !r->model_call->failing;
}

const struct engine_events sample_events = {
    .delta = on_delta, .done = on_done, .failed = on_failed, .wanted = is_wanted};
