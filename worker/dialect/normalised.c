/* Builds normalised messages, content and tools: the second half of request_fields.h. */
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/codec/json_build.h"
#include "worker/dialect/image_parts.h"
#include "worker/dialect/request_fields.h"

/* Makes {"role", "content"}. Every normalised message begins with these members in this order. */
struct json json_message(struct arena *a, struct str role, struct json content)
{
    struct json m = json_empty(JSON_OBJECT);

    json_put(a, &m, "role", json_make_string(role));
    json_put(a, &m, "content", content);
    return m;
}

/* --- content --- */

/* Reports whether the type is one of the dialects' names for a part with a member `text`. */
static bool is_text_part(struct str type)
{
    static const char *const types[] = {"text", "input_text", "output_text", "summary_text",
                                        "reasoning_text"};

    return str_is_one_of(type, types, ARRAY_LEN(types));
}

/* Reads the text of one part. A refusal counts as text, in a member of its own. */
static int part_text(const struct json *part, const char *path, uint32_t i, struct str *ret,
                     struct err *e)
{
    struct str type = json_string(json_get(part, "type"));
    bool refusal = str_eq_c(type, "refusal");
    char at[FIELD_PATH_MAX];

    *ret = (struct str){0};
    if (!json_is(part, JSON_OBJECT))
        return field_fail(e, "must be an object", "%s[%u]", path, i);
    if (!type.p)
        return field_fail(e, "must be a string", "%s[%u].type", path, i);
    if (!refusal && !is_text_part(type))
        return err_field(e, path_at(at, "%s[%u].type", path, i),
                         "%s[%u].type is '%.*s', but the model takes text only", path, i,
                         (int)MIN_OF(type.len, 60), type.p);
    *ret = json_string(json_get(part, refusal ? "refusal" : "text"));
    if (!ret->p)
        return field_fail(e, "must be a string", "%s[%u].%s", path, i,
                          refusal ? "refusal" : "text");
    return 0;
}

/* Makes a text part in the only form that templates see. */
static struct json text_part(struct arena *a, struct str text)
{
    struct json part = json_empty(JSON_OBJECT);

    json_put(a, &part, "type", json_make_string(STR("text")));
    json_put(a, &part, "text", json_make_string(text));
    return part;
}

static bool is_image(const struct json *part)
{
    return json_is(part, JSON_OBJECT) && image_parts_type(json_string(json_get(part, "type")));
}

struct json content_alone(struct json list)
{
    const struct json *text =
        json_is(&list, JSON_ARRAY) && list.n == 1 ? json_get(&list.items[0], "text") : NULL;

    return text ? *text : list;
}

enum { ADJOIN_LEAST = 64 << 10 };

/* Makes the texts of a list of text parts adjacent in memory. The list can then be compared as one
 * text without a copy (worker/session/forest/message.c). */
static void join_memory(struct json *list, struct str all)
{
    for (uint32_t i = 0; i < list->n; i++) {
        struct json *text = &list->items[i].members[1].value; /* its second member (text_part) */

        text->text = all.p;
        all = str_sub(all, text->n, all.len);
    }
}

/* Keeps the parts of a list, since templates may print them one by one. `joined` is for assistant
 * turns, which the model wrote as one text. */
int content_text(struct arena *a, const struct json *v, const char *path, bool joined,
                 struct json *ret, struct err *e)
{
    struct json list = json_empty(JSON_ARRAY);
    struct buf all = {0};
    char at[FIELD_PATH_MAX];
    bool images = false;
    int r = -1;

    *ret = json_make_string(STR(""));
    if (json_is_null(v))
        return 0;
    if (v->kind == JSON_STRING) {
        *ret = *v;
        return 0;
    }
    if (v->kind != JSON_ARRAY)
        return err_field(e, path, "%s must be a string or a list of parts", path);
    for (uint32_t i = 0; i < v->n; i++) {
        struct str text;

        if (!joined && is_image(&v->items[i])) {
            images = true;
            json_push(a, &list, image_parts_wait(a, &v->items[i], path_at(at, "%s[%u]", path, i)));
            continue;
        }
        if (part_text(&v->items[i], path, i, &text, e))
            goto out;
        json_push(a, &list, text_part(a, text));
        buf_add_str(&all, text);
    }
    if (!joined && !images && list.n > 1 && all.len >= ADJOIN_LEAST)
        join_memory(&list, arena_str(a, buf_str(&all)));
    *ret = joined || !list.n ? json_make_string(arena_str(a, buf_str(&all))) : list;
    r = 0;
out:
    buf_done(&all);
    return r;
}

