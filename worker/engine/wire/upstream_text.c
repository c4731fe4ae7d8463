/*
 * Deltas of a stream's chunks are passed on as they come; usage is that of the last chunk with one.
 * Documents without choices (only usage, a ping, filters) do not belong to the message. Limits are
 * checked here, before anything is made of the texts.
 */
#include "worker/engine/wire/upstream_text.h"

#include <stdlib.h>

#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/upstream_finish.h"
#include "worker/engine/wire/upstream_message.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/chat_logprobs.h"

enum { USAGE_MAX = 64 << 10 };

struct upstream_text {
    struct buf finish, usage;
    struct upstream_message message;
};

struct upstream_text *upstream_text_new(void)
{
    return mem_zalloc(sizeof(struct upstream_text));
}

void upstream_text_free(struct upstream_text *t)
{
    if (!t)
        return;
    buf_done(&t->finish);
    buf_done(&t->usage);
    upstream_message_done(&t->message);
    free(t);
}

/* Refuses an answer that ends with calls but has none: it was emptied. */
static int check_finish(const struct upstream_text *t, struct err *e)
{
    struct str finish = buf_str(&t->finish);

    if (t->message.calls.calls.n > 0 || upstream_finish_read(finish) != UPSTREAM_CALLS)
        return 0;
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is invalid: choices[0].finish_reason is %.*s, and no call "
                   "came",
                   (int)finish.len, finish.p);
}

int upstream_text_end(struct upstream_text *t, const struct upstream_out *out, struct err *e)
{
    return upstream_message_end(&t->message, out, e) < 0 ? -1 : check_finish(t, e);
}

static int too_many(struct err *e, size_t n, const char *what, size_t most)
{
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is invalid: it has %zu %s; at most %zu are taken", n, what,
                   most);
}

static int check_bytes(const struct upstream_text *t, struct err *e)
{
    if (upstream_message_bytes(&t->message) <= UPSTREAM_TEXT_MAX)
        return 0;
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is too large: its text has more than %d MiB",
                   UPSTREAM_TEXT_MAX >> 20);
}

/* Refuses too many entries before they are read: each makes a call, or continues one. */
static int check_calls(const struct json *message, bool stream, struct err *e)
{
    const struct json *calls = json_get(message, "tool_calls");
    size_t most = stream ? UPSTREAM_CALLS_MAX : UPSTREAM_WHOLE_CALLS_MAX;

    if (!json_is(calls, JSON_ARRAY) || calls->n <= most)
        return 0;
    return too_many(e, calls->n, stream ? "pieces of tool calls in one event" : "tool calls", most);
}

static int check_n_calls(const struct upstream_text *t, bool stream, struct err *e)
{
    size_t n = t->message.calls.calls.n;

    return stream && n > UPSTREAM_CALLS_MAX ? too_many(e, n, "tool calls", UPSTREAM_CALLS_MAX) : 0;
}

static int check_logprobs(const struct json *choice, struct err *e)
{
    const struct json *content = json_get(json_get(choice, "logprobs"), "content");
    size_t n = 0;

    for (size_t i = 0;
         json_is(content, JSON_ARRAY) && i < content->n && n <= UPSTREAM_EVENT_LOGPROBS_MAX; i++)
        n += chat_logprobs_cost(&content->items[i]);
    return n > UPSTREAM_EVENT_LOGPROBS_MAX
               ? too_many(e, n, "logprobs in one event", UPSTREAM_EVENT_LOGPROBS_MAX)
               : 0;
}

int upstream_text_check_tops(const struct json *lps, struct err *e)
{
    for (size_t i = 0; json_is(lps, JSON_ARRAY) && i < lps->n; i++) {
        size_t n = chat_logprobs_cost(&lps->items[i]) - 1;

        if (n > UPSTREAM_TOPS_MAX)
            return too_many(e, n, "alternatives of one token", UPSTREAM_TOPS_MAX);
    }
    return 0;
}

static bool has_number(const struct json *item)
{
    double d;

    return json_to_double(json_get(item, "logprob"), &d) == 0;
}

