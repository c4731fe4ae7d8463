/*
 * The cases of tests/data/parsers (format: README.txt there), each fed whole, byte by byte and in
 * random pieces. The message must be the expected one each time. The texts of TEXT, REASONING and
 * SOURCE events together must be the input.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "file_text.h"
#include "testing.h"
#include "worker/text/parsers/parser.h"

#ifdef __SANITIZE_ADDRESS__
enum { CUTTINGS_PER_KIND = 300, SPLICES = 60 }; /* each takes ten times as long */
#else
enum { CUTTINGS_PER_KIND = 10000, SPLICES = 300 };
#endif
enum { CALLS_MAX = 16 };

struct seen {
    struct buf text, thought, source;
    struct buf name[CALLS_MAX], args[CALLS_MAX];
    bool ended[CALLS_MAX], broken[CALLS_MAX];
    int n_calls, warnings;
};

struct one_case {
    char label[300];
    struct parser_options o;
    struct str in;
    struct seen want;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct seen *s = ctx;

    if (ev->kind == PARSE_TEXT || ev->kind == PARSE_REASONING || ev->kind == PARSE_SOURCE)
        buf_add_str(&s->source, ev->text);
    if (ev->kind == PARSE_TEXT)
        buf_add_str(&s->text, ev->text);
    if (ev->kind == PARSE_REASONING)
        buf_add_str(&s->thought, ev->text);
    if (ev->kind == PARSE_WARNING)
        s->warnings++;
    if (ev->kind < PARSE_CALL_BEGIN || ev->kind > PARSE_CALL_END)
        return;
    cr_assert_lt(ev->call, CALLS_MAX);
    if (ev->kind == PARSE_CALL_BEGIN) {
        cr_assert_eq(ev->call, s->n_calls, "calls begin in order");
        cr_assert(ev->call == 0 || s->ended[ev->call - 1], "calls do not interleave");
        buf_add_str(&s->name[s->n_calls++], ev->text);
        return;
    }
    cr_assert_eq(ev->call, s->n_calls - 1);
    cr_assert_not(s->ended[ev->call]);
    if (ev->kind == PARSE_CALL_ARGS)
        buf_add_str(&s->args[ev->call], ev->text);
    else
        s->ended[ev->call] = true, s->broken[ev->call] = ev->broken;
}

static void seen_done(struct seen *s)
{
    buf_done(&s->text);
    buf_done(&s->thought);
    buf_done(&s->source);
    for (int i = 0; i < CALLS_MAX; i++) {
        buf_done(&s->name[i]);
        buf_done(&s->args[i]);
    }
    *s = (struct seen){0};
}

static uint32_t rng = 12345;

static uint32_t next_random(void)
{
    rng = rng * 1664525u + 1013904223u;
    return rng >> 8;
}

/* Runs a case. piece: 0 whole, 1 byte by byte, else random pieces up to that size. */
static void run(const struct one_case *c, size_t piece, struct seen *s)
{
    struct parser *p = parser_new(&c->o, (struct parse_sink){on_event, s});

    for (size_t at = 0; at < c->in.len;) {
        size_t n = !piece ? c->in.len : piece == 1 ? 1 : 1 + next_random() % piece;
        struct str part = str_sub(c->in, at, n);
        /* A heap copy of the exact size: ASan detects reads after its end. */
        char *copy = malloc(part.len);

        memcpy(copy, part.p, part.len);
        parser_feed(p, str_of(copy, part.len));
        free(copy);
        at += part.len;
    }
    parser_finish(p);
    parser_free(p);
}

static void expect_str(const struct one_case *c, const char *what, struct str got, struct str want)
{
    cr_assert(str_eq(got, want), "%s: %s\n got: %.*s\nwant: %.*s", c->label, what, (int)got.len,
              got.p, (int)want.len, want.p);
}