/* --- tools --- */

struct tool_list tool_list_in(struct arena *a)
{
    return (struct tool_list){json_empty(JSON_ARRAY), {.arena = a}};
}

const struct json *tools_get(const struct tool_list *tools, struct str name)
{
    uint32_t at = lookup_get(&tools->names, name);

    return at == LOOKUP_NONE ? NULL : &tools->all.items[at];
}

void tools_add_as_sent(struct tool_list *tools, struct str name, struct json tool)
{
    (void)lookup_add(&tools->names, name, tools->all.n);
    json_push(tools->names.arena, &tools->all, tool);
}

/* Adds a tool. The first tool with a name stays, since the model could not distinguish two. */
void tools_add(struct tool_list *tools, struct str name, const struct json *description,
               const struct json *parameters)
{
    struct arena *a = tools->names.arena;
    struct json f = json_empty(JSON_OBJECT);
    struct json tool = json_empty(JSON_OBJECT);

    if (arena_over(a) || !lookup_add(&tools->names, name, tools->all.n))
        return;
    json_put(a, &f, "name", json_make_string(name));
    if (json_is(description, JSON_STRING))
        json_put(a, &f, "description", *description);
    if (json_is(parameters, JSON_OBJECT))
        json_put(a, &f, "parameters", *parameters);
    json_put(a, &tool, "type", json_make_string(STR("function")));
    json_put(a, &tool, "function", f);
    json_push(a, &tools->all, tool);
}

/* Adds a tool with one text as input; the model sees a function with one string argument. */
void tools_add_freeform(struct tool_list *tools, struct str name, const struct json *description)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":"
                                 "\"string\"}},\"required\":[\"input\"]}";
    const struct json *parameters = NULL;

    (void)json_parse(tools->names.arena, str_cstr(schema), &parameters, NULL);
    tools_add(tools, name, description, parameters);
}

struct str freeform_arguments(struct arena *a, const struct json *input)
{
    struct json wrapped = json_empty(JSON_OBJECT), text;

    json_put(a, &wrapped, "input", *input);
    text = json_text_of(a, &wrapped);
    return json_string(&text);
}

struct str freeform_input(struct arena *a, struct str arguments)
{
    const struct json *v = NULL;
    struct str input;

    if (json_parse(a, arena_str(a, arguments), &v, NULL) != 0)
        return arguments;
    input = json_string(json_get(v, "input"));
    return input.p ? input : arguments;
}

/* Makes {"id", "type", "function": {"name", "arguments"}}. arguments are text. */
struct json tool_call_json(struct arena *a, struct str id, struct str name, struct str arguments)
{
    struct json function = json_empty(JSON_OBJECT);
    struct json call = json_empty(JSON_OBJECT);

    json_put(a, &function, "name", json_make_string(name));
    json_put(a, &function, "arguments", json_make_string(arguments));
    if (id.p)
        json_put(a, &call, "id", json_make_string(id));
    json_put(a, &call, "type", json_make_string(STR("function")));
    json_put(a, &call, "function", function);
    return call;
}

void spoken_add_text(struct arena *a, struct spoken *s, struct str text, uint32_t at,
                     struct json *messages)
{
    if (text.len > 0 && s->text.len > 0 && !s->answer.len && at == s->text_end)
        spoken_flush(a, s, messages);
    grown_add(a, &s->text, text);
    s->any = true;
    s->text_end = at + 1;
}

void spoken_flush(struct arena *a, struct spoken *s, struct json *messages)
{
    struct json m;

    if (s->any) {
        m = json_message(a, STR("assistant"), json_make_string(grown_str(&s->text)));
        if (s->thought.len)
            json_put(a, &m, "reasoning_content", json_make_string(grown_str(&s->thought)));
        if (s->calls.n)
            json_put(a, &m, "tool_calls", s->calls);
        json_push(a, messages, m);
    }
    spoken_init(s);
}
