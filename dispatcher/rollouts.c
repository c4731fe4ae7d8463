/*
 * group_parse reads a submission in the order id, names, counts, the rest, nested objects, and
 * stops at the first fault. Each field is searched in the group, then in the defaults of its
 * request. group_write_submission writes the fields in the order of `known`. So a repeated
 * submission usually gives the same bytes, and can be distinguished from a conflicting one without
 * parsing (groups.c).
 *
 * group_write_export leaves out `format` and the two require_ options. These belong to the receiver
 * of the session: the dispatcher's finalize checks them and wants no trajectories in its answer.
 */
#include "dispatcher/rollouts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"
#include "common/codec/session_rules.h"

enum { NAME_MAX_LEN = 128, SECONDS_MAX = 366 * 86400 };

const char *const group_state_names[GROUP_STATES] = {"waiting", "running", "finished",
                                                     "partial", "failed",  "cancelled"};
const char *const rollout_state_names[ROLLOUT_STATES] = {"waiting", "running",   "succeeded",
                                                         "failed",  "cancelled", "lost"};
const char *const outcome_names[OUTCOMES] = {"ok", "timeout", "error", "infra", "cancelled"};

static const char ID_FORM[] = "1 to 128 letters, digits, '.' and '-'"; /* GROUP_ID_MAX */

static const char *const on_names[] = {"keep", "retry", "drop"};
static const char *const reward_names[] = {"required", "external"};

/* All fields of a group; any other field is an error. */
static const char *const known[] = {
    "id",       "queue",    "runner",         "input",      "n",       "extra",
    "min",      "attempts", "infra_attempts", "on",         "reward",  "fail_reward",
    "priority", "version",  "run_timeout_s",  "deadline_s", "session", "members",
    "export",   "labels",   "metadata"};
static const char *const known_on[] = {"timeout", "error", "infra"};
static const char *const known_member[] = {"sampling_params", "metadata"};

/* Returns a member of the submission, else of the defaults. */
static const struct json *find_member(const struct json *body, const struct json *defaults,
                                      const char *name)
{
    const struct json *v = json_get(body, name);

    return v ? v : json_get(defaults, name);
}

static int read_id(struct field_reader *f, struct str path_id, struct str *ret)
{
    const struct json *v = json_get(f->body, "id");
    struct str id = v ? json_string(v) : path_id;

    if (v && path_id.p && !str_eq(id, path_id))
        return fields_fault(f, "id", "differs from the one in the path");
    if (!id.p || !session_rules_is_group_id(id))
        return fields_bad(f, "id", v, ID_FORM);
    *ret = id;
    return 0;
}

static int read_consequences(struct field_reader *f, enum on on[])
{
    const struct json *given = find_member(f->body, f->defaults, "on");
    struct field_reader inner = {.body = given, .e = f->e};
    char where[48];

    (void)snprintf(where, sizeof(where), "%son.", f->where);
    inner.where = where;
    on[OUTCOME_TIMEOUT] = ON_KEEP;
    on[OUTCOME_ERROR] = ON_RETRY;
    on[OUTCOME_INFRA] = ON_RETRY;
    if (json_is_null(given))
        return 0;
    if (!json_is(given, JSON_OBJECT))
        return fields_bad(f, "on", given, "an object");
    if (fields_known(&inner, "", known_on, ARRAY_LEN(known_on)))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(known_on); i++) {
        unsigned word = on[OUTCOME_TIMEOUT + i];

        if (fields_word(&inner, known_on[i], on_names, ARRAY_LEN(on_names), &word))
            return -1;
        on[OUTCOME_TIMEOUT + i] = (enum on)word;
    }
    return 0;
}

static int read_member_fields(struct field_reader *f, uint32_t n)
{
    const struct json *members = find_member(f->body, f->defaults, "members");

    if (json_is_null(members))
        return 0;
    if (!json_is(members, JSON_ARRAY) || members->n > n)
        return fields_fault(f, "members", "must be a list of at most n + extra = %u objects", n);
    for (uint32_t i = 0; i < members->n; i++) {
        struct field_reader inner = {.body = json_at(members, i), .e = f->e};
        char where[64];

        (void)snprintf(where, sizeof(where), "%smembers[%u].", f->where, i);
        inner.where = where;
        if (!json_is(inner.body, JSON_OBJECT))
            return fields_fault(f, "members", "must hold objects; [%u] is none", i);
        if (fields_known(&inner, "", known_member, ARRAY_LEN(known_member)) ||
            fields_object(&inner, "sampling_params") || fields_object(&inner, "metadata"))
            return -1;
    }
    return 0;
}

/* Refuses options that the gateway itself sets in each attempt's session. */
static int check_session(struct field_reader *f)
{
    static const char *const ours[] = {"count", "group", "rollout", "group_size", "hold"};
    const struct json *session = find_member(f->body, f->defaults, "session");
    const struct json *const labels[] = {find_member(f->body, f->defaults, "labels"),
                                         json_get(session, "labels")};
    static const char *const where[] = {"labels.attempt", "session.labels.attempt"};

    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "session.%s", ours[i]);
        if (json_get(session, ours[i]))
            return fields_fault(f, name, "is set by the gateway for every attempt");
    }
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (json_get(labels[i], "attempt"))
            return fields_fault(f, where[i], "is set by the gateway for every attempt");
    return 0;
}

