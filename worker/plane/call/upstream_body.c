/* Writes the request body for engines that are asked with messages (kind openai) instead of ids. A
 * chat request is passed on with the client's own fields that affect the answer. Requests of other
 * dialects are rewritten as chat. */
#include "worker/plane/call/upstream_body.h"

#include <string.h>

#include "common/base/buf.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/proc/metrics.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/extra.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"

/* --- messages --- */

static const char parts_name[] = "content_parts";

/* Reports whether the text equals the text of the parts. */
static bool says_the_same(const struct json *parts, struct str text)
{
    struct buf all = {0};
    bool same;

    for (size_t i = 0; json_at(parts, i); i++) {
        struct str type = json_string(json_get(json_at(parts, i), "type"));

        if (str_eq_c(type, "text") || str_eq_c(type, "output_text"))
            buf_add_str(&all, json_string(json_get(json_at(parts, i), "text")));
        else if (str_eq_c(type, "refusal"))
            buf_add_str(&all, json_string(json_get(json_at(parts, i), "refusal")));
    }
    same = str_eq(str_trim(buf_str(&all)), str_trim(text));
    buf_done(&all);
    return same;
}

/* Writes the members that `own` lacks. */
static void write_missing(struct json_out *o, const struct json *own, const struct json *members)
{
    for (uint32_t i = 0; members && json_is(members, JSON_OBJECT) && i < members->n; i++) {
        struct str name = json_string(&members->members[i].key);

        if (str_eq_c(name, parts_name) || str_eq_c(name, "tool_calls") ||
            !json_is_null(json_get_str(own, name)))
            continue;
        json_out_member_of(o, name, &members->members[i].value);
    }
}

/* Returns the signed data of a tool call: found by its id, or by its number if the call has no id
 * of its own. */
static const struct json *signed_call(const struct json *calls, const struct json *call, size_t at)
{
    struct str id = json_string(json_get(call, "id"));

    for (size_t i = 0; json_at(calls, i) && id.len > 0; i++)
        if (str_eq(json_string(json_get(json_at(calls, i), "id")), id))
            return json_at(calls, i);
    return json_at(calls, at);
}

