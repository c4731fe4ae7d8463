/* Names of tools in namespaces, in the flat list that models have. */
#include "common/base/arena.h"
#include "worker/api/responses.h"

static bool is_space(const struct json *t)
{
    return str_eq_c(json_string(json_get(t, "type")), "namespace");
}

static struct str name_of(const struct json *t)
{
    return json_string(json_get(t, "name"));
}

static const struct json *named(const struct json *tools, struct str name)
{
    for (size_t i = 0; json_at(tools, i); i++)
        if (!is_space(json_at(tools, i)) && str_eq(name_of(json_at(tools, i)), name))
            return json_at(tools, i);
    return NULL;
}

/* The first of that name, whatever its namespace. */
static const struct json *first_named(const struct json *tools, struct str name,
                                      struct str *ret_space)
{
    *ret_space = (struct str){0};
    for (size_t i = 0; json_at(tools, i); i++) {
        const struct json *t = json_at(tools, i);
        const struct json *inner = is_space(t) ? named(json_get(t, "tools"), name) : NULL;

        *ret_space = inner ? name_of(t) : (struct str){0};
        if (inner || (!is_space(t) && str_eq(name_of(t), name)))
            return inner ? inner : t;
    }
    return NULL;
}

struct str responses_flat_name(struct arena *a, const struct json *tools, struct str space,
                               struct str name)
{
    struct str first;

    if (!space.len || !first_named(tools, name, &first) || str_eq(first, space))
        return name;
    return arena_printf(a, "%.*s__%.*s", (int)space.len, space.p, (int)name.len, name.p);
}

const struct json *responses_tool(const struct json *tools, struct str flat, struct str *ret_space)
{
    const struct json *found = first_named(tools, flat, ret_space);

    for (size_t i = 0; !found && json_at(tools, i); i++) {
        const struct json *t = json_at(tools, i);
        struct str space = name_of(t);

        if (!is_space(t) || !space.len || !str_starts(flat, space) ||
            !str_starts(str_sub(flat, space.len, SIZE_MAX), STR("__")))
            continue;
        found = named(json_get(t, "tools"), str_sub(flat, space.len + 2, SIZE_MAX));
        *ret_space = space;
    }
    return found;
}
