/* Translates names of tools in namespaces to the flat list of a model. The first tool with a name
 * in the request keeps it. A later one in a different namespace becomes NAMESPACE__NAME. Look-ups
 * are hashed, since a request may have thousands of tools. */
#include "common/base/limits.h"
#include "common/codec/json.h"
#include "worker/dialect/responses_tools.h"

static bool is_space(const struct json *t)
{
    return str_eq_c(json_string(json_get(t, "type")), "namespace");
}

static struct str response_tool_name(const struct json *t)
{
    return json_string(json_get(t, "name"));
}

static struct str flat_name(struct arena *a, struct str space, struct str name)
{
    return arena_printf(a, "%.*s__%.*s", (int)space.len, space.p, (int)name.len, name.p);
}

/* Returns an upper bound of the number of tools in a list and its namespaces. */
static uint32_t count_tools_most(const struct json *tools)
{
    uint32_t n = 0;

    for (uint32_t i = 0; json_at(tools, i); i++) {
        const struct json *inner = json_get(json_at(tools, i), "tools");

        n += 1 + (json_is(inner, JSON_ARRAY) ? inner->n : 0);
    }
    return n;
}

/* Adds a tool under its name, and under its name with the namespace. */
static void add_tool_name(struct response_tools *r, const struct json *tool, struct str space)
{
    struct str name = response_tool_name(tool);

    if (!name.p || is_space(tool))
        return;
    r->at[r->n] = (struct response_tool){tool, space};
    (void)lookup_add(&r->names, name, r->n);
    if (space.len && space.len <= TOOL_NAME_MAX && name.len <= TOOL_NAME_MAX)
        (void)lookup_add(&r->spelled, flat_name(r->names.arena, space, name), r->n);
    r->n++;
}

static bool is_search(const struct json *tool)
{
    return str_eq_c(json_string(json_get(tool, "type")), "tool_search") &&
           str_eq_c(json_string(json_get(tool, "execution")), "client");
}

void response_tools_read(struct response_tools *ret, struct arena *a, const struct json *body)
{
    const struct json *all = responses_tools_of(a, body);

    *ret = (struct response_tools){.names = {.arena = a}, .spelled = {.arena = a}};
    ret->at = arena_calloc(a, count_tools_most(all), sizeof(*ret->at));
    for (size_t i = 0; json_at(all, i); i++) {
        const struct json *t = json_at(all, i);
        const struct json *inner = is_space(t) ? json_get(t, "tools") : NULL;

        ret->client_search |= is_search(t);
        add_tool_name(ret, t, (struct str){0});
        for (size_t k = 0; json_at(inner, k); k++)
            add_tool_name(ret, json_at(inner, k), response_tool_name(t));
    }
}

struct str responses_flat_name(const struct response_tools *tools, struct str space,
                               struct str name)
{
    uint32_t first = space.len ? lookup_get(&tools->names, name) : LOOKUP_NONE;

    if (first == LOOKUP_NONE || str_eq(tools->at[first].space, space))
        return name;
    return flat_name(tools->names.arena, space, name);
}

const struct json *responses_tool(const struct response_tools *tools, struct str flat,
                                  struct str *ret_space)
{
    uint32_t at = lookup_get(&tools->names, flat);

    if (at == LOOKUP_NONE)
        at = lookup_get(&tools->spelled, flat);
    *ret_space = (struct str){0};
    if (at != LOOKUP_NONE)
        *ret_space = tools->at[at].space;
    return at == LOOKUP_NONE ? NULL : tools->at[at].tool;
}
