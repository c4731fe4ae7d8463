/* The first steps of a call: what is asked for, where it stands, which exact ids go to the
 * engine.
 *
 *   step_prepare   limits, sampling, position in the session: nothing is changed
 *   step_render    the prompt's ids and the grammar; long ones in a helper, so the session may have
 *                  changed, or ended, when it is through
 *   step_place     the call gets its number and its budget of tokens
 *   step_drop      linear: what a retry discards is given up on the record
 *
 * A text completion takes another way: it is encoded in step_render and positioned in
 * step_place, as a position needs its ids. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/vec.h"
#include "common/proc/metrics.h"
#include "worker/call/call_env.h"
#include "worker/call/call_images.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/prepare_input.h"
#include "worker/call/sampling_merge.h"
#include "worker/call/stop_text.h"
#include "worker/engine/engine_pool.h"
#include "worker/ledger/ledger.h"
#include "worker/model/model.h"
#include "worker/parsers/parser.h"
#include "worker/request/chat_request.h"
#include "worker/residency/residency.h"
#include "worker/session/session.h"
#include "worker/tokens/tokenizer.h"

enum { PROMPT_TAIL_IDS = 64 }; /* enough to hold a thought's tag */

enum { GRAMMAR_COST = 4, STOP_COST = 8 };

/* NULL and t->err: it has ended, or was never there. */
static struct session *session_of(struct model_call *t)
{
    bool ended = false;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);

    if (!s)
        (void)err_set(&t->err, ended ? ERR_SESSION_ENDED : ERR_UNKNOWN_SESSION,
                      ended ? "the session has ended" : "no such session");
    return s;
}

/* The id that entry i of a list of ids, or of an object by id, names; -1: none. */
static int64_t id_at(const struct json *v, uint32_t i)
{
    int64_t id = -1;
    uint64_t key;

    if (json_is(v, JSON_ARRAY))
        return json_to_i64(&v->items[i], &id) ? -1 : id;
    return str_to_u64(json_string(&v->members[i].key), INT64_MAX, &key) ? -1 : (int64_t)key;
}

/* The same of the ids among the sampling parameters; a model that was not named is not the
 * engine's. */
static int known_parameters(const struct call_env *env, const struct sampling *s, struct err *e)
{
    uint32_t size = model_info(env->model)->vocab_size;

    const struct {
        const char *name;
        const struct json *ids;
    } all[] = {
        {"stop_token_ids", s->stop_token_ids},
        {"allowed_token_ids", s->allowed_token_ids},
        {"logit_bias", s->logit_bias},
    };

    for (size_t k = 0; env->model_known && size > 0 && k < ARRAY_LEN(all); k++) {
        for (uint32_t i = 0; all[k].ids && i < all[k].ids->n; i++) {
            int64_t id = id_at(all[k].ids, i);

            if (id >= size)
                return err_field(e, all[k].name, "%s has the id %lld; this model's ids are 0 to %u",
                                 all[k].name, (long long)id, size - 1);
        }
    }
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The model's stop ids and the request's in one list. */
static void collect_stop_ids(struct model_call *t)
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
    qsort(t->stop_ids, t->n_stop_ids, sizeof(*t->stop_ids), by_id);
}

/* What the prompt says about the thought. */
static enum thought_state thought_of(const struct model_call *t, struct token_span p)
{
    size_t from = p.n > PROMPT_TAIL_IDS ? p.n - PROMPT_TAIL_IDS : 0;
    struct buf tail = {0};
    enum thought_state thought;

    if (t->kinds.reasoning == REASONING_NONE)
        return THOUGHT_MAYBE;
    tokenizer_decode(model_tokenizer(t->env->model), p.at + from, p.n - from, false, &tail);
    thought = parser_thought(t->kinds.reasoning, buf_str(&tail));
    buf_done(&tail);
    return thought;
}

/* What the session wants kept; it may have been made for other engines. */
static int check_wants(struct model_call *t)
{
    const struct engine_pool *p = t->env->engines;

    if (t->wants.support && engine_pool_tells(p, "sampling_support", &t->err))
        return -1;
    if (t->lora.len && engine_pool_takes_lora(p, t->sampling.engine_extra, &t->err))
        return -1;
    return t->wants.top_logprobs > 0 ? engine_pool_tells(p, "top_logprobs", &t->err) : 0;
}

