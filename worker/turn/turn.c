#include "worker/turn/turn.h"

#include <time.h>

#include "common/base/check.h"
#include "common/base/vec.h"
#include "worker/turn/ledger.h"
#include "worker/turn/merge.h"
#include "worker/turn/turn_internal.h"

enum { PROMPT_TAIL_IDS = 64 }; /* enough to hold an opened thought tag */

static void turn_run(struct turn *t);

static uint64_t clock_us(clockid_t clock)
{
    struct timespec ts;

    (void)clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static uint64_t wall_ms(void)
{
    return clock_us(CLOCK_REALTIME) / 1000;
}

/* --- life --- */

static void turn_free(struct turn *t)
{
    struct turn_env *env = t->env;
    struct arena arena;

    if (t->prev)
        t->prev->next = t->next;
    else
        env->running = t->next;
    if (t->next)
        t->next->prev = t->prev;
    env->n_running--;
    metrics_move(env->page, METRIC_calls_inflight, -1);
    loop_timer_stop(env->loop, &t->rejoin);
    loop_task_cancel(env->loop, &t->fail_task);
    for (uint32_t i = 0; i < t->n_runs; i++) {
        engine_cancel(t->runs[i].call);
        if (t->runs[i].decoding)
            answer_done(&t->runs[i].answer);
    }
    session_release(env->store, t->plan);
    if (!t->durable)
        ledger_forget(env, t);
    arena = t->arena; /* t itself lies in it */
    arena_done(&arena);
}

static void log_end(const struct turn *t, const char *outcome)
{
    uint64_t total_us = clock_us(CLOCK_MONOTONIC) - t->started_us;
    const struct turn_run *r = t->n_runs > 0 ? &t->runs[0] : NULL;

    log_info(&t->in.scope, "call", LOG_T("dialect", t->in.dialect), LOG_T("outcome", outcome),
             LOG_I("call", t->call), LOG_T("cause", t->cause),
             LOG_U("prompt_tokens", t->usage.prompt_tokens),
             LOG_U("reused_tokens", t->usage.cached_tokens),
             LOG_U("completion_tokens", t->usage.completion_tokens),
             LOG_U("queue_us", r ? r->queue_us : 0), LOG_U("engine_us", r ? r->engine_us : 0),
             LOG_U("total_us", total_us));
}

static void turn_fail(struct turn *t)
{
    struct err e = t->err;

    log_end(t, err_code(&e));
    listeners_fail(t, &e);
    turn_free(t);
}

static void on_fail_task(struct loop_task *task)
{
    turn_fail(CONTAINER_OF(task, struct turn, fail_task));
}

/* Fails from a place where the turn must not go away at once (an engine's callback). */
static void turn_fail_later(struct turn *t, const struct err *e)
{
    if (t->failing)
        return;
    t->failing = true;
    t->err = *e;
    loop_task_post(t->env->loop, &t->fail_task, on_fail_task);
}

/* --- prepare --- */

static struct session *session_of(struct turn *t)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);

    if (!s)
        (void)err_set(&t->err, ended ? ERR_SESSION_ENDED : ERR_UNKNOWN_SESSION,
                      ended ? "the session has ended" : "no such session");
    return s;
}

/* Ids that the model does not have would be refused by some engines and sampled from by others. */
static int known_ids(const struct turn_env *env, struct token_span ids, struct err *e)
{
    uint32_t told = model_info(env->model)->vocab_size;
    uint32_t size = told > 0 ? told : (uint32_t)INT32_MAX;

    for (size_t i = 0; i < ids.n; i++) {
        if (ids.at[i] < 0 || (uint32_t)ids.at[i] >= size)
            return err_field(e, "prompt", "prompt[%zu] is %d; this model's ids are 0 to %u", i,
                             ids.at[i], size - 1);
    }
    return 0;
}

/* The ids of a completion without chat: given, or the prompt's text encoded. */
static int raw_prompt(struct turn_env *env, struct arena *a, const struct chat_request *req,
                      struct token_span *ret, struct err *e)
{
    struct token_vec ids = {0};
    int32_t *copy;

