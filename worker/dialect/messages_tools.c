/*
 * Reads tools of Anthropic's API: the list in the request, the choice among them, and blocks that
 * name tools or sources (messages.h).
 *
 * A tool with defer_loading is hidden: it can be called, but its definition is in the prompt only
 * where a tool_reference names it. All tools are shown if the vendor's server would search them, or
 * if no tool would be shown.
 */

#include "worker/dialect/messages.h"

#include "common/codec/json_build.h"
#include "worker/text/request/chat_request.h"

/* --- the list of tools --- */

/* Adds one tool of kind custom, the default. Other kinds are the vendor's own and are skipped. */
static int read_anthropic_tool(const struct json *v, uint32_t i, struct tool_list *tools,
                               struct err *e)
{
    struct str type = json_string(json_get(v, "type"));
    struct str name = json_string(json_get(v, "name"));
    const struct json *schema = json_get(v, "input_schema");

    if (!json_is(v, JSON_OBJECT))
        return field_fail(e, "must be an object", "tools[%u]", i);
    if (!json_is_null(json_get(v, "type")) && !type.p)
        return field_fail(e, "must be a string", "tools[%u].type", i);
    if (type.p && !str_eq_c(type, "custom"))
        return 0;
    if (!name.len)
        return field_fail(e, "must be a non-empty string", "tools[%u].name", i);
    if (!json_is(schema, JSON_OBJECT))
        return field_fail(e, "must be an object", "tools[%u].input_schema", i);
    tools_add(tools, name, json_get(v, "description"), schema);
    return 0;
}

/* Reports whether the vendor's server would search the tools. The gateway has no such search, so no
 * tool may be hidden. */
static bool is_searched_elsewhere(const struct json *list)
{
    for (size_t i = 0; json_at(list, i); i++)
        if (str_starts(json_string(json_get(json_at(list, i), "type")), STR("tool_search_tool")))
            return true;
    return false;
}

/* Reads the tools into shown and hidden ones. */
int anthropic_read_tools(struct arena *a, const struct json *body, struct anthropic_tools *ret,
                         struct err *e)
{
    const struct json *list;
    bool show_all;

    *ret = (struct anthropic_tools){tool_list_in(a), tool_list_in(a)};
    if (field_kind(body, "tools", JSON_ARRAY, &list, e))
        return -1;
    show_all = is_searched_elsewhere(list);
    for (uint32_t i = 0; list && i < list->n; i++) {
        bool hide = !show_all && json_is_true(json_get(&list->items[i], "defer_loading"));

        if (read_anthropic_tool(&list->items[i], i, hide ? &ret->hidden : &ret->shown, e))
            return -1;
    }
    if (!ret->shown.all.n) { /* no shown tool could search the hidden ones */
        ret->shown = ret->hidden;
        ret->hidden = tool_list_in(a);
    }
    return 0;
}

/* Lists all callable tools: the shown ones, then the hidden ones. */
const struct json *anthropic_all_tools(struct arena *a, const struct anthropic_tools *tools)
{
    const struct json *const both[] = {&tools->shown.all, &tools->hidden.all};
    struct json all = json_empty(JSON_ARRAY);

    for (size_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < both[k]->n; i++)
            json_push(a, &all, both[k]->items[i]);
    return json_keep(a, all);
}

/* Reads tool_choice, an object, with disable_parallel_tool_use in it. */
int anthropic_read_choice(const struct json *body, struct chat_request *req, struct err *e)
{
    const struct json *v;
    bool one_only = false;
    struct err inner = {0};
    struct str type;

    if (field_kind(body, "tool_choice", JSON_OBJECT, &v, e))
        return -1;
    if (!v)
        return 0;
    type = json_string(json_get(v, "type"));
    if (field_bool(v, "disable_parallel_tool_use", &one_only, &inner))
        return err_field(e, "tool_choice.disable_parallel_tool_use", "tool_choice.%s", inner.text);
    req->parallel_tool_calls = !one_only;
    if (str_eq_c(type, "auto"))
        return 0;
    if (str_eq_c(type, "none")) {
        req->tool_choice = CHOICE_NONE;
    } else if (str_eq_c(type, "any")) {
        req->tool_choice = CHOICE_REQUIRED;
    } else if (str_eq_c(type, "tool")) {
        req->tool_choice = CHOICE_FUNCTION;
        req->tool_function = json_string(json_get(v, "name"));
        if (!req->tool_function.len)
            return err_field(e, "tool_choice.name", "tool_choice.name must be a non-empty string");
    } else {
        return err_field(e, "tool_choice.type", "tool_choice.type must be auto, any, tool or none");
    }
    return request_choice_fits(req, "tool_choice", e);
}