/* Whether a grammar is to be made here; -1: what is asked for cannot be sent, or enforced. */
static int check_constraint(struct model_call *t)
{
    struct str type = json_string(json_get(t->sampling.grammar, "type"));
    const char *cannot = engine_pool_cannot_take(t->env->engines, &t->sampling);

    t->kinds = (struct answer_formats){
        .tool = t->env->tool_kind,
        .reasoning = t->in.req->chat.messages ? t->env->reasoning_kind : REASONING_NONE,
    };
    if (check_wants(t) ||
        engine_pool_takes_extra(t->env->engines, t->sampling.engine_extra, &t->err))
        return -1; /* the session was made for other engines */
    t->constrains = !t->call_input.text && engine_pool_constrains(t->env->engines);
    if (!t->constrains)
        return 0; /* the request itself goes on */
    if (known_parameters(t->env, &t->sampling, &t->err))
        return -1;
    if (t->env->strict_logprobs && !t->wants.support && /* which brings logprobs of its own */
        !engine_pool_logprobs_own(t->env->engines, &t->sampling))
        return err_set(
            &t->err, ERR_INVALID,
            "--strict-logprobs: with these sampling parameters the engine's logprobs are "
            "not those of the distribution that it samples from");
    if (cannot)
        return err_field(&t->err, cannot, "the engine has no field for %s, which would be ignored",
                         cannot);
    if (!engine_pool_enforces(t->env->engines, type))
        return err_field(&t->err, "response_format.type",
                         "the engine cannot enforce response_format.type %s",
                         arena_cstr(&t->arena, type));
    return 0;
}

static int constrain(struct model_call *t, struct err *e)
{
    struct answer_formats m = t->kinds;

    m.thought = t->thought;
    return t->constrains ? merge_constraint(&t->arena, t->in.req, &m, &t->sampling, e) : 0;
}

/* Where a chat stands; completions stand nowhere before their ids are known. */
static int find_position(struct model_call *t, struct session *s)
{
    if (prepare_is_text(t->in.req)) {
        t->pinned = s;
        session_pin(s);
        return 0;
    }
    return session_prepare_begin(s, &t->arena, &t->call_input, &t->plan, &t->err);
}

/* Refusals of this step change nothing and cost no rendering. */
enum step_result step_prepare(struct model_call *t)
{
    struct call_env *env = t->env;
    struct session *s = session_of(t);

    if (!s || residency_room(env->residency, s, t->in.body_bytes + t->arena.held_bytes, &t->err))
        return STEP_FAILED;
    if (!t->in.req->chat.messages && engine_pool_some_text(env->engines)) {
        (void)err_set(&t->err, ERR_INVALID, "this engine answers chats only");
        return STEP_FAILED;
    }
    if (session_inflight(s) >= env->max_session_inflight || env->n_running > env->max_inflight) {
        metrics_count_at(env->page, METRIC_refusals, METRIC_REFUSAL_INFLIGHT, 0, 1);
        (void)err_set(&t->err, ERR_OVERLOADED, "too many calls are running");
        return STEP_FAILED;
    }
    if (merge_sampling(&t->arena, t->in.req, session_sampling(s), session_lock_sampling(s),
                       &t->sampling, &t->err) ||
        prepare_input(env, &t->in, &t->sampling, &t->call_input, &t->err) || find_position(t, s))
        return STEP_FAILED;
    t->format = t->sampling.grammar;
    t->wants = session_wants(s);
    t->lora = session_adapter(s).len ? arena_str(&t->arena, session_adapter(s)) : (struct str){0};
    if (t->plan && t->plan->images > 0 && engine_pool_check_images(env->engines, &t->err))
        return STEP_FAILED;
    return check_constraint(t) ? STEP_FAILED : STEP_NEXT;
}

/* Whether the text of a completion may fit, by its bytes. */
static int text_may_fit(const struct model_call *t, struct err *e)
{
    size_t fewest = tokenizer_fewest(model_tokenizer(t->env->model), t->in.req->prompt);
    uint32_t max = t->call_input.context_length;

    if (max == 0 || fewest <= max)
        return 0;
    return err_set(e, ERR_CONTEXT_LENGTH,
                   "This model's maximum context length is %u tokens. However, your prompt "
                   "resulted in at least %zu tokens.",
                   max, fewest);
}

/* In a helper, maybe: see work.h. The call's arena is this function's meanwhile. */
static int render(struct long_work *w, struct work_tools *tools, struct err *e)
{
    struct model_call *t = CONTAINER_OF(w, struct model_call, work);
    struct token_span prompt;

    if (work_note(tools, w->body_hash, e))
        return -1;
    t->stops = stop_tree_new(&t->arena, t->sampling.stop);
    if (prepare_is_text(t->in.req) && text_may_fit(t, e) != 0)
        return -1;
    if (prepare_is_text(t->in.req))
        return prepare_encode(tools->encoder, &t->arena, t->in.req, &t->call_input.raw, e);
    if (session_prepare_render(t->plan, tools->scratch, &prompt, e))
        return -1;
    if (t->plan->images > 0 && (call_images_keep(t, e) || call_images_gather(t, e)))
        return -1;
    t->thought = thought_of(t, prompt);
    return constrain(t, e);
}

/* What stands in for something was in the prompt: it is said, and nothing is sent. */
static void note_leak(const struct model_call *t, const struct err *e)
{
    if (e->kind != ERR_PROMPT_LEAK)
        return;
    metrics_count(t->env->page, METRIC_prompt_leaks, 1);
    log_error(&t->in.scope, "a prompt with stand-in text was refused",
              LOG_S("session", t->in.session_id));
}