static void write_calls_with_signed(struct json_out *o, const struct json *calls,
                                    const struct json *signed_calls)
{
    json_out_arr(o);
    for (size_t i = 0; json_at(calls, i); i++) {
        const struct json *call = json_at(calls, i);

        if (!json_is(call, JSON_OBJECT)) {
            json_out_value(o, call);
            continue;
        }
        json_out_obj(o);
        for (uint32_t k = 0; k < call->n; k++) {
            if (json_is_null(&call->members[k].value))
                continue;
            json_out_member_of(o, json_string(&call->members[k].key), &call->members[k].value);
        }
        write_missing(o, call, signed_call(signed_calls, call, i));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

static bool is_replaced(const struct json_member *m, const struct json *members)
{
    return json_is_null(&m->value) && !json_is_null(json_get_str(members, json_string(&m->key)));
}

static void write_with_signed(struct json_out *o, const struct json *m, const struct json *members)
{
    const struct json *own = json_get(m, parts_name);
    const struct json *parts = own ? own : json_get(members, parts_name);
    const struct json *calls = json_get(members, "tool_calls");
    struct str content = json_string(json_get(m, "content"));

    json_out_obj(o);
    for (uint32_t i = 0; i < m->n; i++) {
        struct str name = json_string(&m->members[i].key);
        const struct json *v = &m->members[i].value;

        if (str_eq_c(name, parts_name) || is_replaced(&m->members[i], members))
            continue;
        json_out_key_str(o, name);
        if (str_eq_c(name, "content") && json_is(parts, JSON_ARRAY) &&
            says_the_same(parts, content))
            json_out_value(o, parts);
        else if (str_eq_c(name, "tool_calls") && json_is(v, JSON_ARRAY))
            write_calls_with_signed(o, v, calls);
        else
            json_out_value(o, v);
    }
    write_missing(o, m, members);
    json_out_end_obj(o);
}

static bool needs_care(const struct json *m, const struct json *members)
{
    return json_is(m, JSON_OBJECT) && (json_is(members, JSON_OBJECT) || json_get(m, parts_name));
}

/* Writes a later part of an answer (continues_answer). The first one has the members beside the
 * calls. */
static void write_continuing(struct json_out *o, const struct json *m, const struct json *members)
{
    json_out_obj(o);
    for (uint32_t i = 0; i < m->n; i++) {
        struct str name = json_string(&m->members[i].key);

        json_out_key_str(o, name);
        if (str_eq_c(name, "tool_calls"))
            write_calls_with_signed(o, &m->members[i].value, json_get(members, "tool_calls"));
        else
            json_out_value(o, &m->members[i].value);
    }
    json_out_end_obj(o);
}

/* Position in the chat, in which several messages of the client may be one (regroup.h). */
struct chat_place {
    const struct json *messages;
    uint32_t next;            /* index after the present assistant's message */
    size_t n;                 /* number of assistants' messages up to there */
    const struct json *calls; /* its calls */
    size_t seen;              /* number of those that the client's messages so far contained */
};

/* Reports whether the client's message m is part of the present message. */
static bool continues_answer(const struct chat_place *at, const struct json *m)
{
    const struct json *mine = json_at(json_get(m, "tool_calls"), 0);
    struct str id = json_string(json_get(mine, "id"));

    return at->n && id.len && str_eq(json_string(json_get(json_at(at->calls, at->seen), "id")), id);
}

/* Moves on to the message that the client's message m is or begins, unless it is part of the
 * present one. Returns whether it is a part. */
static bool follow_chat(struct chat_place *at, const struct json *m)
{
    const struct json *calls = json_get(m, "tool_calls");
    bool part = continues_answer(at, m);

    while (!part && at->next < at->messages->n) {
        const struct json *said = &at->messages->items[at->next++];

        if (!str_eq_c(json_string(json_get(said, "role")), "assistant"))
            continue;
        at->n++;
        at->calls = json_get(said, "tool_calls");
        at->seen = 0;
        break;
    }
    at->seen += json_is(calls, JSON_ARRAY) ? calls->n : 0;
    return part;
}

/* Writes the list. `signed_answers` is from session_plan_signed for `chat`, or NULL. A member that
 * the client sent is kept. */
static void upstream_messages_write(struct json_out *o, const struct json *messages,
                                    const struct json *chat, const struct json *signed_answers)
{
    struct chat_place at = {.messages = chat};

    if (!json_is(messages, JSON_ARRAY)) {
        json_out_value(o, messages);
        return;
    }
    json_out_arr(o);
    for (uint32_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i], *members = NULL;
        bool part = false;

        if (signed_answers && str_eq_c(json_string(json_get(m, "role")), "assistant")) {
            part = follow_chat(&at, m);
            members = json_at(signed_answers, at.n - 1); /* NULL for none */
        }
        if (part && json_is(members, JSON_OBJECT))
            write_continuing(o, m, members);
        else if (needs_care(m, part ? NULL : members))
            write_with_signed(o, m, part ? NULL : members);
        else
            json_out_value(o, m);
    }
    json_out_end_arr(o);
}

/* --- the body --- */

/* Writes the numbers that the client or the session set. The others are left to the upstream,
 * because some refuse a field that their model does not take, even with the API's default. */
static void write_numbers(struct json_out *o, const struct sampling *s)
{
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"temperature", s->temperature},
        {"top_p", s->top_p},
        {"min_p", s->min_p},
        {"presence_penalty", s->presence_penalty},
        {"frequency_penalty", s->frequency_penalty},
        {"repetition_penalty", s->repetition_penalty},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (s->given & sampling_bit(str_cstr(all[i].name)))
            json_out_member_double(o, all[i].name, all[i].value);
    }
    if (s->given & sampling_bit(STR("top_k")))
        json_out_member_i64(o, "top_k", s->top_k);
    if (s->has_seed)
        json_out_member_i64(o, "seed", s->seed);
    if (s->given & sampling_bit(STR("ignore_eos")))
        json_out_member_bool(o, "ignore_eos", s->ignore_eos);
}