/* Reports whether it is a number, or null: SGLang's word for a token that its grammar forbids. */
static bool is_alternative(const struct json *item)
{
    return has_number(item) || json_is(json_get(item, "logprob"), JSON_NULL);
}

int upstream_text_check_logprobs(const struct json *lps, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct json *tops = json_get(&lps[i], "top_logprobs");

        if (!has_number(&lps[i]))
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's answer is invalid: choices[0].logprobs.content[%zu]"
                           ".logprob must be a number",
                           i);
        for (size_t k = 0; json_is(tops, JSON_ARRAY) && k < tops->n; k++) {
            if (!is_alternative(&tops->items[k]))
                return err_set(e, ERR_ENGINE_INVALID,
                               "the engine's answer is invalid: choices[0].logprobs.content[%zu]"
                               ".top_logprobs[%zu].logprob must be a number",
                               i, k);
        }
    }
    return 0;
}

static void read_usage(struct upstream_text *t, const struct json *usage)
{
    if (!json_is(usage, JSON_OBJECT))
        return;
    buf_clear(&t->usage);
    json_write(&t->usage, usage);
    if (t->usage.len > USAGE_MAX)
        buf_done(&t->usage);
}

/* Accepts only one choice: we request one, and pieces of two would be mixed. */
static int check_choices(const struct json *choices, struct err *e)
{
    int64_t index = 0;

    if (!json_is_null(choices) && choices->kind != JSON_ARRAY)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: choices must be a list");
    for (size_t i = 0; json_at(choices, i); i++) {
        if (!json_is(json_at(choices, i), JSON_OBJECT))
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's answer is invalid: choices[%zu] must be an object", i);
        if (i > 0)
            return too_many(e, choices->n, "choices", 1);
    }
    if (json_to_i64(json_get(json_at(choices, 0), "index"), &index) == 0 && index != 0)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: choices[0].index is %lld, not 0",
                       (long long)index);
    return 0;
}

int upstream_text_add(struct upstream_text *t, const struct json *doc,
                      const struct upstream_out *out, struct err *e)
{
    bool stream = out->stream;
    const struct json *choices = json_get(doc, "choices"), *choice = json_at(choices, 0);
    struct str finish = json_string(json_get(choice, "finish_reason"));

    if (!json_is(doc, JSON_OBJECT))
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: an event is no object");
    if (check_choices(choices, e) < 0)
        return -1;
    if (!stream && !choice)
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: it has no choices");
    if (check_calls(json_get(choice, "delta"), stream, e) < 0 ||
        check_calls(json_get(choice, "message"), stream, e) < 0 ||
        (stream && check_logprobs(choice, e) < 0))
        return -1;
    if (choice && upstream_message_add(&t->message, choice, out, e) < 0)
        return -1;
    if (!stream && upstream_message_end(&t->message, out, e) < 0)
        return -1;
    read_usage(t, json_get(doc, "usage"));
    if (upstream_finish_read(finish) != UPSTREAM_RUNNING)
        buf_set(&t->finish, finish);
    if (check_n_calls(t, stream, e) < 0 || check_bytes(t, e) < 0)
        return -1;
    return stream ? 0 : check_finish(t, e);
}

void upstream_text_write(const struct upstream_text *t, const struct json *rest, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_member_arr(&o, "choices");
    json_out_obj(&o);
    json_out_member_value(&o, "messages", rest);
    json_out_member_bool(&o, "filtered",
                         upstream_finish_read(buf_str(&t->finish)) == UPSTREAM_FILTERED);
    json_out_key(&o, "signed");
    upstream_signed_write(&t->message.signed_members, &o);
    json_out_member_i64(&o, "replaced", (int64_t)upstream_calls_replaced(&t->message.calls));
    json_out_end_obj(&o);
    json_out_end_arr(&o);
    if (t->usage.len > 0)
        json_out_member_raw(&o, "usage", buf_str(&t->usage));
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
    chat_logprobs_read(content->items, content->n, ret->at, &ret->arena);
}