    *ret = req->prompt_ids;
    if (req->chat.messages || !req->prompt.p)
        return known_ids(env, req->prompt_ids, e);
    if (encoder_encode(env->encoder, req->prompt, true, &ids, e)) {
        vec_done(&ids);
        return -1;
    }
    copy = arena_alloc(a, MAX_OF(ids.n, 1) * sizeof(*copy));
    if (ids.n > 0)
        memcpy(copy, ids.at, ids.n * sizeof(*copy));
    *ret = (struct token_span){copy, ids.n};
    vec_done(&ids);
    return 0;
}

static int call_input(struct turn_env *env, struct arena *a, const struct turn_input *in,
                      const struct sampling *sampling, struct session_call_input *ret,
                      struct err *e)
{
    const struct chat_request *req = in->req;

    *ret = (struct session_call_input){
        .chat = req->chat.messages ? &req->chat : NULL,
        .label = req->label,
        .parent_label = req->parent_label,
        .body_hash = {in->body_hash[0], in->body_hash[1]},
        .max_tokens = sampling->max_tokens,
        .temperature = (float)sampling->temperature,
        .context_length = turn_context_length(env),
        .now_ms = wall_ms(),
    };
    return raw_prompt(env, a, req, &ret->raw, e);
}

/* The model's stop ids and the request's in one list. */
static void collect_stop_ids(struct turn *t)
{
    const struct model_info *m = model_info(t->env->model);
    const struct json *more = t->sampling.stop_token_ids;
    size_t n_model = t->sampling.ignore_eos ? 0 : m->n_stop_ids;

    t->stop_ids = arena_calloc(&t->arena, n_model + (more ? more->n : 0) + 1, sizeof(int32_t));
    for (size_t i = 0; i < n_model; i++)
        t->stop_ids[t->n_stop_ids++] = m->stop_ids[i];
    for (size_t i = 0; more && i < more->n; i++) {
        int64_t id = -1;

        if (json_to_i64(json_at(more, i), &id) == 0 && id >= 0 && id <= INT32_MAX)
            t->stop_ids[t->n_stop_ids++] = (int32_t)id;
    }
}

static enum step_result step_prepare(struct turn *t)
{
    struct turn_env *env = t->env;
    struct session_call_input input;
    struct session *s = session_of(t);

    if (!s)
        return STEP_FAILED;
    if (session_inflight(s) >= env->max_session_inflight || env->n_running > env->max_inflight) {
        metrics_count_at(env->page, METRIC_refusals, METRIC_REFUSAL_INFLIGHT, 0, 1);
        (void)err_set(&t->err, ERR_OVERLOADED, "too many calls are running");
        return STEP_FAILED;
    }
    if (merge_sampling(&t->arena, t->in.req, session_sampling(s), session_lock_sampling(s),
                       &t->sampling, &t->err) ||
        call_input(env, &t->arena, &t->in, &t->sampling, &input, &t->err) ||
        session_prepare(s, env->scratch, &t->arena, &input, &t->plan, &t->err))
        return STEP_FAILED;
    merge_tool_choice(&t->arena, t->in.req, env->tool_kind, &t->sampling);
    t->sampling.max_tokens = t->plan->max_tokens;
    collect_stop_ids(t);
    t->call = (int64_t)t->plan->call;
    t->cause = session_cause_name(t->plan->cause);
    t->usage.prompt_tokens = (uint32_t)t->plan->prompt.n;
    t->usage.cached_tokens = (uint32_t)t->plan->reused;
    metrics_count(env->page, METRIC_tokens_prompt, t->plan->prompt.n);
    metrics_count(env->page, METRIC_tokens_reused, t->plan->reused);
    metrics_count(env->page, METRIC_tokens_encoded, t->plan->prompt.n - t->plan->reused);
    return STEP_NEXT;
}

/* --- generate --- */

static void fresh_call_id(void *ctx, char *out, size_t size)
{
    struct turn_env *env = ctx;

    CHECK(size > 5 + 24);
    if (env->tool_kind == TOOL_MISTRAL) {
        ids_hex(env->ids, out, 5);
        out[9] = '\0'; /* its templates refuse ids of any other length */
        return;
    }
    memcpy(out, "call_", 5);
    ids_hex(env->ids, out + 5, 12);
}