/* Returns the messages of the client's own request if that is passed on, otherwise those of the
 * equivalent chat. */
static const struct json *messages_of(const struct model_call *t)
{
    bool own = str_eq_c(str_cstr(t->in.dialect), "chat");

    return own ? json_get(t->in.body, "messages") : t->in.req->chat->messages;
}

static const struct json *tools_of(const struct model_call *t)
{
    bool own = str_eq_c(str_cstr(t->in.dialect), "chat");

    return own ? json_get(t->in.body, "tools") : t->in.req->chat->tools;
}

/* Members that are longer are written by upstream_texts. */
enum { LONG_MEMBER = 1 << 10 };

static const struct chat_text *text_of(const struct model_call *t, struct str name)
{
    for (size_t i = 0; i < t->n_upstream_texts; i++)
        if (str_eq(t->upstream_texts[i].name, name))
            return &t->upstream_texts[i];
    return NULL;
}

static void write_value(struct json_out *o, const struct model_call *t, const char *key,
                        const struct json *v)
{
    if (!v)
        return;
    json_out_key(o, key);
    if (text_of(t, str_cstr(key)))
        json_out_null(o);
    else
        json_out_value(o, v);
}

/* Reports whether the limit is written with the API's newer name, which reasoning models demand. A
 * chat client chooses; other dialects have their own name for it. */
static bool has_newer_limit(const struct model_call *t)
{
    return !str_eq_c(str_cstr(t->in.dialect), "chat") ||
           json_get(t->in.body, "max_completion_tokens");
}

/* Writes the merged sampling parameters under the API's names. */
static void write_sampling(struct json_out *o, const struct model_call *t, int64_t max_tokens)
{
    const struct sampling *s = t->sampling;

    write_numbers(o, s);
    if (max_tokens > 0)
        json_out_member_i64(o, has_newer_limit(t) ? "max_completion_tokens" : "max_tokens",
                            max_tokens);
    write_value(o, t, "stop", s->stop);
    write_value(o, t, "stop_token_ids", s->stop_token_ids);
    write_value(o, t, "min_tokens", s->min_tokens);
    write_value(o, t, "repeat_last_n", s->repeat_last_n);
    write_value(o, t, "allowed_token_ids", s->allowed_token_ids);
    write_value(o, t, "bad_words", s->bad_words);
    write_value(o, t, "max_thinking_tokens", s->max_thinking_tokens);
    write_value(o, t, "logit_bias", s->logit_bias);
    write_value(o, t, "response_format", t->format); /* tool_choice is passed on unchanged */
}

/* Members of a client's request that are passed on besides sampling: those that affect the answer.
 * Because an upstream serves others, too, and an agent's code wrote the request, members that say
 * who calls (priority, rid), with which weights or template, or where to connect are left out. */
static const char *const passed[] = {
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
    "return_weight_versions",
    "return_meta_info",
    "return_prompt_token_ids",
    "return_input_ids_in_sglext",
    "return_output_ids_in_sglext",
    "user",
    "metadata",
};

static bool is_passed(struct str name)
{
    return str_is_one_of(name, passed, ARRAY_LEN(passed));
}

/* Reports whether write_as_chat passes on this member of a Responses request. */
static bool passes_as_chat(struct str name)
{
    return str_eq_c(name, "text.verbosity");
}

