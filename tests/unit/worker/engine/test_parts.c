/* The pure files below the pool: the fair queue, routed experts, .npy files, text upstreams. */

#include "common/codec/json_build.h"
#include "testing.h"
#include "worker/engine/pool/experts.h"
#include "worker/engine/pool/fair_queue.h"
#include "worker/engine/wire/npy.h"
#include "worker/engine/wire/upstream_out.h"
#include "worker/engine/wire/upstream_text.h"
#include "worker/engine/wire/wire_fields.h"
#include "worker/engine/wire/wire_write.h"
#include "worker/text/tokens/span.h"

TEST(fair_queue, sessions_take_turns)
{
    struct fair_queue q = {0};
    struct fair_item items[6] = {0};
    static const char *const sessions[6] = {"a", "a", "a", "b", "c", "b"};
    static const int want[5] = {0, 3, 4, 1, 2};

    cr_assert_null(fair_first(&q));
    for (int i = 0; i < 6; i++)
        fair_push(&q, &items[i], str_cstr(sessions[i]));
    fair_take(&q, &items[5]); /* not in its turn: the row stays */
    for (int i = 0; i < 5; i++) {
        struct fair_item *first = fair_first(&q);

        cr_assert_eq(first - items, want[i], "%d: %td", i, first - items);
        fair_take(&q, first);
    }
    cr_assert_eq(q.n, 0);
    fair_take(&q, &items[0]); /* is not in the queue */
    fair_done(&q);
}

TEST(fair_queue, who_has_more_than_a_share_gives_way)
{
    struct fair_queue q = {0};
    struct fair_item items[7] = {0};
    static const char *const sessions[7] = {"a", "a", "a", "a", "b", "c", "c"};

    for (int i = 0; i < 5; i++)
        fair_push(&q, &items[i], str_cstr(sessions[i]));
    cr_assert_eq(fair_waiting(&q, STR("a")), 4);
    cr_assert_eq(fair_waiting(&q, STR("c")), 0);
    cr_assert_null(fair_surplus(&q, STR("a"), 5), "the greedy one itself");
    cr_assert_null(fair_surplus(&q, STR("c"), 2), "more sessions than places");
    cr_assert_eq(fair_surplus(&q, STR("b"), 5), &items[3], "its newest");
    cr_assert_eq(fair_surplus(&q, STR("c"), 5), &items[3], "a third of five is one");
    fair_take(&q, &items[3]);
    fair_push(&q, &items[5], STR("c"));
    cr_assert_null(fair_surplus(&q, STR("c"), 5), "it has its share");
    cr_assert_eq(fair_surplus(&q, STR("c"), 6), &items[2]);
    for (int i = 0; i < 6; i++)
        fair_take(&q, &items[i]);
    cr_assert_eq(q.n_lanes, 0);
    fair_done(&q);
}

