#include <stdio.h>

#include "common/codec/json.h"
#include "testing.h"
#include "worker/session/forest/message.h"

struct pair {
    const char *a, *b;
    const char *equal_under; /* letters: c canonical, s strict, l loose, r role_content_only */
};

/* Changes that real clients make when they send a message back. */
static const struct pair PAIRS[] = {
    {"{\"role\":\"user\",\"content\":\"a\"}", "{\"content\":\"a\",\"role\":\"user\"}", "cslr"},
    {"{\"role\":\"user\",\"content\":\"a\"}", "{\"role\":\"user\",\"content\":\"a \"}", ""},
    {"{\"role\":\"user\",\"content\":\"a\"}", "{\"role\":\"tool\",\"content\":\"a\"}", ""},
    {"{\"role\":\"user\",\"content\":\"ab\"}",
     "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
     "\"text\":\"b\",\"cache_control\":{}}]}",
     "c"},
    {"{\"role\":\"assistant\",\"content\":\"\"}", "{\"role\":\"assistant\",\"content\":null}",
     "cslr"},
    {"{\"role\":\"assistant\",\"content\":\"\"}", "{\"role\":\"assistant\"}", "cslr"},
    {"{\"role\":\"assistant\",\"content\":\"x\"}",
     "{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[],\"refusal\":null,\"annotations\":"
     "[]}",
     "cslr"},
    {"{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"r\"}",
     "{\"role\":\"assistant\",\"content\":\"x\"}", "cr"},
    {"{\"role\":\"assistant\",\"content\":\"x\",\"name\":\"n\"}",
     "{\"role\":\"assistant\",\"content\":\"x\"}", "cslr"},
    {"{\"role\":\"user\",\"content\":\"x\",\"name\":\"n\"}",
     "{\"role\":\"user\",\"content\":\"x\"}", "slr"},
    {"{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"1\"}",
     "{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"2\"}", "cslr"},
#define CALL_OF(name, content, id, args)                                            \
    "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":\"" id \
    "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" args "\"}}]}"
#define CALL(content, id, args) CALL_OF("f", content, id, args)
    {CALL("\"\"", "1", "{}"), CALL("\"\"", "2", "{}"), "cr"},
    {CALL("\"\"", "1", "{}"), CALL("\" \\n\"", "1", "{}"), "c"},
    {CALL("\"\"", "1", "{\\\"n\\\": 4096.0, \\\"s\\\": \\\"\\\\u00e9\\\"}"),
     CALL("\"\"", "1", "{\\\"s\\\":\\\"\xc3\xa9\\\",\\\"n\\\":4096}"), "clr"},
    {CALL("\"\"", "1", "{\\\"n\\\":1}"), CALL("\"\"", "1", "{\\\"n\\\":2}"), "r"},
    {CALL("\"\"", "1", "{\\\"n\\\":1}"), CALL("\"\"", "1", "{\\\"n\\\":true}"), "r"},
    {CALL("\"\"", "1", "no json"), CALL("\"\"", "1", "no  json"), "r"},
    {CALL("\"\"", "1", "[1, 2]"), CALL("\"\"", "1", "[1,2]"), "cr"}, /* loose: objects only */
    {CALL("\"\"", "1", "{}"), "{\"role\":\"assistant\",\"content\":\"\"}", "r"},
};

static void read(struct message *m, const char *text, const struct matcher *mt, struct arena *a)
{
    const struct json *v;
    struct err e;

    cr_assert_eq(json_parse(a, str_cstr(text), &v, &e), 0, "%s: %s", text, e.text);
    message_read(m, v, mt, a);
}

/* Reports whether m is an echo of `stored`, by its ids or by its text. */
static bool is_echo(const struct message *stored, const struct message *m, const struct matcher *mt)
{
    struct message_args args = {0};
    size_t went = 0;
    bool ids = m->calls && message_ids_alike(stored->json, m, true) == m->calls->n;
    struct str bare;
    enum message_beside beside = message_beside(stored, m, mt, &bare);
    bool echo = (ids && message_beside_is(beside, stored->json, bare, &went)) ||
                message_echoes_words(stored, m, mt, &args);

    message_args_done(&args);
    return echo;
}