/* Whether the prompt already stands inside a thought. */
static bool opens_reasoning(const struct turn *t)
{
    struct token_span p = t->plan->prompt;
    size_t from = p.n > PROMPT_TAIL_IDS ? p.n - PROMPT_TAIL_IDS : 0;
    struct buf tail = {0};
    bool open;

    if (t->env->reasoning_kind == REASONING_NONE || !t->in.req->chat.messages)
        return false;
    tokenizer_decode(model_tokenizer(t->env->model), p.at + from, p.n - from, false, &tail);
    open = parser_opens_reasoning(t->env->reasoning_kind, buf_str(&tail));
    buf_done(&tail);
    return open;
}

static struct parser_options parser_of(const struct turn *t)
{
    const struct chat_request *req = t->in.req;
    bool tools = req->chat.tools && req->chat.tools->n > 0 && req->tool_choice != CHOICE_NONE;

    return (struct parser_options){
        .tool = tools ? t->env->tool_kind : TOOL_NONE,
        .reasoning = req->chat.messages ? t->env->reasoning_kind : REASONING_NONE,
        .reasoning_open = opens_reasoning(t),
        .hold_bytes = req->stream ? PARSER_HOLD_BYTES : SIZE_MAX,
        .tools = req->chat.tools,
    };
}

static void run_decode_init(struct turn *t, struct turn_run *r, uint32_t index)
{
    struct parser_options parser = parser_of(t);
    struct answer_options o = {
        .index = index,
        .tokenizer = model_tokenizer(t->env->model),
        .stop_ids = t->stop_ids,
        .n_stop_ids = t->n_stop_ids,
        .skip_special = parser.tool == TOOL_NONE && parser.reasoning == REASONING_NONE,
        .stops = t->sampling.stop,
        .one_call = !t->in.req->parallel_tool_calls,
        .parser = parser,
        .sink = &listeners_sink,
        .sink_ctx = t,
        .history = t->in.req->chat.messages,
        .fresh_id = fresh_call_id,
        .fresh_ctx = t->env,
    };

    answer_init(&r->answer, &o);
    r->decoding = true;
}

static void run_lp_reserve(struct turn *t, struct turn_run *r, size_t more)
{
    struct turn_logprob *grown;

    if (r->n_lp + more <= r->cap_lp)
        return;
    r->cap_lp = MAX_OF(r->cap_lp * 2, r->n_lp + more);
    grown = arena_calloc(&t->arena, r->cap_lp, sizeof(*grown));
    if (r->n_lp > 0)
        memcpy(grown, r->lp, r->n_lp * sizeof(*grown));
    r->lp = grown;
}

/* Adds the logprobs of ids beyond what r->lp has. */
static void run_logprobs(struct turn *t, struct turn_run *r, struct token_span ids,
                         const float *logprobs, const struct engine_top *top, uint32_t n_top)
{
    const struct tokenizer *tk = model_tokenizer(t->env->model);

    if (!t->in.req->logprobs || !logprobs || ids.n == 0)
        return;
    run_lp_reserve(t, r, ids.n);
    for (size_t i = 0; i < ids.n; i++) {
        struct turn_logprob *lp = &r->lp[r->n_lp++];
        struct turn_logprob *alt = arena_calloc(&t->arena, n_top, sizeof(*alt));

        *lp = (struct turn_logprob){ids.at[i], logprobs[i], tokenizer_text(tk, ids.at[i]), alt, 0};
        for (uint32_t k = 0; top && k < n_top; k++) {
            const struct engine_top *x = &top[i * n_top + k];

            alt[k] = (struct turn_logprob){x->id, x->logprob, tokenizer_text(tk, x->id), NULL, 0};
            lp->n_top++;
        }
    }
    listeners_sink.logprobs(t, r->answer.opt.index, r->lp + r->lp_sent, r->n_lp - r->lp_sent);
    r->lp_sent = r->n_lp;
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct turn_run *r = ctx;

    run_logprobs(r->turn, r, d->ids, d->logprobs, d->top, d->n_top);
    answer_feed(&r->answer, d->ids);
}

