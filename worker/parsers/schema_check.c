/*
 * Walks the schema along the words that hold other schemas, and keeps the way to where it is as
 * text, for the error. A word that it does not know is passed over, and so is what stands deeper
 * than 64 levels: the check finds slips, it does not judge schemas.
 */
#include "worker/parsers/schema_check.h"

#include <stdio.h>

#include "common/base/attrs.h"

enum { PATH_MAX_BYTES = 256, DEPTH_MAX = 64, SHOWN = 40 };

struct check {
    char path[PATH_MAX_BYTES];
    struct err *e;
};

static bool type_known(struct str name)
{
    static const char *const types[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (str_eq_c(name, types[i]))
            return true;
    }
    return false;
}

static int bad_type(const struct check *c, const struct json *type)
{
    struct str shown = str_sub(json_text(type), 0, SHOWN);

    return err_field(c->e, c->path,
                     "%s.type must be object, array, string, number, integer, boolean, null or a "
                     "list of these, not %s%.*s%s",
                     c->path, shown.p ? "\"" : "another value", (int)shown.len,
                     shown.p ? shown.p : "", shown.p ? "\"" : "");
}

static int check_type(const struct check *c, const struct json *type)
{
    if (!type || (json_is(type, JSON_STRING) && type_known(json_string(type))))
        return 0;
    if (!json_is(type, JSON_ARRAY) || type->n == 0)
        return bad_type(c, type);
    for (uint32_t i = 0; i < type->n; i++) {
        if (!type_known(json_string(&type->items[i])))
            return bad_type(c, &type->items[i]);
    }
    return 0;
}

static int check_schema(struct check *c, const struct json *schema, unsigned depth);

/* The schema below the place "word", "word.name" or "word[3]" of this one. */
static int check_below(struct check *c, const struct json *schema, const char *place,
                       unsigned depth)
{
    size_t before = strlen(c->path);
    int rc;

    (void)snprintf(c->path + before, sizeof(c->path) - before, ".%s", place);
    rc = check_schema(c, schema, depth + 1);
    c->path[before] = '\0';
    return rc;
}

static int check_named(struct check *c, const struct json *all, const char *word, unsigned depth)
{
    for (uint32_t i = 0; json_is(all, JSON_OBJECT) && i < all->n; i++) {
        struct str name = str_sub(json_string(&all->members[i].key), 0, SHOWN);
        char place[80];

        (void)snprintf(place, sizeof(place), "%s.%.*s", word, (int)name.len, name.p);
        if (check_below(c, &all->members[i].value, place, depth))
            return -1;
    }
    return 0;
}

static int check_listed(struct check *c, const struct json *all, const char *word, unsigned depth)
{
    for (uint32_t i = 0; json_is(all, JSON_ARRAY) && i < all->n; i++) {
        char place[80];

        (void)snprintf(place, sizeof(place), "%s[%u]", word, i);
        if (check_below(c, &all->items[i], place, depth))
            return -1;
    }
    return 0;
}

static int check_schema(struct check *c, const struct json *schema, unsigned depth)
{
    static const char *const one[] = {"items", "additionalProperties", "not", "contains"};
    static const char *const named[] = {"properties", "patternProperties", "$defs", "definitions"};
    static const char *const listed[] = {"anyOf", "oneOf", "allOf", "prefixItems", "items"};

    if (!json_is(schema, JSON_OBJECT) || depth > DEPTH_MAX)
        return 0;
    if (check_type(c, json_get(schema, "type")))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(one); i++) {
        if (check_below(c, json_get(schema, one[i]), one[i], depth))
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        if (check_named(c, json_get(schema, named[i]), named[i], depth))
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(listed); i++) {
        if (check_listed(c, json_get(schema, listed[i]), listed[i], depth))
            return -1;
    }
    return 0;
}

int schema_check(const struct json *schema, const char *path, struct err *e)
{
    struct check c = {.e = e};

    (void)snprintf(c.path, sizeof(c.path), "%s", path);
    return check_schema(&c, schema, 0);
}
