/* Makes the sampling parameters of a call (sampling_merge.h): the client's own, and defaults for
 * those that the client did not set. A locked parameter is first reset, so that the default
 * applies. Also makes the grammar for the engine from tools and response_format. */

#include "worker/plane/call/sampling_merge.h"

#include "common/codec/json_build.h"
#include "common/codec/sampling.h"
#include "worker/plane/call/call_env.h"
#include "worker/text/model/model.h"
#include "worker/text/parsers/tool_grammar.h"
#include "worker/text/request/chat_request.h"

/* Reports whether the parameter is locked under any of its names. */
static bool is_locked(const struct json *locked, struct str name)
{
    for (size_t i = 0; locked && i < locked->n; i++) {
        if (str_eq(sampling_name(json_string(json_at(locked, i))), sampling_name(name)))
            return true;
    }
    return false;
}

/* Reports whether the client itself sent the parameter, under any of its names. */
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

/* Resets a locked parameter to its unset value. */
static void reset_locked(struct sampling *s, struct str name)
{
    const struct sampling plain = SAMPLING_DEFAULTS;

    name = sampling_name(name);
    s->given &= ~sampling_bit(name);
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
    TAKE(min_tokens);
    TAKE(repeat_last_n);
    TAKE(allowed_token_ids);
    TAKE(bad_words);
    TAKE(max_thinking_tokens);
    TAKE(logit_bias);
#undef TAKE
    if (str_eq_c(name, "seed"))
        s->has_seed = false;
    if (str_eq_c(name, "response_format"))
        s->grammar = NULL;
}

/* Returns -1 with e set if a default has an impossible value. */
int merge_sampling(struct arena *a, const struct chat_request *req, const struct json *defaults,
                   const struct json *locked, struct sampling *ret, struct err *e)
{
    *ret = *req->sampling;
    for (size_t i = 0; json_is(locked, JSON_ARRAY) && i < locked->n; i++)
        reset_locked(ret, json_string(json_at(locked, i)));
    for (size_t i = 0; json_is(defaults, JSON_OBJECT) && i < defaults->n; i++) {
        const struct json_member *m = &defaults->members[i];
        struct str name = json_string(&m->key);

        if (str_eq_c(name, SAMPLING_ENGINE_EXTRA))
            ret->engine_extra = json_is(&m->value, JSON_OBJECT) ? &m->value : NULL;
        if (is_given(req->sampling_given, name) && !is_locked(locked, name))
            continue;
        if (sampling_known(name) && sampling_set(a, ret, name, &m->value, e))
            return -1;
    }
    return 0;
}

/* Returns the default value of a parameter, under any of its names. Returns NULL if it has none. */
static const struct json *default_of(const struct json *defaults, struct str name)
{
    for (size_t i = 0; json_is(defaults, JSON_OBJECT) && i < defaults->n; i++) {
        const struct json_member *m = &defaults->members[i];

        if (str_eq(sampling_name(json_string(&m->key)), sampling_name(name)))
            return &m->value;
    }
    return NULL;
}

/* Reports whether the value equals the parameter's unset value. */
static bool is_neutral(struct arena *a, struct str name, const struct json *value)
{
    struct sampling s = SAMPLING_DEFAULTS;

    return sampling_set(a, &s, name, value, &(struct err){0}) == 0 &&
           sampling_changes_nothing(&s) && !s.has_seed && !s.max_tokens && !s.stop &&
           !s.stop_token_ids && !s.repeat_last_n && !s.grammar && !s.ignore_eos &&
           !s.max_thinking_tokens;
}

struct json sampling_list_overruled(struct arena *a, const struct chat_request *req,
                                    const struct json *defaults, const struct json *locked)
{
    const struct json *given = req->sampling_given;
    struct json names = json_empty(JSON_ARRAY);

    for (size_t i = 0; json_is(given, JSON_OBJECT) && i < given->n; i++) {
        const struct json_member *m = &given->members[i];
        struct str name = json_string(&m->key);
        const struct json *value = default_of(defaults, name);

        if (json_is_null(&m->value) || !is_locked(locked, name))
            continue;
        if (value ? !json_equal(value, &m->value) : !is_neutral(a, name, &m->value))
            json_push(a, &names, m->key);
    }
    return names;
}

