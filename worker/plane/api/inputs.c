/* The inputs of the control plane (inputs.h, inputs.def). Every field of a body and every parameter
 * of a query is looked up among those of its route, and its value is checked before the handler
 * runs. An unknown name is an error that lists the known names and the nearest one. A value that
 * does not fit is an error that says what is allowed. So handlers can read fields without checks of
 * their own.
 *
 * A value of a query is text: numbers and booleans are parsed from it (as_text). */

#include "worker/plane/api/inputs.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/base/nearest.h"
#include "common/codec/fields.h"
#include "common/codec/format_list.h"
#include "common/codec/json.h"
#include "common/codec/query.h"
#include "worker/plane/api/routes.h"

static const struct input rows[] = {
#define CREATE INPUT_CREATE
#define LISTING INPUT_LISTING
#define VERSION INPUT_VERSION
#define ADAPTER INPUT_ADAPTER
#define PAUSE INPUT_PAUSE
#define RESUME INPUT_RESUME
#define STATE INPUT_STATE
#define STATS INPUT_STATS
#define FLEET INPUT_FLEET
#define LOGPROBS INPUT_LOGPROBS
#define REWARD INPUT_REWARD
#define COMPLETE INPUT_COMPLETE
#define WAIT INPUT_WAIT
#define FINALIZE INPUT_FINALIZE
#define SAMPLES INPUT_SAMPLES
#define GROUP_RESULT INPUT_GROUP_RESULT
#define EXPORTS INPUT_EXPORTS
#define ORDERS INPUT_ORDERS
#define TOKENS INPUT_TOKENS
#define EVENTS INPUT_EVENTS
#define ABORT INPUT_ABORT
#define BULK_ABORT INPUT_BULK_ABORT
#define BULK_FINALIZE INPUT_BULK_FINALIZE
#define FORK INPUT_FORK
#define IMPORT INPUT_IMPORT
#define ENGINES INPUT_ENGINES
#define ENGINES_LESS INPUT_ENGINES_LESS
#define X(sets, name, place, kind, min, max, choices, summary) \
    {sets, name, PLACE_##place, INPUT_KIND_##kind, min, max, choices, summary},
#include "worker/plane/api/inputs.def"
};

const struct inputs inputs_all = {rows, ARRAY_LEN(rows)};

static bool takes(const struct api_route *route, const struct input *in, enum input_place place)
{
    return (in->sets & route->inputs) && (in->place & place);
}

/* Returns the row for this name on this route, or NULL. */
static const struct input *find(const struct api_route *route, enum input_place place,
                                struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (takes(route, &rows[i], place) && str_eq_c(name, rows[i].name))
            return &rows[i];
    }
    return NULL;
}

/* Lists the known names in `ret`. Returns the one that was probably meant, or NULL. */
static const char *known_names(const struct api_route *route, enum input_place place,
                               struct str given, struct buf *ret)
{
    struct nearest near = nearest_to(given);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!takes(route, &rows[i], place) || rows[i].kind == INPUT_KIND_HIDDEN)
            continue;
        nearest_offer(&near, rows[i].name);
        buf_printf(ret, "%s%s", ret->len > 0 ? ", " : "", rows[i].name);
    }
    return near.name;
}

/* Makes the error for a name that the route does not have. */
static int unknown(const struct api_route *route, enum input_place place, struct str given,
                   struct err *e)
{
    const char *what = place == PLACE_BODY ? "body field" : "query parameter";
    struct buf known = {0};
    const char *near = known_names(route, place, given, &known);
    struct field_shown shown = {0};
    const char *name = field_show_name(given, &shown);

    (void)field_unknown(what, name, near, buf_str(&known), e);
    buf_done(&known);
    return -1;
}

/* Checks one field or parameter. */
static int check_field(struct arena *a, const struct api_route *route, enum input_place place,
                       struct str name, const struct json *v, struct err *e)
{
    const struct input *in = find(route, place, name);

    if (!in)
        return unknown(route, place, name, e);
    return input_value_check(
        a, &(struct input_rule){in->name, in->kind, in->min, in->max, in->choices}, v,
        in->place & PLACE_QUERY, e);
}

/* --- a request --- */

/* Checks a body. An empty body has no fields; a repeated key is an error. `text` is borrowed by
 * *ret. */
static int check_body(struct arena *a, const struct api_route *route, struct str text,
                      const struct json **ret, struct err *e)
{
    const struct json *body = NULL;

    *ret = NULL;
    if (text.len == 0)
        return 0;
    if (json_parse_once(a, text, &body, e))
        return -1;
    if (json_is_null(body))
        return 0;
    if (!json_is(body, JSON_OBJECT))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    *ret = body;
    for (uint32_t i = 0; i < body->n; i++) {
        const struct json_member *m = &body->members[i];

        if (check_field(a, route, PLACE_BODY, json_string(&m->key), &m->value, e))
            return -1;
    }
    return 0;
}

/* Checks a query. A repeated parameter is an error, because only one of them could be used. */
static int check_query(struct arena *a, const struct api_route *route, struct str query,
                       struct err *e)
{
    struct str left = query, name, value;

    while (query_next(a, &left, &name, &value)) {
        struct json v = json_make_string(value);
        struct str others = left, other, unused;

        if (check_field(a, route, PLACE_QUERY, name, &v, e))
            return -1;
        while (query_next(a, &others, &other, &unused)) {
            if (str_eq(other, name)) /* a known name, which was checked above */
                return err_field(e, find(route, PLACE_QUERY, name)->name,
                                 "the query parameter \"%.*s\" stands twice", (int)name.len,
                                 name.p);
        }
    }
    return 0;
}

/* The query is checked first, because its errors are cheaper. */
int inputs_check(const struct api_route *route, struct str query, struct str body, struct arena *a,
                 const struct json **ret_body, struct err *e)
{
    const struct json *unkept;
    struct str text = str_trim(body);

    if (check_query(a, route, query, e))
        return -1;
    if (ret_body)
        text = arena_str(a, text);
    return check_body(a, route, text, ret_body ? ret_body : &unkept, e);
}