static int read_objects(struct field_reader *f)
{
    static const char *const names[] = {"session", "export", "labels", "metadata"};
    const struct json *labels = find_member(f->body, f->defaults, "labels");

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (fields_object(f, names[i]))
            return -1;
    return fields_labels(f, labels) ? -1 : check_session(f);
}

static int read_input(struct field_reader *f)
{
    const struct json *input = find_member(f->body, f->defaults, "input");
    struct buf text = {0};
    size_t len;

    if (!input)
        return 0;
    json_write(&text, input);
    len = text.len;
    buf_done(&text);
    if (len > GROUP_INPUT_MAX)
        return fields_fault(f, "input", "has %zu bytes, at most %d are allowed", len,
                            GROUP_INPUT_MAX);
    return 0;
}

static int read_group_names(struct field_reader *f, struct group_spec *g)
{
    const struct json *queue = find_member(f->body, f->defaults, "queue");
    const struct json *runner = find_member(f->body, f->defaults, "runner");

    g->runner = json_string(runner);
    if (!g->runner.p || g->runner.len == 0 || g->runner.len > NAME_MAX_LEN)
        return fields_bad(f, "runner", runner, "a string of 1 to 128 bytes"); /* NAME_MAX_LEN */
    g->queue = STR("train");
    if (queue && queue->kind == JSON_NULL)
        g->queue = (struct str){0};
    else if (queue)
        g->queue = json_string(queue);
    if (queue && queue->kind != JSON_NULL && !session_rules_is_group_id(g->queue))
        return fields_bad(f, "queue", queue, "null or 1 to 128 letters, digits, '.' and '-'");
    return 0;
}

static int read_counts(struct field_reader *f, struct group_spec *g)
{
    int64_t n = 1, extra = 0, min, attempts = 3, infra = 10;

    if (fields_integer(f, "n", 1, GROUP_MAX, &n) ||
        fields_integer(f, "extra", 0, GROUP_MAX, &extra))
        return -1;
    min = n;
    if (fields_integer(f, "min", 0, n, &min) || fields_integer(f, "attempts", 1, 1000, &attempts) ||
        fields_integer(f, "infra_attempts", 1, 1000, &infra))
        return -1;
    g->n = (uint32_t)n;
    g->extra = (uint32_t)extra;
    g->min = (uint32_t)min;
    g->attempts = (uint32_t)attempts;
    g->infra_attempts = (uint32_t)infra;
    return 0;
}

static int read_other_fields(struct field_reader *f, struct group_spec *g)
{
    unsigned reward = 0;
    double run_s = 3600, deadline_s = 0;

    g->fail_reward = 0;
    if (fields_word(f, "reward", reward_names, ARRAY_LEN(reward_names), &reward) ||
        fields_number(f, "fail_reward", -HUGE_VAL, HUGE_VAL, &g->fail_reward) ||
        fields_integer(f, "priority", -1000000, 1000000, &g->priority) ||
        fields_number(f, "run_timeout_s", 0.001, SECONDS_MAX, &run_s) ||
        fields_number(f, "deadline_s", 0, SECONDS_MAX, &deadline_s))
        return -1;
    g->external_reward = reward == 1;
    g->has_version = !json_is_null(find_member(f->body, f->defaults, "version"));
    g->run_timeout_ms = (uint64_t)(run_s * 1000);
    g->deadline_ms = (uint64_t)(deadline_s * 1000);
    return g->has_version ? fields_integer(f, "version", 0, INT64_MAX, &g->version) : 0;
}

int group_check_defaults(const struct json *defaults, struct err *e)
{
    struct field_reader f = {.body = defaults, .e = e};

    return fields_known(&f, "defaults", known + 1, ARRAY_LEN(known) - 1); /* ids have no default */
}

int group_parse(const struct json *body, const struct json *defaults, struct str id,
                const char *where, struct group_spec *ret, struct err *e)
{
    struct field_reader f = {.body = body, .defaults = defaults, .where = where, .e = e};

    *ret = (struct group_spec){0};
    if (!json_is(body, JSON_OBJECT))
        return err_field(e, where[0] ? where : "groups", "a group must be an object");
    if (fields_known(&f, "", known, ARRAY_LEN(known)) || read_id(&f, id, &ret->id) ||
        read_group_names(&f, ret) || read_counts(&f, ret) || read_other_fields(&f, ret) ||
        read_consequences(&f, ret->on) || read_objects(&f) ||
        read_member_fields(&f, ret->n + ret->extra) || read_input(&f))
        return -1;
    return 0;
}

