/*
 * The chosen parser reads back a template's own tool calls. Tests small templates of every family
 * (tests/data/parsers/templates), also with two parallel calls and a call without arguments, and
 * the real templates of the shared data if it is present.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "file_text.h"
#include "talk.h"
#include "testing.h"
#include "worker/text/model/model_internal.h"
#include "worker/text/model/round_trip.h"
#include "worker/text/parsers/parser.h"

enum { CALLS_MAX = 4, TEMPLATES_MAX = 400 };

struct seen {
    struct buf text, thought, name[CALLS_MAX], args[CALLS_MAX];
    size_t n;
    bool broken;
};

static void on_event(void *ctx, const struct parse_event *ev)
{
    struct seen *s = ctx;

    if (ev->kind == PARSE_TEXT)
        buf_add_str(&s->text, ev->text);
    if (ev->kind == PARSE_REASONING)
        buf_add_str(&s->thought, ev->text);
    s->broken = s->broken || ev->broken;
    if (ev->kind == PARSE_CALL_BEGIN && s->n < CALLS_MAX)
        buf_add_str(&s->name[s->n], ev->text);
    if (ev->kind == PARSE_CALL_BEGIN)
        s->n++;
    if (ev->kind == PARSE_CALL_ARGS && s->n <= CALLS_MAX)
        buf_add_str(&s->args[s->n - 1], ev->text);
}

static void seen_done(struct seen *s)
{
    buf_done(&s->text);
    buf_done(&s->thought);
    for (int i = 0; i < CALLS_MAX; i++) {
        buf_done(&s->name[i]);
        buf_done(&s->args[i]);
    }
}

static const struct json *parsed(struct arena *a, const char *text)
{
    const struct json *v = NULL;
    struct err e = {0};

    cr_assert_eq(json_parse(a, str_cstr(text), &v, &e), 0, "%s: %s", e.text, text);
    return v;
}

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":"
    "{\"type\":\"integer\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},"
    "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"list_files\","
    "\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";

/* name, arguments, ...; NULL ends the list */
static const char *const talks[][7] = {
    {"get_weather", "{\"city\": \"Paris\", \"days\": 3}"},
    {"get_weather", "{\"city\": \"Paris\"}", "get_weather",
     "{\"city\": \"New York\", \"days\": 2}"},
    {"list_files", "{}"},
    {"get_weather", "{\"city\": \"a <b>\", \"tags\": [\"x\", \"y z\"]}", "list_files", "{}"},
};

