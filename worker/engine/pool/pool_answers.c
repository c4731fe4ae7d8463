/*
 * Handles the answers of a replica: pieces of the answer are checked, get the versions of the
 * weights, and are joined if engines break them off. If there is no answer, decides what is tried
 * next.
 */
#include <errno.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/engine/kv/kv_admission.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/experts.h"
#include "worker/engine/pool/pool_call.h"
#include "worker/engine/pool/pool_internal.h"
#include "worker/engine/pool/replicas.h"
#include "worker/engine/pool/splice.h"

enum {
    RETRY_MS = 50,  /* delay before the first retry, doubled for each further one */
    RESUME_MS = 20, /* delay after the first abort without output, doubled for each further one */
    RESUME_MAX_MS = 2000,
    ANEW_MAX = 3, /* how often one call is sent in a different form */
};

static void on_delta(void *ctx, const struct engine_delta *told)
{
    struct engine_call *c = ctx;
    struct engine_delta own = *told;
    const struct engine_delta *d = &own;

    replica_alive(c->replica);
    own.resumed = c->splice->pieces > 0;
    own.replica = c->replica->target.name;
    c->given += (uint32_t)d->ids.n;
    /* The whole answer does not show whether text came in deltas. */
    c->has_sent =
        c->has_sent || d->message || (c->req.stream && (d->ids.n > 0 || d->n_chat_lps > 0));
    if (c->req.stream || d->message || d->n_chat_lps > 0)
        c->events->delta(c->ctx, d);
}

static bool is_banned(const struct engine_call *c, int32_t id)
{
    for (size_t i = 0; i < c->req.banned.n; i++)
        if (c->req.banned.at[i] == id)
            return true;
    return false;
}

/* Checks that all ids belong to a vocabulary of that size; 0: its size is unknown. */
static int check_vocabulary(const struct engine_result *r, uint32_t vocab, struct err *e)
{
    for (size_t i = 0; vocab > 0 && i < r->ids.n; i++) {
        if (r->ids.at[i] < 0 || (uint32_t)r->ids.at[i] >= vocab)
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's token %zu, id %d, is outside the vocabulary of %u", i,
                           r->ids.at[i], vocab);
    }
    for (size_t i = 0; vocab > 0 && i < r->prompt_ids.n; i++) {
        if ((uint32_t)r->prompt_ids.at[i] >= vocab)
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's token %zu of the prompt, id %d, is outside the vocabulary "
                           "of %u",
                           i, r->prompt_ids.at[i], vocab);
    }
    if (vocab > 0 && r->support && r->support_most >= (int64_t)vocab)
        return err_set(e, ERR_ENGINE_INVALID,
                       "id %d of the engine's sampling support is outside the vocabulary of %u",
                       r->support_most, vocab);
    return 0;
}

/* Checks the invariants of every piece. The error names the violated one. */
static int check_piece(const struct engine_call *c, const struct engine_result *r, struct err *e)
{
    const struct engine_pool *p = c->pool;
    uint32_t at = 0;
    uint32_t vocab = p->opt.any_text && engine_pool_all_text(p) ? 0 : p->opt.vocab_size;

    if (check_vocabulary(r, vocab, e) < 0)
        return -1;
    for (size_t i = 0; c->req.banned.n > 0 && i < r->ids.n; i++) {
        if (is_banned(c, r->ids.at[i]))
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine sampled id %d, which stands for a picture", r->ids.at[i]);
    }
    if (r->n_versions > ENGINE_VERSIONS_MAX)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine told more than %d weight version spans of one answer",
                       ENGINE_VERSIONS_MAX);
    for (size_t i = 0; i < r->n_versions; i++) {
        if (r->versions[i].start != at || r->versions[i].end < at)
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's weight version spans have gaps: span %zu has tokens %u to "
                           "%u, and the one before ends at %u",
                           i, r->versions[i].start, r->versions[i].end, at);
        at = r->versions[i].end;
    }
    if (r->n_versions > 0 && at != r->ids.n)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's weight version spans do not fit: they have %u tokens, and its "
                       "answer %zu",
                       at, r->ids.n);
    return 0;
}

/* Returns the tokens of prompt and answer. */
static size_t all_tokens(const struct engine_call *c, const struct engine_result *r)
{
    return c->n_prompt + (c->splice->pieces > 0 ? c->splice->ids.n : r->ids.n);
}

/* Checks a piece's block, which begins at the call's own start, or after the blocks of the pieces
 * before. */
