/* Rules between options. The row of one option cannot contain them (session_rules.h). */

#include "common/codec/session_rules.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/base/limits.h"
#include "common/codec/input_value.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"

static const struct input_rule rows[] = {
#define X(sets, name, place, kind, min, max, choices, summary) \
    {name, INPUT_KIND_##kind, min, max, choices},
#include "common/codec/session_options.def"
#undef X
};

/* Trainers cut keys at '_', and ids are in paths. */
bool session_rules_is_group_id(struct str text)
{
    return text.len > 0 && text.len <= GROUP_ID_MAX && str_has_only(text, ".-");
}

int session_rules_branch(const struct json *options, const char *history, struct err *e)
{
    if (!str_eq_c(json_string(json_get(options, "on_truncated")), "branch") ||
        str_eq_c(str_cstr(history), "tree") || str_eq_c(str_cstr(history), "timelines"))
        return 0;
    return err_field(e, "on_truncated",
                     "on_truncated branch needs history tree or timelines, not %s", history);
}

int session_rules_nodes(const struct json *options, int64_t most, struct err *e)
{
    int64_t n = 0;

    if (json_to_i64(json_get(options, "max_nodes"), &n) || n <= most)
        return 0;
    return err_field(e, "max_nodes", "max_nodes must be at most %lld (--max-nodes), not %lld",
                     (long long)most, (long long)n);
}

/* Returns the bytes of all options except metadata. Sets *longest to the name of the longest of
 * them. */
static size_t other_bytes(const struct json *options, struct str *longest)
{
    size_t all = 0, most = 0;

    for (uint32_t i = 0; json_is(options, JSON_OBJECT) && i < options->n; i++) {
        struct str name = json_string(&options->members[i].key);
        struct buf text = {0};

        if (str_eq_c(name, "metadata"))
            continue;
        json_write(&text, &options->members[i].value);
        all += text.len;
        if (text.len > most) {
            most = text.len;
            *longest = name;
        }
        buf_done(&text);
    }
    return all;
}

static int check_metadata(const struct json *metadata, size_t most, struct err *e)
{
    size_t n = json_is_null(metadata) || most == 0 ? 0 : json_text_bytes(metadata, SIZE_MAX);

    if (n > most)
        return limit_refuse(LIMIT_max_metadata_bytes, "metadata", n, most, e);
    if (!json_is(metadata, JSON_OBJECT))
        return 0;
    return limit_check(LIMIT_SESSION_MEMBERS_MAX, "metadata", metadata->n, e);
}

int session_rules_size(const struct json *options, int64_t max_metadata_bytes, struct err *e)
{
    struct str longest = {0};
    size_t all;
    char name[64];

    if (check_metadata(json_get(options, "metadata"), (size_t)max_metadata_bytes, e) != 0)
        return -1;
    all = other_bytes(options, &longest);
    if (all <= SESSION_OPTIONS_MAX)
        return 0;
    (void)snprintf(name, sizeof(name), "%.*s", (int)longest.len, longest.p);
    return err_field(e, name,
                     "the options beside metadata take %zu bytes, most of them %s; at most %d are "
                     "allowed",
                     all, name, SESSION_OPTIONS_MAX);
}

/* Reports whether the option is a sampling parameter that belongs into sampling_params. */
static bool is_sampling_option(const struct json_member *m)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].kind == INPUT_KIND_PARAMETER && str_eq_c(json_string(&m->key), rows[i].name))
            return true;
    return false;
}

/* Finds the parameter in sampling_params, under this name or an alias. */
static const struct json *same_parameter(const struct json *sampling, struct str name)
{
    for (uint32_t i = 0; json_is(sampling, JSON_OBJECT) && i < sampling->n; i++)
        if (str_eq(sampling_name(json_string(&sampling->members[i].key)), name) &&
            !json_is_null(&sampling->members[i].value))
            return &sampling->members[i].value;
    return NULL;
}

/* Copies sampling_params, with capacity for n more members. */
static struct json *copy_widened(struct arena *a, const struct json *sampling, uint32_t n)
{
    struct json *o = ARENA_NEW(a, struct json);
    uint32_t had = json_is(sampling, JSON_OBJECT) ? sampling->n : 0;

    *o = (struct json){.kind = JSON_OBJECT, .n = had};
    o->members = arena_calloc(a, (size_t)had + n, sizeof(*o->members));
    for (uint32_t i = 0; i < had; i++)
        o->members[i] = sampling->members[i];
    return o;
}

int session_rules_lift(struct arena *a, const struct json *options, const struct json **ret,
                       struct err *e)
{
    const struct json *sampling = json_get(options, "sampling_params");
    struct json *out, *into;
    uint32_t beside = 0;

    *ret = options;
    for (uint32_t i = 0; json_is(options, JSON_OBJECT) && i < options->n; i++)
        beside += is_sampling_option(&options->members[i]);
    if (beside == 0)
        return 0;
    into = copy_widened(a, sampling, beside);
    out = ARENA_NEW(a, struct json);
    *out = (struct json){.kind = JSON_OBJECT};
    out->members = arena_calloc(a, (size_t)options->n + 1, sizeof(*out->members));
    for (uint32_t i = 0; i < options->n; i++) {
        const struct json_member *m = &options->members[i];
        struct str name = json_string(&m->key);
        const struct json *inner = same_parameter(sampling, name);

        if (!is_sampling_option(m) && !str_eq_c(name, "sampling_params"))
            out->members[out->n++] = *m;
        if (!is_sampling_option(m) || json_is_null(&m->value))
            continue;
        if (inner && !json_equal(inner, &m->value))
            return err_field(e, "sampling_params",
                             "%.*s stands beside sampling_params and in it, with two values",
                             (int)name.len, name.p);
        if (!inner)
            into->members[into->n++] = *m;
    }
    out->members[out->n].key = json_make_string(STR("sampling_params"));
    out->members[out->n++].value = *into;
    *ret = out;
    return 0;
}
