#include "worker/parsers/force.h"

#include "common/base/attrs.h"

/* head NAME middle ARGUMENTS tail; the trigger is what every head begins with. */
static const struct form {
    enum tool_kind kind;
    const char *trigger, *head, *middle, *tail;
} forms[] = {
    {TOOL_HERMES, "<tool_call>", "<tool_call>\n{\"name\": \"",
     "\", \"arguments\": ", "}\n</tool_call>"},
    {TOOL_LLAMA3_JSON, "{\"name\": \"", "{\"name\": \"", "\", \"parameters\": ", "}"},
    {TOOL_DEEPSEEK_V3, "<｜tool▁calls▁begin｜>",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
     "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {TOOL_DEEPSEEK_V31, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
     "<｜tool▁sep｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {TOOL_KIMI_K2, "<|tool_calls_section_begin|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>",
     "<|tool_call_end|><|tool_calls_section_end|>"},
};

static void write_tag(struct json_out *o, const struct form *f, const struct json *function)
{
    const struct json *schema = json_get(function, "parameters");
    struct buf begin = {0};

    buf_puts(&begin, f->head);
    buf_add_str(&begin, json_string(json_get(function, "name")));
    buf_puts(&begin, f->middle);
    json_out_obj(o);
    json_out_key(o, "type");
    json_out_cstr(o, "tag");
    json_out_key(o, "begin");
    json_out_str(o, buf_str(&begin));
    json_out_key(o, "content");
    json_out_obj(o);
    json_out_key(o, "type");
    json_out_cstr(o, "json_schema");
    json_out_key(o, "json_schema");
    if (json_is(schema, JSON_OBJECT))
        json_out_value(o, schema);
    else
        json_out_raw(o, STR("{\"type\":\"object\"}"));
    json_out_end_obj(o);
    json_out_key(o, "end");
    json_out_cstr(o, f->tail);
    json_out_end_obj(o);
    buf_done(&begin);
}

static void write_tags(struct json_out *o, const struct form *f, const struct json *tools,
                       struct str only)
{
    json_out_arr(o);
    for (size_t i = 0; json_at(tools, i); i++) {
        const struct json *function = json_get(json_at(tools, i), "function");

        if (!only.p || str_eq(json_string(json_get(function, "name")), only))
            write_tag(o, f, function);
    }
    json_out_end_arr(o);
}

static void write_forced(struct json_out *o, const struct form *f, const struct json *tools,
                         struct str only, bool parallel)
{
    json_out_obj(o);
    json_out_key(o, "type");
    json_out_cstr(o, "structural_tag");
    json_out_key(o, "format");
    json_out_obj(o);
    json_out_key(o, "type");
    json_out_cstr(o, "triggered_tags");
    json_out_key(o, "triggers");
    json_out_arr(o);
    json_out_cstr(o, f->trigger);
    json_out_end_arr(o);
    json_out_key(o, "tags");
    write_tags(o, f, tools, only);
    json_out_key(o, "at_least_one");
    json_out_bool(o, true);
    json_out_key(o, "stop_after_first");
    json_out_bool(o, !parallel);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

bool parser_force(enum tool_kind kind, const struct json *tools, struct str only, bool parallel,
                  struct buf *out)
{
    struct json_out o = json_out_to(out);

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (forms[i].kind == kind) {
            write_forced(&o, &forms[i], tools, only, parallel);
            return true;
        }
    }
    return false;
}
