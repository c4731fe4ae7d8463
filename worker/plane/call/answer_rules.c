/* An engine looks for stop strings after each of its steps. A step of speculative decoding samples
 * several tokens, and some engines return all of them. One of these proves that a stop string ended
 * the answer: its end is the last token; the engine names it; or the engine says "stop" and there
 * is no stop id. */
#include "worker/plane/call/answer_rules.h"

#include <stdarg.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/id_rules.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/tokens/tokenizer.h"

enum {
    STEP_MAX = 64, /* most tokens of one step: drafts of engines are shorter */
    /* bytes; of a longer text only the first and the last byte are checked */
    JSON_READ_MAX = 64 << 10,
    STOP_SHOWN_MAX = 64, /* longest stop string in a warning */
};

/* Fails the call, because the engine has ignored the field. */
static RG_PRINTF(4, 5) void fail(struct model_call *t, const struct sample *r, const char *field,
                                 const char *format, ...)
{
    struct buf why = {0};
    struct err e = {0};
    va_list args;

    va_start(args, format);
    buf_vprintf(&why, format, args);
    va_end(args);
    (void)err_set(&e, ERR_ENGINE_INVALID, "the engine ignored %s: %.*s", field, (int)why.len,
                  why.p);
    buf_done(&why);
    engine_pool_note_ignored(t->engines, r->replica, field);
    model_call_fail_later(t, &e);
}

/* --- stop strings --- */

/* Returns true if the stop string began in a piece before the last one: engines search it only in
 * what they sample themselves. */
static bool began_in_earlier_piece(const struct model_call *t, const struct sample *r)
{
    const struct tokenizer *tk = model_tokenizer(t->env->model);
    size_t bytes = 0, stop = sampled_answer_stop(r->answer).len;

    if (r->resumed_at == 0 || r->answer->stop_at < r->resumed_at)
        return false;
    for (size_t i = r->resumed_at; i < r->answer->stop_at && bytes < stop; i++)
        bytes += tokenizer_text(tk, r->ids[i]).len;
    return bytes < stop;
}