TEST(message, matchers_compare_what_they_say)
{
    static const char letters[] = "cslr";

    for (int kind = 0; kind < MATCHER_COUNT; kind++)
        for (size_t i = 0; i < sizeof(PAIRS) / sizeof(*PAIRS); i++) {
            struct matcher mt = {.kind = (enum matcher_kind)kind};
            bool want = strchr(PAIRS[i].equal_under, letters[kind]) != NULL;
            struct arena a = {0};
            struct message x, y;

            read(&x, PAIRS[i].a, &mt, &a);
            read(&y, PAIRS[i].b, &mt, &a);
            cr_expect_eq(message_equal(&x, &y, &mt), want, "%s: %s %s", matcher_name(mt.kind),
                         PAIRS[i].a, PAIRS[i].b);
            cr_expect_eq(message_equal(&y, &x, &mt), want);
            if (want)
                cr_expect_eq(message_hash(&x, &mt), message_hash(&y, &mt), "%s", PAIRS[i].b);
            else
                cr_expect_neq(message_hash(&x, &mt), message_hash(&y, &mt), "%s", PAIRS[i].b);
            arena_done(&a);
        }
}

/* Makes an assistant's message with this number of calls. The arguments of each are a list of n
 * ones. */
static void list_of(struct message *m, uint32_t calls, uint32_t n, const char *comma,
                    const struct matcher *mt, struct arena *a)
{
    struct buf b = {0};

    for (uint32_t i = 0; i < calls; i++) {
        buf_printf(&b,
                   "%s{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                   "\"arguments\":\"[",
                   i ? "," : "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
        for (uint32_t k = 0; k < n; k++)
            buf_printf(&b, "%s1", k ? comma : "");
        buf_printf(&b, "]\"}}");
    }
    buf_printf(&b, "]}%c", 0);
    read(m, arena_cstr(a, buf_str(&b)), mt, a);
    buf_done(&b);
}

/* Long arguments, in few or many calls, are compared and hashed as text. So equal messages have
 * equal hashes at every length. */
TEST(message, long_arguments_count_as_text)
{
    static const struct {
        uint32_t calls, n;
        bool by_value; /* false: other white space makes a different message */
    } rows[] = {{1, 100, true},    {10, 100, true},   {100, 100, true},
                {1, 5000, true},   {1, 20000, false}, {1, 40000, false},
                {40, 1000, false}, {2000, 2, true},   {5000, 2, false}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct matcher mt = {.kind = MATCHER_CANONICAL, .ignore_cch = false};
        struct arena a = {0};
        struct message x, y, z;

        list_of(&x, rows[i].calls, rows[i].n, ",", &mt, &a);
        list_of(&y, rows[i].calls, rows[i].n, ", ", &mt, &a);
        list_of(&z, rows[i].calls, rows[i].n, ",", &mt, &a);
        cr_expect(message_equal(&x, &z, &mt), "row %zu", i);
        cr_expect_eq(message_hash(&x, &mt), message_hash(&z, &mt), "row %zu", i);
        cr_expect_eq(message_equal(&x, &y, &mt), rows[i].by_value, "row %zu", i);
        cr_expect_eq(message_equal(&y, &x, &mt), rows[i].by_value, "row %zu", i);
        cr_expect_eq(message_hash(&x, &mt) == message_hash(&y, &mt), rows[i].by_value, "row %zu",
                     i);
        cr_expect(is_echo(&x, &y, &mt), "row %zu", i);
        cr_expect_eq(message_echo_hash(&x), message_echo_hash(&y), "row %zu", i);
        arena_done(&a);
    }
}

TEST(message, the_difference_of_long_arguments_is_an_excerpt)
{
    const struct matcher mt = {.kind = MATCHER_CANONICAL, .ignore_cch = false};
    struct arena a = {0};
    struct message_diff d;
    struct message x, y;
    size_t before;

    list_of(&x, 3, 100000, ",", &mt, &a);
    list_of(&y, 3, 100000, ", ", &mt, &a);
    before = a.used_bytes;
    message_diff(&x, &y, &mt, &a, &d);
    cr_expect_str_eq(d.field, "tool_calls");
    cr_expect(str_starts(d.stored, STR("[1,1")));
    cr_expect(str_starts(d.request, STR("[1, 1")));
    cr_expect_lt(a.used_bytes - before, 1 << 16);
    arena_done(&a);
}

/* Long values are not read to their end to find the difference. In a list the first different item
 * is shown, if it and all earlier items are short. */
TEST(message, the_difference_of_long_values_is_looked_for_no_further_than_that)
{
    enum { LONG = 1 << 20 };

    static const struct {
        const char *stored, *request; /* after and instead of a long item */
        bool long_first;
        const char *want_stored, *want_request;
    } rows[] = {
        {"{\"name\":\"a\"}", "{\"name\":\"b\"}", false, "{\"name\":\"a\"}", "{\"name\":\"b\"}"},
        {"{\"name\":\"a\"}", "{\"name\":\"b\"}", true, "", ""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena a = {0};
        struct buf text = {0};
        const struct json *v[2];
        struct message_diff d;
        size_t before;

        for (size_t k = 0; k < 2; k++) {
            buf_clear(&text);
            buf_puts(&text, "[");
            if (!rows[i].long_first)
                buf_printf(&text, "%s,", k ? rows[i].request : rows[i].stored);
            buf_puts(&text, "{\"enum\":[1");
            for (size_t n = 0; n < LONG / 2; n++)
                buf_puts(&text, ",1");
            buf_puts(&text, "]}");
            if (rows[i].long_first)
                buf_printf(&text, ",%s", k ? rows[i].request : rows[i].stored);
            buf_puts(&text, "]");
            cr_assert_eq(json_parse(&a, arena_str(&a, buf_str(&text)), &v[k], NULL), 0);
        }
        before = a.used_bytes;
        message_value_diff("tools", v[0], v[1], &a, &d);
        cr_expect_str_eq(d.field, "tools");
        cr_expect(str_eq_c(d.stored, rows[i].want_stored), "row %zu", i);
        cr_expect(str_eq_c(d.request, rows[i].want_request), "row %zu", i);
        cr_expect_lt(a.used_bytes - before, 1 << 10, "row %zu", i);
        buf_done(&text);
        arena_done(&a);
    }
}

/* Content parts that are adjacent in memory are one text without a copy. */
TEST(message, parts_that_adjoin_are_not_copied)
{
    const struct matcher mt = {.kind = MATCHER_CANONICAL, .ignore_cch = false};
    static char all[200000];
    struct json_member of[3][2];
    struct json items[3], list = {.kind = JSON_ARRAY, .n = 3, .items = items};
    struct json_member content = {json_make_string(STR("content")), list};
    struct json m = {.kind = JSON_OBJECT, .n = 1, .members = &content};

    memset(all, 'x', sizeof(all));
    for (size_t i = 0; i < 3; i++) {
        of[i][0] =
            (struct json_member){json_make_string(STR("type")), json_make_string(STR("text"))};
        of[i][1] = (struct json_member){
            json_make_string(STR("text")),
            json_make_string(str_of(all + i * 1000, i < 2 ? 1000 : sizeof(all) - 2000))};
        items[i] = (struct json){.kind = JSON_OBJECT, .n = 2, .members = of[i]};
    }
    for (int apart = 0; apart < 2; apart++) {
        struct arena a = {0};
        struct message x;

        if (apart)
            of[1][1].value = json_make_string(str_of(all, 1000));
        message_read(&x, &m, &mt, &a);
        cr_expect_eq(x.content.p == all, !apart);
        cr_expect(str_eq(x.content, str_of(all, sizeof(all))));
        arena_done(&a);
    }
}

TEST(message, cch_is_ignored_only_when_asked)
{
    static const char *const one = "{\"role\":\"system\",\"content\":\"v; cch=a1-_9; cch=x\"}";
    static const char *const two = "{\"role\":\"system\",\"content\":\"v; cch=zz; cch=q\"}";
    static const char *const none = "{\"role\":\"system\",\"content\":\"v; cch=zz; cch=\"}";
    static const char *const list = "{\"role\":\"system\",\"content\":[{\"type\":\"text\","
                                    "\"text\":\"cch=a1\"},{\"type\":\"file\"}]}";
    static const char *const other = "{\"role\":\"system\",\"content\":[{\"type\":\"text\","
                                     "\"text\":\"cch=b\"},{\"type\":\"file\"}]}";

    for (int on = 0; on < 4; on++) {
        struct matcher mt = {.kind = on & 2 ? MATCHER_STRICT : MATCHER_CANONICAL,
                             .ignore_cch = on & 1};
        struct arena a = {0};
        struct message x, y;

        read(&x, one, &mt, &a);
        read(&y, two, &mt, &a);
        cr_expect_eq(message_equal(&x, &y, &mt), (bool)(on & 1));
        cr_expect(str_eq_c(json_string(json_get(x.json, "content")), "v; cch=a1-_9; cch=x"));
        read(&y, none, &mt, &a);
        cr_expect_not(message_equal(&x, &y, &mt));
        read(&x, list, &mt, &a);
        read(&y, other, &mt, &a);
        cr_expect_eq(message_equal(&x, &y, &mt), (bool)(on & 1));
        cr_expect_eq(message_hash(&x, &mt) == message_hash(&y, &mt), (bool)(on & 1));
        arena_done(&a);
    }
}

TEST(message, the_difference_names_field_and_place)
{
    struct matcher mt = {.kind = MATCHER_CANONICAL, .ignore_cch = false};
    struct arena a = {0};
    struct message_diff d;
    struct message x, y;

    read(&x, "{\"role\":\"user\",\"content\":\"the same beginning of a long text, then left\"}",
         &mt, &a);
    read(&y, "{\"role\":\"user\",\"content\":\"the same beginning of a long text, then right\"}",
         &mt, &a);
    message_diff(&x, &y, &mt, &a, &d);
    cr_expect_str_eq(d.field, "content");
    cr_expect(str_ends(d.stored, STR("then left")));
    cr_expect(str_ends(d.request, STR("then right")));
    cr_expect_lt(d.stored.len, 40);
    arena_done(&a);
}

/* Sent back answers: which changes keep an echo, and which do not. */
TEST(message, an_echo_is_known_by_its_ids_or_its_words)
{
    static const struct {
        const char *own, *sent;
        bool echo;
    } rows[] = {
        {CALL("\"a\\n \\nb\"", "1", "{}"), CALL("\"a\\nb\"", "1", "{\\\"n\\\":2}"), true},
        {CALL("\"a\\n \\nb\"", "1", "{}"), CALL("\" a b\"", "2", "{}"), true},
        {CALL("\"a\"", "1", "{}"), CALL("null", "1", "{\\\"n\\\":2}"), true},
        {CALL("\"a\"", "1", "{}"), CALL("null", "2", "{}"), false},
        {CALL("\"a\"", "1", "{}"), CALL("\"a\"", "2", "{\\\"n\\\":2}"), false},
        {CALL("\"a\"", "1", "{}"), CALL("\"ab\"", "1", "{}"), false},
        {CALL("\"a\"", "1", "{}"), "{\"role\":\"assistant\",\"content\":\"a\"}", false},
        {"{\"role\":\"assistant\",\"content\":\" a b\"}",
         "{\"role\":\"assistant\",\"content\":\"a b\\n\"}", true},
        {"{\"role\":\"assistant\",\"content\":\"a b\"}",
         "{\"role\":\"assistant\",\"content\":\"a  b\"}", false},
        {"{\"role\":\"assistant\",\"content\":\"a\"}", "{\"role\":\"user\",\"content\":\"a \"}",
         false},
        {"{\"role\":\"assistant\",\"content\":\"a\"}",
         "{\"role\":\"assistant\",\"content\":\"<think>\\nb\\n</think>\\na\"}", true},
        {"{\"role\":\"assistant\",\"content\":\"a\"}",
         "{\"role\":\"assistant\",\"content\":\"<think>\\nb\\na\"}", false},
        {"{\"role\":\"assistant\",\"content\":\"\\n\"}",
         "{\"role\":\"assistant\",\"content\":\"(no content)\"}", true},
        {"{\"role\":\"assistant\",\"content\":\"a\"}",
         "{\"role\":\"assistant\",\"content\":\"(no content)\"}", false},
        {CALL("\"\",\"reasoning_content\":\"\\nb\\n\"", "1", "{}"), CALL("\"b\"", "1", "{}"), true},
        {CALL("\"a\",\"reasoning_content\":\"b\"", "1", "{}"), CALL("\"b\"", "1", "{}"), false},
        {CALL("\"\",\"reasoning_content\":\"b\"", "1", "{}"), CALL("\"b\"", "2", "{}"), false},
        {CALL("\"a\"", "1", "{}"), CALL_OF("invalid", "\"a\"", "1", "{\\\"n\\\":2}"), true},
        {CALL("\"a\"", "1", "{}"), CALL_OF("invalid", "null", "1", "{}"), true},
        {CALL("\"a\"", "1", "{}"), CALL_OF("invalid", "\"ab\"", "1", "{}"), false},
        {CALL("\"a\"", "1", "{}"), CALL_OF("invalid", "\"a\"", "2", "{}"), false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct matcher mt = {.kind = MATCHER_CANONICAL, .ignore_cch = false};
        struct arena a = {0};
        struct message stored, m;

        read(&stored, rows[i].own, &mt, &a);
        read(&m, rows[i].sent, &mt, &a);
        cr_expect_eq(is_echo(&stored, &m, &mt), rows[i].echo, "row %zu", i);
        if (rows[i].echo && !strstr(rows[i].sent, "invalid"))
            cr_expect_eq(message_echo_hash(&stored), message_echo_hash(&m), "row %zu", i);
        arena_done(&a);
    }
}

/* Makes a message whose content is a list: a picture, and a text of n bytes whose middle byte is
 * `middle`. */
static void long_list(struct message *m, size_t n, char middle, bool turned,
                      const struct matcher *mt, struct arena *a)
{
    struct buf b = {0};
    struct str text;

    for (size_t i = 0; i < n; i++)
        buf_add_c(&b, i == n / 2 ? middle : 'x');
    text = arena_str(a, buf_str(&b));
    buf_clear(&b);
    buf_puts(&b, "{\"role\":\"user\",\"content\":[{\"type\":\"image\"},{");
    if (turned)
        buf_printf(&b, "\"text\":\"%.*s\",\"type\":\"text\"", (int)n, text.p);
    else
        buf_printf(&b, "\"type\":\"text\",\"text\":\"%.*s\"", (int)n, text.p);
    buf_printf(&b, "}]}%c", 0);
    read(m, arena_cstr(a, buf_str(&b)), mt, a);
    buf_done(&b);
}

/* The brief hash of a long list reads only the ends of its texts; that of a short list reads all of
 * it. Equal lists have equal hashes, however they are written. */
TEST(message, the_brief_hash_of_a_list_is_brief)
{
    static const size_t lengths[] = {100, 8 << 10, 20 << 10, 1 << 20};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const struct matcher mt = {.kind = MATCHER_CANONICAL, .ignore_cch = false};
        struct arena a = {0};
        struct message x, y, z;
        bool is_long = lengths[i] > 16 << 10;

        long_list(&x, lengths[i], 'a', false, &mt, &a);
        long_list(&y, lengths[i], 'b', false, &mt, &a);
        long_list(&z, lengths[i], 'a', true, &mt, &a);
        cr_expect_not_null(x.list);
        cr_expect_eq(message_is_long(&x), is_long, "%zu", lengths[i]);
        cr_expect_eq(message_brief(&x, &mt) == message_brief(&y, &mt), is_long, "%zu", lengths[i]);
        cr_expect_neq(message_hash(&x, &mt), message_hash(&y, &mt), "%zu", lengths[i]);
        cr_expect(message_equal(&x, &z, &mt));
        cr_expect_eq(message_brief(&x, &mt), message_brief(&z, &mt), "%zu", lengths[i]);
        cr_expect_eq(message_hash(&x, &mt), message_hash(&z, &mt), "%zu", lengths[i]);
        arena_done(&a);
    }
}

/* The hash reads as much of a long name as of texts of other calls. */
TEST(message, the_echo_hash_looks_at_a_names_ends)
{
    const struct matcher mt = {.kind = MATCHER_CANONICAL, .ignore_cch = false};
    static char text[2][100000];
    struct arena a = {0};
    struct message m[2];

    for (int i = 0; i < 2; i++) {
        int n = snprintf(text[i], sizeof(text[i]),
                         "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"");

        memset(text[i] + n, 'x', 5000);
        text[i][n + 2500] = i ? 'a' : 'b';
        (void)snprintf(text[i] + n + 5000, 100, "\",\"arguments\":\"{}\"}}]}");
        read(&m[i], text[i], &mt, &a);
    }
    cr_expect_eq(message_echo_hash(&m[0]), message_echo_hash(&m[1]));
    cr_expect_not(is_echo(&m[0], &m[1], &mt));
    arena_done(&a);
}
