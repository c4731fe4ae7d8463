/* fuzz: rg_common */
/* A text read on from a mark of one that began alike gives what reading it whole gives: value,
 * error, used bytes of its arena, and marks. Input: a budget and the first text's length, two bytes
 * each, that text, and what follows its marks in the second one. */
#include <string.h>

#include "common/base/check.h"
#include "common/codec/json_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One reading, whole or from a mark on. */
struct reading {
    struct arena arena;
    struct json_trace trace;
    struct err err;
    const struct json *value;
    int rc;
};

static void read_text(struct reading *r, struct str text, const struct json_known *known,
                      size_t before, size_t max_bytes)
{
    *r = (struct reading){.trace.key = STR("m"), .arena.max_bytes = max_bytes};
    r->arena.used_bytes = before;
    r->rc = json_parse_traced(&r->arena, text, known, &r->trace, &r->value, &r->err);
}

static void done(struct reading *r)
{
    json_trace_done(&r->trace);
    arena_done(&r->arena);
}

/* Members in their order, numbers and strings as they are written. */
static void same_text(const struct json *a, const struct json *b)
{
    struct buf one = {0}, two = {0};

    json_write(&one, a);
    json_write(&two, b);
    CHECK(str_eq(buf_str(&one), buf_str(&two)));
    buf_done(&one);
    buf_done(&two);
}

static void same(const struct reading *whole, const struct reading *on, size_t n_items)
{
    CHECK(whole->rc == on->rc && whole->err.kind == on->err.kind);
    CHECK(strcmp(whole->err.text, on->err.text) == 0);
    if (whole->rc != 0)
        return;
    same_text(whole->value, on->value);
    CHECK(whole->trace.twice == on->trace.twice);
    CHECK(whole->arena.used_bytes == on->arena.used_bytes);
    CHECK(whole->trace.escaped_at == on->trace.escaped_at);
    CHECK(whole->trace.surrogate_at == on->trace.surrogate_at);
    CHECK(whole->value->flags == on->value->flags);
    CHECK(whole->trace.marks.n == 0 || whole->trace.marks.n == on->trace.marks.n + n_items);
    for (size_t i = 0; i < on->trace.marks.n && whole->trace.marks.n; i++) {
        CHECK(whole->trace.marks.at[n_items + i].end == on->trace.marks.at[i].end);
        CHECK(whole->trace.marks.at[n_items + i].used_bytes == on->trace.marks.at[i].used_bytes);
    }
}

/* From the mark behind item i of the first text, with `rest` behind it. */
static void go_on(const struct reading *first, struct str text, size_t i, struct str rest,
                  size_t max_bytes)
{
    const struct json_mark *m = &first->trace.marks.at[i];
    const struct json *list = json_get(first->value, "m");
    bool escapes = first->trace.escaped_at < m->end;
    struct json_known known = {
        .bytes = m->end,
        .used_bytes = m->used_bytes,
        .escaped_at = escapes ? first->trace.escaped_at : SIZE_MAX,
        .surrogate_at = first->trace.surrogate_at <= m->end ? first->trace.surrogate_at : SIZE_MAX,
        .list_key = first->trace.list_key,
        .members = first->trace.members.at,
        .n_members = first->trace.members.n,
        .items = list->items,
        .n_items = i + 1};
    struct buf both = {0};
    struct reading whole, on;

    buf_add_str(&both, str_sub(text, 0, m->end));
    buf_add_str(&both, rest);
    read_text(&whole, buf_str(&both), NULL, 0, max_bytes);
    read_text(&on, str_sub(buf_str(&both), m->end, SIZE_MAX), &known, 0, max_bytes);
    same(&whole, &on, i + 1);
    done(&whole);
    done(&on);
    buf_done(&both);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = str_of((const char *)data, size), text, rest;
    struct reading first;
    uint16_t max_bytes, len;

    if (size < 4)
        return 0;
    memcpy(&max_bytes, data, 2);
    memcpy(&len, data + 2, 2);
    text = str_sub(all, 4, 4 + (size_t)len);
    rest = str_sub(all, 4 + (size_t)len, SIZE_MAX);
    read_text(&first, text, NULL, 0, 0);
    for (size_t i = 0; first.rc == 0 && i < first.trace.marks.n; i++) {
        go_on(&first, text, i, str_sub(text, first.trace.marks.at[i].end, SIZE_MAX), 0);
        go_on(&first, text, i, rest, max_bytes);
    }
    done(&first);
    return 0;
}