member_taken_fn call_upstream_takes(const struct engine_pool *engines, const char *dialect)
{
    if (!engine_pool_all_text(engines))
        return NULL;
    return strcmp(dialect, "chat") == 0        ? is_passed
           : strcmp(dialect, "responses") == 0 ? passes_as_chat
                                               : NULL;
}

/* engines take the template itself from among its arguments */
static bool is_kwarg(struct str name)
{
    static const char *const never[] = {"chat_template", "tokenize", "return_dict",
                                        "return_tensors"};

    return !str_is_one_of(name, never, ARRAY_LEN(never));
}

static void write_kwargs(struct json_out *o, const struct json *kwargs)
{
    json_out_obj(o);
    for (size_t i = 0; json_is(kwargs, JSON_OBJECT) && i < kwargs->n; i++) {
        struct str name = json_string(&kwargs->members[i].key);

        if (!is_kwarg(name))
            continue;
        json_out_member_of(o, name, &kwargs->members[i].value);
    }
    json_out_end_obj(o);
}

/* Returns the model name for the upstream. `policy` only chooses engines; upstreams know the model
 * by its served name. */
static struct str upstream_model(const struct model_call *t)
{
    bool chosen = str_eq_c(t->in.req->model, ENGINE_POOL_POLICY);

    return chosen ? str_cstr(model_info(t->env->model)->name) : t->in.req->model;
}

static bool names_model(const struct json_member *m)
{
    return json_is(&m->value, JSON_STRING) && str_eq_c(json_string(&m->key), "model");
}

/* Writes the client's own fields except those that the trainer sets. Returns how many were left
 * out. */
static size_t write_passed(struct json_out *o, const struct model_call *t)
{
    const struct json *body = t->in.body, *extra = t->sampling->engine_extra;
    static const char *const ours[] = {"stream", "stream_options", "n"};
    size_t dropped = 0;

    for (size_t i = 0; i < body->n; i++) {
        const struct json_member *m = &body->members[i];
        struct str name = json_string(&m->key);

        if (sampling_known(name) || str_is_one_of(name, ours, ARRAY_LEN(ours)))
            continue;
        if (!is_passed(name) || json_get_str(extra, name)) {
            dropped++;
            continue;
        }
        json_out_key_str(o, name);
        if (text_of(t, name))
            json_out_null(o);
        else if (str_eq_c(name, "chat_template_kwargs"))
            write_kwargs(o, &m->value);
        else if (names_model(m))
            json_out_str(o, upstream_model(t));
        else
            json_out_value(o, &m->value);
    }
    return dropped;
}

/* Adds the member to the texts if it is long, or `always`. */
static void add_text(struct model_call *t, const char *name, const struct json *v, bool always)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    if (!v || (!always && json_text_bytes(v, LONG_MEMBER) < LONG_MEMBER))
        return;
    if (strcmp(name, "chat_template_kwargs") == 0)
        write_kwargs(&o, v);
    else if (strcmp(name, "messages") == 0)
        upstream_messages_write(&o, v, t->in.req->chat->messages, t->signed_answers);
    else
        json_out_value(&o, v);
    t->upstream_texts[t->n_upstream_texts++] =
        (struct chat_text){str_cstr(name), arena_str(&t->arena, buf_str(&text))};
    buf_done(&text);
}