/* Takes what must outlive the engine's callback into the turn's arena. */
static void run_keep(struct turn *t, struct turn_run *r, const struct engine_result *res)
{
    r->finish = res->finish;
    r->n_ids = res->ids.n;
    r->ids = arena_calloc(&t->arena, res->ids.n + 1, sizeof(*r->ids));
    if (res->ids.n > 0)
        memcpy(r->ids, res->ids.at, res->ids.n * sizeof(*r->ids));
    if (res->logprobs) {
        r->logprobs = arena_calloc(&t->arena, res->ids.n + 1, sizeof(*r->logprobs));
        if (res->ids.n > 0)
            memcpy(r->logprobs, res->logprobs, res->ids.n * sizeof(*r->logprobs));
    }
    r->versions = arena_calloc(&t->arena, res->n_versions, sizeof(*r->versions));
    for (size_t i = 0; i < res->n_versions; i++)
        r->versions[r->n_versions++] =
            (struct session_version){arena_str(&t->arena, res->versions[i].version),
                                     res->versions[i].start, res->versions[i].end};
    if (res->experts.p)
        r->experts = arena_str(&t->arena, res->experts);
    if (res->stop_text.p)
        r->stop_text = arena_str(&t->arena, res->stop_text);
    r->experts_from = res->experts_from;
    r->experts_rows = res->experts_rows;
    r->queue_us = res->queue_us;
    r->engine_us = res->total_us;
}

static void on_done(void *ctx, const struct engine_result *res)
{
    struct turn_run *r = ctx;
    struct turn *t = r->turn;
    size_t known = r->answer.fed;

    r->call = NULL;
    r->done = true;
    if (t->failing)
        return;
    run_keep(t, r, res);
    run_logprobs(t, r, (struct token_span){r->ids + known, r->n_ids - known},
                 r->logprobs ? r->logprobs + known : NULL,
                 res->top ? res->top + known * res->n_top : NULL, res->n_top);
    answer_finish(&r->answer, (struct token_span){r->ids, r->n_ids});
    if (++t->n_done < t->n_runs)
        return;
    t->step = STEP_AT_COMMIT;
    turn_run(t);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct turn_run *r = ctx;

    r->call = NULL;
    turn_fail_later(r->turn, e);
}

static const struct engine_events engine_events = {on_delta, on_done, on_failed};

static void send_head(struct turn *t)
{
    t->head = (struct turn_head){
        .session_id = t->in.session_id,
        .response_id = t->runs[0].response_id,
        .created_s = clock_us(CLOCK_REALTIME) / 1000000,
        .usage = t->usage,
    };
    t->head_sent = true;
    listeners_sink.head(t, &t->head);
}

static enum step_result step_generate(struct turn *t)
{
    const struct chat_request *req = t->in.req;
    char hex[33];

    t->n_runs = MAX_OF(req->n, 1);
    t->runs = arena_calloc(&t->arena, t->n_runs, sizeof(*t->runs));
    for (uint32_t i = 0; i < t->n_runs; i++) {
        t->runs[i].turn = t;
        ids_hex(t->env->ids, hex, 16);
        t->runs[i].response_id = arena_str(&t->arena, str_of(hex, 32));
        run_decode_init(t, &t->runs[i], i);
    }
    send_head(t);
    if (t->plan->exhausted) {
        for (uint32_t i = 0; i < t->n_runs; i++)
            t->runs[i].finish = ENGINE_LENGTH;
        return STEP_NEXT;
    }
    for (uint32_t i = 0; i < t->n_runs; i++) {
        struct engine_request er = {
            .session_id = t->in.session_id,
            .call = t->plan->call,
            .answer = i,
            .prompt = t->plan->prompt,
            .sampling = t->sampling,
            .top_logprobs = req->logprobs ? req->top_logprobs : 0,
            .stream = req->stream,
            .chat_body = t->in.body,
        };

        t->runs[i].call = engine_start(t->env->engines, &er, &engine_events, &t->runs[i]);
    }
    return STEP_WAIT;
}

/* --- commit --- */

static struct str finish_reason(const struct turn_run *r)
{
    if (r->answer.stop.hit.p)
        return STR("stop");
    if (r->finish == ENGINE_LENGTH)
        return STR("length");
    return r->answer.n_calls > 0 ? STR("tool_calls") : STR("stop");
}

/* Whether the answer ends at one of the model's own stop ids. */
static bool run_closed(const struct turn *t, const struct turn_run *r)
{
    const struct model_info *m = model_info(t->env->model);

    for (size_t i = 0; r->n_ids > 0 && i < m->n_stop_ids; i++) {
        if (m->stop_ids[i] == r->ids[r->n_ids - 1])
            return true;
    }
    return false;
}

