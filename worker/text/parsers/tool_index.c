/*
 * Tools are in an array, and if they are many also by name in a map. After its first use a schema
 * has notes: its types, and a map of its properties and those of its unions. The map is filled in
 * the order of a walk, so that the first of equal names wins. Notes are found by the schema's
 * address. A few properties get no map.
 */
#include "worker/text/parsers/tool_index.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/text/parsers/param_value.h"

enum { FEW = 16 }; /* number of tools up to which a search is as fast as a look-up */

struct tool_index {
    const struct json *tools;
    struct indexed_tool *all; /* NULL: the tools have not been read yet */
    size_t n;
    struct map by_name; /* used if n > FEW */
    struct map notes;   /* address of a schema -> struct schema_notes */
    struct arena arena; /* memory of the notes */
};

struct schema_notes {
    const struct json *schema;
    unsigned types; /* 0: not computed yet; value_types is never 0 */
    bool collected;
    struct map properties;
};

struct tool_index *tool_index_new(const struct json *tools)
{
    struct tool_index *x = mem_zalloc(sizeof(*x));

    x->tools = tools;
    return x;
}

void tool_index_free(struct tool_index *x)
{
    struct map_slot *slot;
    size_t at = 0;

    if (!x)
        return;
    while ((slot = map_next(&x->notes, &at)))
        map_done(&((struct schema_notes *)slot->value)->properties);
    map_done(&x->notes);
    map_done(&x->by_name);
    arena_done(&x->arena);
    free(x->all);
    free(x);
}

static void index_tools(struct tool_index *x)
{
    size_t n = json_is(x->tools, JSON_ARRAY) ? x->tools->n : 0;

    x->all = mem_realloc_array(NULL, n + 1, sizeof(*x->all));
    for (x->n = 0; x->n < n; x->n++) {
        const struct json *tool = json_at(x->tools, x->n), *f = json_get(tool, "function");
        struct indexed_tool *of = &x->all[x->n];

        f = f ? f : tool;
        *of = (struct indexed_tool){json_string(json_get(f, "name")), json_get(f, "parameters")};
        if (n > FEW && of->name.len > 0 && !map_get(&x->by_name, of->name))
            (void)map_set(&x->by_name, of->name, of);
    }
}

const struct indexed_tool *tool_index_at(struct tool_index *x, size_t i)
{
    if (!x->all)
        index_tools(x);
    return i < x->n ? &x->all[i] : NULL;
}

const struct indexed_tool *tool_index_find(struct tool_index *x, struct str name)
{
    if (!x->all)
        index_tools(x);
    if (x->n > FEW)
        return map_get(&x->by_name, name);
    for (size_t i = 0; i < x->n; i++)
        if (x->all[i].name.len > 0 && str_eq(x->all[i].name, name))
            return &x->all[i];
    return NULL;
}

static struct schema_notes *notes_of(struct tool_index *x, const struct json *schema)
{
    struct str address = str_of((const char *)&schema, sizeof(schema));
    struct schema_notes *notes = map_get(&x->notes, address);

    if (notes)
        return notes;
    notes = arena_calloc(&x->arena, 1, sizeof(*notes));
    notes->schema = schema;
    (void)map_set(&x->notes, str_of((const char *)&notes->schema, sizeof(schema)), notes);
    return notes;
}

static void collect_properties(struct map *into, const struct json *schema, int unions)
{
    static const char *const words[] = {"anyOf", "oneOf", "allOf"};
    const struct json *own = json_get(schema, "properties");

    for (size_t i = 0; json_is(own, JSON_OBJECT) && i < own->n; i++) {
        struct str key = json_text(&own->members[i].key);

        if (!map_get(into, key))
            (void)map_set(into, key, &own->members[i].value);
    }
    for (size_t u = 0; unions > 0 && u < ARRAY_LEN(words); u++) {
        const struct json *list = json_get(schema, words[u]);

        for (size_t i = 0; json_at(list, i); i++)
            collect_properties(into, json_at(list, i), unions - 1);
    }
}

const struct json *tool_index_property(struct tool_index *x, const struct json *schema,
                                       struct str key, int unions)
{
    const struct json *own = json_get(schema, "properties");
    struct schema_notes *notes;

    if (unions == 0 && (!json_is(own, JSON_OBJECT) || own->n <= FEW))
        return json_get_str(own, key);
    notes = notes_of(x, schema);
    if (!notes->collected)
        collect_properties(&notes->properties, schema, unions);
    notes->collected = true;
    return map_get(&notes->properties, key);
}

unsigned tool_index_types(struct tool_index *x, const struct json *schema)
{
    struct schema_notes *notes = notes_of(x, schema);

    if (notes->types == 0)
        notes->types = value_types(schema);
    return notes->types;
}
