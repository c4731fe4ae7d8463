/*
 * Finds tools of a request that are not offered to the model, and members of offered tools without
 * effect (request_dropping.h). Chat Completions' functions have none: templates print them whole.
 */
#include "worker/dialect/request_dropping.h"

#include "common/base/attrs.h"
#include "worker/dialect/request_members.h"
#include "worker/dialect/responses_tools.h"

/* Reports whether the dialect's reader offers this kind of tool to the model. */
static bool is_offered(unsigned dialects, const struct json *tool, struct str type)
{
    if (!type.p || str_eq_c(type, "custom"))
        return true;
    if (dialects & IN_MESSAGES)
        return false;
    if (str_eq_c(type, "function"))
        return true;
    return (dialects & IN_RESPONSES) &&
           (str_eq_c(type, "namespace") ||
            (str_eq_c(type, "tool_search") &&
             str_eq_c(json_string(json_get(tool, "execution")), "client")));
}

/* Reports whether the tool's arguments must fit its schema. */
static bool is_strict(const struct json *tool)
{
    return json_is_true(json_get(tool, "strict")) ||
           json_is_true(json_get(json_get(tool, "function"), "strict"));
}

/* --- members of a tool --- */

/* Reports whether the list of callers has the model itself. */
static bool has_direct_caller(const struct json *callers)
{
    for (size_t i = 0; json_at(callers, i); i++)
        if (str_eq_c(json_string(json_at(callers, i)), "direct"))
            return true;
    return false;
}

/* Reports whether the member has an effect, or asks for nothing. */
static bool is_obeyed(unsigned dialects, struct str type, struct str name, const struct json *v)
{
    static const char *const always[] = {"type", "name", "description", "strict", "cache_control"};
    static const char *const messages[] = {"input_schema", "defer_loading",
                                           "eager_input_streaming"};

    if (json_is_null(v) || (v->kind == JSON_BOOL && !json_is_true(v)) ||
        ((v->kind == JSON_ARRAY || v->kind == JSON_STRING) && !v->n))
        return true;
    if (str_eq_c(name, "allowed_callers"))
        return has_direct_caller(v);
    if (str_eq_c(type, "namespace"))
        return str_eq_c(name, "type") || str_eq_c(name, "name") || str_eq_c(name, "tools");
    if (str_is_one_of(name, always, ARRAY_LEN(always)))
        return true;
    if (dialects & IN_MESSAGES)
        return str_is_one_of(name, messages, ARRAY_LEN(messages));
    if (str_eq_c(type, "custom"))
        return str_eq_c(name, "format") && str_eq_c(json_string(json_get(v, "type")), "text");
    return str_eq_c(name, "parameters") || str_eq_c(name, "execution");
}

/* Records the members without effect, as "tools.NAME" or "tools.namespace.NAME". An item's tools
 * (`item`) may have been deferred until the item. */
static void check_tool_members(struct dropping *d, const struct json *tool, struct str type,
                               bool item)
{
    struct str place = str_eq_c(type, "namespace") ? STR("tools.namespace") : STR("tools");
    const struct json *v = tool;

    if (d->dialects & IN_CHAT)
        v = str_eq_c(type, "custom") ? json_get(tool, "custom") : NULL;
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++) {
        struct str name = json_string(&v->members[i].key);

        if (!is_obeyed(d->dialects, type, name, &v->members[i].value) &&
            !(item && str_eq_c(name, "defer_loading")))
            drop_member(d, place, name, USE_UNUSED);
    }
}

/* --- lists of tools --- */

/* Records tools of kinds that the reader skips, as "tools.KIND". A namespace within a namespace is
 * skipped, too. The reader records skipped ones of an item. */
static void check_tool_list(struct dropping *d, const struct json *tools, bool inner, bool item)
{
    for (uint32_t i = 0; json_is(tools, JSON_ARRAY) && i < tools->n; i++) {
        const struct json *tool = &tools->items[i];
        struct str type = json_string(json_get(tool, "type"));
        bool space = str_eq_c(type, "namespace");

        if (!is_offered(d->dialects, tool, type) || (space && inner)) {
            if (!item)
                drop_member(d, STR("tools"), type, USE_UNUSED);
            continue;
        }
        check_tool_members(d, tool, type, item);
        if (space && (d->dialects & IN_RESPONSES))
            check_tool_list(d, json_get(tool, "tools"), true, item);
    }
}

/* Reports whether an offered tool of the list is strict. */
static bool has_strict(unsigned dialects, const struct json *tools, bool inner)
{
    bool found = false;

    for (uint32_t i = 0; json_is(tools, JSON_ARRAY) && i < tools->n && !found; i++) {
        const struct json *tool = &tools->items[i];
        struct str type = json_string(json_get(tool, "type"));

        if ((dialects & IN_RESPONSES) && str_eq_c(type, "namespace") && !inner)
            found = has_strict(dialects, json_get(tool, "tools"), true);
        else
            found = is_strict(tool) && is_offered(dialects, tool, type);
    }
    return found;
}

void drop_tools(struct dropping *d, const struct json *body, struct chat_request *req)
{
    const struct json *input = json_get(body, "input"), *tools = json_get(body, "tools");

    check_tool_list(d, tools, false, false);
    req->strict = has_strict(d->dialects, tools, false);
    for (size_t i = 0; (d->dialects & IN_RESPONSES) && json_at(input, i); i++) {
        if (!responses_brings_tools(json_at(input, i)))
            continue;
        tools = json_get(json_at(input, i), "tools");
        check_tool_list(d, tools, false, true);
        req->strict = req->strict || has_strict(d->dialects, tools, false);
    }
}