static void run_result(struct turn *t, struct turn_run *r, struct session_answer *ret)
{
    const struct model_info *m = model_info(t->env->model);
    uint64_t total_us = clock_us(CLOCK_MONOTONIC) - t->started_us;
    uint64_t away_us = r->queue_us + r->engine_us;

    r->out = (struct turn_answer){
        .index = r->answer.opt.index,
        .finish_reason = finish_reason(r),
        .stop_text = r->answer.stop.hit.p ? r->answer.stop.hit : r->stop_text,
        .message = answer_message(&r->answer, &t->arena),
        .logprobs = r->lp,
        .n_logprobs = r->n_lp,
    };
    *ret = (struct session_answer){
        .ids = {r->ids, r->n_ids},
        .logprobs = r->logprobs,
        .versions = r->versions,
        .n_versions = r->n_versions,
        .cut = !run_closed(t, r),
        .finish_reason = r->out.finish_reason,
        .message = r->out.message,
        .response_id = r->response_id,
        .experts = r->experts,
        .experts_from = r->experts_from,
        .experts_rows = r->experts_rows,
        .experts_layers = m->moe_layers,
        .experts_topk = m->moe_topk,
        .queue_us = r->queue_us,
        .engine_us = r->engine_us,
        .gateway_us = total_us > away_us ? total_us - away_us : 0,
    };
    if (r->answer.warning.len > 0) {
        ret->parse_warning = buf_str(&r->answer.warning);
        metrics_count(t->env->page, METRIC_parse_warnings, 1);
    }
    t->usage.completion_tokens += (uint32_t)r->n_ids;
    t->usage.reasoning_tokens += r->answer.reasoning_tokens;
}

static void on_durable(void *ctx)
{
    struct turn *t = ctx;

    t->durable = true;
    if (t->step == STEP_AT_DURABLE)
        turn_run(t);
}

static int record_commit(struct turn *t, const struct session_answer *answers, struct err *e)
{
    struct turn_env *env = t->env;
    struct buf record = {0};
    int rc = session_commit(t->plan, answers, t->n_runs, wall_ms(), &record, e);

    if (rc == 0)
        rc = ledger_write(env, t->in.session_id, buf_str(&record),
                          (struct ledger_done){on_durable, t}, e);
    if (rc == 0)
        t->plan = NULL;
    buf_done(&record);
    return rc;
}

static enum step_result step_commit(struct turn *t)
{
    struct session_answer *answers = arena_calloc(&t->arena, t->n_runs, sizeof(*answers));
    enum session_cause cause = t->plan->cause;

    for (uint32_t i = 0; i < t->n_runs; i++)
        run_result(t, &t->runs[i], &answers[i]);
    if (record_commit(t, answers, &t->err))
        return STEP_FAILED;
    metrics_count(t->env->page, METRIC_tokens_generated, t->usage.completion_tokens);
    metrics_count_at(t->env->page, METRIC_forks, (unsigned)cause, 0, 1);
    metrics_observe_us(t->env->page, METRIC_turn_queue, answers[0].queue_us);
    metrics_observe_us(t->env->page, METRIC_turn_engine, answers[0].engine_us);
    metrics_observe_us(t->env->page, METRIC_turn_gateway, answers[0].gateway_us);
    return STEP_NEXT;
}

static enum step_result step_durable(struct turn *t)
{
    return t->durable ? STEP_NEXT : STEP_WAIT;
}

static enum step_result step_finish(struct turn *t)
{
    struct turn_answer *out = arena_calloc(&t->arena, t->n_runs, sizeof(*out));

    log_end(t, "ok");
    deliveries_open(&t->env->deliveries, t->in.session_id, t->in.body_hash);
    for (uint32_t i = 0; i < t->n_runs; i++)
        out[i] = t->runs[i].out;
    listeners_finish(t, out, t->n_runs);
    return STEP_NEXT;
}

static enum step_result (*const steps[STEP_COUNT])(struct turn *t) = {

#define X(name, function) [STEP_AT_##name] = step_##function,
#include "worker/turn/turn_steps.def"
#undef X
};

