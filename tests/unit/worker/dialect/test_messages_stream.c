/* Checks the grammar of the events of Messages. */
#include "stream_kit.h"

#include "common/codec/json.h"
#include "worker/text/request/answer_sink.h"

#define MESSAGES                                                                               \
    "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," \
    "\"stream\":true}"

struct seen {
    bool started, stopped, delta;
    int64_t open;    /* index of the open block, or -1 */
    int64_t next;    /* index the next block must have */
    struct str type; /* type of the open block */
    struct buf text, thought, signature, args[2];
    int n_tools;
};

static int64_t index_of(const struct json *data)
{
    int64_t i = -1;

    cr_assert_eq(json_to_i64(json_get(data, "index"), &i), 0);
    return i;
}

static void block_event(struct seen *s, struct str name, const struct json *data)
{
    const struct json *delta = json_get(data, "delta");
    struct str type = json_string(json_get(delta, "type"));

    if (str_eq_c(name, "content_block_start")) {
        cr_assert_eq(s->open, -1, "blocks do not interleave");
        cr_assert_eq(index_of(data), s->next, "index is the array position");
        s->open = s->next++;
        s->type = json_string(json_get(json_get(data, "content_block"), "type"));
        s->n_tools += str_eq_c(s->type, "tool_use");
        return;
    }
    cr_assert_eq(index_of(data), s->open);
    if (str_eq_c(name, "content_block_stop")) {
        s->open = -1;
    } else if (str_eq_c(type, "text_delta")) {
        cr_assert(str_eq_c(s->type, "text"));
        buf_add_str(&s->text, json_string(json_get(delta, "text")));
    } else if (str_eq_c(type, "thinking_delta")) {
        cr_assert(str_eq_c(s->type, "thinking"));
        buf_add_str(&s->thought, json_string(json_get(delta, "thinking")));
    } else if (str_eq_c(type, "signature_delta")) {
        buf_add_str(&s->signature, json_string(json_get(delta, "signature")));
    } else {
        cr_assert(str_eq_c(type, "input_json_delta"));
        cr_assert(str_eq_c(s->type, "tool_use"));
        buf_add_str(&s->args[s->n_tools - 1], json_string(json_get(delta, "partial_json")));
    }
}

static void take_event(struct seen *s, const struct kit_event *ev)
{
    cr_assert(str_eq(ev->name, kit_type(ev)), "the event: line and data.type agree");
    cr_assert_not(s->stopped);
    if (str_eq_c(ev->name, "ping"))
        return;
    if (str_eq_c(ev->name, "message_start")) {
        cr_assert_not(s->started);
        s->started = true;
        return;
    }
    cr_assert(s->started);
    if (str_eq_c(ev->name, "message_delta")) {
        cr_assert_eq(s->open, -1);
        s->delta = true;
    } else if (str_eq_c(ev->name, "message_stop")) {
        cr_assert(s->delta);
        s->stopped = true;
    } else {
        cr_assert_not(s->delta);
        block_event(s, ev->name, ev->data);
    }
}

TEST(anthropic_stream, random_pieces)
{
    for (uint32_t seed = 1; seed <= 200; seed++) {
        static struct kit k;
        struct seen s = {.open = -1};

        kit_open(&k, &dialect_messages, MESSAGES, seed);
        kit_play(&k, true);
        kit_finish(&k, "tool_calls", KIT_MESSAGE);
        kit_read(&k);
        for (size_t i = 0; i < k.n; i++)
            take_event(&s, &k.events[i]);
        cr_assert(s.stopped);
        cr_assert_eq(s.next, 4);
        cr_assert(str_eq_c(buf_str(&s.text), KIT_TEXT));
        cr_assert(str_eq_c(buf_str(&s.thought), KIT_THOUGHT));
        cr_assert(s.signature.len > 0);
        cr_assert(str_eq_c(buf_str(&s.args[0]), KIT_ARGS0));
        cr_assert(str_eq_c(buf_str(&s.args[1]), KIT_ARGS1));
        buf_done(&s.text);
        buf_done(&s.thought);
        buf_done(&s.signature);
        buf_done(&s.args[0]);
        buf_done(&s.args[1]);
        kit_close(&k);
    }
}

TEST(anthropic_stream, white_space_alone_is_no_block)
{
    static struct kit k;

    kit_open(&k, &dialect_messages, MESSAGES, 1);
    kit_head(&k);
    k.w->sink->text(k.w, 0, STR("\n"));
    k.w->sink->text(k.w, 0, STR("\n"));
    k.w->sink->tool_begin(k.w, 0, 0, STR("call_1"), STR("read"));
    k.w->sink->tool_end(k.w, 0, 0);
    kit_finish(&k, "tool_calls", KIT_MESSAGE);
    kit_read(&k);
    cr_assert(str_eq_c(k.events[1].name, "content_block_start"));
    cr_assert(json_equal(json_get(json_get(k.events[1].data, "content_block"), "type"),
                         kit_json(&k, "\"tool_use\"")));
    kit_close(&k);
}

TEST(anthropic_stream, errors)
{
    static struct kit k;

    kit_open(&k, &dialect_messages, MESSAGES, 1);
    kit_play(&k, false);
    kit_fail(&k);
    kit_read(&k);
    cr_assert(str_eq_c(k.events[k.n - 1].name, "error"));
    for (size_t i = 0; i < k.n; i++)
        cr_assert_not(str_eq_c(k.events[i].name, "message_stop"));
    kit_close(&k);
}

TEST(anthropic_whole, blocks_stop_reasons_and_thread)
{
    static struct kit k;
    const struct json *v;
    struct err e = {0};
    struct finished_answer stopped = {.finish_reason = STR("stop"), .stop_text = STR("END")};
    struct call_usage usage = {0};

    kit_open(&k, &dialect_messages,
             "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 1);
    kit_head(&k);
    stopped.message = kit_json(&k, KIT_MESSAGE);
    k.w->sink->finish(k.w, &stopped, 1, &usage);
    v = kit_json(&k, arena_cstr(&k.a, buf_str(&k.out)));
    cr_assert_eq(json_get(v, "content")->n, 4);
    cr_assert(
        json_equal(json_get(json_at(json_get(v, "content"), 2), "input"), kit_json(&k, KIT_ARGS0)));
    cr_assert(str_eq_c(json_string(json_get(v, "stop_reason")), "stop_sequence"));
    cr_assert(str_eq_c(json_string(json_get(v, "stop_sequence")), "END"));
    buf_clear(&k.out);
    (void)err_field(&e, "thread", "no threads");
    dialect_messages.error(&e, STR("r1"), &k.out);
    v = kit_json(&k, arena_cstr(&k.a, buf_str(&k.out)));
    v = json_get(json_get(v, "error"), "details");
    cr_assert(json_equal(v, kit_json(&k, "{\"error_code\":\"thread_unsupported_request\","
                                         "\"unsupported\":[\"thread\"]}")));
    kit_close(&k);
}