static int check_experts(struct engine_call *c, struct engine_result *r, struct err *e)
{
    struct experts_block b = {
        .bytes = r->experts.len, .tokens = all_tokens(c, r), .from = c->req.experts_from};
    int rc;

    if (!r->experts.p)
        return 0;
    rc = experts_check(&c->pool->expert_row_bytes, &b, "routed experts", e);
    if (rc > 0)
        r->experts = (struct str){0};
    r->experts_from = b.from;
    r->experts_rows = b.rows;
    return rc < 0 ? -1 : 0;
}

/* Checks the indexer's top-k, which is returned from the first row on, and kept from the first row
 * that the session lacks. */
static int check_indexer(struct engine_call *c, struct engine_result *r, struct err *e)
{
    const struct indexer_ask *ask = &c->req.indexer;
    struct experts_block b = {.bytes = r->indexer_bytes, .tokens = all_tokens(c, r)};
    uint64_t row;

    if (r->indexer_bytes == 0) {
        r->indexer = (struct str){0};
        return 0;
    }
    if (experts_check(&c->pool->indexer_row_bytes, &b, "indexer top-k", e) < 0)
        return -1;
    row = b.rows > 0 ? r->indexer_bytes / b.rows : 0;
    if (b.rows <= ask->from || (ask->from > 0 && row != ask->row_bytes) ||
        (r->indexer_layers > 0 && row % (r->indexer_layers * sizeof(int32_t)) != 0))
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: a row of indexer top-k has %llu bytes",
                       (unsigned long long)row);
    r->indexer_from = ask->from;
    r->indexer_rows = b.rows - ask->from;
    r->indexer_large = !r->indexer.p || r->indexer_bytes > ask->all_bytes;
    if (r->indexer_large)
        r->indexer = (struct str){0};
    return 0;
}

/* Replaces rows that were computed again by an empty block. Some of them would be from a different
 * run, and a later turn's rows must not replace them. */
static void drop_recomputed(struct engine_result *r)
{
    if (!r->recomputed)
        return;
    if (r->experts.p) {
        r->experts = STR("");
        r->experts_rows = 0;
        r->experts_buf = NULL;
    }
    if (r->indexer.p || r->indexer_large) {
        r->indexer = STR("");
        r->indexer_rows = 0;
        r->indexer_large = false;
        r->indexer_buf = NULL;
    }
}

/* Keeps the routed experts of a piece, so that only the rest is requested: otherwise the next piece
 * would repeat this one's rows. */
static void keep_experts(struct engine_call *c, struct engine_result *r)
{
    struct err e = {0};

    /* An engine that aborts may return only some of the rows, so the size of a row must be known.
     */
    if (c->pool->expert_row_bytes == 0 || check_experts(c, r, &e) < 0)
        return;
    splice_add_experts(c->splice, r);
    if (c->splice->experts_rows > 0)
        c->req.experts_from = c->splice->experts_from + c->splice->experts_rows;
}

/* Reports whether a version has been set: before that engines call it "default". */
static bool is_set(struct str version)
{
    return version.len > 0 && !str_eq_c(version, "default");
}

/* Counts the spans that have a version: a piece of an answer may have none. */
static size_t spans_reported(const struct engine_result *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_versions; i++)
        n += is_set(r->versions[i].version);
    return n;
}

/* Records the versions reported around a piece. */
static void record_versions(struct engine_call *c, const struct engine_result *r)
{
    const struct str words[] = {r->version_before, r->version_after};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (!is_set(words[i]))
            continue;
        c->heard_last = arena_str(&c->arena, words[i]);
        if (!c->heard_first.p)
            c->heard_first = c->heard_last;
    }
}

/* Reports whether the versions that the engine reported around the answer permit the trainer's
 * version. If a trainer set a version long ago and then sends later ones only to the engine, its
 * old version is not meant for this answer. */
static bool stamps_may_hold(const struct engine_call *c, const struct engine_version *v, size_t n)
{
    return n == 0 || c->req.lora.len > 0 || !c->heard_first.p ||
           (str_eq(v[0].version, c->heard_first) && str_eq(v[n - 1].version, c->heard_last));
}

/* Reports whether the trainer's spans agree with the versions that the engine has reported; then
 * they are used for the rest, too. */
static bool stamps_agree(const struct engine_result *r, const struct engine_version *v, size_t n)
{
    for (size_t i = 0; i < r->n_versions; i++) {
        const struct engine_version *said = &r->versions[i];

        for (size_t k = 0; is_set(said->version) && k < n; k++)
            if (v[k].start < said->end && said->start < v[k].end &&
                !str_eq(v[k].version, said->version))
                return false;
    }
    return true;
}

/* Compares the versions. The engine's own wins over the trainer's. A difference is logged once,
 * until they agree. */