static void expect_same(const struct one_case *c, const struct seen *got, const struct seen *want)
{
    expect_str(c, "every byte", buf_str(&got->source), c->in);
    expect_str(c, "content", buf_str(&got->text), buf_str(&want->text));
    expect_str(c, "reasoning", buf_str(&got->thought), buf_str(&want->thought));
    cr_assert_eq(got->n_calls, want->n_calls, "%s: %d calls, not %d", c->label, got->n_calls,
                 want->n_calls);
    for (int i = 0; i < got->n_calls; i++) {
        expect_str(c, "name", buf_str(&got->name[i]), buf_str(&want->name[i]));
        expect_str(c, "arguments", buf_str(&got->args[i]), buf_str(&want->args[i]));
        cr_assert(got->ended[i], "%s: call %d never ends", c->label, i);
        cr_assert_eq(got->broken[i], want->broken[i], "%s: broken %d", c->label, i);
    }
    cr_assert_eq(got->warnings > 0, want->warnings > 0, "%s: %d warnings", c->label, got->warnings);
}

static void check_cut(const struct one_case *c, size_t piece, const struct seen *want)
{
    struct seen got = {0};

    run(c, piece, &got);
    expect_same(c, &got, want);
    seen_done(&got);
}

/* A different hold_bytes may give a different message, but the same one for all cuts. */
static void check_hold(struct one_case *c, size_t hold)
{
    size_t was = c->o.hold_bytes;
    struct seen want = {0};

    c->o.hold_bytes = hold;
    run(c, 0, &want);
    expect_str(c, "every byte", buf_str(&want.source), c->in);
    check_cut(c, 1, &want);
    for (size_t i = 0; i < 20; i++)
        check_cut(c, 2 + next_random() % 40, &want);
    seen_done(&want);
    c->o.hold_bytes = was;
}

static void check_case(struct one_case *c, size_t cuttings)
{
    check_cut(c, 0, &c->want);
    check_cut(c, 1, &c->want);
    for (size_t i = 0; i < cuttings; i++)
        check_cut(c, 2 + next_random() % 40, &c->want);
    check_hold(c, 0);
    check_hold(c, 24);
    check_hold(c, PARSER_HOLD_BYTES);
    check_hold(c, SIZE_MAX);
}

/* --- reading the files --- */

static const struct json *tools;

static void read_kind_line(struct one_case *c, struct str line)
{
    struct str hold = STR("hold=");

    c->o.hold_bytes = SIZE_MAX;
    c->o.tools = tools;
    cr_assert_eq(tool_kind_named(str_cut(&line, ' '), &c->o.tool), 0, "%s", c->label);
    cr_assert_eq(reasoning_kind_named(str_cut(&line, ' '), &c->o.reasoning), 0, "%s", c->label);
    while (line.len) {
        struct str word = str_cut(&line, ' ');

        if (str_eq_c(word, "open"))
            c->o.thought = THOUGHT_OPEN;
        else if (str_eq_c(word, "anytool"))
            c->o.tools = NULL;
        else if (str_starts(word, hold))
            c->o.hold_bytes = (size_t)atoi(word.p + hold.len);
        else
            cr_assert(false, "%s: %.*s", c->label, (int)word.len, word.p);
    }
}

static void add_quoted(struct buf *b, struct str quoted)
{
    struct arena a = {0};
    const struct json *v;
    struct err e = {0};

    cr_assert_eq(json_parse(&a, quoted, &v, &e), 0, "%.*s: %s", (int)quoted.len, quoted.p, e.text);
    buf_add_str(b, json_string(v));
    arena_done(&a);
}

static void read_want_line(struct one_case *c, struct str line)
{
    struct seen *w = &c->want;
    struct str tag = str_cut(&line, ' ');

    if (str_eq_c(tag, "T")) {
        add_quoted(&w->text, line);
    } else if (str_eq_c(tag, "R")) {
        add_quoted(&w->thought, line);
    } else if (str_eq_c(tag, "W")) {
        w->warnings = 1;
    } else if (str_eq_c(tag, "C") || str_eq_c(tag, "B")) {
        w->broken[w->n_calls] = str_eq_c(tag, "B");
        buf_add_str(&w->name[w->n_calls], str_cut(&line, ' '));
        if (line.len && line.p[0] == '"')
            add_quoted(&w->args[w->n_calls++], line);
        else
            buf_add_str(&w->args[w->n_calls++], line);
    } else {
        cr_assert_eq(tag.len, 0, "%s: what is %.*s", c->label, (int)tag.len, tag.p);
    }
}

