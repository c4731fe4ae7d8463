/*
 * The table of options is made from common/codec/exports.def, whose rows are also those of finalize
 * in the worker (worker/plane/api/inputs.def). Finalize checks them when an attempt ends. The check
 * here comes when the group is submitted. Otherwise a group with refused options would run all its
 * attempts and fail at the end of each. check_reward and check_merge contain the rules between
 * several rows.
 */
#include "dispatcher/group_export.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "common/codec/fields.h"
#include "common/codec/format_list.h"
#include "common/codec/json.h"

enum option_kind { OPTION_NAME, OPTION_SWITCH, OPTION_INTEGER, OPTION_TEXT, OPTION_OBJECT };

struct option {
    const char *name;
    enum option_kind kind;
    double min, max;
    const char *choices;
};

static const struct option options[] = {
#define X(sets, name, place, kind, min, max, choices, summary) \
    {name, OPTION_##kind, min, max, choices},
#include "common/codec/exports.def"
#undef X
};

static const char *const names[] = {
#define X(sets, name, place, kind, min, max, choices, summary) name,
#include "common/codec/exports.def"
#undef X
};

static bool is_choice(const char *choices, struct str given)
{
    struct str left = str_cstr(choices);

    while (left.len > 0) {
        size_t comma = str_find(left, STR(", "), 0);
        struct str one = str_sub(left, 0, comma);

        if (given.p && str_eq(one, given))
            return true;
        left = str_sub(left, one.len + 2, SIZE_MAX);
    }
    return false;
}

static bool is_switch(const struct json *v)
{
    static const char *const words[] = {"on", "off", "true", "false", "1", "0"};

    return json_is(v, JSON_BOOL) || str_is_one_of(json_text(v), words, ARRAY_LEN(words));
}

/* Accepts a number, or its digits as a text. */
static bool is_count(const struct option *o, const struct json *v)
{
    uint64_t n = 0;

    return str_to_u64(json_text(v), (uint64_t)o->max, &n) == 0 && (double)n >= o->min;
}

static bool is_text_value(const struct option *o, const struct json *v)
{
    return json_is(v, JSON_STRING) && (double)v->n >= o->min && (double)v->n <= o->max;
}

/* Reports whether the option may have the value. If not, `allowed` describes the allowed values. */
static bool is_allowed_value(const struct option *o, const struct json *v, char *allowed,
                             size_t size)
{
    switch (o->kind) {
    case OPTION_NAME:
        (void)snprintf(allowed, size, "one of %s", o->choices);
        return is_choice(o->choices, json_string(v));
    case OPTION_SWITCH:
        (void)snprintf(allowed, size, "on or off");
        return is_switch(v);
    case OPTION_INTEGER:
        (void)snprintf(allowed, size, "an integer from %.0f to %.0f", o->min, o->max);
        return is_count(o, v);
    case OPTION_TEXT:
        (void)snprintf(allowed, size, "a text of %.0f to %.0f bytes", o->min, o->max);
        return is_text_value(o, v);
    case OPTION_OBJECT:
    default:
        (void)snprintf(allowed, size, "an object");
        return json_is(v, JSON_OBJECT);
    }
}

static int option_fault(const char *where, const char *name, const struct json *v,
                        const char *allowed, struct err *e)
{
    char full[128];

    (void)snprintf(full, sizeof(full), "%sexport.%s", where, name);
    return field_bad(full, v, allowed, e);
}

/* Checks the reward in the metadata like finalize does: trainers get rewards as float32. */
static int check_reward(const struct json *metadata, const char *where, struct err *e)
{
    const struct json *reward = json_get(metadata, "reward");
    double d = 0;

    if (json_is_null(reward) || (json_is(reward, JSON_NUMBER) && json_to_double(reward, &d) == 0 &&
                                 isfinite(d) && fabs(d) <= (double)FLT_MAX))
        return 0;
    return option_fault(where, "metadata.reward", reward, "a number that a float32 holds", e);
}

/* Refuses a combination of options that finalize refuses, too. */
static int check_merge(const struct json *given, const char *where, struct err *e)
{
    struct str merge = json_string(json_get(given, "merge"));

    if (!merge.p || str_eq_c(merge, "none") ||
        !str_eq_c(json_string(json_get(given, "select")), "all_checkpoints"))
        return 0;
    return option_fault(where, "select", json_get(given, "select"),
                        "leaves, last or longest where merge joins answers", e);
}

int group_export_check(const struct json *body, const struct json *defaults, const char *where,
                       struct err *e)
{
    const struct json *own = json_get(body, "export");
    const struct json *given = own ? own : json_get(defaults, "export");
    struct field_reader f = {.body = given, .where = where, .e = e};
    char allowed[200];

    if (fields_known(&f, "export", names, ARRAY_LEN(names)))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        const struct json *v = json_get(given, options[i].name);

        if (!json_is_null(v) && !is_allowed_value(&options[i], v, allowed, sizeof(allowed)))
            return option_fault(where, options[i].name, v, allowed, e);
    }
    return check_reward(json_get(given, "metadata"), where, e) || check_merge(given, where, e) ? -1
                                                                                               : 0;
}
