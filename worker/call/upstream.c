/* Engines that are asked with messages (kind openai) instead of ids: the request's body, and
 * what can be taken from the answer. A chat request is handed on with the client's own fields
 * that say what to answer; requests of other dialects are rewritten as chat. From the answer
 * come the message, and ids and logprobs where the upstream tells them. */

#include "worker/call/upstream.h"

#include "common/base/vec.h"
#include "common/proc/metrics.h"
#include "worker/call/call_env.h"
#include "worker/call/call_listeners.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/engine/engine_pool.h"
#include "worker/engine/extra.h"
#include "worker/model/model.h"

/* --- the request --- */

/* Sampling that is not as the API has it by default; temperature and top_p always. */
static void write_numbers(struct json_out *o, const struct sampling *s)
{
    const struct {
        const char *name;
        double value, plain;
    } all[] = {
        {"temperature", s->temperature, -1},
        {"top_p", s->top_p, -1},
        {"min_p", s->min_p, 0},
        {"presence_penalty", s->presence_penalty, 0},
        {"frequency_penalty", s->frequency_penalty, 0},
        {"repetition_penalty", s->repetition_penalty, 1},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i].value < all[i].plain || all[i].value > all[i].plain) {
            json_out_key(o, all[i].name);
            json_out_double(o, all[i].value);
        }
    }
    if (s->top_k > 0) {
        json_out_key(o, "top_k");
        json_out_i64(o, s->top_k);
    }
    if (s->has_seed) {
        json_out_key(o, "seed");
        json_out_i64(o, s->seed);
    }
    if (s->ignore_eos) {
        json_out_key(o, "ignore_eos");
        json_out_bool(o, true);
    }
}

static void write_value(struct json_out *o, const char *key, const struct json *v)
{
    if (!v)
        return;
    json_out_key(o, key);
    json_out_value(o, v);
}

/* Merged sampling, by the API's names. */
static void write_sampling(struct json_out *o, const struct model_call *t, int64_t max_tokens)
{
    const struct sampling *s = &t->sampling;
    bool newer = json_get(t->in.body, "max_completion_tokens") != NULL;

    write_numbers(o, s);
    if (max_tokens > 0) {
        json_out_key(o, newer ? "max_completion_tokens" : "max_tokens");
        json_out_i64(o, max_tokens);
    }
    write_value(o, "stop", s->stop);
    write_value(o, "stop_token_ids", s->stop_token_ids);
    write_value(o, "min_tokens", s->min_tokens);
    write_value(o, "repeat_last_n", s->repeat_last_n);
    write_value(o, "allowed_token_ids", s->allowed_token_ids);
    write_value(o, "bad_words", s->bad_words);
    write_value(o, "max_thinking_tokens", s->max_thinking_tokens);
    write_value(o, "logit_bias", s->logit_bias);
    write_value(o, "response_format", t->format); /* tool_choice goes as itself */
}

/* Whether the list has the name. */
static bool is_one_of(struct str name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eq_c(name, names[i]))
            return true;
    }
    return false;
}

/* An upstream serves others, too: of a request that an agent's code wrote it gets what says what to
 * answer, beside sampling. Not whose call it is (priority, rid), with which weights or template, or
 * where to connect to. */
static bool passes(struct str name)
{
    static const char *const fields[] = {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "logprobs",
        "top_logprobs",
        "reasoning",
        "reasoning_effort",
        "thinking",
        "enable_thinking",
        "verbosity",
        "chat_template_kwargs",
        "min_tokens",
        "skip_special_tokens",
        "separate_reasoning",
        "stream_reasoning",
        "include_reasoning",
        "return_token_ids",
        "return_meta_info",
        "return_prompt_token_ids",
        "return_input_ids_in_sglext",
        "return_output_ids_in_sglext",
        "user",
        "metadata",
    };

    return is_one_of(name, fields, ARRAY_LEN(fields));
}

member_taken_fn call_upstream_takes(const struct call_env *env, const char *dialect)
{
    return strcmp(dialect, "chat") == 0 && engine_pool_all_text(env->engines) ? passes : NULL;
}

/* Engines take the template itself from among its arguments. */
static void write_kwargs(struct json_out *o, const struct json *kwargs)
{
    static const char *const never[] = {"chat_template", "tokenize", "return_dict",
                                        "return_tensors"};

    json_out_obj(o);
    for (size_t i = 0; json_is(kwargs, JSON_OBJECT) && i < kwargs->n; i++) {
        struct str name = json_string(&kwargs->members[i].key);

        if (is_one_of(name, never, ARRAY_LEN(never)))
            continue;
        json_out_key_str(o, name);
        json_out_value(o, &kwargs->members[i].value);
    }
    json_out_end_obj(o);
}