/* --- blocks that become text --- */

/* Writes a tool's definition as templates print it, or only its name if the tool is unknown. */
static void put_tool(struct buf *b, const struct anthropic_tools *tools, struct str name)
{
    const struct json *tool = tools_get(&tools->hidden, name);

    if (!tool)
        tool = tools_get(&tools->shown, name);
    if (tool)
        json_write(b, tool);
    else
        buf_add_str(b, name);
}

static struct str reference_name(const struct json *reference)
{
    struct str name = json_string(json_get(reference, "tool_name"));

    return name.p ? name : json_string(json_get(reference, "name"));
}

/* Writes a tool_addition block. A definition adds a hidden tool; a bare name refers to one. Returns
 * false if it has no name. */
static bool put_added(struct buf *b, const struct json *block, struct anthropic_tools *tools)
{
    const struct json *v = json_get(block, "tool");
    const struct json *definition = json_get(v, "definition");
    struct str name = definition ? json_string(json_get(definition, "name")) : reference_name(v);

    if (!name.len)
        return false;
    if (definition)
        tools_add(&tools->hidden, name, json_get(definition, "description"),
                  json_get(definition, "input_schema"));
    buf_puts(b, "New tool: ");
    put_tool(b, tools, name);
    return true;
}

/* Writes a string, or the texts of a list. Returns false if an item has no text. */
static bool put_texts(struct buf *b, const struct json *content)
{
    if (json_is(content, JSON_STRING))
        buf_add_str(b, json_string(content));
    for (size_t i = 0; json_at(content, i); i++) {
        struct str text = json_string(json_get(json_at(content, i), "text"));

        if (!text.p)
            return false;
        buf_add_str(b, text);
    }
    return true;
}

/* Writes a source: its title on a line of its own, then its texts. Returns false if it is not
 * text. */
static bool put_source(struct buf *b, const struct json *block, const struct json *content)
{
    struct str title = json_string(json_get(block, "title"));

    if (json_is_null(content))
        return false;
    if (title.len) {
        buf_add_str(b, title);
        buf_add_c(b, '\n');
    }
    return put_texts(b, content);
}

/* Writes the text that replaces the block. Returns false if the block is not replaced. */
static bool put_block(struct buf *b, const struct json *block, struct anthropic_tools *tools)
{
    struct str type = json_string(json_get(block, "type"));
    const struct json *source = json_get(block, "source");
    struct str form = json_string(json_get(source, "type"));

    if (str_eq_c(type, "tool_reference") && reference_name(block).len) {
        put_tool(b, tools, reference_name(block));
        return true;
    }
    if (str_eq_c(type, "tool_addition"))
        return put_added(b, block, tools);
    if (str_eq_c(type, "tool_removal")) {
        buf_puts(b, "Removed tool: ");
        buf_add_str(b, reference_name(json_get(block, "tool")));
        return true;
    }
    if (str_eq_c(type, "search_result"))
        return put_source(b, block, json_get(block, "content"));
    if (str_eq_c(type, "document") && str_eq_c(form, "text"))
        return put_source(b, block, json_get(source, "data"));
    return str_eq_c(type, "document") && str_eq_c(form, "content") &&
           put_source(b, block, json_get(source, "content"));
}

/* Copies the list only if a block is replaced. Stops early if the arena exceeds its limit. */
const struct json *blocks_as_text(struct arena *a, const struct json *content,
                                  struct anthropic_tools *tools)
{
    struct json list = json_empty(JSON_ARRAY);
    struct buf text = {0};
    bool any = false;

    if (!json_is(content, JSON_ARRAY))
        return content;
    for (uint32_t i = 0; i < content->n && !arena_over(a); i++) {
        struct json part = content->items[i];

        buf_clear(&text);
        if (put_block(&text, &content->items[i], tools)) {
            part = json_empty(JSON_OBJECT);
            json_put(a, &part, "type", json_make_string(STR("text")));
            json_put(a, &part, "text", json_make_string(arena_str(a, buf_str(&text))));
            any = true;
        }
        json_push(a, &list, part);
    }
    buf_done(&text);
    return any ? json_keep(a, list) : content;
}
