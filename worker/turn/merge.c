#include "worker/turn/merge.h"

#include "worker/parsers/force.h"

static bool is_locked(const struct json *locked, struct str name)
{
    for (size_t i = 0; locked && i < locked->n; i++) {
        if (str_eq(sampling_name(json_string(json_at(locked, i))), sampling_name(name)))
            return true;
    }
    return false;
}

/* Whether the client itself sent the parameter, under any of its names. */
static bool is_given(const struct json *given, struct str name)
{
    for (size_t i = 0; json_is(given, JSON_OBJECT) && i < given->n; i++) {
        const struct json_member *m = &given->members[i];

        if (!json_is_null(&m->value) &&
            str_eq(sampling_name(json_string(&m->key)), sampling_name(name)))
            return true;
    }
    return false;
}

/* Puts a locked parameter back to what it is when nobody sets it. */
static void take_back(struct sampling *s, struct str name)
{
    const struct sampling plain = SAMPLING_DEFAULTS;

    name = sampling_name(name);
#define TAKE(field)             \
    if (str_eq_c(name, #field)) \
    s->field = plain.field
    TAKE(temperature);
    TAKE(top_p);
    TAKE(min_p);
    TAKE(presence_penalty);
    TAKE(frequency_penalty);
    TAKE(repetition_penalty);
    TAKE(top_k);
    TAKE(max_tokens);
    TAKE(ignore_eos);
    TAKE(stop);
    TAKE(stop_token_ids);
    TAKE(logit_bias);
#undef TAKE
    if (str_eq_c(name, "seed"))
        s->has_seed = false;
    if (str_eq_c(name, "response_format"))
        s->grammar = NULL;
}

int merge_sampling(struct arena *a, const struct chat_request *req, const struct json *defaults,
                   const struct json *locked, struct sampling *ret, struct err *e)
{
    *ret = req->sampling;
    for (size_t i = 0; json_is(locked, JSON_ARRAY) && i < locked->n; i++)
        take_back(ret, json_string(json_at(locked, i)));
    for (size_t i = 0; json_is(defaults, JSON_OBJECT) && i < defaults->n; i++) {
        const struct json_member *m = &defaults->members[i];
        struct str name = json_string(&m->key);

        if (is_given(req->sampling_given, name) && !is_locked(locked, name))
            continue;
        if (sampling_known(name) && sampling_set(a, ret, name, &m->value, e))
            return -1;
    }
    return 0;
}

void merge_tool_choice(struct arena *a, const struct chat_request *req, enum tool_kind kind,
                       struct sampling *s)
{
    bool one = req->tool_choice == CHOICE_FUNCTION;
    struct json_member *members = arena_calloc(a, 2, sizeof(*members));
    struct json *grammar = ARENA_NEW(a, struct json);
    struct buf tag = {0};

    if ((!one && req->tool_choice != CHOICE_REQUIRED) || s->grammar)
        return;
    if (parser_force(kind, req->callable, one ? req->tool_function : (struct str){0},
                     req->parallel_tool_calls, &tag)) {
        members[0].key = json_make_string(STR("type"));
        members[0].value = json_make_string(STR("structural_tag"));
        members[1].key = json_make_string(STR("structural_tag"));
        members[1].value = json_make_string(arena_str(a, buf_str(&tag)));
        *grammar = (struct json){.kind = JSON_OBJECT, .n = 2, .members = members};
        s->grammar = grammar;
    }
    buf_done(&tag);
}
