/*
 * Chunks add up field by field: texts are appended, names and ids are set (an empty one changes
 * nothing), tool calls are found by their index, and usage is the last one that came. Writing
 * makes the body that the same upstream would have sent without a stream, so readers above know
 * one form only.
 */
#include "worker/engine/wire/upstream_text.h"

#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/engine/engine_result.h"
#include "worker/request/answer_sink.h"
#include "worker/request/chat_logprobs.h"

enum { CALLS_MAX = 256 };

void upstream_text_done(struct upstream_text *t)
{
    struct buf *all[] = {&t->id,        &t->model,   &t->role,   &t->content,
                         &t->reasoning, &t->refusal, &t->finish, &t->usage};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_done(all[i]);
    for (size_t i = 0; i < t->calls.n; i++) {
        buf_done(&t->calls.at[i].id);
        buf_done(&t->calls.at[i].name);
        buf_done(&t->calls.at[i].arguments);
    }
    vec_done(&t->calls);
}

static void set(struct buf *b, const struct json *v)
{
    struct str s = json_string(v);

    if (s.len == 0)
        return;
    buf_clear(b);
    buf_add_str(b, s);
}

static int add_call(struct upstream_text *t, const struct json *delta, struct err *e)
{
    const struct json *function = json_get(delta, "function");
    struct upstream_call *c;
    int64_t index = (int64_t)t->calls.n;

    (void)json_to_i64(json_get(delta, "index"), &index);
    if (index < 0 || index >= CALLS_MAX)
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: tool call %lld",
                       (long long)index);
    while ((int64_t)t->calls.n <= index)
        *vec_push(&t->calls) = (struct upstream_call){0};
    c = &t->calls.at[index];
    set(&c->id, json_get(delta, "id"));
    set(&c->name, json_get(function, "name"));
    buf_add_str(&c->arguments, json_string(json_get(function, "arguments")));
    return 0;
}

static int add_delta(struct upstream_text *t, const struct json *delta, struct err *e)
{
    const struct json *calls = json_get(delta, "tool_calls");
    const struct json *thought = json_get(delta, "reasoning_content");
    struct str text = json_string(json_get(delta, "content"));

    set(&t->role, json_get(delta, "role"));
    t->has_content = t->has_content || text.p;
    buf_add_str(&t->content, text);
    buf_add_str(&t->reasoning, json_string(thought ? thought : json_get(delta, "reasoning")));
    buf_add_str(&t->refusal, json_string(json_get(delta, "refusal")));
    for (size_t i = 0; json_is(calls, JSON_ARRAY) && i < calls->n; i++) {
        if (add_call(t, json_at(calls, i), e) < 0)
            return -1;
    }
    return 0;
}

int upstream_text_add(struct upstream_text *t, const struct json *chunk, struct err *e)
{
    const struct json *choices = json_get(chunk, "choices");
    const struct json *choice = json_at(choices, 0), *usage = json_get(chunk, "usage");

    if (!json_is(choices, JSON_ARRAY))
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: no choices");
    set(&t->id, json_get(chunk, "id"));
    set(&t->model, json_get(chunk, "model"));
    if (json_is(usage, JSON_OBJECT)) {
        buf_clear(&t->usage);
        json_write(&t->usage, usage);
    }
    set(&t->finish, json_get(choice, "finish_reason"));
    return choice ? add_delta(t, json_get(choice, "delta"), e) : 0;
}

static void write_text(struct json_out *o, const char *key, const struct buf *b)
{
    json_out_key(o, key);
    json_out_str(o, buf_str(b));
}

static void write_calls(struct json_out *o, const struct upstream_text *t)
{
    json_out_key(o, "tool_calls");
    json_out_arr(o);
    for (size_t i = 0; i < t->calls.n; i++) {
        json_out_obj(o);
        write_text(o, "id", &t->calls.at[i].id);
        json_out_key(o, "type");
        json_out_cstr(o, "function");
        json_out_key(o, "function");
        json_out_obj(o);
        write_text(o, "name", &t->calls.at[i].name);
        write_text(o, "arguments", &t->calls.at[i].arguments);
        json_out_end_obj(o);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

static void write_message(struct json_out *o, const struct upstream_text *t)
{
    json_out_key(o, "message");
    json_out_obj(o);
    json_out_key(o, "role");
    json_out_cstr(o, "assistant");
    json_out_key(o, "content");
    json_out_str(o, t->has_content ? buf_str(&t->content) : (struct str){0});
    if (t->reasoning.len > 0)
        write_text(o, "reasoning_content", &t->reasoning);
    if (t->refusal.len > 0)
        write_text(o, "refusal", &t->refusal);
    if (t->calls.n > 0)
        write_calls(o, t);
    json_out_end_obj(o);
}

void upstream_text_write(const struct upstream_text *t, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    write_text(&o, "id", &t->id);
    json_out_key(&o, "object");
    json_out_cstr(&o, "chat.completion");
    write_text(&o, "model", &t->model);
    json_out_key(&o, "choices");
    json_out_arr(&o);
    json_out_obj(&o);
    json_out_key(&o, "index");
    json_out_i64(&o, 0);
    write_message(&o, t);
    write_text(&o, "finish_reason", &t->finish);
    json_out_end_obj(&o);
    json_out_end_arr(&o);
    if (t->usage.len > 0) {
        json_out_key(&o, "usage");
        json_out_raw(&o, buf_str(&t->usage));
    }
    json_out_end_obj(&o);
}

static void keep_member(struct json_out *o, const struct json *from, const char *key)
{
    const struct json *v = json_get(from, key);

    if (!v)
        return;
    json_out_key(o, key);
    json_out_value(o, v);
}

void upstream_text_keep(const struct json *doc, struct buf *out)
{
    const struct json *choice = json_at(json_get(doc, "choices"), 0);
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_key(&o, "choices");
    json_out_arr(&o);
    json_out_obj(&o);
    keep_member(&o, choice, "message");
    keep_member(&o, choice, "finish_reason");
    json_out_end_obj(&o);
    json_out_end_arr(&o);
    keep_member(&o, doc, "usage");
    json_out_end_obj(&o);
}

void upstream_text_rows(const struct json *doc, struct engine_rows *ret)
{
    const struct json *choice = json_at(json_get(doc, "choices"), 0);
    const struct json *content = json_get(json_get(choice, "logprobs"), "content");

    if (!json_is(content, JSON_ARRAY) || content->n == 0)
        return;
    ret->n = content->n;
    ret->at = arena_alloc(&ret->arena, content->n * sizeof(*ret->at));
    chat_logprobs_read(content, ret->at, &ret->arena);
}