static int count_cases(struct str text)
{
    int n = 0;

    while (text.len)
        n += str_starts(str_cut(&text, '\n'), STR("=== "));
    return n;
}

static void read_case(struct one_case *c, const char *file, struct str *text)
{
    struct str in_begins = STR("--- in\n");
    struct str line = str_cut(text, '\n');
    size_t out;

    snprintf(c->label, sizeof(c->label), "%s: %.*s", file, (int)line.len, line.p);
    cr_assert(str_starts(line, STR("=== ")), "%s", c->label);
    read_kind_line(c, str_cut(text, '\n'));
    cr_assert(str_starts(*text, in_begins), "%s: no --- in", c->label);
    *text = str_sub(*text, in_begins.len, text->len);
    out = str_find(*text, STR("\n--- out\n"), 0);
    cr_assert_neq(out, SIZE_MAX, "%s: no --- out", c->label);
    c->in = str_sub(*text, 0, out);
    *text = str_sub(*text, out + strlen("\n--- out\n"), text->len);
    while (text->len && !str_starts(*text, STR("=== ")))
        read_want_line(c, str_cut(text, '\n'));
}

/* Feeds nonsense spliced from a file's text. Only checks that cuts do not matter and that nothing
 * is lost. */
static void check_splices(const char *name, struct str text, const struct one_case *like)
{
    struct one_case c = {.o = like->o};
    struct buf b = {0};

    snprintf(c.label, sizeof(c.label), "%s: splice", name);
    for (int i = 0; i < SPLICES; i++) {
        buf_clear(&b);
        for (int k = 0; k < 4; k++)
            buf_add_str(&b, str_sub(text, next_random() % text.len, next_random() % 120));
        c.in = buf_str(&b);
        check_hold(&c, 0);
        check_hold(&c, 40);
        check_hold(&c, SIZE_MAX);
    }
    buf_done(&b);
}

static void check_file(const char *name, struct str text)
{
    struct str all = text;
    int n = count_cases(text);

    cr_assert_gt(n, 0, "%s has no cases", name);
    for (int i = 0; i < n; i++) {
        struct one_case c = {0};

        read_case(&c, name, &text);
        check_case(&c, (size_t)(CUTTINGS_PER_KIND / n + 1));
        if (i == 0 || i == n - 1)
            check_splices(name, all, &c);
        seen_done(&c.want);
    }
}

/* One test for each file, so that Criterion runs them in parallel. */
static void run_file(const char *name)
{
    struct arena a = {0};
    char path[512];
    struct str text, tools_text;

    tools_text = file_text(&a, RG_TEST_DATA "/parsers/tools.json");
    cr_assert_eq(json_parse(&a, tools_text, &tools, NULL), 0);
    snprintf(path, sizeof(path), "%s/parsers/%s.txt", RG_TEST_DATA, name);
    text = file_text(&a, path);
    check_file(name, text);
    arena_done(&a);
}

#define FILE_TEST(name)  \
    TEST(parsers, name)  \
    {                    \
        run_file(#name); \
    }

FILE_TEST(none)
FILE_TEST(hermes)
FILE_TEST(qwen3_coder)
FILE_TEST(llama3_json)
FILE_TEST(pythonic)
FILE_TEST(mistral)
FILE_TEST(deepseek_v3)
FILE_TEST(deepseek_v31)
FILE_TEST(deepseek_v32)
FILE_TEST(glm)
FILE_TEST(kimi_k2)
FILE_TEST(gpt_oss)
FILE_TEST(minimax_m2)
FILE_TEST(json_families)
FILE_TEST(raw_families)
FILE_TEST(tag_families)
FILE_TEST(nested)

/* A new file of cases must have a FILE_TEST. */
TEST(parsers, every_file_is_run)
{
    DIR *d = opendir(RG_TEST_DATA "/parsers");
    int n = 0;

    cr_assert_not_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += str_ends(str_cstr(e->d_name), STR(".txt")) != 0;
    closedir(d);
    cr_assert_eq(n, 17);
}
