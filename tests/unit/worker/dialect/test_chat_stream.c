/* Checks the grammar of the chunks of Chat Completions and Completions. */
#include "stream_kit.h"

#include "common/codec/json.h"
#include "worker/dialect/writers.h"

#define CHAT                                                                                    \
    "{\"model\":\"m/x\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true," \
    "\"stream_options\":{\"include_usage\":true}}"

struct snapshot {
    struct buf text, thought, args[2];
    int n_calls;
    bool role, finished, usage;
};

static void snapshot_done(struct snapshot *s)
{
    buf_done(&s->text);
    buf_done(&s->thought);
    buf_done(&s->args[0]);
    buf_done(&s->args[1]);
}

/* Accumulates a call like the official SDK: id, type and name only in the first fragment. */
static void take_call(struct snapshot *s, const struct json *call)
{
    const struct json *f = json_get(call, "function");
    int64_t i = -1;

    cr_assert_eq(json_to_i64(json_get(call, "index"), &i), 0);
    if (json_get(call, "id")) {
        cr_assert_eq(i, s->n_calls++, "calls begin in order");
        cr_assert(str_eq_c(json_string(json_get(call, "type")), "function"));
        cr_assert(json_string(json_get(f, "name")).len > 0);
        cr_assert(str_eq_c(json_string(json_get(f, "arguments")), ""));
    } else {
        cr_assert_eq(i, s->n_calls - 1);
        buf_add_str(&s->args[i], json_string(json_get(f, "arguments")));
    }
}

static void take_chunk(struct snapshot *s, const struct json *chunk)
{
    const struct json *choice = json_at(json_get(chunk, "choices"), 0);
    const struct json *delta = json_get(choice, "delta");
    const struct json *calls = json_get(delta, "tool_calls");

    cr_assert(str_eq_c(json_string(json_get(chunk, "object")), "chat.completion.chunk"));
    cr_assert(str_eq_c(json_string(json_get(chunk, "id")), "chatcmpl-ab12"));
    cr_assert(str_eq_c(json_string(json_get(chunk, "model")), "m/x"));
    cr_assert(json_is(json_get(chunk, "created"), JSON_NUMBER));
    if (!choice) {
        cr_assert(s->finished, "usage comes behind finish_reason");
        cr_assert(json_is(json_get(chunk, "usage"), JSON_OBJECT));
        s->usage = true;
        return;
    }
    cr_assert_not(s->finished, "nothing comes behind finish_reason");
    cr_assert(json_is(json_get(choice, "index"), JSON_NUMBER));
    if (!s->role)
        cr_assert(str_eq_c(json_string(json_get(delta, "role")), "assistant"), "role is first");
    s->role = true;
    buf_add_str(&s->text, json_string(json_get(delta, "content")));
    buf_add_str(&s->thought, json_string(json_get(delta, "reasoning_content")));
    if (calls)
        take_call(s, json_at(calls, 0));
    if (!json_is_null(json_get(choice, "finish_reason"))) {
        cr_assert_eq(delta->n, 0, "finish_reason has a chunk of its own");
        s->finished = true;
    }
}

TEST(chat_stream, random_pieces)
{
    for (uint32_t seed = 1; seed <= 200; seed++) {
        static struct kit k;
        struct snapshot s = {0};

        kit_open(&k, &dialect_chat, CHAT, seed);
        kit_play(&k, true);
        kit_finish(&k, "tool_calls", KIT_MESSAGE);
        kit_read(&k);
        for (size_t i = 0; i + 1 < k.n; i++)
            take_chunk(&s, k.events[i].data);
        cr_assert(k.events[k.n - 1].done);
        cr_assert(s.finished && s.usage);
        cr_assert_eq(s.n_calls, 2);
        cr_assert(str_eq_c(buf_str(&s.text), KIT_TEXT));
        cr_assert(str_eq_c(buf_str(&s.thought), KIT_THOUGHT));
        cr_assert(str_eq_c(buf_str(&s.args[0]), KIT_ARGS0));
        cr_assert(str_eq_c(buf_str(&s.args[1]), KIT_ARGS1));
        snapshot_done(&s);
        kit_close(&k);
    }
}

TEST(chat_stream, an_error_ends_without_a_terminal_event)
{
    static struct kit k;

    kit_open(&k, &dialect_chat, CHAT, 3);
    kit_play(&k, false);
    kit_fail(&k);
    kit_read(&k);
    cr_assert(json_is(json_get(k.events[k.n - 1].data, "error"), JSON_OBJECT));
    for (size_t i = 0; i < k.n; i++) {
        const struct json *choice = json_at(json_get(k.events[i].data, "choices"), 0);

        cr_assert_not(k.events[i].done);
        cr_assert(json_is_null(json_get(choice, "finish_reason")));
    }
    kit_close(&k);
}

