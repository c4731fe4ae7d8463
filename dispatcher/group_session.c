/* Checks a group's session options against the table of POST /sessions, and writes those of an
 * attempt (group_session.h). The checks name an option like POST /sessions; its path in the
 * submission is added afterwards.
 *
 * The merged size is first bounded by sums that count a name twice if two objects have it. Only if
 * that bound is too large are the shared objects merged, once, and the additions of each member
 * counted. Only if that is too large, too, are the options of an attempt written, to find by how
 * much they exceed the limit. */

#include "dispatcher/group_session.h"

#include <stdio.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/limits.h"
#include "common/base/map.h"
#include "common/codec/fields.h"
#include "common/codec/input_value.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"
#include "common/proc/config.h"
#include "dispatcher/rollouts.h"

static const struct input_rule rows[] = {
#define X(sets, name, place, kind, min, max, choices, summary) \
    {name, INPUT_KIND_##kind, min, max, choices},
#include "common/codec/session_options.def"
#undef X
};

static const struct input_rule sampling_rule = {"sampling_params", INPUT_KIND_SAMPLING, 0, 0, NULL};

/* Puts the path before the error's text and parameter. Returns -1. An error about a sampling
 * parameter may have only the parameter's name. */
static int prefix_error(const char *place, bool sampling, struct err *e)
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

/* Returns the row's index; ARRAY_LEN: groups do not have this option. Sampling parameters of
 * sessions are in sampling_params. */
static size_t find_row(struct str name)
{
    size_t i = 0;

    while (i < ARRAY_LEN(rows) &&
           (rows[i].kind == INPUT_KIND_PARAMETER || !str_eq_c(name, rows[i].name)))
        i++;
    return i;
}

/* Refuses names that a group's `session` does not have. */
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
            rc = prefix_error(place, rule->kind == INPUT_KIND_SAMPLING, e);
    }
    arena_done(&a);
    return rc;
}

/* Checks the options that POST /sessions refuses together, or beyond the gateway's limits. */
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

    if (session_rules_nodes(session, config->max_nodes, e) ||
        session_rules_size(session, config->max_metadata_bytes, e) ||
        session_rules_branch(session, name, e))
        rc = prefix_error(place, false, e);
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
            return prefix_error(place, true, e);
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

/* --- the session of an attempt --- */

/* Objects from which the options of a session are merged. */
struct session_parts {
    const struct json *session, *metadata, *labels, *members;
    struct str group;
    uint32_t group_size;
};

/* Merges objects. The last value of a name wins; members are in the order of their first
 * appearance. */
static void put_merged(struct json_out *o, const char *name, const struct json *const all[],
                       size_t n)
{
    struct map last = {0}; /* maps a name to 1 + the index of the last object that has it */

    for (size_t i = 0; i < n; i++)
        for (uint32_t m = 0; all[i] && all[i]->kind == JSON_OBJECT && m < all[i]->n; m++)
            (void)map_set(&last, json_string(&all[i]->members[m].key), (void *)(uintptr_t)(i + 1));
    json_out_member_obj(o, name);
    for (size_t i = 0; i < n; i++)
        for (uint32_t m = 0; all[i] && all[i]->kind == JSON_OBJECT && m < all[i]->n; m++) {
            struct str key = json_string(&all[i]->members[m].key);

            if (map_get(&last, key) != (void *)(uintptr_t)(i + 1))
                continue;
            json_out_member_of(o, key, &all[i]->members[m].value);
        }
    json_out_end_obj(o);
    map_done(&last);
}

static bool set_here(struct str key)
{
    return str_eq_c(key, "hold") || str_eq_c(key, "sink") || str_eq_c(key, "dispatched") ||
           str_eq_c(key, "metadata") || str_eq_c(key, "labels") || str_eq_c(key, "sampling_params");
}

/* Writes the options. `attempt`: object with the attempt's id, which becomes a label. */
static void write_options(const struct session_parts *p, uint32_t rollout,
                          const struct json *attempt, struct buf *out)
{
    const struct json *member = json_at(p->members, rollout), *session = p->session;
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    for (uint32_t i = 0; json_is(session, JSON_OBJECT) && i < session->n; i++) {
        if (set_here(json_string(&session->members[i].key)))
            continue;
        json_out_member_of(&o, json_string(&session->members[i].key), &session->members[i].value);
    }
    put_merged(&o, "metadata",
               (const struct json *const[]){p->metadata, json_get(session, "metadata"),
                                            json_get(member, "metadata")},
               3);
    put_merged(&o, "sampling_params",
               (const struct json *const[]){json_get(session, "sampling_params"),
                                            json_get(member, "sampling_params")},
               2);
    put_merged(&o, "labels",
               (const struct json *const[]){attempt, json_get(session, "labels"), p->labels}, 3);
    json_out_member_str(&o, "group", p->group);
    json_out_member_i64(&o, "rollout", rollout);
    json_out_member_i64(&o, "group_size", p->group_size);
    json_out_member_bool(&o, "hold", true);
    json_out_member_bool(&o, "dispatched", true);
    /* sinks get the session when the attempt counts, not when the session ends */
    json_out_member_bool(&o, "sink", false);
    json_out_end_obj(&o);
}

