/* Checks the grammar of the events of Responses like the official SDK's accumulator. */
#include "stream_kit.h"

#include "common/codec/json.h"
#include "worker/text/request/chat.h"

#define RESPONSES "{\"model\":\"m\",\"input\":\"hi\",\"stream\":true}"

struct seen {
    int64_t sequence;
    const struct json *items[16]; /* added items; finished ones in final form */
    bool item_done[16], part_open;
    size_t n;
    struct buf text; /* deltas of the open item */
    const struct json *final;
};

static bool is_type(struct str type, const char *name)
{
    return str_eq_c(type, name);
}

static void item_event(struct seen *s, struct str type, const struct json *data)
{
    const struct json *item = json_get(data, "item");
    int64_t at = -1;

    cr_assert_eq(json_to_i64(json_get(data, "output_index"), &at), 0);
    if (is_type(type, "response.output_item.added")) {
        cr_assert_eq(at, (int64_t)s->n, "output_index is the output's length");
        cr_assert(s->n == 0 || s->item_done[s->n - 1]);
        for (size_t i = 0; i < s->n; i++)
            cr_assert_not(json_equal(json_get(item, "id"), json_get(s->items[i], "id")));
        s->items[s->n++] = item;
        buf_clear(&s->text);
    } else {
        cr_assert_eq(at, (int64_t)s->n - 1);
        cr_assert_not(s->part_open);
        cr_assert(json_equal(json_get(item, "id"), json_get(s->items[at], "id")));
        s->items[at] = item;
        s->item_done[at] = true;
    }
}

static void inner_event(struct seen *s, struct str type, const struct json *data)
{
    const struct json *item = s->items[s->n - 1];

    cr_assert(s->n > 0 && !s->item_done[s->n - 1]);
    cr_assert(json_equal(json_get(data, "item_id"), json_get(item, "id")));
    if (is_type(type, "response.content_part.added")) {
        s->part_open = true;
    } else if (is_type(type, "response.content_part.done")) {
        s->part_open = false;
    } else if (str_ends(type, STR(".delta"))) {
        cr_assert(s->part_open == !json_get(item, "call_id"), "delta before its part");
        buf_add_str(&s->text, json_string(json_get(data, "delta")));
    } else {
        struct str whole = json_string(json_get(data, "text"));

        cr_assert(str_ends(type, STR(".done")), "%.*s", (int)type.len, type.p);
        if (!whole.p)
            whole = json_string(json_get(data, "arguments"));
        if (!whole.p)
            whole = json_string(json_get(data, "input"));
        cr_assert(str_eq(whole, buf_str(&s->text)), "done repeats the deltas");
    }
}

static void take_event(struct seen *s, const struct kit_event *ev)
{
    struct str type = kit_type(ev);
    int64_t sequence = -1;

    cr_assert(str_eq(type, ev->name));
    cr_assert_eq(json_to_i64(json_get(ev->data, "sequence_number"), &sequence), 0);
    cr_assert_eq(sequence, s->sequence++);
    cr_assert_null(s->final, "nothing comes behind the terminal event");
    if (sequence == 0)
        cr_assert(is_type(type, "response.created"));
    else if (sequence == 1)
        cr_assert(is_type(type, "response.in_progress"));
    else if (str_starts(type, STR("response.output_item.")))
        item_event(s, type, ev->data);
    else if (is_type(type, "response.completed") || is_type(type, "response.incomplete"))
        s->final = json_get(ev->data, "response");
    else if (!is_type(type, "keepalive"))
        inner_event(s, type, ev->data);
}

TEST(responses_stream, random_pieces)
{
    for (uint32_t seed = 1; seed <= 200; seed++) {
        static struct kit k;
        struct seen s = {0};
        const struct json *output;

        kit_open(&k, &dialect_responses, RESPONSES, seed);
        kit_play(&k, true);
        kit_finish(&k, "tool_calls", KIT_MESSAGE);
        kit_read(&k);
        for (size_t i = 0; i < k.n; i++)
            take_event(&s, &k.events[i]);
        cr_assert_not_null(s.final);
        output = json_get(s.final, "output");
        cr_assert_eq(s.n, 4);
        cr_assert_eq(output->n, 4);
        for (size_t i = 0; i < s.n; i++)
            cr_assert(json_equal(json_at(output, i), s.items[i]), "output is what was streamed");
        cr_assert(str_eq_c(json_string(json_get(s.items[2], "arguments")), KIT_ARGS0));
        cr_assert(str_eq_c(json_string(json_get(s.items[2], "id")), "fc_ab12_0"));
        cr_assert(str_eq_c(json_string(json_get(s.final, "status")), "completed"));
        buf_done(&s.text);
        kit_close(&k);
    }
}

/* Appends the texts of a message's tokens. */
static void collect_tokens(struct buf *out, const struct json *message)
{
    const struct json *told = json_get(json_at(json_get(message, "content"), 0), "logprobs");

    for (size_t i = 0; json_at(told, i); i++)
        buf_add_str(out, json_string(json_get(json_at(told, i), "token")));
}

static void tell_token(struct kit *k, const char *text)
{
    const struct token_logprob lp = {.bytes = str_cstr(text), .logprob = -1};

    k->w->sink->logprobs(k->w, 0, &lp, 1);
}

/* Text, call, text are two messages. Each token is reported once, with the first message that ends
 * after it, and also in the response at the end. A listener that joins later gets all tokens before
 * the texts. */
