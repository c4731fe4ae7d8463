#include "common/base/arena.h"
#include "testing.h"
#include "worker/parsers/force.h"
#include "worker/parsers/parser.h"

static void ignore(void *ctx, const struct parse_event *ev)
{
    *(int *)ctx += ev->kind == PARSE_CALL_END && !ev->broken;
}

/* What the constraint allows, the parser of the same kind reads as a call. */
TEST(force, every_form_is_what_its_parser_reads)
{
    struct arena a = {0};
    const struct json *tools;
    int n_forms = 0;

    cr_assert_eq(json_parse(&a,
                            STR("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":"
                                "\"function\",\"function\":{\"name\":\"g\",\"parameters\":{"
                                "\"type\":\"object\"}}}]"),
                            &tools, NULL),
                 0);
    for (int kind = 0; kind < TOOL_KIND_COUNT; kind++) {
        struct buf text = {0};
        int calls = 0;
        struct parser_options o = {
            .tool = (enum tool_kind)kind, .hold_bytes = SIZE_MAX, .tools = tools};
        const struct json *tag;

        if (!parser_force(o.tool, tools, STR("g"), true, &text))
            continue;
        n_forms++;
        cr_assert_eq(json_parse(&a, arena_str(&a, buf_str(&text)), &tag, NULL), 0);
        tag = json_get(json_get(tag, "format"), "tags");
        cr_assert_eq(tag->n, 1, "only g");
        tag = json_at(tag, 0);
        buf_clear(&text);
        buf_add_str(&text, json_string(json_get(tag, "begin")));
        buf_puts(&text, "{}");
        buf_add_str(&text, json_string(json_get(tag, "end")));
        struct parser *p = parser_new(&o, (struct parse_sink){ignore, &calls});

        parser_feed(p, buf_str(&text));
        parser_finish(p);
        parser_free(p);
        cr_assert_eq(calls, 1, "%s", tool_kind_name(o.tool));
        buf_done(&text);
    }
    cr_assert_geq(n_forms, 5);
    arena_done(&a);
}