static struct session_parts collect_objects(const struct json *body, const struct json *defaults,
                                            struct str group, uint32_t group_size)
{
    return (struct session_parts){.session = given_of(body, defaults, "session"),
                                  .metadata = given_of(body, defaults, "metadata"),
                                  .labels = given_of(body, defaults, "labels"),
                                  .members = given_of(body, defaults, "members"),
                                  .group = group,
                                  .group_size = group_size};
}

bool group_session_write(const struct group *g, uint32_t rollout, const char *attempt,
                         struct buf *out)
{
    struct arena a = {0};
    const struct json *text = NULL, *label = NULL;
    struct session_parts parts;
    struct err e;
    bool chooses;

    (void)json_parse(&a, str_of(g->text, g->text_len), &text, &e);
    (void)json_parse(&a, arena_printf(&a, "{\"attempt\":\"%s\"}", attempt), &label, &e);
    parts = collect_objects(text, NULL, g->spec.id, group_rollouts(g));
    write_options(&parts, rollout, label, out);
    chooses = json_get(parts.session, "node") || json_get(parts.session, "prefer");
    arena_done(&a);
    return chooses;
}

/* --- sizes of merged options --- */

/* Upper bound of the bytes that the dispatcher itself adds to an attempt's options. */
enum { OWN_BYTES = 1024 };

/* Sums of one session: members of metadata, bytes of the other options, bytes of all. */
struct session_sum {
    size_t members, metadata_bytes, other_bytes, bytes;
};

/* An object that all members share and a member may extend. Maps each name to the bytes of its
 * value. */
struct shared_part {
    struct map values;
};

/* The shared objects merged as in a session, and their sums. */
struct merged {
    bool is_made;
    struct shared_part metadata, sampling;
    struct session_sum sum;
};

static size_t value_bytes(const struct json *v)
{
    struct buf text = {0};
    size_t n;

    if (v)
        json_write(&text, v);
    n = text.len;
    buf_done(&text);
    return n;
}

static size_t members_of(const struct json *v)
{
    return json_is(v, JSON_OBJECT) ? v->n : 0;
}

static void add_metadata(struct session_sum *s, const struct json *metadata)
{
    s->members += members_of(metadata);
    s->metadata_bytes += value_bytes(metadata);
    s->bytes += value_bytes(metadata);
}

static void add_other(struct session_sum *s, size_t bytes)
{
    s->other_bytes += bytes;
    s->bytes += bytes;
}

/* Returns an upper bound for what all rollouts share. */
static struct session_sum bound_shared(const struct session_parts *p)
{
    const struct json *metadata = json_get(p->session, "metadata");
    struct session_sum s = {0};

    add_other(&s,
              OWN_BYTES + value_bytes(p->labels) + value_bytes(p->session) - value_bytes(metadata));
    add_metadata(&s, p->metadata);
    add_metadata(&s, metadata);
    return s;
}

static struct session_sum bound_member(const struct session_sum *shared, const struct json *member)
{
    struct session_sum s = *shared;

    add_metadata(&s, json_get(member, "metadata"));
    add_other(&s, value_bytes(json_get(member, "sampling_params")));
    return s;
}

static bool is_within(const struct session_sum *s, const struct config *config)
{
    size_t most = (size_t)config->max_control_body_bytes,
           most_metadata = (size_t)config->max_metadata_bytes;

    return s->members <= SESSION_MEMBERS_MAX && s->other_bytes <= SESSION_OPTIONS_MAX &&
           (most_metadata == 0 || s->metadata_bytes <= most_metadata) &&
           (most == 0 || s->bytes <= most);
}

/* Writes the options of one rollout, with a label as long as a real attempt's. */
static void write_dummy(const struct session_parts *p, uint32_t rollout, struct buf *out)
{
    char id[ATTEMPT_ID_LEN];
    struct json_member member = {json_make_string(STR("attempt")),
                                 json_make_string(str_of(id, sizeof(id)))};
    struct json label = {.kind = JSON_OBJECT, .n = 1, .members = &member};

    memset(id, '0', sizeof(id));
    write_options(p, rollout, &label, out);
}

static void record_values(struct shared_part *part, const struct json *object)
{
    for (uint32_t i = 0; json_is(object, JSON_OBJECT) && i < object->n; i++)
        (void)map_set(&part->values, json_string(&object->members[i].key),
                      (void *)(uintptr_t)value_bytes(&object->members[i].value));
}

