#include "worker/engine/wire/wire_write.h"

void wire_ids(struct json_out *o, struct token_span ids)
{
    char *p;

    json_out_arr(o);
    p = buf_reserve(o->b, ids.n * 11 + 1);
    for (size_t i = 0; i < ids.n; i++) {
        char digits[10];
        uint32_t v = (uint32_t)ids.at[i];
        unsigned n = 0;

        if (i > 0)
            *p++ = ',';
        do {
            digits[n++] = (char)('0' + v % 10);
            v /= 10;
        } while (v > 0);
        while (n > 0)
            *p++ = digits[--n];
    }
    o->b->len = (size_t)(p - o->b->p);
    json_out_end_arr(o);
}

void wire_stop_ids(struct json_out *o, const char *key, const struct engine_request *q,
                   const struct engine_options *opt)
{
    const struct json *given = q->sampling.stop_token_ids;

    if (q->sampling.ignore_eos || (!json_is(given, JSON_ARRAY) && opt->n_stop_ids == 0))
        return;
    json_out_key(o, key);
    json_out_arr(o);
    for (size_t i = 0; given && i < given->n; i++)
        json_out_value(o, json_at(given, i));
    for (size_t i = 0; i < opt->n_stop_ids; i++)
        json_out_i64(o, opt->stop_ids[i]);
    json_out_end_arr(o);
}

void wire_sampling(struct json_out *o, const struct sampling *s)
{
    const struct {
        const char *name;
        double value;
    } all[] = {
        {"temperature", s->temperature},
        {"top_p", s->top_p},
        {"min_p", s->min_p},
        {"presence_penalty", s->presence_penalty},
        {"frequency_penalty", s->frequency_penalty},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        json_out_key(o, all[i].name);
        json_out_double(o, all[i].value);
    }
    json_out_key(o, "ignore_eos");
    json_out_bool(o, s->ignore_eos);
}

void wire_given(struct json_out *o, const char *key, const struct json *v)
{
    if (!v)
        return;
    json_out_key(o, key);
    json_out_value(o, v);
}

void wire_stops(struct json_out *o, const char *key, const struct sampling *s)
{
    if (!s->stop)
        return;
    json_out_key(o, key);
    json_out_value(o, s->stop);
}

struct str wire_grammar(const struct sampling *s, const char *kind)
{
    if (!str_eq_c(json_string(json_get(s->grammar, "type")), kind))
        return (struct str){0};
    return json_string(json_get(s->grammar, kind));
}