static const struct json *messages_of(struct arena *a, const char *const *calls,
                                      const char *thought)
{
    struct buf b = {0};
    struct json_out o = json_out_to(&b);
    const struct json *v;

    buf_puts(&b,
             "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\",");
    if (thought)
        buf_printf(&b, "\"reasoning_content\":\"%s\",", thought);
    buf_puts(&b, "\"tool_calls\":");
    json_out_arr(&o);
    for (int i = 0; calls[i]; i += 2) {
        char id[32];

        snprintf(id, sizeof(id), "call0000%d", i);
        json_out_obj(&o);
        json_out_key(&o, "id");
        json_out_cstr(&o, id);
        json_out_key(&o, "type");
        json_out_cstr(&o, "function");
        json_out_key(&o, "function");
        json_out_obj(&o);
        json_out_key(&o, "name");
        json_out_cstr(&o, calls[i]);
        json_out_key(&o, "arguments");
        json_out_cstr(&o, calls[i + 1]);
        json_out_end_obj(&o);
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    buf_puts(&b, "}]");
    v = parsed(a, arena_cstr(a, buf_str(&b)));
    buf_done(&b);
    return v;
}

/* Reads an answer. The generation prompt of our templates is only the start of an answer. */
static void read_answer(const struct model *m, struct arena *a, const char *const *calls,
                        const char *thought, struct seen *s)
{
    const struct json *tools = parsed(a, tools_text);
    const struct json *messages = messages_of(a, calls, thought);
    struct rendering r = {.messages = messages->items, .n = 1, .tools = tools};
    struct parser_options o = {.hold_bytes = SIZE_MAX, .tools = tools};
    struct buf before = {0}, whole = {0};
    struct err e = {0};
    struct parser *p;
    struct str body;

    r.generation_prompt = true;
    cr_assert_eq(model_text(m, a, &r, &before, &e), 0, "%s", e.text);
    r.generation_prompt = false;
    r.n = 2;
    cr_assert_eq(model_text(m, a, &r, &whole, &e), 0, "%s", e.text);
    cr_assert(str_starts(buf_str(&whole), buf_str(&before)), "%.*s", (int)whole.len, whole.p);
    cr_assert_eq(tool_kind_named(str_cstr(model_info(m)->tool_parser), &o.tool), 0);
    cr_assert_eq(reasoning_kind_named(str_cstr(model_info(m)->reasoning_parser), &o.reasoning), 0);
    o.thought = parser_thought(o.reasoning, buf_str(&before));
    body = str_sub(buf_str(&whole), before.len, whole.len);
    cr_assert(str_ends(body, STR("<|turn_end|>")));
    body.len -= strlen("<|turn_end|>");
    p = parser_new(&o, (struct parse_sink){on_event, s});
    parser_feed(p, body);
    parser_finish(p);
    parser_free(p);
    buf_done(&before);
    buf_done(&whole);
}

static void expect_calls(const char *name, const struct seen *s, const char *const *calls)
{
    struct arena a = {0};
    size_t n = 0;

    for (; calls[2 * n]; n++) {
        cr_assert_gt(s->n, n, "%s: %zu calls", name, s->n);
        cr_assert(str_eq_c(buf_str(&s->name[n]), calls[2 * n]), "%s", name);
        cr_assert(json_equal(parsed(&a, arena_cstr(&a, buf_str(&s->args[n]))),
                             parsed(&a, calls[2 * n + 1])),
                  "%s: %.*s", name, (int)s->args[n].len, s->args[n].p);
    }
    cr_assert_eq(s->n, n, "%s: %zu calls", name, s->n);
    cr_assert_not(s->broken);
    cr_assert_eq(str_trim(buf_str(&s->text)).len, 0, "%s: %.*s", name, (int)s->text.len, s->text.p);
    arena_done(&a);
}

static struct model *load(struct arena *a, const char *path, const char *tool, const char **dir)
{
    struct model *m = NULL;
    struct err e = {0};

    *dir = talk_folder(a, file_text(a, path),
                       parsed(a, "{\"bos_token\":\"<s>\",\"eos_token\":\"<|turn_end|>\"}"));
    if (model_load(&(struct model_options){.dir = *dir, .tool_parser = tool}, &m, &e) != 0)
        m = NULL;
    return m;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the .jinja files of a folder, sorted. Returns 0 if the folder is absent. */
static size_t templates_of(struct arena *a, const char *folder, const char **paths)
{
    DIR *d = opendir(folder);
    size_t n = 0;

    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d)) && n < TEMPLATES_MAX;)
        if (str_ends(str_cstr(e->d_name), STR(".jinja")))
            paths[n++] = arena_cstr(a, arena_printf(a, "%s/%s", folder, e->d_name));
    closedir(d);
    qsort(paths, n, sizeof(*paths), by_name);
    return n;
}

/* Reports whether the family's templates look like another family's, so users must name the parser.
 */
static bool is_alike(struct str name)
{
    return str_eq_c(name, "glm53_flash") || str_eq_c(name, "hyperclovax_seed_think");
}