static void expect_ids(const int32_t *ids, size_t n)
{
    struct token_span parts[] = {{ids, n / 3}, {ids + n / 3, 0}, {ids + n / 3, n - n / 3}};
    struct buf got = {0}, want = {0};
    struct json_out o = json_out_to(&got);

    buf_add_c(&want, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(&want, "%s%d", i > 0 ? "," : "", ids[i]);
    buf_add_c(&want, ']');
    wire_ids(&o, (struct token_parts){parts, ARRAY_LEN(parts), n});
    cr_expect(str_eq(buf_str(&got), buf_str(&want)), "%.*s", (int)MIN_OF(got.len, 200u), got.p);
    buf_done(&got);
    buf_done(&want);
}

/* Tests ids around each number of digits, and zeros in each group of three. */
TEST(wire_write, ids_are_plain_numbers)
{
    int32_t ids[200] = {0, 7000, 7007, 7070, 70007, 151643, 700070, 999000, INT32_MAX};
    size_t n = 9;

    for (int64_t ten = 1; ten < INT32_MAX; ten *= 10)
        for (int64_t d = -1; d <= 1; d++)
            ids[n++] = (int32_t)(ten + d);
    expect_ids(ids, 0);
    for (size_t i = 0; i < n; i++)
        expect_ids(&ids[i], 1);
    expect_ids(ids, n);
}

/* Long prompts are written in blocks; their text takes no more memory than its next power of two.
 */
TEST(wire_write, long_prompts_take_what_they_need)
{
    enum { LONG = 400000 };

    static int32_t ids[LONG];
    struct token_span parts[] = {{ids, 10}, {ids + 10, LONG - 10}};
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    for (int32_t i = 0; i < LONG; i++)
        ids[i] = i % 1000;
    wire_ids(&o, (struct token_parts){parts, ARRAY_LEN(parts), LONG});
    cr_expect_leq(text.cap, 2 << 20, "%zu bytes", text.cap);
    buf_done(&text);
    for (size_t n = 1; n < LONG; n = n * 3 + 1)
        expect_ids(ids, n);
    ids[2000] = INT32_MAX;
    expect_ids(ids, 4096);
    for (int32_t i = 0; i < LONG; i++) /* all values of each three digits */
        ids[i] = i * 5 / 2;
    expect_ids(ids, LONG);
    for (size_t i = 0; i + 7 <= LONG; i += 7) /* too few for AVX-512 */
        expect_ids(ids + i, 7);
}

/* Ids that are too long for AVX-512 leave no room for the next eight, which write 64 bytes. */
TEST(wire_write, long_ids_leave_room)
{
    enum { BLOCK = 1024 };

    static int32_t ids[BLOCK];

    for (size_t long_ids = 0; long_ids <= BLOCK; long_ids += BLOCK / 16) {
        for (size_t i = 0; i < BLOCK; i++)
            ids[i] = i < long_ids ? INT32_MAX - (int32_t)i : (int32_t)i;
        expect_ids(ids, BLOCK);
    }
    for (size_t i = 0; i < 64; i++) /* one at each position of eight */
        for (int32_t id = 999999; id <= 1000000; id++) {
            memset(ids, 0, sizeof(ids));
            ids[i] = id;
            expect_ids(ids, 64 + i % 8);
        }
}

TEST(experts, whole_rest_or_neither)
{
    size_t row = 0;
    struct err e;
    struct experts_block b = {.bytes = 240, .tokens = 11, .from = 4};

    cr_assert_eq(experts_check(&row, &b, "rows", &e), 1, "24 bytes a row or 40: cannot be told");
    b = (struct experts_block){.bytes = 240, .tokens = 11};
    cr_assert_eq(experts_check(&row, &b, "rows", &e), 0);
    cr_assert(b.from == 0 && b.rows == 10 && row == 24);
    b = (struct experts_block){.bytes = 144, .tokens = 11, .from = 4};
    cr_assert_eq(experts_check(&row, &b, "rows", &e), 0);
    cr_assert(b.from == 4 && b.rows == 6);
    b = (struct experts_block){.bytes = 240, .tokens = 11, .from = 4};
    cr_assert_eq(experts_check(&row, &b, "rows", &e), 0);
    cr_assert(b.from == 0 && b.rows == 10);
    b = (struct experts_block){.bytes = 168, .tokens = 11, .from = 4};
    cr_assert_eq(experts_check(&row, &b, "rows", &e), -1);
    cr_assert_eq(e.kind, ERR_ENGINE_INVALID);
}

/* Reads in pieces of any size, which must all have one result. */
static int npy(struct str file, struct buf *out)
{
    int rc = 0;

    for (size_t step = 1; step <= MAX_OF(file.len, 1u); step++) {
        struct npy *n = npy_new();
        struct buf came = {0};
        struct err e;
        int one;

        for (size_t at = 0; at < file.len; at += step) {
            buf_add_str(&came, str_sub(file, at, step));
            npy_feed(n, &came);
        }
        one = npy_end(n, &came, &e);
        cr_assert(one == 0 || e.kind == ERR_ENGINE_INVALID);
        cr_assert(step == 1 || (one == rc && str_eq(buf_str(out), buf_str(&n->items))));
        rc = one;
        buf_clear(out);
        buf_add_str(out, buf_str(&n->items));
        npy_free(n);
        buf_done(&came);
    }
    return rc;
}

#define NPY_TEXT(version, len, header, data) "\x93NUMPY" version len header data
#define NPY(version, len, header, data) STR(NPY_TEXT(version, len, header, data))
#define HEAD(type, order, shape) \
    "{'descr': '" type "', 'fortran_order': " order ", 'shape': " shape "}"

TEST(npy, types_and_shapes)
{
    struct buf b = {0};

    cr_assert_eq(npy(NPY("\1\0", "\x37\0", HEAD("|u1", "False", "(3,)"), "\1\2\xff"), &b), 0);
    cr_assert(str_eq(buf_str(&b), STR("\1\0\0\0\2\0\0\0\xff\0\0\0")));
    cr_assert_eq(npy(NPY("\1\0", "\x39\0", HEAD("<u2", "False", "(1, 2)"), "\1\2\3\4"), &b), 0);
    cr_assert(str_eq(buf_str(&b), STR("\1\2\0\0\3\4\0\0")));
    cr_assert_eq(npy(NPY("\2\0", "\x37\0\0\0", HEAD("<i4", "False", "(1,)"), "\1\2\3\4"), &b), 0);
    cr_assert_eq(npy(NPY("\1\0", "\x37\0", HEAD("|u1", "False", "(0,)"), ""), &b), 0);
    cr_assert_eq(b.len, 0);
    cr_assert_eq(npy(NPY("\1\0", "\x36\0", HEAD("|u1", "True", "(3,)"), "\1\2\3"), &b), -1);
    cr_assert_eq(npy(NPY("\1\0", "\x37\0", HEAD("<f4", "False", "(1,)"), "\1\2\3\4"), &b), -1);
    cr_assert_eq(npy(NPY("\1\0", "\x37\0", HEAD("|u1", "False", "(4,)"), "\1\2\3"), &b), -1);
    cr_assert_eq(npy(NPY("\1\0", "\xff\xff", HEAD("|u1", "False", "(3,)"), "\1\2\3"), &b), -1);
    cr_assert_eq(npy(STR(""), &b), -1);
#define ONE(data) NPY_TEXT("\1\0", "\x37\0", HEAD("|u1", "False", "(1,)"), data)
    cr_assert_eq(npy(STR(ONE("\7") ONE("\x8")), &b), 0);
    cr_assert(str_eq(buf_str(&b), STR("\7\0\0\0\x8\0\0\0")));
    cr_assert_eq(npy(STR(ONE("\7") "x"), &b), -1);
    buf_done(&b);
}

/* Adds a chunk. Returns -1 and *e if it is refused. */
static int add_chunk(struct upstream_text *t, struct str chunk, struct err *e)
{
    struct arena a = {0};
    struct json list = json_empty(JSON_ARRAY);
    struct upstream_out out = {&a, &list, true};
    const struct json *v = NULL;
    int rc;

    cr_assert_eq(json_parse(&a, chunk, &v, e), 0);
    rc = upstream_text_add(t, v, &out, e);
    arena_done(&a);
    return rc;
}

TEST(upstream_text, what_a_stream_tells_beside_its_deltas)
{
    static const char *const chunks[] = {
        "{\"id\":\"x\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"He\"}}]}",
        "{\"choices\":[{\"delta\":{\"content\":\"llo\",\"reasoning\":\"hm\"}}],\"usage\":{}}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{"
        "\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]},\"finish_reason\":null}]}",
        "{\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}",
        "{\"choices\":[],\"usage\":{\"total_tokens\":3}}",
    };
    const struct json rest = json_empty(JSON_ARRAY);
    struct upstream_text *t = upstream_text_new();
    struct buf out = {0};
    struct err e;

    for (size_t i = 0; i < sizeof(chunks) / sizeof(*chunks); i++)
        cr_assert_eq(add_chunk(t, str_cstr(chunks[i]), &e), 0);
    upstream_text_write(t, &rest, &out);
    cr_assert(str_eq_c(buf_str(&out),
                       "{\"choices\":[{\"messages\":[],\"filtered\":false,"
                       "\"signed\":null,\"replaced\":0}],\"usage\":{\"total_tokens\":3}}"),
              "%.*s", (int)out.len, out.p);
    cr_assert_eq(add_chunk(t, STR("{\"x\":1}"), &e), 0);
    cr_assert_eq(add_chunk(t, STR("[]"), &e), -1);
    upstream_text_free(t);
    buf_done(&out);
}

/* Makes the text: before, n times `each`, after. */
static struct str many(struct buf *b, const char *before, size_t n, const char *each,
                       const char *after)
{
    buf_clear(b);
    buf_puts(b, before);
    for (size_t i = 0; i < n; i++)
        buf_printf(b, "%s%s", i ? "," : "", each);
    buf_puts(b, after);
    return buf_str(b);
}

TEST(upstream_text, limits)
{
    static const char calls[] = "{\"choices\":[{\"delta\":{\"tool_calls\":[";
    static const char logprobs[] = "{\"choices\":[{\"delta\":{},\"logprobs\":{\"content\":[";
    struct upstream_text *t = upstream_text_new();
    struct buf b = {0};
    struct err e = {0};
    int rc = 0;

    cr_assert_eq(add_chunk(t, many(&b, calls, 256, "{\"index\":0}", "]}}]}"), &e), 0);
    cr_assert_eq(add_chunk(t, many(&b, calls, 257, "{\"index\":0}", "]}}]}"), &e), -1);
    cr_assert(strstr(e.text, "257 pieces of tool calls"), "%s", e.text);
    cr_assert_eq(add_chunk(t, many(&b, logprobs, 16384, "{}", "]}}]}"), &e), 0);
    cr_assert_eq(add_chunk(t, many(&b, logprobs, 8193, "{\"top_logprobs\":[1]}", "]}}]}"), &e), -1);
    cr_assert(strstr(e.text, "logprobs in one event"), "%s", e.text);
    buf_clear(&b);
    buf_puts(&b, "{\"choices\":[{\"delta\":{\"content\":\"");
    for (size_t i = 0; i < 1 << 20; i++)
        buf_add_c(&b, 'x');
    buf_puts(&b, "\"}}]}");
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = add_chunk(t, buf_str(&b), &e);
    cr_assert_eq(rc, 0);
    cr_assert_eq(add_chunk(t, buf_str(&b), &e), -1);
    cr_assert(strstr(e.text, "more than 2 MiB"), "%s", e.text);
    upstream_text_free(t);
    buf_done(&b);
}

/* --- fields --- */

static void note(void *ctx, int id, const struct json_scan *s, struct str key)
{
    buf_printf(ctx, "%d:%.*s=%.*s ", id, (int)key.len, key.p, (int)s->text.len,
               s->token == JSON_TOKEN_NULL ? "" : s->text.p);
}

static void no_target(void *ctx, int id, struct field_target *t)
{
    (void)ctx;
    (void)id;
    (void)t;
}

static void no_bulk(void *ctx, int id, size_t items, bool null)
{
    (void)ctx;
    (void)id;
    (void)items;
    (void)null;
}

TEST(fields, paths_however_cut)
{
    static const struct field table[] = {
        FIELD("a", FIELD_SCALAR, 1),     FIELD("b.c", FIELD_SCALAR, 2),
        FIELD("d[].e", FIELD_SCALAR, 3), FIELD("f[][].g", FIELD_SCALAR, 4),
        FIELD("h[].*", FIELD_SCALAR, 5), FIELD("i", FIELD_SCALAR, 6),
        FIELD("i.j", FIELD_SCALAR, 7),   FIELD("k[]", FIELD_SCALAR, 8),
    };
    static const struct field_sink sink = {note, no_target, no_bulk};
    static const char text[] =
        "{\"a\":1,\"x\":{\"a\":9,\"b\":{\"c\":9}},\"b\":{\"x\":[],\"c\":\"two\",\"a\":9},\"d\":[{"
        "\"e\":3},{"
        "\"x\":[{\"e\":9}],\"e\":4},{}],\"f\":[[],[{\"g\":5},{\"g\":6}]],\"h\":[{\"p\":7,\"q\":8},{"
        "\"r\":9}],"
        "\"i\":\"i\",\"i\":{\"j\":10,\"jj\":9},\"k\":[11,12],\"ab\":9,\"d.e\":9}";
    static const char want[] =
        "1:a=1 2:c=two 3:e=3 3:e=4 4:g=5 4:g=6 5:p=7 5:q=8 5:r=9 6:i=i 7:j=10 "
        "8:=11 8:=12 ";

    for (size_t step = 1; step <= sizeof(text); step++) {
        struct buf got = {0};
        struct fields f;
        struct err e;
        int rc = 0;

        fields_init(&f, table, sizeof(table) / sizeof(*table), &sink, &got);
        for (size_t at = 0; at < sizeof(text) - 1 && rc == 0; at += step) {
            char piece[sizeof(text)];
            struct str part = str_sub(str_cstr(text), at, step);

            memcpy(piece, part.p, part.len);
            rc = fields_feed(&f, str_of(piece, part.len), &e);
            memset(piece, 'x', sizeof(piece));
        }
        cr_assert_eq(rc, 1);
        cr_assert(str_eq_c(buf_str(&got), want), "%zu: %.*s", step, (int)got.len, got.p);
        fields_done(&f);
        buf_done(&got);
    }
}