/* Goes on from t->step until a step waits, fails or the last is done; t may be gone afterwards. */
static void turn_run(struct turn *t)
{
    while (t->step < STEP_COUNT) {
        enum step_result r = steps[t->step](t);

        if (r == STEP_WAIT)
            return;
        if (r == STEP_FAILED) {
            turn_fail(t);
            return;
        }
        t->step++;
    }
    turn_free(t);
}

/* --- the outside --- */

void turn_start(struct turn_env *env, struct arena *arena, const struct turn_input *in,
                struct turn_listener *l)
{
    struct turn *t = ARENA_NEW(arena, struct turn);

    t->env = env;
    t->in = *in;
    t->call = -1;
    t->cause = "";
    t->started_us = clock_us(CLOCK_MONOTONIC);
    t->arena = *arena;
    *arena = (struct arena){0};
    t->next = env->running;
    if (t->next)
        t->next->prev = t;
    env->running = t;
    env->n_running++;
    metrics_move(env->page, METRIC_calls_inflight, 1);
    listeners_add(t, l);
    turn_run(t);
}

struct turn *turn_find(struct turn_env *env, struct str session_id, const uint64_t hash[2],
                       bool any)
{
    for (struct turn *t = env->running; t; t = t->next) {
        if (t->in.body_hash[0] == hash[0] && t->in.body_hash[1] == hash[1] && !t->failing &&
            (any || !t->listeners) && str_eq(t->in.session_id, session_id))
            return t;
    }
    return NULL;
}

struct turn *turn_find_lost(struct turn_env *env, struct str session_id, const uint64_t hash[2],
                            bool (*gone)(const struct turn_listener *l))
{
    for (struct turn *t = env->running; t; t = t->next) {
        const struct turn_listener *l = t->listeners;

        if (t->in.body_hash[0] != hash[0] || t->in.body_hash[1] != hash[1] || t->failing ||
            !str_eq(t->in.session_id, session_id))
            continue;
        while (l && gone(l))
            l = l->next;
        if (!l)
            return t;
    }
    return NULL;
}

void turn_join(struct turn *t, struct turn_listener *l)
{
    loop_timer_stop(t->env->loop, &t->rejoin);
    metrics_count(t->env->page, METRIC_joins, 1);
    listeners_add(t, l);
    listeners_repeat(t, l);
}

static void on_rejoin_over(struct loop_timer *timer)
{
    struct turn *t = CONTAINER_OF(timer, struct turn, rejoin);

    log_end(t, "client_gone");
    turn_free(t);
}

void turn_leave(struct turn_listener *l)
{
    struct turn *t = l->turn;

    if (!t)
        return;
    listeners_drop(t, l);
    if (t->listeners || t->env->finish_on_disconnect || t->step >= STEP_AT_COMMIT)
        return;
    loop_timer_set(t->env->loop, &t->rejoin, t->env->rejoin_window_ms, on_rejoin_over);
}

void turn_end_session(struct turn_env *env, struct str session_id)
{
    struct turn *next;
    struct err e = {0};

    (void)err_set(&e, ERR_SESSION_ENDED, "the session ended during the call");
    for (struct turn *t = env->running; t; t = next) {
        next = t->next;
        if (t->step >= STEP_AT_DURABLE || !str_eq(t->in.session_id, session_id))
            continue;
        t->err = e;
        turn_fail(t);
    }
}

void turn_end_all(struct turn_env *env)
{
    struct err e = {0};

    (void)err_set(&e, ERR_DRAINING, "the gateway is shutting down");
    while (env->running) {
        env->running->err = e;
        turn_fail(env->running);
    }
}

uint32_t turn_context_length(const struct turn_env *env)
{
    return env->context_length ? env->context_length : engine_pool_context(env->engines);
}

int turn_count_tokens(struct turn_env *env, struct arena *arena, const struct turn_input *in,
                      size_t *ret, struct err *e)
{
    struct session_call_input input;
    struct session_plan *plan = NULL;
    bool ended = false;
    struct session *s = session_find(env->store, in->session_id, &ended);

    if (!s)
        return err_set(e, ended ? ERR_SESSION_ENDED : ERR_UNKNOWN_SESSION, "no such session");
    if (call_input(env, arena, in, &in->req->sampling, &input, e))
        return -1;
    input.look = true;
    if (session_prepare(s, env->scratch, arena, &input, &plan, e))
        return -1;
    *ret = plan->prompt.n;
    session_release_unused(env->store, plan);
    return 0;
}
