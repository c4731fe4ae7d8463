/* Holds a group's session options to the table of POST /sessions (group_session.h). The checks name
 * an option as POST /sessions does; its place in the submission is put before it afterwards. */

#include "dispatcher/group_session.h"

#include <stdio.h>
#include <string.h>

#include "common/codec/fields.h"
#include "common/codec/input_value.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "common/proc/config.h"

static const struct input_rule rows[] = {
#define X(sets, name, place, kind, min, max, choices, summary) \
    {name, INPUT_KIND_##kind, min, max, choices},
#include "common/codec/session_options.def"
#undef X
};

static const struct input_rule sampling_rule = {"sampling_params", INPUT_KIND_SAMPLING, 0, 0, NULL};

/* Puts the place before the error's text and parameter; returns -1. Errors of sampling parameters
 * may name the parameter alone. */
static int placed(const char *place, bool sampling, struct err *e)
{
    struct err inner = *e;
    size_t n = strlen(sampling_rule.name);
    bool text = sampling && strncmp(inner.text, sampling_rule.name, n) != 0;
    bool param = sampling && strncmp(inner.param, sampling_rule.name, n) != 0;
    char name[sizeof(e->param) * 2];

    (void)snprintf(name, sizeof(name), "%s%s%s%s", place, param ? sampling_rule.name : "",
                   param ? "." : "", inner.param);
    return err_field(e, name, "%s%s%s%s", place, text ? sampling_rule.name : "", text ? "." : "",
                     inner.text);
}

/* The row's index; ARRAY_LEN: there is none for groups. Sampling parameters of sessions stand in
 * sampling_params. */
static size_t find_row(struct str name)
{
    size_t i = 0;

    while (i < ARRAY_LEN(rows) &&
           (rows[i].kind == INPUT_KIND_PARAMETER || !str_eq_c(name, rows[i].name)))
        i++;
    return i;
}

/* Names that a group's `session` does not know. */
static int check_names(struct field_reader *f)
{
    const char *known[ARRAY_LEN(rows)];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (find_row(str_cstr(rows[i].name)) == i)
            known[n++] = rows[i].name;
    return fields_known(f, "session", known, n);
}

static int check_values(const struct json *session, const char *place, struct err *e)
{
    struct arena a = {0};
    int rc = 0;

    for (uint32_t i = 0; json_is(session, JSON_OBJECT) && i < session->n && rc == 0; i++) {
        const struct input_rule *rule = &rows[find_row(json_string(&session->members[i].key))];

        rc = input_value_check(&a, rule, &session->members[i].value, false, e);
        if (rc)
            rc = placed(place, rule->kind == INPUT_KIND_SAMPLING, e);
    }
    arena_done(&a);
    return rc;
}

/* What POST /sessions refuses together, or beyond the gateway's limits. */
static int check_rules(const struct json *session, const struct config *config, const char *place,
                       struct err *e)
{
    static const char *const histories[] = {[HISTORY_TREE] = "tree",
                                            [HISTORY_CHAINS] = "chains",
                                            [HISTORY_LINEAR] = "linear",
                                            [HISTORY_TIMELINES] = "timelines"};
    struct str history = json_string(json_get(session, "history"));
    struct arena a = {0};
    const char *name = history.p ? arena_cstr(&a, history) : histories[config->history];
    int rc = 0;

    if (session_rules_nodes(session, config->max_nodes, e) || session_rules_size(session, e) ||
        session_rules_branch(session, name, e))
        rc = placed(place, false, e);
    arena_done(&a);
    return rc;
}

static int check_members(const struct json *members, const char *where, struct err *e)
{
    for (uint32_t i = 0; json_is(members, JSON_ARRAY) && i < members->n; i++) {
        const struct json *given = json_get(json_at(members, i), "sampling_params");
        struct arena a = {0};
        char place[96];
        int rc;

        (void)snprintf(place, sizeof(place), "%smembers[%u].", where, i);
        rc = input_value_check(&a, &sampling_rule, given, false, e);
        arena_done(&a);
        if (rc)
            return placed(place, true, e);
    }
    return 0;
}

static const struct json *given_of(const struct json *body, const struct json *defaults,
                                   const char *name)
{
    const struct json *own = json_get(body, name);

    return own ? own : json_get(defaults, name);
}

int group_session_check(const struct json *body, const struct json *defaults,
                        const struct config *config, const char *where, struct err *e)
{
    const struct json *session = given_of(body, defaults, "session");
    struct field_reader f = {.body = session, .where = where, .e = e};
    char place[96];

    (void)snprintf(place, sizeof(place), "%ssession.", where);
    return check_names(&f) || check_values(session, place, e) ||
                   check_rules(session, config, place, e) ||
                   check_members(given_of(body, defaults, "members"), where, e)
               ? -1
               : 0;
}