/* How the held suffix compared with the whole chat. */
static void note_audit(const struct model_call *t)
{
    enum model_audit audit = t->plan->audit;

    if (audit == MODEL_AUDIT_NONE)
        return;
    metrics_count_at(t->env->page, METRIC_suffix_audits,
                     audit == MODEL_AUDIT_SAME ? METRIC_AUDIT_SAME : METRIC_AUDIT_DIFFERS, 0, 1);
    if (audit == MODEL_AUDIT_DIFFERS)
        log_error(
            NULL,
            "the text behind a stored turn was not what the template makes of the whole chat: "
            "earlier turns of this model may hold such",
            LOG_S("session", t->in.session_id), LOG_U("call", (uint64_t)t->call));
}

/* A helper is through: the call goes on with the next step. */
static void on_rendered(struct long_work *w, const struct err *e)
{
    struct model_call *t = CONTAINER_OF(w, struct model_call, work);

    if (e) {
        note_leak(t, e);
        model_call_fail_now(t, e);
        return;
    }
    t->step++;
    model_call_advance(t);
}

/* Bytes of what a grammar is made from; a schema's byte becomes several of a grammar. */
static size_t constraint_bytes(const struct model_call *t)
{
    const struct chat_request *req = t->in.req;
    bool forced = chat_request_needs_call(req) || t->sampling.grammar;

    return t->constrains && forced ? GRAMMAR_COST * t->in.body_bytes : 0;
}

/* Bytes of stop strings; of each, a tree gets a node. */
static size_t stop_bytes(const struct model_call *t)
{
    size_t bytes = 0;

    for (size_t i = 0; json_at(t->sampling.stop, i); i++)
        bytes += json_string(json_at(t->sampling.stop, i)).len;
    return STOP_COST * bytes;
}

/* Files are read and written. */
static bool has_images(const struct model_call *t)
{
    return t->plan && t->plan->images > 0;
}

/* Short work is done on the spot; "short" goes by bytes, as nothing else is known yet. Images make
 * it long. */
enum step_result step_render(struct model_call *t)
{
    size_t bytes = prepare_is_text(t->in.req) ? t->in.req->prompt.len
                                              : session_prompt_bytes(t->plan, WORK_TEXT_MAX + 1);

    t->work.run = render;
    t->work.done = on_rendered;
    t->work.body_hash = t->in.work_hash;
    switch (work_begin(
        t->env, &t->work, t->in.session_id,
        !has_images(t) && bytes + constraint_bytes(t) + stop_bytes(t) <= WORK_TEXT_MAX, &t->err)) {
    case WORK_DONE:
        return STEP_NEXT;
    case WORK_HELPED:
        return STEP_WAIT;
    case WORK_FAILED:
        note_leak(t, &t->err);
        break;
    }
    return STEP_FAILED;
}

/* A text completion has its ids now. */
static int place_text(struct model_call *t)
{
    struct session *s = session_of(t);

    if (!s || session_prepare(s, t->env->scratch, &t->arena, &t->call_input, &t->plan, &t->err))
        return -1;
    t->thought = THOUGHT_MAYBE;
    return constrain(t, &t->err);
}

/* From here on the call counts as one of the session's. */
enum step_result step_place(struct model_call *t)
{
    struct call_env *env = t->env;

    if (prepare_is_text(t->in.req) ? place_text(t)
                                   : session_prepare_end(t->plan, &t->call_input, &t->err))
        return STEP_FAILED;
    t->asked_tokens = t->sampling.max_tokens;
    t->sampling.max_tokens = t->plan->max_tokens;
    collect_stop_ids(t);
    t->call = (int64_t)t->plan->call;
    t->cause = session_cause_name(t->plan->cause);
    t->usage.prompt_tokens = (uint32_t)(t->plan->prompt.n + t->plan->image_extra);
    note_audit(t);
    t->reused_tokens = (uint32_t)t->plan->reused;
    metrics_count(env->page, METRIC_tokens_prompt, t->usage.prompt_tokens);
    metrics_count(env->page, METRIC_tokens_reused, t->plan->reused);
    metrics_count(env->page, METRIC_tokens_encoded, t->plan->prompt.n - t->plan->reused);
    return STEP_NEXT;
}

/* The drop's record is as durable as promised; maybe still inside of step_drop. */
static void on_dropped(void *ctx)
{
    struct model_call *t = ctx;

    t->dropped = true;
    if (t->step == STEP_AT_DROP && t->dropping)
        model_call_advance(t);
}

/* Before the engine is asked: a crash from here on must not bring the discarded checkpoint back. */
enum step_result step_drop(struct model_call *t)
{
    struct buf record = {0};
    int rc;

    if (!t->dropping && !t->plan->drops)
        return STEP_NEXT;
    if (!t->dropping) {
        session_drop_record(t->plan, clock_wall_ms(), &record);
        rc = ledger_write(t->env->ledger, t->in.session_id, buf_str(&record),
                          (struct ledger_done){on_dropped, t}, &t->err);
        buf_done(&record);
        if (rc)
            return STEP_FAILED;
        t->dropping = true;
    }
    return t->dropped ? STEP_NEXT : STEP_WAIT;
}

uint32_t call_context_length(const struct call_env *env)
{
    uint32_t told = engine_pool_context(env->engines), own = env->context_length;

    return told > 0 && (own == 0 || told < own) ? told : own;
}
