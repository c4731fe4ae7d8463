/* Checks of values of the control plane (input_value.h), one for each kind. Errors name the field,
 * the value and what is allowed. Null in a body means "not given". */

#include "common/codec/input_value.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/base/nearest.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"

enum { VERSION_MAX = 256 };

/* Fails because the value is not a number, or is out of its range. Returns -1. */
static int bad_range(const struct input_rule *in, const struct json *v, struct err *e)
{
    bool whole = in->kind == INPUT_KIND_INTEGER;
    char allowed[80];

    (void)snprintf(allowed, sizeof(allowed), "%s from %.0f to %.0f",
                   whole ? "an integer" : "a number", in->min, in->max);
    return field_bad(in->name, v, allowed, e);
}

/* --- one value --- */

/* Returns the number that a text of a query spells. Returns v itself if it is not such a text. */
static const struct json *to_number(struct arena *a, const struct json *v, bool as_text)
{
    const struct json *n = NULL;

    if (!as_text || !json_is(v, JSON_STRING))
        return v;
    if (json_parse(a, json_string(v), &n, NULL))
        return v;
    return n;
}

/* Checks that the value is a number, or an integer, within its range. */
static int check_number(struct arena *a, const struct input_rule *in, const struct json *given,
                        bool as_text, struct err *e)
{
    const struct json *v = to_number(a, given, as_text);
    int64_t n = 0;
    double d = 0;

    if (json_to_double(v, &d) || !(d >= in->min && d <= in->max) ||
        (in->kind == INPUT_KIND_INTEGER && json_to_i64(v, &n)))
        return bad_range(in, given, e);
    return 0;
}

/* Checks that the value is a text within its limits in bytes. */
static int check_text(const struct input_rule *in, const struct json *v, struct err *e)
{
    char allowed[64];

    if (json_is(v, JSON_STRING) && (double)v->n >= in->min && (double)v->n <= in->max)
        return 0;
    (void)snprintf(allowed, sizeof(allowed), "a text%s of at most %.0f bytes",
                   in->min > 0 ? " that is not empty," : "", in->max);
    return field_bad(in->name, v, allowed, e);
}

/* Checks that the value is one of the choices. */
static int check_choice(const struct input_rule *in, const struct json *v, struct err *e)
{
    struct str left = str_cstr(in->choices), given = json_string(v);
    char allowed[200];

    while (left.len > 0) {
        if (str_eq(str_trim(str_cut(&left, ',')), given) && given.p)
            return 0;
    }
    (void)snprintf(allowed, sizeof(allowed), "one of %s", in->choices);
    return field_bad(in->name, v, allowed, e);
}

/* Checks a switch. An empty text is true, because a query may have the name alone. Readers of
 * single options may allow further words. */
static int check_switch(const struct input_rule *in, const struct json *v, struct err *e)
{
    static const char *const words[] = {"on", "off", "true", "false", "1", "0", ""};
    struct str text = json_text(v);

    return json_is(v, JSON_BOOL) || (text.p && str_is_one_of(text, words, ARRAY_LEN(words)))
               ? 0
               : field_bad(in->name, v, "on or off", e);
}

