/*
 * Each row of `fields` describes one parameter: name, type, range, and its position in struct
 * sampling. Setter, checks, JSON schema and list of names use that table, so a new parameter needs
 * one row. If some engine has no field for the parameter, it also needs a row in sampling_extra.
 * Aliases are mapped to the row's name first. Errors have the name that the client gave.
 */
#include "common/codec/sampling.h"

#include <stddef.h>

#include "common/base/attrs.h"
#include "common/codec/fields.h"
#include "common/codec/json.h"

enum sampling_type {
    FIELD_DOUBLE,
    FIELD_INT,
    FIELD_SEED,
    FIELD_BOOL,
    FIELD_STOP,
    FIELD_VALUE,
    FIELD_COUNT, /* an integer, kept as JSON; NULL: not given */
    FIELD_WORDS, /* a list of strings */
};

static const struct sampling_field {
    const char *name;
    enum sampling_type type;
    size_t at;
    double min, max;
} fields[] = {
    {"temperature", FIELD_DOUBLE, offsetof(struct sampling, temperature), 0, 100},
    {"top_p", FIELD_DOUBLE, offsetof(struct sampling, top_p), 0, 1},
    {"min_p", FIELD_DOUBLE, offsetof(struct sampling, min_p), 0, 1},
    {"presence_penalty", FIELD_DOUBLE, offsetof(struct sampling, presence_penalty), -2, 2},
    {"frequency_penalty", FIELD_DOUBLE, offsetof(struct sampling, frequency_penalty), -2, 2},
    {"repetition_penalty", FIELD_DOUBLE, offsetof(struct sampling, repetition_penalty), 0, 2},
    {"top_k", FIELD_INT, offsetof(struct sampling, top_k), -1, 1e9},
    {"max_tokens", FIELD_INT, offsetof(struct sampling, max_tokens), 1, 1e12},
    {"seed", FIELD_SEED, offsetof(struct sampling, seed), -9e18, 9e18},
    {"ignore_eos", FIELD_BOOL, offsetof(struct sampling, ignore_eos), 0, 1},
    {"stop", FIELD_STOP, offsetof(struct sampling, stop), 0, 0},
    {"stop_token_ids", FIELD_VALUE, offsetof(struct sampling, stop_token_ids), 0, 0},
    {"logit_bias", FIELD_VALUE, offsetof(struct sampling, logit_bias), 0, 0},
    {"min_tokens", FIELD_COUNT, offsetof(struct sampling, min_tokens), 0, 1e12},
    {"repeat_last_n", FIELD_COUNT, offsetof(struct sampling, repeat_last_n), -1, 1e9},
    {"max_thinking_tokens", FIELD_COUNT, offsetof(struct sampling, max_thinking_tokens), 0, 1e12},
    {"allowed_token_ids", FIELD_VALUE, offsetof(struct sampling, allowed_token_ids), 0, 0},
    {"bad_words", FIELD_WORDS, offsetof(struct sampling, bad_words), 0, 0},
    {"response_format", FIELD_VALUE, offsetof(struct sampling, grammar), 0, 0},
};

/* Other names that clients use for a parameter. */
static const char *const aliases[][2] = {
    {"max_completion_tokens", "max_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"max_new_tokens", "max_tokens"},
    {"stop_sequences", "stop"},
    {"sampling_seed", "seed"},
    {"min_new_tokens", "min_tokens"},
    {"thinking_token_budget", "max_thinking_tokens"},
};

struct str sampling_name(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++) {
        if (str_eq_c(name, aliases[i][0]))
            return str_cstr(aliases[i][1]);
    }
    return name;
}

static int set_number(struct sampling *s, const struct sampling_field *f, const struct json *v,
                      const char *given, struct err *e)
{
    char *at = (char *)s + f->at;
    double d;
    int64_t n;

    if (json_to_double(v, &d))
        return field_bad(given, v, f->type == FIELD_DOUBLE ? "a number" : "an integer", e);
    if (!(d >= f->min && d <= f->max))
        return err_field(e, given,
                         f->type == FIELD_DOUBLE
                             ? "%s must be from %g to %g, not %.*s"
                             : "%s must be an integer from %.0f to %.0f, not %.*s",
                         given, f->min, f->max, (int)MIN_OF(v->n, 40u), v->text);
    if (f->type == FIELD_DOUBLE) {
        memcpy(at, &d, sizeof(d));
        return 0;
    }
    if (json_to_i64(v, &n))
        return err_field(e, given, "%s must be an integer, not %.*s", given, (int)MIN_OF(v->n, 40u),
                         v->text);
    memcpy(at, &n, sizeof(n));
    if (f->type == FIELD_SEED)
        s->has_seed = true;
    return 0;
}