TEST(chat_stream, logprobs_and_broken_bytes)
{
    static struct kit k;
    struct token_logprob top = {5, -2.5f, STR("b"), NULL, 0};
    struct token_logprob lp[2] = {{4, -0.5f, STR("\xe6\x97"), &top, 1},
                                  {9, -1.0f, STR("x"), NULL, 0}};
    const struct json *entry;

    kit_open(&k, &dialect_chat,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"logprobs\":"
             "true,\"top_logprobs\":1}",
             1);
    kit_head(&k);
    k.w->sink->logprobs(k.w, 0, lp, 2);
    kit_read(&k);
    entry = json_get(json_at(json_get(k.events[1].data, "choices"), 0), "logprobs");
    entry = json_at(json_get(entry, "content"), 0);
    cr_assert(str_eq_c(json_string(json_get(entry, "token")), "\xef\xbf\xbd\xef\xbf\xbd"));
    cr_assert_eq(json_get(entry, "bytes")->n, 2);
    cr_assert(json_equal(json_get(entry, "top_logprobs"),
                         kit_json(&k, "[{\"token\":\"b\",\"logprob\":-2.5,\"bytes\":[98]}]")));
    kit_close(&k);
}

TEST(chat_stream, n_answers_interleave)
{
    static struct kit k;
    struct finished_answer answers[2];
    struct call_usage usage = {0};

    kit_open(&k, &dialect_chat,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"n\":2}", 1);
    kit_head(&k);
    k.w->sink->text(k.w, 1, STR("b"));
    k.w->sink->text(k.w, 0, STR("a"));
    for (uint32_t i = 0; i < 2; i++)
        answers[i] = (struct finished_answer){.index = i,
                                              .finish_reason = STR("stop"),
                                              .message = kit_json(&k, "{\"content\":\"x\"}")};
    k.w->sink->finish(k.w, answers, 2, &usage);
    kit_read(&k);
    cr_assert_eq(k.n, 7); /* two roles, two texts, two ends, [DONE] */
    kit_close(&k);
}

TEST(chat_whole, message_as_it_was)
{
    static struct kit k;
    const struct json *v;
    const struct json *choice;

    kit_open(&k, &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 1);
    kit_play(&k, true);
    cr_assert_eq(k.out.len, 0, "nothing before finish");
    kit_finish(&k, "tool_calls", KIT_MESSAGE);
    v = kit_json(&k, arena_cstr(&k.a, buf_str(&k.out)));
    choice = json_at(json_get(v, "choices"), 0);
    cr_assert(json_equal(json_get(json_get(choice, "message"), "tool_calls"),
                         json_get(kit_json(&k, KIT_MESSAGE), "tool_calls")));
    cr_assert(str_eq_c(json_string(json_get(choice, "finish_reason")), "tool_calls"));
    cr_assert(json_equal(json_get(json_get(v, "usage"), "total_tokens"), kit_json(&k, "12")));
    kit_close(&k);
}

TEST(completions_stream, text_logprobs_usage)
{
    static struct kit k;
    struct token_logprob lp = {4, -0.5f, STR("ab"), NULL, 0};
    struct buf text = {0};

    kit_open(&k, &dialect_completions,
             "{\"prompt\":[1,2,3],\"stream\":true,\"logprobs\":0,\"stream_options\":{"
             "\"include_usage\":true}}",
             1);
    cr_assert_eq(k.req.prompt_ids.n, 3);
    kit_head(&k);
    kit_pieces(&k, STR("ab cd"), kit_text);
    k.w->sink->logprobs(k.w, 0, &lp, 1);
    kit_finish(&k, "length", "{\"content\":\"ab cd\"}");
    kit_read(&k);
    for (size_t i = 0; i + 1 < k.n; i++) {
        const struct json *choice = json_at(json_get(k.events[i].data, "choices"), 0);

        cr_assert(str_eq_c(json_string(json_get(k.events[i].data, "object")), "text_completion"));
        buf_add_str(&text, json_string(json_get(choice, "text")));
    }
    cr_assert(str_eq_c(buf_str(&text), "ab cd"));
    cr_assert(k.events[k.n - 1].done);
    cr_assert(json_is(json_get(k.events[k.n - 2].data, "usage"), JSON_OBJECT));
    buf_done(&text);
    kit_close(&k);
}
