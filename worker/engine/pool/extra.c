/*
 * A trainer's field must not be one that the gateway writes: an engine would use either of two
 * equal keys. It must not be a sampling parameter either, because that belongs next to
 * engine_extra, where its value is checked and recorded. The adapters list their kinds' own names.
 * This file compares, and writes the fields after ours.
 */
#include "worker/engine/pool/extra.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/adapter.h"

#define INNER "sampling_params"
#define WHERE "sampling_params.engine_extra"

static bool is_word_of(const char *words, struct str name)
{
    struct str left = str_cstr(words ? words : "");

    while (left.len > 0) {
        if (str_eq(str_cut(&left, ' '), name))
            return true;
    }
    return false;
}

/* Refuses a member. `at`: "" or "sampling_params.". */
static int refuse_member(const char *at, struct str name, const char *why, struct err *e)
{
    char path[sizeof(e->param)];
    int shown = (int)MIN_OF(name.len, 60u);

    (void)snprintf(path, sizeof(path), WHERE ".%s%.*s", at, shown, name.p ? name.p : "");
    return err_field(e, path, WHERE ".%s%.*s: %s", at, shown, name.p ? name.p : "", why);
}

static int check_name(const struct engine_adapter *kind, const char *at, struct str name,
                      struct err *e)
{
    const struct engine_extra *x = &kind->extra;
    const char *words = at[0] ? x->ours_inner : x->ours;

    if (sampling_known(name))
        return refuse_member(at, name, "is a sampling parameter: give it beside engine_extra", e);
    if (is_word_of(words, name))
        return refuse_member(
            at, name,
            "is the gateway's own field of the engine's request, changes what such a "
            "request asks, or asks for what is not kept here",
            e);
    return 0;
}

static int check_inner(const struct engine_adapter *kind, const struct json *v, struct err *e)
{
    if (!json_is(v, JSON_OBJECT))
        return refuse_member("", STR(INNER), "must be an object", e);
    for (uint32_t i = 0; i < v->n; i++) {
        if (check_name(kind, INNER ".", json_string(&v->members[i].key), e))
            return -1;
    }
    return 0;
}

int engine_extra_check(const struct engine_adapter *kind, const struct json *extra, struct err *e)
{
    if (json_is_null(extra) || extra->n == 0)
        return 0;
    if (!kind->extra.taken)
        return err_field(e, WHERE, WHERE " goes to engines; kind %s has no requests to put it in",
                         kind->kind);
    for (uint32_t i = 0; i < extra->n; i++) {
        struct str name = json_string(&extra->members[i].key);
        bool inner = kind->extra.inner && str_eq_c(name, INNER);

        if (inner ? check_inner(kind, &extra->members[i].value, e) : check_name(kind, "", name, e))
            return -1;
    }
    return 0;
}

static void write_members(struct json_out *o, const struct json *v, const char *but)
{
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++) {
        struct str name = json_string(&v->members[i].key);

        if (but && str_eq_c(name, but))
            continue;
        json_out_member_of(o, name, &v->members[i].value);
    }
}

void engine_extra_write(struct json_out *o, const struct json *extra)
{
    write_members(o, extra, INNER);
}

void engine_extra_write_inner(struct json_out *o, const struct json *extra)
{
    write_members(o, json_get(extra, INNER), NULL);
}

bool engine_takes_fields(const struct engine_adapter *kind, const struct sampling *s)
{
    const char *name = "";

    for (size_t i = 0; kind->cannot_take && name; i++) {
        if (sampling_extra(s, i, &name) &&
            str_find(str_cstr(kind->cannot_take), str_cstr(name), 0) != SIZE_MAX)
            return false;
    }
    return engine_extra_check(kind, s->engine_extra, NULL) == 0;
}