static void compare_words(const struct engine_call *c, const struct engine_result *r)
{
    struct str told = vec_last(&c->stamps).version;
    struct str reported = r->versions[r->n_versions - 1].version;
    bool differs = told.len > 0 && !str_eq(told, reported);

    if (!is_set(reported)) /* the engine reported nothing for its last piece */
        return;
    if (differs && !c->replica->contradicts)
        log_warn(NULL, "an engine tells another version of its weights than the trainer",
                 LOG_T("engine", c->replica->target.name), LOG_S("told", told),
                 LOG_S("reported", reported));
    c->replica->contradicts = differs;
}

/* Sets the trainer's versions for engines that report none, or not for all pieces. */
static void stamp_versions(struct engine_call *c, struct engine_result *r)
{
    size_t n = 0, reported;
    struct engine_version *v;
    bool hold;

    if (c->req.lora.len > 0)
        r->n_versions = 0; /* the engine's versions are those of the base weights */
    if (c->stamps.n == 0 || r->ids.n == 0)
        return;
    reported = spans_reported(r);
    if (reported > 0)
        compare_words(c, r);
    if (reported > 0 && reported == r->n_versions)
        return;
    v = arena_calloc(&c->arena, c->stamps.n, sizeof(*v));
    for (size_t i = 0; i < c->stamps.n; i++) {
        uint32_t start = i == 0 ? 0 : c->stamps.at[i].start;

        if (start >= r->ids.n)
            break;
        if (n > 0)
            v[n - 1].end = start;
        v[n++] = (struct engine_version){c->stamps.at[i].version, start, (uint32_t)r->ids.n};
    }
    hold = stamps_may_hold(c, v, n) && stamps_agree(r, v, n);
    if (!hold && reported > 0)
        return; /* tokens without a reported version stay unknown */
    r->versions = v;
    r->n_versions = hold ? n : 0;
}

static void deliver_answer(struct engine_call *c, struct engine_result *r)
{
    struct engine_pool *p = c->pool;
    uint64_t now = clock_us();

    halves_compare(c, r);
    stamp_versions(c, r);
    r->replica = c->replica->target.name;
    r->queue_us = c->queue_us;
    r->total_us = now - c->asked_us;
    r->retries = c->retries;
    r->resumes = c->resumes;
    r->takes_stop_ids = !engine_adapter_lists(c->replica->adapter->cannot_take, "stop_token_ids");
    replica_answered(c->replica, r);
    if (p->admission)
        admission_answered(c, r);
    pool_delivered(c, r);
}

static void add_to_prompt(struct engine_call *c, struct token_parts ids)
{
    vec_reserve(&c->prompt, ids.n);
    token_parts_copy(ids, 0, ids.n, c->prompt.at + c->prompt.n);
    c->prompt.n += ids.n;
}

/* Handles an engine that stopped part way. Returns true if the rest is requested. Otherwise r is
 * the answer, or e has the reason why there is none. */
static bool resume_answer(struct engine_call *c, struct engine_result *r, struct err *e)
{
    uint64_t delay = 0;

    if (!c->pool->opt.resume_aborts) {
        (void)err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine aborted the generation");
        return false;
    }
    if (c->prompt.n == 0)
        add_to_prompt(c, c->req.prompt);
    add_to_prompt(c, token_parts_of(&r->ids));
    c->sampling->max_tokens -= (int64_t)r->ids.n;
    if (c->sampling->max_tokens <= 0) {
        r->finish = ENGINE_LENGTH;
        return false;
    }
    c->fruitless = r->ids.n > 0 ? 0 : c->fruitless + 1;
    if (c->fruitless <= 1)
        c->fruitless_us = clock_us();
    if (c->fruitless > 0)
        delay =
            MIN_OF((uint64_t)RESUME_MS << MIN_OF(c->fruitless - 1, 8u), (uint64_t)RESUME_MAX_MS);
    if (c->fruitless > 0 && c->pool->opt.timeout_ms > 0 &&
        clock_us() - c->fruitless_us > c->pool->opt.timeout_ms * 1000) {
        (void)err_set(e, ERR_ENGINE_TIMEOUT, "the engine kept aborting the generation");
        return false;
    }
    c->resumes++;
    c->spliced = (struct token_span){c->prompt.at, c->prompt.n};
    c->req.prompt = token_parts_of(&c->spliced);
    pool_again(c, delay);
    return true;
}

/* Reports whether the answer must be sampled from its start. An engine applies a grammar from its
 * start to every request, so an answer under a grammar cannot be continued, unless the grammar also
 * permits any text. */
static bool must_start_over(const struct engine_call *c, const struct engine_result *r)
{
    const struct json *grammar = c->req.sampling->grammar;

    return r->finish == ENGINE_ABORTED && r->ids.n > 0 && grammar &&
           !json_is_true(json_get(grammar, "text_too"));
}

