/*
 * Reads the tools of a Responses request from its own list and from items of its input:
 * additional_tools, and results of a search by the client. Items before all others count like the
 * list; Codex sends all tools this way for newer models. Tools of later items can be called, and
 * the model sees them at that point.
 */
#include "worker/dialect/responses_tools.h"

#include "common/base/buf.h"
#include "common/base/limits.h"
#include "common/codec/json_build.h"
#include "worker/dialect/request_fields.h"
#include "worker/dialect/request_members.h"
#include "worker/text/request/chat.h"

static bool is_client_search(const struct json *tool)
{
    return str_eq_c(json_string(json_get(tool, "type")), "tool_search") &&
           str_eq_c(json_string(json_get(tool, "execution")), "client");
}

/* State of reading tools into one list. */
struct tools_reader {
    const struct response_tools *given;
    struct tool_list list;
    struct chat_request *told; /* records skipped kinds; NULL: others record them */
    struct err *e;
};

/* Adds a tool by its flat name, or the tools of a namespace. Kinds that only the vendor's server
 * runs are skipped, and so is a namespace in a namespace. */
static int read_response_tool(struct tools_reader *l, const struct json *v, const char *path,
                              struct str space)
{
    struct err *e = l->e;
    struct str type = json_string(json_get(v, "type"));
    struct str name = json_string(json_get(v, "name"));
    const struct json *parameters = json_get(v, "parameters");
    const struct json *inner = json_get(v, "tools");
    char at[FIELD_PATH_MAX];

    if (!json_is(v, JSON_OBJECT))
        return err_field(e, path, "%s must be an object", path);
    if (!type.p)
        return field_fail(e, "must be a string", "%s.type", path);
    if (name.len > TOOL_NAME_MAX)
        return err_field(e, path_at(at, "%s.name", path),
                         "%s.name has %zu bytes, but a name may have %d at most", path, name.len,
                         TOOL_NAME_MAX);
    if (str_eq_c(type, "namespace") && !space.p) {
        for (uint32_t i = 0; json_at(inner, i); i++) {
            path_at(at, "%s.tools[%u]", path, i);
            if (read_response_tool(l, json_at(inner, i), at, name.p ? name : STR("")))
                return -1;
        }
        return 0;
    }
    if (is_client_search(v)) {
        tools_add(&l->list, STR("tool_search"), json_get(v, "description"), parameters);
        return 0;
    }
    if (!str_eq_c(type, "function") && !str_eq_c(type, "custom")) {
        if (l->told)
            request_add_skipped(l->list.names.arena, "tools", type, l->told);
        return 0;
    }
    if (!name.len)
        return field_fail(e, "must be a non-empty string", "%s.name", path);
    if (!json_is_null(parameters) && parameters->kind != JSON_OBJECT)
        return field_fail(e, "must be an object", "%s.parameters", path);
    name = responses_flat_name(l->given, space, name);
    if (str_eq_c(type, "custom"))
        tools_add_freeform(&l->list, name, json_get(v, "description"));
    else
        tools_add(&l->list, name, json_get(v, "description"), parameters);
    return 0;
}

/* Reports whether the item is additional_tools. Only such items count as leading: a search result
 * always follows its call. */
static bool is_additional(const struct json *item)
{
    return str_eq_c(json_string(json_get(item, "type")), "additional_tools");
}

bool responses_brings_tools(const struct json *item)
{
    return is_additional(item) ||
           str_eq_c(json_string(json_get(item, "type")), "tool_search_output");
}

static void push_all(struct arena *a, struct json *all, const struct json *list)
{
    for (uint32_t i = 0; json_is(list, JSON_ARRAY) && i < list->n; i++)
        json_push(a, all, list->items[i]);
}

/* Returns the request's own list if no item adds tools. */
const struct json *responses_tools_of(struct arena *a, const struct json *body)
{
    const struct json *own = json_get(body, "tools");
    const struct json *input = json_get(body, "input");
    struct json all = json_empty(JSON_ARRAY);
    bool more = false;

    push_all(a, &all, own);
    for (size_t i = 0; json_at(input, i); i++) {
        if (!responses_brings_tools(json_at(input, i)))
            continue;
        push_all(a, &all, json_get(json_at(input, i), "tools"));
        more = true;
    }
    return more ? json_keep(a, all) : own;
}