/* The client's own fields, but for those that the trainer sets; how many were left out. */
static size_t write_passed(struct json_out *o, const struct json *body, const struct json *extra)
{
    static const char *const ours[] = {"stream", "stream_options", "n"};
    size_t dropped = 0;

    for (size_t i = 0; i < body->n; i++) {
        const struct json_member *m = &body->members[i];
        struct str name = json_string(&m->key);

        if (sampling_known(name) || is_one_of(name, ours, ARRAY_LEN(ours)))
            continue;
        if (!passes(name) || json_get_str(extra, name)) {
            dropped++;
            continue;
        }
        json_out_key_str(o, name);
        if (str_eq_c(name, "chat_template_kwargs"))
            write_kwargs(o, &m->value);
        else
            json_out_value(o, &m->value);
    }
    return dropped;
}

/* One function by its name. */
static void write_function(struct json_out *o, struct str name)
{
    json_out_obj(o);
    json_out_key(o, "type");
    json_out_cstr(o, "function");
    json_out_key(o, "function");
    json_out_obj(o);
    json_out_key(o, "name");
    json_out_str(o, name);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* A choice among some tools. */
static void write_allowed(struct json_out *o, const struct chat_request *req)
{
    json_out_obj(o);
    json_out_key(o, "type");
    json_out_cstr(o, "allowed_tools");
    json_out_key(o, "allowed_tools");
    json_out_obj(o);
    json_out_key(o, "mode");
    json_out_cstr(o, req->tool_choice == CHOICE_REQUIRED ? "required" : "auto");
    json_out_key(o, "tools");
    json_out_arr(o);
    for (size_t i = 0; json_at(req->tool_allowed, i); i++)
        write_function(o, json_string(json_at(req->tool_allowed, i)));
    json_out_end_arr(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* tool_choice in Chat Completions' form. */
static void write_choice(struct json_out *o, const struct chat_request *req)
{
    json_out_key(o, "tool_choice");
    if (req->tool_choice == CHOICE_FUNCTION) {
        write_function(o, req->tool_function);
    } else if (req->tool_allowed) {
        write_allowed(o, req);
    } else {
        json_out_cstr(o, req->tool_choice == CHOICE_NONE       ? "none"
                         : req->tool_choice == CHOICE_REQUIRED ? "required"
                                                               : "auto");
    }
}

/* A request of another dialect, as chat. */
static void write_as_chat(struct json_out *o, const struct chat_request *req)
{
    json_out_key(o, "model");
    json_out_str(o, req->model);
    write_value(o, "messages", req->chat.messages);
    if (req->chat.tools && req->chat.tools->n > 0) {
        write_value(o, "tools", req->chat.tools);
        write_choice(o, req);
        if (!req->parallel_tool_calls) {
            json_out_key(o, "parallel_tool_calls");
            json_out_bool(o, false);
        }
    }
    if (req->chat.kwargs) {
        json_out_key(o, "chat_template_kwargs");
        write_kwargs(o, req->chat.kwargs);
    }
    if (req->logprobs) {
        json_out_key(o, "logprobs");
        json_out_bool(o, true);
        json_out_key(o, "top_logprobs");
        json_out_i64(o, req->top_logprobs);
    }
}

/* The request's body as JSON, in the arena. */
const struct json *upstream_body(const struct model_call *t, int64_t asked, struct arena *a)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    const struct json *extra = t->sampling.engine_extra;
    const struct json *body = NULL;
    struct err e;

    json_out_obj(&o);
    if (str_eq_c(str_cstr(t->in.dialect), "chat"))
        metrics_count(t->env->page, METRIC_upstream_dropped, write_passed(&o, t->in.body, extra));
    else
        write_as_chat(&o, t->in.req);
    write_sampling(&o, t, asked);
    engine_extra_write(&o, extra);
    json_out_end_obj(&o);
    if (json_parse(a, arena_str(a, buf_str(&text)), &body, &e))
        body = NULL;
    buf_done(&text);
    return body;
}

/* --- the answer --- */

/* One token of the answer's logprobs. */
static struct token_logprob logprob_of(const struct json *v)
{
    const struct json *token = json_get(v, "token");
    double d = 0;

    (void)json_to_double(json_get(v, "logprob"), &d);
    return (struct token_logprob){.id = -1, .logprob = (float)d, .bytes = json_string(token)};
}

/* Adds what one event tells. */
void upstream_logprobs(struct model_call *t, struct sample *r, const struct json *lps)
{
    const struct json *content = json_get(lps, "content");
    struct arena *a = &t->arena;

    if (!t->in.req->logprobs || !json_is(content, JSON_ARRAY) || content->n == 0)
        return;
    sample_lp_reserve(t, r, content->n);
    for (size_t i = 0; i < content->n; i++) {
        const struct json *top = json_get(&content->items[i], "top_logprobs");
        size_t n = json_is(top, JSON_ARRAY) ? top->n : 0;
        struct token_logprob *alt = arena_calloc(a, n, sizeof(*alt));
        struct token_logprob *lp = &r->lp[r->n_lp++];

        *lp = logprob_of(&content->items[i]);
        lp->bytes = arena_str(a, lp->bytes);
        lp->top = alt;
        lp->n_top = (uint32_t)n;
        for (size_t k = 0; k < n; k++) {
            alt[k] = logprob_of(json_at(top, k));
            alt[k].bytes = arena_str(a, alt[k].bytes);
        }
    }
    call_listeners_sink.logprobs(t, r->answer.opt.index, r->lp + r->lp_sent, r->n_lp - r->lp_sent);
    r->lp_sent = r->n_lp;
}

static uint32_t count_of(const struct json *v)
{
    int64_t n = 0;

    return json_to_i64(v, &n) == 0 && n > 0 ? (uint32_t)MIN_OF(n, INT32_MAX) : 0;
}

/* The prompt's ids where the upstream told only how many there are: our own rendering, when the
 * model is the upstream's and the count is the same. */
static void render_prompt(struct model_call *t, struct sample *r)
{
    struct call_env *env = t->env;
    struct token_vec ids = {0};
    struct err e;

    if (env->model_known && t->in.req->chat.messages &&
        model_prompt(env->model, env->scratch, &t->in.req->chat, &ids, &e) == 0 &&
        ids.n == r->prompt_tokens) {
        int32_t *copy = arena_calloc(&t->arena, ids.n + 1, sizeof(*copy));

        memcpy(copy, ids.at, ids.n * sizeof(*copy));
        r->prompt_ids = (struct token_span){copy, ids.n};
    }
    vec_done(&ids);
}

/* The prompt's ids, if the upstream tells them. */
static void take_prompt(struct model_call *t, struct sample *r, struct token_span told)
{
    int32_t *copy = arena_calloc(&t->arena, told.n + 1, sizeof(*copy));

    if (told.n > 0)
        memcpy(copy, told.at, told.n * sizeof(*copy));
    r->prompt_ids = (struct token_span){copy, told.n};
    if (told.n == 0 && r->n_ids > 0)
        render_prompt(t, r);
}

/* What the finished answer tells besides its message. */
void upstream_take(struct model_call *t, struct sample *r, const struct engine_result *res)
{
    const struct json *body = NULL, *choice, *usage;
    struct err e;

    if (json_parse(&t->arena, arena_str(&t->arena, res->openai_body), &body, &e))
        body = NULL; /* the engine layer has read it before */
    choice = json_at(json_get(body, "choices"), 0);
    usage = json_get(body, "usage");
    r->upstream = true;
    r->prompt_tokens = count_of(json_get(usage, "prompt_tokens"));
    r->completion_tokens = MAX_OF(count_of(json_get(usage, "completion_tokens")), r->n_ids);
    if (!r->answer.taken)
        sampled_answer_take(&r->answer, json_get(choice, "message"));
    if (r->n_lp == 0)
        upstream_logprobs(t, r, json_get(choice, "logprobs"));
    sampled_answer_take_end(&r->answer);
    take_prompt(t, r, res->prompt_ids);
    t->usage.prompt_tokens = MAX_OF(r->prompt_tokens, (uint32_t)r->prompt_ids.n);
    if (json_to_i64(json_get(json_get(usage, "prompt_tokens_details"), "cached_tokens"),
                    &r->cached_tokens))
        r->cached_tokens = -1;
    t->usage.reasoning_tokens +=
        count_of(json_get(json_get(usage, "completion_tokens_details"), "reasoning_tokens"));
    r->filtered = str_eq_c(json_string(json_get(choice, "finish_reason")), "content_filter");
}
