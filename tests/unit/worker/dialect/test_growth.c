/* The cost of every list that a client can send is linear, in every dialect. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "costs.h"
#include "testing.h"
#include "worker/dialect/regroup.h"
#include "worker/dialect/request_members.h"
#include "worker/dialect/writers.h"

enum { SHORT = 700, KEEP = 256 << 20 };

/* Keeps used memory in the process, because page faults are not part of the measured cost. */
static void keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, KEEP);
    mallopt(M_TRIM_THRESHOLD, KEEP);
}

TestSuite(growth, .init = keep_memory, .timeout = 60);

/* A body with a repeated part. */
struct list {
    const char *name;
    const struct dialect *dialect;
    struct str before, item, after; /* item: %u is its index, which may occur several times */
};

/* Parses a line of lists.txt, which the list borrows. */
static struct list list_of(struct str line)
{
    static const struct dialect *const dialects[] = {&dialect_chat, &dialect_messages,
                                                     &dialect_responses, &dialect_completions};
    const struct str open = STR("«"), close = STR("»");
    size_t blank = str_find(line, STR(" "), 0), at = str_find(line, open, 0),
           end = str_find(line, close, 0);
    struct list ret = {.name = line.p};

    cr_assert(blank < at && at < end && end < line.len, "%s", line.p);
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
        if (str_eq(str_cstr(dialects[i]->name), str_sub(line, 0, blank)))
            ret.dialect = dialects[i];
    cr_assert_not_null(ret.dialect, "%s", line.p);
    ret.before = str_sub(line, blank + 1, at - blank - 1);
    ret.item = str_sub(line, at + open.len, end - at - open.len);
    ret.after = str_sub(line, end + close.len, line.len);
    return ret;
}

static struct str body_of(struct arena *a, const struct list *l, uint32_t n)
{
    struct buf b = {0};
    struct str ret;

    buf_add_str(&b, l->before);
    for (uint32_t i = 0; i < n; i++) {
        if (i && l->item.p[0] != ',')
            buf_add_c(&b, ',');
        for (size_t k = 0; k < l->item.len; k++) {
            if (str_starts(str_sub(l->item, k, l->item.len), STR("%u"))) {
                buf_printf(&b, "%u", 100000 + i);
                k++;
            } else {
                buf_add_c(&b, l->item.p[k]);
            }
        }
    }
    buf_add_str(&b, l->after);
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
    request_find_dropped(a, d, body, 0, (struct member_readers){0}, &req);
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
    FILE *f = fopen(RG_TEST_DATA "/dialect/lists.txt", "re");
    char *line = NULL;
    size_t room = 0, lists = 0;
    ssize_t n;

    cr_assert_not_null(f);
    while ((n = getline(&line, &room, f)) > 0) {
        struct list l;

        if (line[0] == '#')
            continue;
        line[n - 1] = '\0';
        l = list_of(str_of(line, (size_t)n - 1));
        expect_linear(l.name, read_list, &l, SHORT);
        lists++;
    }
    cr_assert_gt(lists, 100);
    free(line);
    (void)fclose(f);
}

/* Measures a request whose tools are all allowed. */
static struct cost read_allowed(const void *ctx, uint32_t n)
{
    const struct list allowed =
        list_of(STR("chat {\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":"
                    "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":["
                    "«{\"type\":\"function\",\"function\":{\"name\":\"t%u\"}}»]}},\"tools\":["));
    struct arena texts = {0};
    struct list all = {"tools", &dialect_chat, body_of(&texts, &allowed, n), allowed.item,
                       STR("]}")};
    struct cost ret;

    (void)ctx;
    ret = read_list(&all, n);
    arena_done(&texts);
    return ret;
}

Test(growth, allowed_tools)
{
    expect_linear("allowed tools", read_allowed, NULL, SHORT);
}

static struct str one_owner(void *ctx, struct str call_id)
{
    (void)ctx, (void)call_id;
    return STR("r");
}

static const struct json *no_message(void *ctx, struct str answer_id)
{
    (void)ctx, (void)answer_id;
    return NULL;
}

static const struct regroup_owner nobody = {
    .get = one_owner, .message = no_message, .before = no_message};

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
    out = regroup_calls(&a, json_get(body, "messages"), nobody);
    ret = (struct cost){cost_now_s() - start, a.used_bytes - before};
    cr_assert_eq(out->n, 1);
    cr_assert_eq(json_get(&out->items[0], "tool_calls")->n, n * 2);
    arena_done(&a);
    return ret;
}

/* Makes n messages with a call, and `blanks` blanks next to the call. Returns the number of
 * remaining messages. */
static uint32_t left_of(uint32_t n, size_t blanks)
{
    struct arena a = {0};
    struct buf b = {0};
    const struct json *v = NULL;
    uint32_t ret;

    for (uint32_t i = 0; i < n; i++)
        buf_printf(&b,
                   "%s{\"role\":\"assistant\",\"content\":\"%*s\",\"tool_calls\":[{\"id\":\"c%u\","
                   "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}",
                   i ? "," : "[", (int)blanks, "", i);
    buf_puts(&b, "]");
    cr_assert_eq(json_parse(&a, buf_str(&b), &v, NULL), 0);
    ret = regroup_calls(&a, v, nobody)->n;
    arena_done(&a);
    buf_done(&b);
    return ret;
}

/* 512 KiB of blanks are checked; later ones stay. */
Test(growth, blanks_beside_calls_have_an_end)
{
    cr_expect_eq(left_of(9, 64 << 10), 1);
    cr_expect_eq(left_of(11, 64 << 10), 3);
}

/* The calls of one answer are sent back in separate messages. */
Test(growth, regrouped_calls)
{
    const struct list calls = list_of(
        STR("chat {\"messages\":[«{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
            "\"id\":\"c%u\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}»]}"));

    expect_linear("regrouped calls", regroup, &calls, SHORT);
}