static bool has_id(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

/* Returns true if the answer's last id ends a turn. */
static bool ends_by_id(const struct model_call *t, const struct sample *r)
{
    const struct model_info *m = model_info(t->env->model);
    int32_t last = r->ids[r->n_ids - 1];

    return r->end_id >= 0 || has_id(t->stop_ids, t->n_stop_ids, last) ||
           has_id(m->stop_ids, m->n_stop_ids, last);
}

/* Returns true if the tokens after the stop string belong to the step that sampled its end. */
static bool is_of_last_step(const struct model_call *t, const struct sample *r)
{
    if (r->n_ids - r->answer->stop_at >= STEP_MAX)
        return false;
    return r->speculates || r->finish == ENGINE_STOP_STRING ||
           (r->finish == ENGINE_STOP && !ends_by_id(t, r));
}

static void cut_tail(struct model_call *t, struct sample *r, size_t rest)
{
    struct buf text = {0};

    buf_printf(&text, "%zu token%s after the stop string cut: the engine's last step sampled %s",
               rest, rest == 1 ? "" : "s", rest == 1 ? "it" : "them");
    sampled_answer_warn(r->answer, buf_str(&text));
    buf_done(&text);
    log_info(t->in.scope, "tokens after a stop string were cut", LOG_S("engine", r->replica),
             LOG_U("tokens", rest));
    sample_cut(r, r->answer->stop_at);
}

/* Warns of a stop string that the engine names and its tokens do not hold: it left tokens out, or
 * means something else, such as SGLang's stop_regex. A special token, which is no part of the text,
 * may also be a stop string. */
static void check_named_stop(const struct model_call *t, struct sample *r)
{
    const struct tokenizer *tk = model_tokenizer(t->env->model);
    struct buf text = {0};

    if (r->finish != ENGINE_STOP_STRING || sampled_answer_stop(r->answer).p || r->n_ids == 0 ||
        ends_by_id(t, r) || str_eq(tokenizer_text(tk, r->ids[r->n_ids - 1]), r->stop_text))
        return;
    buf_puts(&text, "the engine says that ");
    if (r->stop_text.len > STOP_SHOWN_MAX)
        buf_printf(&text, "a text of %zu bytes", r->stop_text.len);
    else
        buf_printf(&text, "\"%.*s\"", (int)r->stop_text.len, r->stop_text.p);
    buf_puts(&text, " ended the answer, and its tokens do not hold that text");
    sampled_answer_warn(r->answer, buf_str(&text));
    buf_done(&text);
}

static bool check_stop(struct model_call *t, struct sample *r)
{
    size_t rest = r->n_ids - MIN_OF(r->answer->stop_at, r->n_ids);

    check_named_stop(t, r);
    if (!sampled_answer_stop(r->answer).p || rest == 0)
        return true;
    if (is_of_last_step(t, r) || began_in_earlier_piece(t, r)) {
        cut_tail(t, r, rest);
        return true;
    }
    fail(t, r, "stop", "it sampled %zu tokens after the stop string", rest);
    return false;
}

/* --- other fields --- */

static bool check_lengths(struct model_call *t, const struct sample *r)
{
    int64_t most = t->sampling->max_tokens;
    bool by_string = r->finish == ENGINE_STOP_STRING || sampled_answer_stop(r->answer).p;

    /* Additional tokens are harmless, but the limit was ignored. */
    if (most > 0 && r->n_ids > (size_t)most)
        engine_pool_note_ignored(t->engines, r->replica, "max_tokens");
    if (r->finish == ENGINE_STOP && !by_string && !t->sampling->grammar &&
        r->n_ids < t->min_tokens) {
        fail(t, r, "min_tokens", "it sampled %zu tokens, not %zu at least", r->n_ids,
             t->min_tokens);
        return false;
    }
    return true;
}

static bool check_ids(struct model_call *t, const struct sample *r)
{
    size_t at = 0;
    const char *field = id_rules_broken(t->id_rules, (struct token_span){r->ids, r->n_ids}, &at);

    if (!field)
        return true;
    fail(t, r, field, "its token %zu is id %d", at, r->ids[at]);
    return false;
}

/* Checks that an id which ends a turn is the last one. Kinds without a field for stop ids are
 * exempt. */
static bool check_ends(struct model_call *t, const struct sample *r)
{
    const struct model_info *m = model_info(t->env->model);
    size_t ended = r->answer->ended_at;
    int32_t last = r->n_ids > 0 ? r->ids[r->n_ids - 1] : -1;

    if (r->takes_stop_ids && ended > 0 && ended < r->n_ids) {
        fail(t, r, "stop_token_ids", "it sampled %zu tokens after id %d, which ends the turn",
             r->n_ids - ended, r->ids[ended - 1]);
        return false;
    }
    if (t->sampling->ignore_eos && r->finish == ENGINE_STOP && !t->sampling->grammar &&
        has_id(m->stop_ids, m->n_stop_ids, last) && !has_id(t->stop_ids, t->n_stop_ids, last)) {
        fail(t, r, "ignore_eos", "its answer ends by id %d", last);
        return false;
    }
    return true;
}

static bool is_json(struct str text)
{
    struct arena a = {0};
    const struct json *v;
    struct err e = {0};
    bool ret;

    if (text.len > JSON_READ_MAX)
        return memchr("{[\"", text.p[0], 3) && memchr("}]\"", text.p[text.len - 1], 3);
    ret = json_parse(&a, text, &v, &e) == 0;
    arena_done(&a);
    return ret;
}

/* Checks that an answer which the engine ended itself, as text, is JSON if a format demands it. Its
 * tokens are right, so it is kept, with a warning. */
static void check_format(struct model_call *t, struct sample *r)
{
    struct str type = json_string(json_get(t->format, "type"));
    struct str text = str_trim(buf_str(&r->answer->text));

    if (!(t->constrains || r->upstream) || r->finish != ENGINE_STOP || r->filtered ||
        sampled_answer_stop(r->answer).p || r->answer->n_calls > 0 || text.len == 0 ||
        !(str_eq_c(type, "json_schema") || str_eq_c(type, "json_object")) || is_json(text))
        return;
    sampled_answer_warn(r->answer, STR("response_format demands JSON and none was sampled"));
    engine_pool_note_ignored(t->engines, r->replica, "response_format");
}

void answer_rules_watch(struct model_call *t, struct sample *r)
{
    size_t stop = r->answer->stop_at;

    if (sampled_answer_stop(r->answer).p && stop > t->min_tokens &&
        r->answer->fed > stop + STEP_MAX)
        fail(t, r, "stop", "it goes on after the stop string");
}

void answer_rules_check(struct model_call *t, struct sample *r)
{
    if (check_lengths(t, r) && check_ids(t, r) && check_stop(t, r) && check_ends(t, r))
        check_format(t, r);
}

/* --- messages of upstreams --- */

void answer_rules_watch_message(struct model_call *t, struct sample *r)
{
    if (r->answer->overrun > 0 && !t->failing)
        fail(t, r, "stop", "its answer goes on after the stop string");
}

/* Reports a field that an upstream ignored. The answer is otherwise right, so it is kept. */
static void report_field(struct model_call *t, struct sample *r, const char *field,
                         const char *warning)
{
    if (warning)
        sampled_answer_warn(r->answer, str_cstr(warning));
    engine_pool_note_ignored(t->engines, r->replica, field);
}

/* Checks the number of tokens, if ids or usage came. */
static bool check_usage(struct model_call *t, struct sample *r)
{
    int64_t most = t->sampling->max_tokens;
    bool by_string = sampled_answer_stop(r->answer).p || r->stop_text.p;

    if (most > 0 && r->completion_tokens > most)
        report_field(t, r, "max_tokens", NULL);
    if (r->finish == ENGINE_STOP && !r->filtered && !by_string && r->completion_tokens > 0 &&
        r->completion_tokens < t->min_tokens) {
        fail(t, r, "min_tokens", "it sampled %u tokens, not %zu at least", r->completion_tokens,
             t->min_tokens);
        return false;
    }
    return true;
}

static bool is_allowed(const struct chat_request *req, struct str name)
{
    if (req->tool_choice == CHOICE_NONE)
        return false;
    if (req->tool_choice == CHOICE_FUNCTION)
        return str_eq(name, req->tool_function);
    for (size_t i = 0; json_at(req->tool_allowed, i); i++) {
        if (str_eq(json_string(json_at(req->tool_allowed, i)), name))
            return true;
    }
    return !req->tool_allowed;
}

static void check_choice(struct model_call *t, struct sample *r)
{
    const struct chat_request *req = t->in.req;
    const struct sampled_answer *a = r->answer;
    bool allowed = true;

    for (size_t i = 0; i < a->n_calls; i++)
        allowed = allowed && is_allowed(req, buf_str(&a->calls[i].name));
    if (!allowed)
        report_field(t, r, "tool_choice", "a tool was called that tool_choice does not allow");
    if (chat_request_needs_call(req) && a->n_calls == 0 && r->finish == ENGINE_STOP && !r->filtered)
        report_field(t, r, "tool_choice", NULL); /* sample_result warns */
    if (a->withheld > 0 && !req->parallel_tool_calls)
        report_field(t, r, "parallel_tool_calls", NULL);
}

static void check_odds(struct model_call *t, struct sample *r)
{
    const struct chat_request *req = t->in.req;

    if (!req->logprobs || r->answer->text.len == 0)
        return;
    if (r->n_lp == 0)
        report_field(t, r, "logprobs", "logprobs were asked for and none came");
    else if (req->top_logprobs > 0 && r->lp[0].n_top == 0)
        report_field(t, r, "top_logprobs", "top_logprobs were asked for and none came");
}

void answer_rules_check_message(struct model_call *t, struct sample *r)
{
    answer_rules_watch_message(t, r);
    if (t->failing || !check_usage(t, r) || (r->n_ids > 0 && !check_ids(t, r)))
        return;
    check_format(t, r);
    check_choice(t, r);
    check_odds(t, r);
}