/* Drops the tokens so far and requests them again, unless some were sent already. */
static void start_over(struct engine_call *c)
{
    struct err e = {0};

    if (!c->pool->opt.resume_aborts || c->req.stream) {
        (void)err_set(&e, ERR_ENGINE_UNAVAILABLE,
                      "the engine aborted a generation that is bound to a grammar");
        pool_fail(c, &e);
        return;
    }
    c->stamps.n = 0;
    c->heard_first = c->heard_last = (struct str){0};
    c->resumes++;
    pool_again(c, RESUME_MS);
}

static void on_done(void *ctx, const struct engine_result *given)
{
    struct engine_call *c = ctx;
    struct engine_result r = *given;
    struct err e = {0};
    bool spliced = c->splice->pieces > 0 || r.finish == ENGINE_ABORTED;

    if (check_piece(c, &r, &e) < 0) {
        pool_fail(c, &e);
        return;
    }
    if (must_start_over(c, &r)) {
        start_over(c);
        return;
    }
    record_versions(c, &r);
    if (spliced)
        splice_add(c->splice, &r);
    if (r.finish == ENGINE_ABORTED && r.ids.n > 0)
        keep_experts(c, &r);
    if (r.finish == ENGINE_ABORTED && resume_answer(c, &r, &e))
        return;
    if (e.kind == ERR_NONE)
        (void)check_experts(c, &r, &e);
    if (e.kind == ERR_NONE)
        (void)check_indexer(c, &r, &e);
    if (e.kind != ERR_NONE) {
        pool_fail(c, &e);
        return;
    }
    if (spliced)
        splice_result(c->splice, &r);
    drop_recomputed(&r);
    deliver_answer(c, &r);
}

/* Reports whether no byte of the request has reached an engine, because the engine is down, or will
 * soon be found to be. Such a call waits until one is up again. */
static bool is_never_sent(struct engine_call *c, const struct err *e, enum engine_failure how)
{
    bool unreachable =
        how == ENGINE_NOT_READY || (e->sys != 0 && e->sys != ECONNRESET && e->sys != EPIPE);

    if ((how != ENGINE_NO_ANSWER && how != ENGINE_NOT_READY) ||
        !(unreachable || !replicas_any_up(c->pool->replicas))) {
        c->lost_us = 0;
        return false;
    }
    if (c->lost_us == 0)
        c->lost_us = clock_us();
    return pool_patience_ms(c) > 0;
}

/* Repeats the call at a different replica, or at the same one if there is no other. */
static void repeat_elsewhere(struct engine_call *c, struct replica *at)
{
    uint64_t base = (uint64_t)RETRY_MS << MIN_OF(c->retries, 6u);

    c->retries++;
    replica_retried(at);
    if (at == c->replica)
        c->avoid = at;
    pool_again(c, base / 2 + str_hash(c->req.session_id, clock_us()) % base);
}

/* Handles a replica that answered 429. Returns true if the call goes to a different one that has
 * space now. Each replica of the pool is tried at most once for this reason. */
static bool move_to_free_replica(struct engine_call *c, struct replica *at, const struct err *e)
{
    replica_full(at, e->retry_after_s);
    if (at != c->replica || c->has_sent || c->full >= c->pool->replicas->n ||
        !replicas_any_free(c->pool->replicas, &c->req))
        return false;
    c->full++;
    c->avoid = at;
    replica_retried(at);
    pool_again(c, 0);
    return true;
}

void pool_failed_at(struct engine_call *c, struct replica *at, const struct err *e,
                    enum engine_failure how)
{
    struct engine_pool *p = c->pool;
    bool said = how == ENGINE_SAID_5XX || how == ENGINE_FULL;
    bool repeatable = how == ENGINE_NO_ANSWER || how == ENGINE_NOT_READY ||
                      (said && p->opt.retry_5xx && !c->has_sent);

    if (how == ENGINE_FULL && move_to_free_replica(c, at, e))
        return;
    if (how == ENGINE_ASK_ANEW && c->anew < ANEW_MAX) {
        c->anew++;
        pool_again(c, 0);
        return;
    }
    /* A single request after which an engine closes the connection says little about others. */
    if ((how == ENGINE_NO_ANSWER && e->sys != 0) || how == ENGINE_NOT_READY)
        replica_unreachable(at);
    if (is_never_sent(c, e, how) || (repeatable && c->retries < p->opt.retries))
        repeat_elsewhere(c, at);
    else
        pool_fail(c, e);
}

static void on_failed(void *ctx, const struct err *e, enum engine_failure how)
{
    struct engine_call *c = ctx;

    pool_failed_at(c, c->replica, e, how);
}

const struct engine_attempt_events pool_answer_events = {on_delta, on_done, on_failed};