/* Sets `stop` from a string or an array of strings. Empty strings are refused, because they would
 * match everywhere. */
static int set_stop(struct arena *a, struct sampling *s, const struct json *v, const char *given,
                    struct err *e)
{
    struct json *list;

    if (json_is(v, JSON_STRING)) {
        list = ARENA_NEW(a, struct json);
        list->kind = JSON_ARRAY;
        list->n = 1;
        list->items = ARENA_NEW(a, struct json);
        list->items[0] = *v;
        v = list;
    }
    if (!json_is(v, JSON_ARRAY))
        return err_field(e, given, "%s must be a string or a list of strings", given);
    for (size_t i = 0; i < v->n; i++) {
        if (json_string(json_at(v, i)).len == 0)
            return err_field(e, given, "%s must hold non-empty strings", given);
    }
    s->stop = v->n > 0 ? v : NULL;
    return 0;
}

/* Reports whether v is a list of token ids, or an object of token id -> number. Sets *most to the
 * largest id, or to 0 if there are no ids. */
static bool ids_fine(const struct json *v, int64_t *most)
{
    int64_t id;
    double bias;

    *most = 0;
    for (size_t i = 0; v->kind == JSON_ARRAY && i < v->n; i++) {
        if (json_to_i64(json_at(v, i), &id) || id < 0)
            return false;
        *most = MAX_OF(*most, id);
    }
    for (size_t i = 0; v->kind == JSON_OBJECT && i < v->n; i++) {
        uint64_t key;

        if (str_to_u64(json_text(&v->members[i].key), INT32_MAX, &key) ||
            json_to_double(&v->members[i].value, &bias))
            return false;
        *most = MAX_OF(*most, (int64_t)key);
    }
    return true;
}

static int set_value(struct sampling *s, const struct sampling_field *f, const struct json *v,
                     const char *given, struct err *e)
{
    bool stop = f->at == offsetof(struct sampling, stop_token_ids);
    bool list = stop || f->at == offsetof(struct sampling, allowed_token_ids);
    bool bias = f->at == offsetof(struct sampling, logit_bias);
    int64_t *most = stop ? &s->stop_id_most : list ? &s->allowed_id_most : &s->bias_id_most;

    if (!json_is(v, list ? JSON_ARRAY : JSON_OBJECT))
        return err_field(e, given, "%s must be %s", given, list ? "a list" : "an object");
    if ((list || bias) && !ids_fine(v, most))
        return err_field(e, given, "%s must hold %s", given,
                         list ? "token ids" : "a number for each token id");
    memcpy((char *)s + f->at, &v, sizeof(v));
    return 0;
}

/* Sets an integer that only some engines accept. Its JSON value is sent unchanged. */
static int set_count(struct sampling *s, const struct sampling_field *f, const struct json *v,
                     const char *given, struct err *e)
{
    int64_t n;

    if (json_to_i64(v, &n) || (double)n < f->min || (double)n > f->max)
        return err_field(e, given, "%s must be an integer from %.0f to %.0f", given, f->min,
                         f->max);
    memcpy((char *)s + f->at, &v, sizeof(v));
    return 0;
}

static int set_words(struct sampling *s, const struct sampling_field *f, const struct json *v,
                     const char *given, struct err *e)
{
    if (!json_is(v, JSON_ARRAY))
        return err_field(e, given, "%s must be a list of strings", given);
    for (size_t i = 0; i < v->n; i++) {
        if (json_string(json_at(v, i)).len == 0)
            return err_field(e, given, "%s must hold non-empty strings", given);
    }
    memcpy((char *)s + f->at, &v, sizeof(v));
    return 0;
}

const struct json *sampling_extra(const struct sampling *s, size_t i, const char **name)
{
    const struct {
        const char *name;
        const struct json *value;
    } all[] = {
        {"stop_token_ids", s->stop_token_ids},
        {"min_tokens", s->min_tokens},
        {"repeat_last_n", s->repeat_last_n},
        {"bad_words", s->bad_words},
        {"allowed_token_ids", s->allowed_token_ids},
        {"max_thinking_tokens", s->max_thinking_tokens},
    };

    *name = i < ARRAY_LEN(all) ? all[i].name : NULL;
    return *name ? all[i].value : NULL;
}