/* Returns 0 with previous_response_id, since this input is then not the start of the history. */
uint32_t responses_leading_tools(const struct json *body)
{
    const struct json *input = json_get(body, "input");
    uint32_t n = 0;

    if (!json_is_null(json_get(body, "previous_response_id")))
        return 0;
    while (json_at(input, n) && is_additional(json_at(input, n)))
        n++;
    return n;
}

/* Reads the tools of a list into l->list. */
static int read_list(struct tools_reader *l, const struct json *list, const char *path)
{
    char at[FIELD_PATH_MAX];

    if (!json_is_null(list) && list->kind != JSON_ARRAY)
        return err_field(l->e, path, "%s must be a list", path);
    for (uint32_t i = 0; json_at(list, i); i++) {
        path_at(at, "%s[%u]", path, i);
        if (read_response_tool(l, json_at(list, i), at, (struct str){0}))
            return -1;
    }
    return 0;
}

static int read_tools_item(struct tools_reader *l, const struct json *item, uint32_t i)
{
    char path[FIELD_PATH_MAX];

    path_at(path, "input[%u].tools", i);
    return read_list(l, json_get(item, "tools"), path);
}

/* Writes each definition as the template would print it, on a line of its own. */
int responses_tools_text(struct arena *a, const struct response_tools *given,
                         const struct json *item, uint32_t at, struct json *ret, struct err *e)
{
    struct tools_reader l = {.given = given, .list = tool_list_in(a), .e = e};
    const struct json *all = &l.list.all;
    struct buf text = {0};

    if (read_tools_item(&l, item, at))
        return -1;
    for (uint32_t i = 0; i < all->n; i++) {
        buf_puts(&text, i ? "\nNew tool: " : "New tool: ");
        json_write(&text, &all->items[i]);
    }
    *ret = json_make_string(arena_str(a, buf_str(&text)));
    buf_done(&text);
    return 0;
}

/* Reads all tools. Those of the list and of leading items go into the prompt; later ones are only
 * callable. */
int responses_read_tools(struct arena *a, const struct json *body, struct chat_request *req,
                         struct err *e)
{
    const struct json *input = json_get(body, "input");
    uint32_t n_leading = responses_leading_tools(body);
    struct response_tools given;
    struct tools_reader l = {.given = &given, .list = tool_list_in(a), .e = e};
    const struct json *all = &l.list.all;
    uint32_t i = 0;

    response_tools_read(&given, a, body);
    if (read_list(&l, json_get(body, "tools"), "tools"))
        return -1;
    l.told = req;
    for (; i < n_leading; i++)
        if (read_tools_item(&l, json_at(input, i), i))
            return -1;
    if (all->n)
        req->callable = req->chat->tools = json_keep(a, *all);
    for (; json_at(input, i); i++)
        if (responses_brings_tools(json_at(input, i)) && read_tools_item(&l, json_at(input, i), i))
            return -1;
    if (all->n)
        req->callable = json_keep(a, *all);
    return 0;
}

/* Returns how much longer the lists in l are than their definitions that the model sees. bytes:
 * size of the lists. */
static size_t count_unseen(const struct tools_reader *l, size_t bytes)
{
    size_t told = json_text_bytes(&l->list.all, SIZE_MAX);

    return bytes > told ? bytes - told : 0;
}

/* Sums up the unseen bytes. Leading lists count as one list; each later list counts alone. */
size_t responses_tools_unseen(const struct arena *a, const struct json *body)
{
    const struct json *input = json_get(body, "input"), *list = json_get(body, "tools");
    uint32_t n_leading = responses_leading_tools(body);
    struct arena tmp = {.sum = a->sum, .max_bytes = a->max_bytes};
    struct err e = {0};
    struct response_tools given;
    struct tools_reader l = {.given = &given, .list = tool_list_in(&tmp), .e = &e};
    size_t bytes = json_text_bytes(list, SIZE_MAX), n = 0;

    response_tools_read(&given, &tmp, body);
    (void)read_list(&l, list, "tools");
    for (uint32_t i = 0; json_at(input, i); i++) {
        if (!responses_brings_tools(json_at(input, i)))
            continue;
        if (i >= n_leading) {
            n += count_unseen(&l, bytes);
            l.list = tool_list_in(&tmp);
            bytes = 0;
        }
        bytes += json_text_bytes(json_get(json_at(input, i), "tools"), SIZE_MAX);
        (void)read_tools_item(&l, json_at(input, i), i);
    }
    n += count_unseen(&l, bytes);
    arena_done(&tmp);
    return n;
}