/* Computes the sums of what all rollouts share, after merging. */
static void merge_shared(const struct session_parts *p, struct merged *m)
{
    static const struct json none = {0};
    const struct json *options = &none;
    struct session_parts shared = *p;
    struct arena a = {0};
    struct buf text = {0};
    struct err e;

    shared.members = &none;
    write_dummy(&shared, 0, &text);
    (void)json_parse(&a, buf_str(&text), &options, &e);
    m->sum = (struct session_sum){.bytes = text.len,
                                  .members = members_of(json_get(options, "metadata")),
                                  .metadata_bytes = value_bytes(json_get(options, "metadata"))};
    for (uint32_t i = 0; json_is(options, JSON_OBJECT) && i < options->n; i++)
        if (!str_eq_c(json_string(&options->members[i].key), "metadata"))
            m->sum.other_bytes += value_bytes(&options->members[i].value);
    record_values(&m->metadata, p->metadata);
    record_values(&m->metadata, json_get(p->session, "metadata"));
    record_values(&m->sampling, json_get(p->session, "sampling_params"));
    m->is_made = true;
    buf_done(&text);
    arena_done(&a);
}

/* Adds a member's object to the shared one. *ret_names gets the number of new names. Returns the
 * added bytes, negative if the object's values are shorter than those that they replace. */
static int64_t add_values(const struct shared_part *part, const struct json *object,
                          size_t *ret_names)
{
    int64_t bytes = 0;

    *ret_names = 0;
    for (uint32_t i = 0; json_is(object, JSON_OBJECT) && i < object->n; i++) {
        const struct json_member *m = &object->members[i];
        size_t had = (size_t)(uintptr_t)map_get(&part->values, json_string(&m->key));

        bytes += (int64_t)value_bytes(&m->value) - (int64_t)had;
        if (had > 0)
            continue;
        bytes += (int64_t)value_bytes(&m->key) + 2; /* plus a colon and a comma */
        (*ret_names)++;
    }
    return part->values.n == 0 && *ret_names > 0 ? bytes - 1 : bytes;
}

static struct session_sum sum_member(const struct merged *shared, const struct json *member,
                                     uint32_t rollout)
{
    struct session_sum s = shared->sum;
    size_t names, more;

    for (; rollout >= 10; rollout /= 10)
        add_other(&s, 1); /* the shared sum has 0 here */
    more = (size_t)add_values(&shared->metadata, json_get(member, "metadata"), &names);
    s.bytes += more;
    s.metadata_bytes += more;
    s.members += names;
    add_other(&s,
              (size_t)add_values(&shared->sampling, json_get(member, "sampling_params"), &names));
    return s;
}

/* Returns the path in the submission below which the option is, for errors. */
static const char *option_path(const char *option)
{
    return strcmp(option, "metadata") == 0 || strcmp(option, "labels") == 0 ? "" : "session.";
}

/* Checks the written options of one rollout. */
static int check_written(struct str options, const struct config *config, struct err *e)
{
    size_t most = (size_t)config->max_control_body_bytes;
    struct arena a = {0};
    const struct json *v = NULL;
    int rc = json_parse(&a, options, &v, e) || session_rules_size(v, config->max_metadata_bytes, e)
                 ? -1
                 : 0;

    if (rc == 0 && most > 0 && options.len > most)
        rc = err_field(e, "metadata",
                       "the options take %zu bytes, of which --max-control-body-bytes allows %zu",
                       options.len, most);
    arena_done(&a);
    return rc;
}

static int check_rollout(const struct session_parts *p, uint32_t rollout,
                         const struct config *config, const char *where, struct err *e)
{
    struct buf options = {0};
    struct err inner = {0};
    char name[sizeof(e->param) * 2];
    int rc;

    write_dummy(p, rollout, &options);
    rc = check_written(buf_str(&options), config, &inner);
    buf_done(&options);
    if (rc == 0)
        return 0;
    (void)snprintf(name, sizeof(name), "%s%s%s", where, option_path(inner.param), inner.param);
    return err_field(e, name, "%s: in the session of rollout %u, %s", name, rollout, inner.text);
}

/* Reports whether the session is within the limits, as far as counting shows. */
static bool is_light(const struct session_parts *p, uint32_t rollout,
                     const struct session_sum *bound, const struct config *config, struct merged *m)
{
    const struct json *member = json_at(p->members, rollout);
    struct session_sum s = bound_member(bound, member);

    if (is_within(&s, config))
        return true;
    if (!m->is_made)
        merge_shared(p, m);
    s = sum_member(m, member, rollout);
    return is_within(&s, config);
}

int group_session_check_sum(const struct group_spec *spec, const struct json *body,
                            const struct json *defaults, const struct config *config,
                            const char *where, struct err *e)
{
    uint32_t n = spec->n + spec->extra;
    struct session_parts p = collect_objects(body, defaults, spec->id, n);
    struct session_sum bound = bound_shared(&p);
    struct merged merged = {0};
    uint32_t given = json_is(p.members, JSON_ARRAY) ? p.members->n : 0;
    int rc = 0;

    /* Rollouts without members of their own differ only in their number. The last one, whose number
     * is longest, stands for all of them. */
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        k = k == given ? n - 1 : k;
        if (!is_light(&p, k, &bound, config, &merged))
            rc = check_rollout(&p, k, config, where, e);
    }
    map_done(&merged.metadata.values);
    map_done(&merged.sampling.values);
    return rc;
}
