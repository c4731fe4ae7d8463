/* fuzz: rg_parsers */
#include "common/base/check.h"
#include "worker/text/parsers/gbnf_sample.h"
#include "worker/text/parsers/tool_grammar.h"

/*
 * Byte 0 tool kind, 1 reasoning kind, 2 flags; the rest is a JSON Schema: it becomes a grammar that
 * can be read, and a sentence of it, when it has a short one. Other bytes are read as a grammar.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void force(const struct tool_grammar *like, const struct json *schema)
{
    struct json function[2], tool[1], list;
    struct json_member members[2], inner;
    struct tool_grammar f = *like;
    struct buf grammar = {0}, text = {0};
    struct err e = {0};

    members[0] = (struct json_member){json_make_string(STR("name")), json_make_string(STR("f"))};
    members[1] = (struct json_member){json_make_string(STR("parameters")), *schema};
    function[0] = (struct json){.kind = JSON_OBJECT, .n = 2, .members = members};
    inner = (struct json_member){json_make_string(STR("function")), function[0]};
    tool[0] = (struct json){.kind = JSON_OBJECT, .n = 1, .members = &inner};
    list = (struct json){.kind = JSON_ARRAY, .n = 1, .items = tool};
    f.tools = f.json && !f.required ? NULL : &list;
    f.schema = schema;
    if (tool_grammar_needed(&f) && tool_grammar_write(&f, like->single, &grammar, &e) == 0 &&
        gbnf_sample(buf_str(&grammar), &text, &e) < 0)
        CHECK(strstr(e.text, "no short sentence"));
    buf_done(&grammar);
    buf_done(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a = {0};
    struct buf text = {0};
    struct err e = {0};
    const struct json *schema;
    struct tool_grammar f = {0};
    struct str rest;

    if (size < 3)
        return 0;
    f.tool = (enum tool_kind)(data[0] % TOOL_KIND_COUNT);
    f.reasoning = (enum reasoning_kind)(data[1] % REASONING_KIND_COUNT);
    f.thought = (enum thought_state)(data[2] % 3);
    f.required = data[2] & 4;
    f.single = data[2] & 8;
    f.json = data[2] & 16;
    rest = str_of((const char *)data + 3, size - 3);
    if (json_parse(&a, rest, &schema, &e) == 0)
        force(&f, schema);
    else
        (void)gbnf_sample(rest, &text, &e);
    buf_done(&text);
    arena_done(&a);
    return 0;
}
