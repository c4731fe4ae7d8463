/*
 * Of a stream's chunks the deltas go on as they come; usage is the last one that came. Texts and
 * pieces of calls are counted here, before anybody makes something of them.
 */
#include "worker/engine/wire/upstream_text.h"

#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/engine/engine_result.h"
#include "worker/request/answer_sink.h"
#include "worker/request/chat_logprobs.h"

enum {
    CALLS_MAX = 256,           /* of a stream, and pieces of calls in one of its chunks */
    WHOLE_CALLS_MAX = 4096,    /* of a whole answer */
    TEXT_MIB = 2,              /* of an answer, tool calls and thought included */
    CHUNK_LOGPROBS = 32 << 10, /* of one chunk, alternatives included */
    TOPS_MAX = 256,            /* alternatives of one token; clients may ask for 20 */
    USAGE_MAX = 64 << 10,
};

void upstream_text_done(struct upstream_text *t)
{
    buf_done(&t->finish);
    buf_done(&t->usage);
}

static int too_many(struct err *e, size_t n, const char *what, size_t most)
{
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is invalid: it has %zu %s; at most %zu are taken", n, what,
                   most);
}

static size_t length_of(const struct json *from, const char *key)
{
    return json_string(json_get(from, key)).len;
}

/* Adds the bytes of a message, or of a delta of one. */
static int add_bytes(struct upstream_text *t, const struct json *m, struct err *e)
{
    static const char *const texts[] = {"content", "reasoning_content", "reasoning", "refusal"};
    const struct json *calls = json_get(m, "tool_calls");

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        t->bytes += length_of(m, texts[i]);
    for (size_t i = 0; json_is(calls, JSON_ARRAY) && i < calls->n; i++) {
        const struct json *function = json_get(&calls->items[i], "function");

        t->bytes += length_of(&calls->items[i], "id") + length_of(function, "name") +
                    length_of(function, "arguments");
    }
    if (t->bytes <= (size_t)TEXT_MIB << 20)
        return 0;
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is too large: its text has more than %d MiB", TEXT_MIB);
}

/* Calls are numbered; one without a number is another one. */
static int check_call(struct upstream_text *t, const struct json *call, struct err *e)
{
    int64_t index = (int64_t)t->n_calls;

    (void)json_to_i64(json_get(call, "index"), &index);
    if (index < 0 || index >= CALLS_MAX)
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: tool call %lld",
                       (long long)index);
    t->n_calls = MAX_OF(t->n_calls, (size_t)index + 1);
    return 0;
}

static int check_calls(struct upstream_text *t, const struct json *calls, struct err *e)
{
    if (!json_is(calls, JSON_ARRAY))
        return 0;
    if (calls->n > CALLS_MAX)
        return too_many(e, calls->n, "pieces of tool calls in one event", CALLS_MAX);
    for (size_t i = 0; i < calls->n; i++)
        if (check_call(t, json_at(calls, i), e) < 0)
            return -1;
    return 0;
}

static int check_logprobs(const struct json *choice, struct err *e)
{
    const struct json *content = json_get(json_get(choice, "logprobs"), "content");
    size_t n = 0;

    for (size_t i = 0; json_is(content, JSON_ARRAY) && i < content->n && n <= CHUNK_LOGPROBS; i++)
        n += chat_logprobs_cost(&content->items[i]);
    return n > CHUNK_LOGPROBS ? too_many(e, n, "logprobs in one event", CHUNK_LOGPROBS) : 0;
}

int upstream_text_check_tops(const struct json *lps, struct err *e)
{
    for (size_t i = 0; json_is(lps, JSON_ARRAY) && i < lps->n; i++) {
        size_t n = chat_logprobs_cost(&lps->items[i]) - 1;

        if (n > TOPS_MAX)
            return too_many(e, n, "alternatives of one token", TOPS_MAX);
    }
    return 0;
}

static void take_usage(struct upstream_text *t, const struct json *usage)
{
    if (!json_is(usage, JSON_OBJECT))
        return;
    buf_clear(&t->usage);
    json_write(&t->usage, usage);
    if (t->usage.len > USAGE_MAX)
        buf_done(&t->usage);
}

int upstream_text_add(struct upstream_text *t, const struct json *chunk, struct err *e)
{
    const struct json *choices = json_get(chunk, "choices");
    const struct json *choice = json_at(choices, 0), *delta = json_get(choice, "delta");
    struct str finish = json_string(json_get(choice, "finish_reason"));

    if (!json_is(choices, JSON_ARRAY))
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: no choices");
    if (check_calls(t, json_get(delta, "tool_calls"), e) < 0 || check_logprobs(choice, e) < 0 ||
        add_bytes(t, delta, e) < 0)
        return -1;
    take_usage(t, json_get(chunk, "usage"));
    if (finish.len > 0) {
        buf_clear(&t->finish);
        buf_add_str(&t->finish, finish);
    }
    return 0;
}

int upstream_text_check(struct upstream_text *t, const struct json *message, struct err *e)
{
    const struct json *calls = json_get(message, "tool_calls");

    if (json_is(calls, JSON_ARRAY) && calls->n > WHOLE_CALLS_MAX)
        return too_many(e, calls->n, "tool calls", WHOLE_CALLS_MAX);
    return add_bytes(t, message, e);
}

void upstream_text_write(const struct upstream_text *t, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_key(&o, "choices");
    json_out_arr(&o);
    json_out_obj(&o);
    json_out_key(&o, "finish_reason");
    json_out_str(&o, buf_str(&t->finish));
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
    chat_logprobs_read(content->items, content->n, ret->at, &ret->arena);
}