/* Checks that the value is an object of texts and numbers. */
static int check_labels(const struct input_rule *in, const struct json *v, struct err *e)
{
    if (!json_is(v, JSON_OBJECT))
        return field_bad(in->name, v, "an object", e);
    for (uint32_t i = 0; i < v->n; i++) {
        struct str name = json_string(&v->members[i].key);
        struct field_shown shown = {0};
        char path[96];

        if (json_text(&v->members[i].value).p && name.len > 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s.%s", in->name, field_show_name(name, &shown));
        return field_bad(path, &v->members[i].value, "a string or a number, under a name", e);
    }
    return 0;
}

/* Checks that the value is an object with the name of an engine, and nothing else. */
static int check_prefer(const struct input_rule *in, const struct json *v, struct err *e)
{
    static const char *const known[] = {"engine"};
    struct field_reader f = {.body = v, .e = e};
    const struct json *engine = json_get(v, known[0]);

    if (!json_is(v, JSON_OBJECT))
        return field_bad(in->name, v, "an object with the member engine", e);
    if (fields_known(&f, in->name, known, ARRAY_LEN(known)))
        return -1;
    if (json_is(engine, JSON_STRING) && engine->n > 0 && (double)engine->n <= in->max)
        return 0;
    return field_bad("prefer.engine", engine, "the name of an engine", e);
}

/* Checks a weight version: an integer of 0 or more, or a text of at most VERSION_MAX bytes. A text
 * that begins like a negative number is refused. */
static int check_weights(const struct input_rule *in, const struct json *v, struct err *e)
{
    struct str text = json_string(v);
    int64_t n = -1;
    bool below = text.len > 1 && text.p[0] == '-' && text.p[1] >= '0' && text.p[1] <= '9';

    if (json_is(v, JSON_STRING) && text.len > 0 && text.len <= VERSION_MAX && !below)
        return 0;
    if (json_to_i64(v, &n) == 0 && n >= 0)
        return 0;
    return field_bad(in->name, v, "an integer of 0 or more, a name of at most 256 bytes, or null",
                     e);
}

/* Checks that the value is a list of texts that are not empty. */
static int check_texts(const struct input_rule *in, const struct json *v, struct err *e)
{
    char allowed[64];

    (void)snprintf(allowed, sizeof(allowed), "a list of at most %.0f texts", in->max);
    if (!json_is(v, JSON_ARRAY) || (double)v->n > in->max)
        return field_bad(in->name, v, allowed, e);
    for (uint32_t i = 0; i < v->n; i++) {
        if (json_is(&v->items[i], JSON_STRING) && v->items[i].n > 0)
            continue;
        return field_bad(in->name, &v->items[i], "a list of texts that are not empty", e);
    }
    return 0;
}

/* Checks a filter, NAME=VALUE or NAME. A name alone must have plain letters: "group:1" is a typing
 * error, and would match nothing. */
static int check_filter(const struct input_rule *in, const struct json *v, struct err *e)
{
    struct str given = json_string(v);
    size_t eq = str_find(given, STR("="), 0);

    if ((eq != SIZE_MAX && eq > 0) ||
        (eq == SIZE_MAX && given.len > 0 && str_has_only(given, "_-./")))
        return 0;
    return field_bad(in->name, v, "NAME=VALUE, or NAME for any value", e);
}

/* --- sampling parameters --- */

/* Fails with the nearest sampling parameter and all known ones. Returns -1. */
static int unknown_parameter(const char *where, struct str given, struct err *e)
{
    struct nearest near = nearest_to(given);
    struct buf known = {0};
    struct field_shown shown = {0};
    const char *name = field_show_name(given, &shown);

    for (size_t i = 0; sampling_name_at(i); i++)
        nearest_offer(&near, sampling_name_at(i));
    nearest_offer(&near, SAMPLING_ENGINE_EXTRA);
    sampling_names(&known);
    (void)err_field(e, name,
                    "%s: \"%s\" is no sampling parameter%s%s%s. Known: %.*s; "
                    "fields of the engine's own go into " SAMPLING_ENGINE_EXTRA,
                    where, name, near.name ? " (did you mean \"" : "", near.name ? near.name : "",
                    near.name ? "\"?)" : "", (int)known.len, known.p);
    buf_done(&known);
    return -1;
}

/* Checks that engine_extra is an object or null. The handler checks its members against the engine.
 */
static int check_extra(const struct json *v, struct err *e)
{
    return json_is_null(v) || json_is(v, JSON_OBJECT)
               ? 0
               : field_bad("sampling_params." SAMPLING_ENGINE_EXTRA, v, "an object", e);
}

/* Checks an object of sampling parameters: sets each one in a scratch struct, so that the setter's
 * checks apply. */
static int check_sampling(const struct json *given, struct err *e)
{
    struct sampling unused = SAMPLING_DEFAULTS;
    struct arena a = {0};
    int rc = 0;

    for (size_t i = 0; json_is(given, JSON_OBJECT) && i < given->n && rc == 0; i++) {
        struct str name = json_string(&given->members[i].key);

        rc = str_eq_c(name, SAMPLING_ENGINE_EXTRA) ? check_extra(&given->members[i].value, e)
             : sampling_known(name) ? sampling_set(&a, &unused, name, &given->members[i].value, e)
                                    : unknown_parameter("sampling_params", name, e);
    }
    arena_done(&a);
    return rc;
}

/* Checks one sampling parameter in the same way. */
static int check_parameter(struct arena *a, const char *name, const struct json *v, struct err *e)
{
    struct sampling unused = SAMPLING_DEFAULTS;

    return sampling_set(a, &unused, str_cstr(name), v, e);
}

/* Checks a list of names of sampling parameters. An unknown name is an error, because it would lock
 * nothing without a message. */
static int check_locks(const struct input_rule *in, const struct json *v, struct err *e)
{
    if (!json_is(v, JSON_ARRAY))
        return field_bad(in->name, v, "a list", e);
    for (uint32_t i = 0; i < v->n; i++) {
        char where[40];

        (void)snprintf(where, sizeof(where), "lock_sampling[%u]", i);
        if (!json_is(&v->items[i], JSON_STRING)) {
            (void)field_bad(where, &v->items[i], "the name of a sampling parameter", e);
        } else if (sampling_known(json_string(&v->items[i]))) {
            continue;
        } else {
            (void)unknown_parameter(where, json_string(&v->items[i]), e);
        }
        (void)snprintf(e->param, sizeof(e->param), "%s", in->name);
        return -1;
    }
    return 0;
}

int input_value_check(struct arena *a, const struct input_rule *in, const struct json *v,
                      bool as_text, struct err *e)
{
    if (json_is_null(v))
        return 0;
    switch (in->kind) {
    case INPUT_KIND_BOOL:
        return json_is(v, JSON_BOOL) ? 0 : field_bad(in->name, v, "true or false", e);
    case INPUT_KIND_SWITCH:
        return check_switch(in, v, e);
    case INPUT_KIND_INTEGER:
    case INPUT_KIND_NUMBER:
        return check_number(a, in, v, as_text, e);
    case INPUT_KIND_TEXT:
        return check_text(in, v, e);
    case INPUT_KIND_NAME:
        return check_choice(in, v, e);
    case INPUT_KIND_OBJECT:
        return json_is(v, JSON_OBJECT) ? 0 : field_bad(in->name, v, "an object", e);
    case INPUT_KIND_TEXTS:
        return check_texts(in, v, e);
    case INPUT_KIND_LOCKS:
        return check_locks(in, v, e);
    case INPUT_KIND_SCORES:
    case INPUT_KIND_PICTURES:
    case INPUT_KIND_URLS:
    case INPUT_KIND_REPORTS:
        return json_is(v, JSON_ARRAY) ? 0 : field_bad(in->name, v, "a list of objects", e);
    case INPUT_KIND_PREFER:
        return check_prefer(in, v, e);
    case INPUT_KIND_LABELS:
        return check_labels(in, v, e);
    case INPUT_KIND_SAMPLING:
        return json_is(v, JSON_OBJECT) ? check_sampling(v, e)
                                       : field_bad(in->name, v, "an object", e);
    case INPUT_KIND_PARAMETER:
        return check_parameter(a, in->name, v, e);
    case INPUT_KIND_WEIGHTS:
        return check_weights(in, v, e);
    case INPUT_KIND_FILTER:
        return check_filter(in, v, e);
    case INPUT_KIND_HIDDEN:
    default:
        return 0;
    }
}
