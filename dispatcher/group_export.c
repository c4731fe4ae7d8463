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
#include "common/codec/input_value.h"
#include "common/codec/json.h"

static const struct input_rule rows[] = {
#define X(sets, name, place, kind, min, max, choices, summary) \
    {name, INPUT_KIND_##kind, min, max, choices},
#include "common/codec/exports.def"
#undef X
};

static const char *const names[] = {
#define X(sets, name, place, kind, min, max, choices, summary) name,
#include "common/codec/exports.def"
#undef X
};

static int option_fault(const char *where, const char *name, const struct json *v,
                        const char *allowed, struct err *e)
{
    char full[128];

    (void)snprintf(full, sizeof(full), "%sexport.%s", where, name);
    return field_bad(full, v, allowed, e);
}

/* Checks the value of one option. Numbers may be texts, because finalize reads options from its
 * query, too. */
static int check_option(const struct input_rule *row, const struct json *v, const char *where,
                        struct err *e)
{
    struct input_rule rule = *row;
    struct arena a = {0};
    char full[128];
    int rc;

    (void)snprintf(full, sizeof(full), "%sexport.%s", where, row->name);
    rule.name = full;
    rc = input_value_check(&a, &rule, v, true, e);
    arena_done(&a);
    return rc;
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

    if (fields_known(&f, "export", names, ARRAY_LEN(names)))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (check_option(&rows[i], json_get(given, rows[i].name), where, e))
            return -1;
    return check_reward(json_get(given, "metadata"), where, e) || check_merge(given, where, e) ? -1
                                                                                               : 0;
}