void upstream_texts(struct model_call *t)
{
    const struct sampling *s = t->sampling;
    bool own = str_eq_c(str_cstr(t->in.dialect), "chat");

    const struct {
        const char *name;
        const struct json *v;
    } sampled[] = {{"stop", s->stop},
                   {"stop_token_ids", s->stop_token_ids},
                   {"allowed_token_ids", s->allowed_token_ids},
                   {"bad_words", s->bad_words},
                   {"logit_bias", s->logit_bias},
                   {"response_format", t->format}};

    t->upstream_texts = arena_calloc(&t->arena, ARRAY_LEN(sampled) + ARRAY_LEN(passed) + 1,
                                     sizeof(*t->upstream_texts));
    add_text(t, "messages", messages_of(t), true);
    add_text(t, "tools", tools_of(t), true);
    for (size_t i = 0; i < ARRAY_LEN(sampled); i++)
        add_text(t, sampled[i].name, sampled[i].v, false);
    if (!own)
        add_text(t, "chat_template_kwargs", json_get(t->in.body, "chat_template_kwargs"), false);
    for (size_t i = 0; own && i < ARRAY_LEN(passed); i++) {
        struct str name = str_cstr(passed[i]);

        /* as in write_passed, fields of the gateway or the trainer are not the client's to set */
        if (!text_of(t, name) && !sampling_known(name) && !json_get_str(s->engine_extra, name) &&
            !str_eq_c(name, "model"))
            add_text(t, passed[i], json_get(t->in.body, passed[i]), false);
    }
}

/* Writes a choice of one function by its name. */
static void write_function(struct json_out *o, struct str name)
{
    json_out_obj(o);
    json_out_member_cstr(o, "type", "function");
    json_out_member_obj(o, "function");
    json_out_member_str(o, "name", name);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* Writes a choice among some tools. */
static void write_allowed(struct json_out *o, const struct chat_request *req)
{
    json_out_obj(o);
    json_out_member_cstr(o, "type", "allowed_tools");
    json_out_member_obj(o, "allowed_tools");
    json_out_member_cstr(o, "mode", req->tool_choice == CHOICE_REQUIRED ? "required" : "auto");
    json_out_member_arr(o, "tools");
    for (size_t i = 0; json_at(req->tool_allowed, i); i++)
        write_function(o, json_string(json_at(req->tool_allowed, i)));
    json_out_end_arr(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* Writes tool_choice in the form of Chat Completions. */
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

/* Writes a request of a different dialect as chat. */
static void write_as_chat(struct json_out *o, const struct model_call *t)
{
    const struct chat_request *req = t->in.req;
    const struct json *kwargs = json_get(t->in.body, "chat_template_kwargs");
    const struct json *extra = t->sampling->engine_extra;

    json_out_member_str(o, "model", upstream_model(t));
    if (req->chat->messages) {
        json_out_member_null(o, "messages"); /* upstream_texts has written the member */
    }
    if (req->chat->tools && req->chat->tools->n > 0) {
        json_out_member_null(o, "tools"); /* not passed on */
        write_choice(o, req);
        if (!req->parallel_tool_calls)
            json_out_member_bool(o, "parallel_tool_calls", false);
    }
    if (json_is(kwargs, JSON_OBJECT)) {
        json_out_key(o, "chat_template_kwargs");
        if (text_of(t, STR("chat_template_kwargs")))
            json_out_null(o);
        else
            write_kwargs(o, kwargs);
    }
    if (req->thinking.effort.p && !json_get(extra, "reasoning_effort"))
        json_out_member_str(o, "reasoning_effort", req->thinking.effort);
    if (!json_get(extra, "verbosity"))
        write_value(o, t, "verbosity", json_get(json_get(t->in.body, "text"), "verbosity"));
    if (req->logprobs) {
        json_out_member_bool(o, "logprobs", true);
        json_out_member_i64(o, "top_logprobs", req->top_logprobs);
    }
}

const struct json *upstream_body(const struct model_call *t, int64_t asked, struct arena *a)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);
    const struct json *extra = t->sampling->engine_extra;
    const struct json *body = NULL;
    struct err e;

    json_out_obj(&o);
    if (str_eq_c(str_cstr(t->in.dialect), "chat"))
        metrics_count(t->env->page, METRIC_upstream_dropped, write_passed(&o, t));
    else
        write_as_chat(&o, t);
    write_sampling(&o, t, asked);
    engine_extra_write(&o, extra);
    json_out_end_obj(&o);
    if (json_parse(a, arena_str(a, buf_str(&text)), &body, &e))
        body = NULL;
    buf_done(&text);
    return body;
}