/* Returns the names of the tools that may be called. */
static const struct json *names_of(struct arena *a, const struct chat_request *req)
{
    struct json *list;

    if (req->tool_choice != CHOICE_FUNCTION)
        return req->tool_allowed;
    list = ARENA_NEW(a, struct json);
    *list = (struct json){.kind = JSON_ARRAY, .n = 1, .items = ARENA_NEW(a, struct json)};
    list->items[0] = json_make_string(req->tool_function);
    return list;
}

static void put_value(struct json *object, const char *key, struct str value)
{
    object->members[object->n++] =
        (struct json_member){json_make_string(str_cstr(key)), json_make_string(value)};
}

/* Sets s->grammar. If a thought may be open the grammar is written twice: "ebnf" for engines that
 * enforce it from the first token, "behind_thought" for engines that begin after the thought. */
static int make_grammar(struct arena *a, const struct tool_grammar *f, struct sampling *s,
                        struct err *e)
{
    struct json *grammar = ARENA_NEW(a, struct json);
    struct buf strict = {0}, lenient = {0};
    int rc = tool_grammar_write(f, false, &strict, e);

    *grammar = (struct json){.kind = JSON_OBJECT,
                             .members = arena_calloc(a, 4, sizeof(struct json_member))};
    if (rc == 0 && f->thought == THOUGHT_OPEN)
        rc = tool_grammar_write(f, true, &lenient, e);
    if (rc == 0) {
        put_value(grammar, "type", STR("ebnf"));
        put_value(grammar, "ebnf", arena_str(a, buf_str(&strict)));
        if (lenient.len)
            put_value(grammar, "behind_thought", arena_str(a, buf_str(&lenient)));
        if (!f->required && !f->json) /* plain text is allowed, too */
            grammar->members[grammar->n++] =
                (struct json_member){json_make_string(STR("text_too")), json_make_bool(true)};
        s->grammar = grammar;
    }
    buf_done(&strict);
    buf_done(&lenient);
    return rc;
}

/* A grammar that the client wrote stays as it is. Together with a demanded tool call it is an
 * error. */
int merge_constraint(struct arena *a, const struct chat_request *req,
                     const struct answer_formats *m, struct sampling *s, struct err *e)
{
    struct str type = json_string(json_get(s->grammar, "type"));
    bool schema = str_eq_c(type, "json_schema");
    bool calls = m->tool != TOOL_NONE && req->tool_choice != CHOICE_NONE;
    struct tool_grammar f = {
        .tool = calls ? m->tool : TOOL_NONE,
        .reasoning = m->reasoning,
        .thought = m->thought,
        .tools = calls ? req->callable : NULL,
        .allowed = names_of(a, req),
        .required = chat_request_needs_call(req),
        .single = !req->parallel_tool_calls && !tool_kind_ends_answer(m->tool),
        .json = schema || str_eq_c(type, "json_object"),
        .schema = schema ? sampling_schema(s) : NULL,
    };
    struct err why = {0};

    if (s->grammar && !f.json) {
        if (!f.required)
            return 0;
        return err_field(e, "tool_choice",
                         "tool_choice demands a call, which response_format.type %.*s rules out",
                         (int)type.len, type.p);
    }
    if (!tool_grammar_needed(&f) || (f.json && !f.required && !f.tools && !tool_grammar_thinks(&f)))
        return 0;
    if (make_grammar(a, &f, s, &why))
        return err_field(e, f.required ? "tool_choice" : "response_format", "%s", why.text);
    return 0;
}

/* The parser of the request has read each id, perhaps in a helper, and kept the largest, which the
 * error names. */
int sampling_check_ids(const struct call_env *env, const struct sampling *s, struct err *e)
{
    uint32_t size = model_info(env->model)->vocab_size;

    const struct {
        const char *name;
        const struct json *ids;
        int64_t most;
    } all[] = {
        {"stop_token_ids", s->stop_token_ids, s->stop_id_most},
        {"allowed_token_ids", s->allowed_token_ids, s->allowed_id_most},
        {"logit_bias", s->logit_bias, s->bias_id_most},
    };

    for (size_t k = 0; env->model_known && size > 0 && k < ARRAY_LEN(all); k++) {
        if (all[k].ids && all[k].most >= size)
            return err_field(e, all[k].name, "%s has the id %lld; this model's ids are 0 to %u",
                             all[k].name, (long long)all[k].most, size - 1);
    }
    return 0;
}
