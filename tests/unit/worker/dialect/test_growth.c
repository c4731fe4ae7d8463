/* Every list that a client can send, in every dialect, costs its length. */
#include <malloc.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "costs.h"
#include "testing.h"
#include "worker/dialect/regroup.h"
#include "worker/dialect/request_members.h"
#include "worker/dialect/writers.h"

enum { SHORT = 700, KEEP = 256 << 20 };

/* Memory that was touched stays: page faults are no cost of ours. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, KEEP);
    mallopt(M_TRIM_THRESHOLD, KEEP);
}

TestSuite(growth, .init = keep_memory, .timeout = 60);

struct list {
    const char *name;
    const struct dialect *dialect;
    const char *before, *item, *after; /* item: %u is its place, maybe several times */
};

#define CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
#define RESPONSES "{\"input\":\"x\","
#define MESSAGES "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
#define FUNCTION "{\"type\":\"function\",\"function\":{\"name\":\"t%u\"}}"

static const struct list LISTS[] = {
    {"chat tools", &dialect_chat, CHAT "\"tools\":[", FUNCTION, "]}"},
    {"chat custom tools", &dialect_chat, CHAT "\"tools\":[",
     "{\"type\":\"custom\",\"custom\":{\"name\":\"t%u\"}}", "]}"},
    {"chat functions", &dialect_chat, CHAT "\"functions\":[", "{\"name\":\"t%u\"}", "]}"},
    {"chat messages", &dialect_chat, "{\"messages\":[",
     "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c%u\",\"function\":{"
     "\"name\":\"f\",\"arguments\":\"{}\"}}]}",
     "]}"},
    {"chat parts", &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":[",
     "{\"type\":\"text\",\"text\":\"%u\"}", "]}]}"},
    {"chat stops", &dialect_chat, CHAT "\"stop\":[", "\"s%u\"", "]}"},
    {"chat bias", &dialect_chat, CHAT "\"logit_bias\":{", "\"%u\":1", "}}"},
    {"chat kwargs", &dialect_chat, CHAT "\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{",
     "\"k%u\":1", "}}"},
    {"messages tools", &dialect_messages, MESSAGES "\"tools\":[",
     "{\"name\":\"t%u\",\"input_schema\":{}}", "]}"},
    {"messages deferred tools", &dialect_messages,
     MESSAGES "\"tools\":[{\"name\":\"a\","
              "\"input_schema\":{}}",
     ",{\"name\":\"t%u\",\"input_schema\":{},\"defer_loading\":true}", "]}"},
    {"messages references", &dialect_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[",
     "{\"type\":\"tool_reference\",\"tool_name\":\"t%u\"}", "]}]}"},
    {"messages added tools", &dialect_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[",
     "{\"type\":\"tool_addition\",\"tool\":{\"definition\":{\"name\":\"t%u\",\"input_schema\":{}}}"
     "}",
     "]}]}"},
    {"messages uses", &dialect_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":"
     "\"assistant\","
     "\"content\":[",
     "{\"type\":\"tool_use\",\"id\":\"c%u\",\"name\":\"f\",\"input\":{}}", "]}]}"},
    {"messages results", &dialect_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[",
     "{\"type\":\"tool_result\",\"tool_use_id\":\"c%u\",\"content\":\"x\"}", "]}]}"},
    {"messages stops", &dialect_messages, MESSAGES "\"stop_sequences\":[", "\"s%u\"", "]}"},
    {"responses tools", &dialect_responses, RESPONSES "\"tools\":[",
     "{\"type\":\"function\",\"name\":\"t%u\"}", "]}"},
    {"responses namespaces", &dialect_responses, RESPONSES "\"tools\":[",
     "{\"type\":\"namespace\",\"name\":\"n%u\",\"tools\":[{\"type\":\"function\",\"name\":\"t\"}]}",
     "]}"},
    {"responses one namespace", &dialect_responses,
     RESPONSES "\"tools\":[{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[",
     "{\"type\":\"function\",\"name\":\"t%u\"}", "]}]}"},
    {"responses custom tools", &dialect_responses, RESPONSES "\"tools\":[",
     "{\"type\":\"custom\",\"name\":\"t%u\"}", "]}"},
    {"responses calls", &dialect_responses, "{\"input\":[",
     "{\"type\":\"function_call\",\"call_id\":\"c%u\",\"namespace\":\"n\",\"name\":\"f%u\","
     "\"arguments\":\"{}\"}",
     "]}"},
    {"responses outputs", &dialect_responses, "{\"input\":[",
     "{\"type\":\"function_call_output\",\"call_id\":\"c%u\",\"output\":\"x\"}", "]}"},
    {"responses brought tools", &dialect_responses, "{\"input\":[",
     "{\"type\":\"additional_tools\",\"tools\":[{\"type\":\"function\",\"name\":\"t%u\"}]}",
     ",{\"role\":\"user\",\"content\":\"x\"}]}"},
    {"chat results", &dialect_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},",
     "{\"role\":\"tool\",\"tool_call_id\":\"c%u\",\"content\":\"x\"}", "]}"},
    {"chat calls of one message", &dialect_chat,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[",
     "{\"id\":\"c%u\",\"type\":\"function\",\"function\":{\"name\":\"f%u\",\"arguments\":\"{}\"}}",
     "]}]}"},
    {"chat arguments of a call", &dialect_chat,
     "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\","
     "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{",
     "\\\"k%u\\\":1", "}\"}}]}]}"},
    {"chat metadata", &dialect_chat, CHAT "\"metadata\":{", "\"k%u\":\"v\"", "}}"},
    {"chat unknown members", &dialect_chat, CHAT, "\"x%u\":1", "}"},
    {"messages of messages", &dialect_messages, "{\"max_tokens\":9,\"messages\":[",
     "{\"role\":\"user\",\"content\":\"%u\"},{\"role\":\"assistant\",\"content\":\"y\"}",
     ",{\"role\":\"user\",\"content\":\"x\"}]}"},
    {"messages system", &dialect_messages, MESSAGES "\"system\":[",
     "{\"type\":\"text\",\"text\":\"%u\"}", "]}"},
    {"messages parts", &dialect_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[",
     "{\"type\":\"text\",\"text\":\"%u\"}", "]}]}"},
    {"messages thoughts", &dialect_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":"
     "\"assistant\",\"content\":[",
     "{\"type\":\"thinking\",\"thinking\":\"%u\",\"signature\":\"s\"}",
     ",{\"type\":\"text\",\"text\":\"y\"}]},{\"role\":\"user\",\"content\":\"x\"}]}"},
    {"messages unknown members", &dialect_messages, MESSAGES, "\"x%u\":1", "}"},
    {"responses messages", &dialect_responses, "{\"input\":[",
     "{\"role\":\"user\",\"content\":\"%u\"}", "]}"},
    {"responses parts", &dialect_responses, "{\"input\":[{\"role\":\"user\",\"content\":[",
     "{\"type\":\"input_text\",\"text\":\"%u\"}", "]}]}"},
    {"responses custom calls", &dialect_responses, "{\"input\":[",
     "{\"type\":\"custom_tool_call\",\"call_id\":\"c%u\",\"name\":\"f\",\"input\":\"x\"}", "]}"},
    {"responses metadata", &dialect_responses, RESPONSES "\"metadata\":{", "\"k%u\":\"v\"", "}}"},
    {"responses include", &dialect_responses, RESPONSES "\"include\":[",
     "\"message.output_text.logprobs\"", "]}"},
    {"responses unknown members", &dialect_responses, RESPONSES, "\"x%u\":1", "}"},
    {"completions ids", &dialect_completions, "{\"prompt\":[", "%u", "]}"},
    {"completions stops", &dialect_completions, "{\"prompt\":\"x\",\"stop\":[", "\"s%u\"", "]}"},
    {"completions bias", &dialect_completions, "{\"prompt\":\"x\",\"logit_bias\":{", "\"%u\":1",
     "}}"},
    {"responses reasoning", &dialect_responses, "{\"input\":[",
     "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"%u\"}]}", "]}"},
};

static struct str body_of(struct arena *a, const struct list *l, uint32_t n)
{
    struct buf b = {0};
    struct str ret;

    buf_puts(&b, l->before);
    for (uint32_t i = 0; i < n; i++) {
        if (i && l->item[0] != ',')
            buf_add_c(&b, ',');
        for (const char *p = l->item; *p; p++) {
            if (str_starts(str_cstr(p), STR("%u"))) {
                buf_printf(&b, "%u", 100000 + i);
                p++;
            } else {
                buf_add_c(&b, *p);
            }
        }
    }
    buf_puts(&b, l->after);
    ret = arena_str(a, buf_str(&b));
    buf_done(&b);
    return ret;
}

static void take_parse(struct arena *a, const struct dialect *d, struct str text)
{
    const struct dialect_past past = {0};
    const struct json *body;
    struct chat_request req;
    struct err e = {0};
    struct buf out = {0};

    cr_assert_eq(json_parse(a, text, &body, &e), 0, "%s", e.text);
    cr_assert_eq(d->parse(a, body, NULL, &past, &req, &e), 0, "%s", e.text);
    request_note_dropped(a, d, body, NULL, &req);
    (void)d->writer(a, &req, body, &out);
    buf_done(&out);
}

static struct cost read_list(const void *ctx, uint32_t n)
{
    const struct list *l = ctx;
    struct arena a = {0}, texts = {0};
    struct str text = body_of(&texts, l, n);
    double start = cost_now_s();
    struct cost ret;

    take_parse(&a, l->dialect, text);
    ret = (struct cost){cost_now_s() - start, a.used_bytes};
    arena_done(&a);
    arena_done(&texts);
    return ret;
}

Test(growth, every_list_costs_its_length)
{
    for (size_t i = 0; i < ARRAY_LEN(LISTS); i++)
        expect_linear(LISTS[i].name, read_list, &LISTS[i], SHORT);
}

/* All tools are there, and allowed. */
static struct cost read_allowed(const void *ctx, uint32_t n)
{
    static const struct list allowed = {
        "allowed", &dialect_chat,
        CHAT "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
             "\"tools\":[",
        FUNCTION, "]}},\"tools\":["};
    struct arena texts = {0};
    struct list all = {"tools", &dialect_chat, "", FUNCTION, "]}"};
    struct cost ret;

    (void)ctx;
    all.before = arena_cstr(&texts, body_of(&texts, &allowed, n));
    ret = read_list(&all, n);
    arena_done(&texts);
    return ret;
}

Test(growth, allowed_tools)
{
    expect_linear("allowed tools", read_allowed, NULL, SHORT);
}

static struct str one_owner(const void *ctx, struct str call_id)
{
    (void)ctx, (void)call_id;
    return STR("r");
}

static struct cost regroup(const void *ctx, uint32_t n)
{
    struct arena a = {0};
    struct str text = body_of(&a, ctx, n * 2);
    const struct json *body, *out;
    struct cost ret;
    size_t before;
    double start;

    cr_assert_eq(json_parse(&a, text, &body, NULL), 0);
    before = a.used_bytes;
    start = cost_now_s();
    out = regroup_calls(&a, json_get(body, "messages"), (struct regroup_owner){one_owner, NULL});
    ret = (struct cost){cost_now_s() - start, a.used_bytes - before};
    cr_assert_eq(out->n, 1);
    cr_assert_eq(json_get(&out->items[0], "tool_calls")->n, n * 2);
    arena_done(&a);
    return ret;
}

/* All calls of one answer, sent back one by one. */
Test(growth, regrouped_calls)
{
    expect_linear("regrouped calls", regroup, &LISTS[3], SHORT);
}