void group_write_submission(const struct json *body, const struct json *defaults, struct str id,
                            struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        const struct json *v = find_member(body, defaults, known[i]);

        if (i == 0) {
            json_out_member_str(&o, "id", id);
        } else if (v) {
            json_out_member_value(&o, known[i], v);
        }
    }
    json_out_end_obj(&o);
}

static struct str append_text(char **at, struct str text)
{
    struct str kept = str_of(*at, text.len);

    if (text.len > 0)
        memcpy(*at, text.p, text.len);
    *at += text.len;
    return kept;
}

/* Keeps the labels in one block: first the array, then its strings. */
static void keep_labels(struct group *g, const struct json *labels)
{
    size_t bytes = 0;
    char *at;

    if (!json_is(labels, JSON_OBJECT) || labels->n == 0)
        return;
    for (uint32_t i = 0; i < labels->n; i++)
        bytes +=
            json_string(&labels->members[i].key).len + json_text(&labels->members[i].value).len;
    g->n_labels = labels->n;
    g->labels = mem_alloc(g->n_labels * sizeof(*g->labels) + bytes);
    at = (char *)(g->labels + g->n_labels);
    for (uint32_t i = 0; i < labels->n; i++) {
        g->labels[i].name = append_text(&at, json_string(&labels->members[i].key));
        g->labels[i].value = append_text(&at, json_text(&labels->members[i].value));
    }
}

struct str group_label(const struct group *g, struct str name)
{
    for (size_t i = 0; i < g->n_labels; i++)
        if (str_eq(g->labels[i].name, name))
            return g->labels[i].value;
    return (struct str){0};
}

struct group *group_new(const struct group_spec *spec, const struct json *submission)
{
    struct group *g = mem_zalloc(sizeof(*g));
    struct buf text = {0};

    json_write(&text, submission);
    g->spec = *spec;
    g->text = mem_strndup(text.p, text.len);
    g->text_len = text.len;
    buf_done(&text);
    keep_labels(g, json_get(submission, "labels"));
    g->spec.id = str_of(mem_strndup(spec->id.p, spec->id.len), spec->id.len);
    /* borrowed, and the names are in queue and runner */
    g->spec.queue = g->spec.runner = (struct str){0};
    g->waiting = group_rollouts(g);
    return g;
}

void result_done(struct result *r)
{
    free(r->reward_info);
    free(r->timings);
    free(r->reason);
    free(r->log);
    free(r->log_tail);
    *r = (struct result){0};
}

uint64_t group_due_ms(const struct group *g)
{
    uint64_t due_ms = g->rollouts ? UINT64_MAX : 0;

    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++) {
        const struct rollout *r = &g->rollouts[i];

        if (r->state == ROLLOUT_WAITING && !r->reserved)
            due_ms = MIN_OF(due_ms, r->not_before_ms);
    }
    return due_ms;
}

void group_free(struct group *g)
{
    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++) {
        struct rollout *r = &g->rollouts[i];
        struct attempt *before;

        for (struct attempt *a = r->last; a; a = before) {
            before = a->before;
            free(a->executor);
            free(a);
        }
        free(r->avoid);
        result_done(&r->result);
    }
    free(g->rollouts);
    free((char *)(uintptr_t)g->spec.id.p);
    free(g->labels);
    free(g->text);
    free(g);
}

void group_begin(struct group *g)
{
    if (g->rollouts)
        return;
    g->rollouts = mem_calloc(group_rollouts(g), sizeof(*g->rollouts));
    for (uint32_t i = 0; i < group_rollouts(g); i++) {
        g->rollouts[i].group = g;
        g->rollouts[i].index = i;
    }
}

bool group_goes_to_sinks(const struct group *g)
{
    struct arena a = {0};
    const struct json *text = NULL, *session, *sink;
    struct err e;
    bool goes;

    (void)json_parse(&a, str_of(g->text, g->text_len), &text, &e);
    session = json_get(text, "session");
    sink = json_get(session, "sink");
    goes = json_is(sink, JSON_BOOL) ? json_is_true(sink)
                                    : !json_is_true(json_get(session, "evaluation"));
    arena_done(&a);
    return goes;
}

void group_write_export(const struct group *g, bool checked, struct buf *out)
{
    struct arena a = {0};
    const struct json *text = NULL, *options;
    struct json_out o = json_out_to(out);
    struct err e;

    (void)json_parse(&a, str_of(g->text, g->text_len), &text, &e);
    options = json_get(text, "export");
    json_out_obj(&o);
    for (uint32_t i = 0; json_is(options, JSON_OBJECT) && i < options->n; i++) {
        struct str key = json_string(&options->members[i].key);

        if (str_eq_c(key, "format") || str_eq_c(key, "require_reward") ||
            str_eq_c(key, "require_trained"))
            continue;
        json_out_member_of(&o, key, &options->members[i].value);
    }
    if (checked) {
        json_out_member_cstr(&o, "format", "none");
        json_out_member_bool(&o, "require_trained", true);
        json_out_member_bool(&o, "require_reward", !g->spec.external_reward);
    }
    json_out_end_obj(&o);
    arena_done(&a);
}