static const struct sampling_field *field_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        if (str_eq_c(name, fields[i].name))
            return &fields[i];
    }
    return NULL;
}

bool sampling_known(struct str name)
{
    return field_find(sampling_name(name)) != NULL;
}

uint32_t sampling_bit(struct str name)
{
    const struct sampling_field *f = field_find(sampling_name(name));

    return f ? UINT32_C(1) << (f - fields) : 0;
}

const char *sampling_name_at(size_t i)
{
    if (i < ARRAY_LEN(fields))
        return fields[i].name;
    i -= ARRAY_LEN(fields);
    return i < ARRAY_LEN(aliases) ? aliases[i][0] : NULL;
}

static void write_range(const struct sampling_field *f, const char *type, struct json_out *o)
{
    json_out_member_cstr(o, "type", type);
    json_out_member_double(o, "minimum", f->min);
    json_out_member_double(o, "maximum", f->max);
}

void sampling_write_schema(struct str name, struct json_out *o)
{
    static const char *const fixed[] = {
        [FIELD_BOOL] = "{\"type\":\"boolean\"}",
        [FIELD_STOP] = "{\"type\":[\"string\",\"array\"],\"items\":{\"type\":\"string\"}}",
        [FIELD_WORDS] = "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1}}",
        [FIELD_VALUE] = "{\"type\":[\"object\",\"array\"]}",
    };
    const struct sampling_field *f = field_find(sampling_name(name));

    if (f && f->type < ARRAY_LEN(fixed) && fixed[f->type]) {
        json_out_raw(o, str_cstr(fixed[f->type]));
        return;
    }
    json_out_obj(o);
    if (f)
        write_range(f, f->type == FIELD_DOUBLE ? "number" : "integer", o);
    json_out_end_obj(o);
}

void sampling_names(struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : "", fields[i].name);
}

static int set_field(struct arena *a, struct sampling *s, const struct sampling_field *f,
                     const struct json *v, const char *given, struct err *e)
{
    if (f->type == FIELD_STOP)
        return set_stop(a, s, v, given, e);
    if (f->type == FIELD_VALUE)
        return set_value(s, f, v, given, e);
    if (f->type == FIELD_COUNT)
        return set_count(s, f, v, given, e);
    if (f->type == FIELD_WORDS)
        return set_words(s, f, v, given, e);
    if (f->type != FIELD_BOOL)
        return set_number(s, f, v, given, e);
    if (!json_is(v, JSON_BOOL))
        return err_field(e, given, "%s must be true or false", given);
    s->ignore_eos = json_is_true(v);
    return 0;
}

int sampling_set(struct arena *a, struct sampling *s, struct str name, const struct json *v,
                 struct err *e)
{
    const struct sampling_field *f = field_find(sampling_name(name));
    const char *given = arena_cstr(a, name);

    if (!f)
        return err_field(e, given, "%s is not a sampling parameter", given);
    if (json_is_null(v))
        return 0;
    if (set_field(a, s, f, v, given, e))
        return -1;
    s->given |= UINT32_C(1) << (f - fields);
    return 0;
}

bool sampling_bends_logits(const struct sampling *s)
{
    return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1 ||
           s->logit_bias || s->grammar || s->min_tokens || s->allowed_token_ids || s->bad_words ||
           s->max_thinking_tokens || s->engine_extra;
}

bool sampling_changes_nothing(const struct sampling *s)
{
    return s->temperature == 1 && s->top_p >= 1 && s->min_p <= 0 && s->top_k <= 0 &&
           !sampling_bends_logits(s);
}

const struct json *sampling_schema(const struct sampling *s)
{
    static struct json_member type = {.key = {.kind = JSON_STRING, .n = 4, {.text = "type"}},
                                      .value = {.kind = JSON_STRING, .n = 6, {.text = "object"}}};
    static const struct json any_object = {.kind = JSON_OBJECT, .n = 1, {.members = &type}};
    struct str kind = json_string(json_get(s->grammar, "type"));
    const struct json *schema;

    if (str_eq_c(kind, "json_object"))
        return &any_object;
    if (!str_eq_c(kind, "json_schema"))
        return NULL;
    schema = json_get(json_get(s->grammar, "json_schema"), "schema");
    return schema ? schema : json_get(s->grammar, "schema");
}