TEST(responses_stream, tells_each_logprob_once)
{
    for (int late = 0; late < 2; late++) {
        static struct kit k;
        struct seen s = {0};
        struct buf all = {0};

        kit_open(&k, &dialect_responses,
                 "{\"model\":\"m\",\"input\":\"hi\",\"stream\":true,"
                 "\"include\":[\"message.output_text.logprobs\"]}",
                 1);
        kit_head(&k);
        for (int i = 0; late && i < 5; i++)
            tell_token(&k, (const char *const[]){"a", "b", "(", "c", "d"}[i]);
        kit_text(&k, STR("ab"));
        if (!late) {
            tell_token(&k, "a");
            tell_token(&k, "b");
        }
        k.w->sink->tool_begin(k.w, 0, 0, STR("call_1"), STR("read"));
        kit_args0(&k, STR("{}"));
        k.w->sink->tool_end(k.w, 0, 0);
        if (!late)
            tell_token(&k, "(");
        kit_text(&k, STR("cd"));
        if (!late) {
            tell_token(&k, "c");
            tell_token(&k, "d");
        }
        kit_finish(&k, "tool_calls", KIT_MESSAGE);
        kit_read(&k);
        for (size_t i = 0; i < k.n; i++)
            take_event(&s, &k.events[i]);
        cr_assert_eq(s.n, 3);
        collect_tokens(&all, s.items[0]);
        cr_expect(str_eq_c(buf_str(&all), late ? "ab(cd" : "ab"), "%.*s", (int)all.len, all.p);
        collect_tokens(&all, s.items[2]);
        cr_expect(str_eq_c(buf_str(&all), "ab(cd"), "%.*s", (int)all.len, all.p);
        for (size_t i = 0; i < s.n; i++)
            cr_expect(json_equal(json_at(json_get(s.final, "output"), i), s.items[i]));
        buf_done(&all);
        buf_done(&s.text);
        kit_close(&k);
    }
}

TEST(responses_stream, custom_tools_and_namespaces)
{
    static struct kit k;
    struct seen s = {0};

    kit_open(&k, &dialect_responses,
             "{\"input\":\"x\",\"stream\":true,\"tools\":[{\"type\":\"custom\",\"name\":\"patch\"},"
             "{\"type\":\"namespace\",\"name\":\"ns\",\"tools\":[{\"type\":\"function\",\"name\":"
             "\"g\"}]},{\"type\":\"web_search\"}]}",
             1);
    cr_assert_eq(k.req.chat->tools->n, 2);
    kit_head(&k);
    k.w->sink->tool_begin(k.w, 0, 0, STR("call_1"), STR("patch"));
    kit_pieces(&k, STR("{\"input\": \"a\\nb\"}"), kit_args0);
    k.w->sink->tool_end(k.w, 0, 0);
    k.w->sink->tool_begin(k.w, 0, 1, STR("call_2"), STR("g"));
    kit_pieces(&k, STR("{}"), kit_args1);
    k.w->sink->tool_end(k.w, 0, 1);
    kit_finish(&k, "tool_calls", KIT_MESSAGE);
    kit_read(&k);
    for (size_t i = 0; i < k.n; i++)
        take_event(&s, &k.events[i]);
    cr_assert(str_eq_c(json_string(json_get(s.items[0], "type")), "custom_tool_call"));
    cr_assert(str_eq_c(json_string(json_get(s.items[0], "input")), "a\nb"));
    cr_assert(str_eq_c(json_string(json_get(s.items[1], "namespace")), "ns"));
    buf_done(&s.text);
    kit_close(&k);
}

TEST(responses_stream, empty_cut_and_failed)
{
    static struct kit k;
    struct seen s = {0};

    kit_open(&k, &dialect_responses, RESPONSES, 1);
    kit_head(&k);
    kit_finish(&k, "length", "{\"role\":\"assistant\",\"content\":\"\"}");
    kit_read(&k);
    for (size_t i = 0; i < k.n; i++)
        take_event(&s, &k.events[i]);
    cr_assert_eq(s.n, 1, "an empty answer is an empty message");
    cr_assert(str_eq_c(json_string(json_get(s.final, "status")), "incomplete"));
    cr_assert(json_equal(json_get(s.final, "incomplete_details"),
                         kit_json(&k, "{\"reason\":\"max_output_tokens\"}")));
    buf_done(&s.text);
    kit_close(&k);
    kit_open(&k, &dialect_responses, RESPONSES, 1);
    kit_play(&k, false);
    kit_fail(&k);
    kit_read(&k);
    cr_assert(str_eq_c(kit_type(&k.events[k.n - 1]), "error"));
    kit_close(&k);
}

TEST(responses_whole, required_keys)
{
    static const char *const keys[] = {
        "id",    "object", "created_at", "status",       "error",       "incomplete_details",
        "model", "output", "metadata",   "instructions", "temperature", "parallel_tool_calls",
        "tools", "top_p",  "usage",      "tool_choice",
    };
    static struct kit k;
    const struct json *v;

    kit_open(&k, &dialect_responses, "{\"input\":\"hi\"}", 1);
    kit_play(&k, true);
    kit_finish(&k, "tool_calls", KIT_MESSAGE);
    v = kit_json(&k, arena_cstr(&k.a, buf_str(&k.out)));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        cr_assert_not_null(json_get(v, keys[i]), "%s", keys[i]);
    cr_assert_eq(json_get(v, "output")->n, 4);
    kit_close(&k);
}