TEST(round_trip, every_familys_own_calls_are_read_back)
{
    static const char *paths[TEMPLATES_MAX];
    bool met[TOOL_KIND_COUNT] = {0};
    struct arena all = {0};
    size_t n = templates_of(&all, RG_TEST_DATA "/parsers/templates", paths);

    for (size_t i = 0; i < n; i++) {
        struct arena a = {0};
        const char *dir;
        struct str file =
            str_sub(str_cstr(paths[i]), strlen(RG_TEST_DATA "/parsers/templates/"), 99);
        enum tool_kind kind = TOOL_NONE, want = TOOL_NONE;
        struct model *m;

        file.len -= strlen(".jinja");
        m = load(&a, paths[i], is_alike(file) ? arena_cstr(&a, file) : NULL, &dir);
        cr_assert_not_null(m, "%s", paths[i]);
        cr_assert_eq(tool_kind_named(file, &want), 0, "%s", paths[i]);
        cr_assert_eq(tool_kind_named(str_cstr(model_info(m)->tool_parser), &kind), 0);
        cr_assert_eq(kind, want, "%s: %s", paths[i], model_info(m)->tool_parser);
        met[kind] = true;
        for (size_t k = 0; k < ARRAY_LEN(talks); k++) {
            struct seen s = {.n = 0};

            read_answer(m, &a, talks[k], NULL, &s);
            expect_calls(paths[i], &s, talks[k]);
            seen_done(&s);
        }
        if (str_find(file_text(&a, paths[i]), STR("reasoning_content"), 0) != SIZE_MAX) {
            struct seen s = {.n = 0};

            read_answer(m, &a, talks[0], "Look it up.", &s);
            expect_calls(paths[i], &s, talks[0]);
            cr_assert(str_eq_c(str_trim(buf_str(&s.thought)), "Look it up."), "%s: %s: %.*s",
                      paths[i], model_info(m)->reasoning_parser, (int)s.thought.len, s.thought.p);
            seen_done(&s);
        }
        model_free(m);
        talk_remove(dir);
        arena_done(&a);
    }
    for (int kind = TOOL_NONE + 1; kind < TOOL_KIND_COUNT; kind++)
        cr_assert(met[kind], "no template of %s", tool_kind_name((enum tool_kind)kind));
    arena_done(&all);
}

/* Real templates: those that are not read back are known (docs/models.md explains them). */
TEST(round_trip, real_templates)
{
    static const char *const lost[] = {"vllm.llama3.2_pythonic.jinja", "vllm.toolace.jinja"};
    static const char *paths[TEMPLATES_MAX];
    struct arena all = {0};
    size_t n = templates_of(&all, RG_SHARED "/data/templates", paths), exact = 0, n_lost = 0;

    if (n == 0)
        cr_skip_test("no " RG_SHARED "/data/templates");
    for (size_t i = 0; i < n; i++) {
        struct arena a = {0};
        const char *dir;
        struct model *m = load(&a, paths[i], NULL, &dir);
        enum reasoning_kind reasoning = REASONING_NONE;
        enum tool_kind tool = TOOL_NONE;
        enum round_trip r = ROUND_TRIP_UNSEEN;
        bool known = false;

        if (m) {
            struct model_scratch *s = model_scratch_new(m);

            (void)tool_kind_named(str_cstr(model_info(m)->tool_parser), &tool);
            (void)reasoning_kind_named(str_cstr(model_info(m)->reasoning_parser), &reasoning);
            r = round_trip(m, s, &(struct round_trip_plan){tool, reasoning, 1}, NULL);
            model_scratch_free(s);
        }
        for (size_t k = 0; k < ARRAY_LEN(lost); k++)
            known = known || str_ends(str_cstr(paths[i]), str_cstr(lost[k]));
        exact += r == ROUND_TRIP_EXACT;
        n_lost += r == ROUND_TRIP_LOST || r == ROUND_TRIP_DIFFERS;
        cr_expect((r != ROUND_TRIP_LOST && r != ROUND_TRIP_DIFFERS) || known,
                  "%s: not read back by %s", paths[i], tool_kind_name(tool));
        model_free(m);
        talk_remove(dir);
        arena_done(&a);
    }
    cr_assert_leq(n_lost, ARRAY_LEN(lost));
    cr_assert_gt(exact, 70, "%zu templates are read back", exact);
    arena_done(&all);
}
