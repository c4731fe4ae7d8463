/*
 * Walks the schema along the keywords that contain other schemas. Each level knows its position in
 * the level above. The path from the top becomes text only for an error, because schemas have
 * thousands of positions and clients send them with every request. Unknown keywords and levels
 * below 64 are skipped: the check finds typing mistakes, it does not judge schemas.
 */
#include "worker/text/parsers/schema_check.h"

#include "common/base/attrs.h"
#include "common/base/buf.h"

enum { DEPTH_MAX = 64, NAME_SHOWN = 40, WAY_SHOWN = 255 };

/* Position of a schema in the schema above: "word", "word.name" or "word[index]". */
struct place {
    const struct place *above; /* NULL: this is the given schema */
    const char *word;
    struct str name; /* name in "word.name"; absent: a different form */
    bool listed;     /* the form is "word[index]" */
    uint32_t index;
    unsigned depth; /* number of positions above */
};

struct check {
    const char *path; /* path of the given schema */
    struct err *e;
};

static void print_way(struct buf *to, const struct check *c, const struct place *at)
{
    if (!at) {
        buf_printf(to, "%s", c->path);
        return;
    }
    print_way(to, c, at->above);
    buf_printf(to, ".%s", at->word);
    if (at->name.p)
        buf_printf(to, ".%.*s", (int)at->name.len, at->name.p);
    if (at->listed)
        buf_printf(to, "[%u]", at->index);
}

static bool type_known(struct str name)
{
    static const char *const types[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"};

    return str_is_one_of(name, types, ARRAY_LEN(types));
}

static int bad_type(const struct check *c, const struct place *at, const struct json *type)
{
    struct str shown = str_sub(json_text(type), 0, NAME_SHOWN);
    struct buf way = {0};
    int rc;

    print_way(&way, c, at);
    way.len = MIN_OF(way.len, WAY_SHOWN);
    buf_add_c(&way, '\0');
    rc = err_field(c->e, way.p,
                   "%s.type must be object, array, string, number, integer, boolean, null or a "
                   "list of these, not %s%.*s%s",
                   way.p, shown.p ? "\"" : "another value", (int)shown.len, shown.p ? shown.p : "",
                   shown.p ? "\"" : "");
    buf_done(&way);
    return rc;
}

static int check_type(const struct check *c, const struct place *at, const struct json *type)
{
    if (!type || (json_is(type, JSON_STRING) && type_known(json_string(type))))
        return 0;
    if (!json_is(type, JSON_ARRAY) || type->n == 0)
        return bad_type(c, at, type);
    for (uint32_t i = 0; i < type->n; i++) {
        if (!type_known(json_string(&type->items[i])))
            return bad_type(c, at, &type->items[i]);
    }
    return 0;
}

static int check_schema(const struct check *c, const struct json *schema, const struct place *at);

static struct place position_below(const struct place *above, const char *word)
{
    return (struct place){.above = above, .word = word, .depth = above ? above->depth + 1 : 1};
}

static int check_named(const struct check *c, const struct json *all, const char *word,
                       const struct place *above)
{
    struct place at = position_below(above, word);

    for (uint32_t i = 0; json_is(all, JSON_OBJECT) && i < all->n; i++) {
        at.name = str_sub(json_string(&all->members[i].key), 0, NAME_SHOWN);
        if (check_schema(c, &all->members[i].value, &at))
            return -1;
    }
    return 0;
}

static int check_listed(const struct check *c, const struct json *all, const char *word,
                        const struct place *above)
{
    struct place at = position_below(above, word);

    at.listed = true;
    for (uint32_t i = 0; json_is(all, JSON_ARRAY) && i < all->n; i++) {
        at.index = i;
        if (check_schema(c, &all->items[i], &at))
            return -1;
    }
    return 0;
}

/* Checks one schema. at NULL: it is the given schema. */
static int check_schema(const struct check *c, const struct json *schema, const struct place *at)
{
    static const char *const one[] = {"items", "additionalProperties", "not", "contains"};
    static const char *const named[] = {"properties", "patternProperties", "$defs", "definitions"};
    static const char *const listed[] = {"anyOf", "oneOf", "allOf", "prefixItems", "items"};

    if (!json_is(schema, JSON_OBJECT) || (at && at->depth > DEPTH_MAX))
        return 0;
    if (check_type(c, at, json_get(schema, "type")))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(one); i++) {
        struct place below = position_below(at, one[i]);

        if (check_schema(c, json_get(schema, one[i]), &below))
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        if (check_named(c, json_get(schema, named[i]), named[i], at))
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(listed); i++) {
        if (check_listed(c, json_get(schema, listed[i]), listed[i], at))
            return -1;
    }
    return 0;
}

int schema_check(const struct json *schema, const char *path, struct err *e)
{
    const struct check c = {.path = path, .e = e};

    return check_schema(&c, schema, NULL);
}
