#include "worker/engine/pool/ready_texts.h"

#include <stdio.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"

static bool is_banned(struct token_span banned, struct str key)
{
    uint64_t id;

    for (size_t i = 0; i < banned.n; i++)
        if (str_to_u64(key, INT32_MAX, &id) == 0 && (int32_t)id == banned.at[i])
            return true;
    return false;
}

void ready_bias_write(struct json_out *o, const struct json *given, struct token_span banned)
{
    char key[16];

    json_out_obj(o);
    for (uint32_t i = 0; json_is(given, JSON_OBJECT) && i < given->n; i++) {
        struct str name = json_string(&given->members[i].key);

        if (is_banned(banned, name))
            continue;
        json_out_member_of(o, name, &given->members[i].value);
    }
    for (size_t i = 0; i < banned.n; i++) {
        (void)snprintf(key, sizeof(key), "%d", banned.at[i]);
        json_out_member_i64(o, key, -100);
    }
    json_out_end_obj(o);
}

static bool is_long(const struct json *v)
{
    return json_text_bytes(v, READY_LEAST) >= READY_LEAST;
}

static struct ready_text *add_text_of(struct ready_texts *r, const void *of)
{
    struct ready_text *t = &r->at[r->n++];

    CHECK(r->n <= READY_MAX);
    *t = (struct ready_text){.of = of};
    return t;
}

static struct str keep_text(struct arena *a, struct buf *text)
{
    struct str ret = arena_str(a, buf_str(text));

    buf_done(text);
    return ret;
}

static struct str quote_text(struct arena *a, struct str s)
{
    struct buf text = {0};
    struct json_out o = json_out_to(&text);

    json_out_str(&o, s);
    return keep_text(a, &text);
}

static struct str write_value_text(struct arena *a, const struct json *v)
{
    struct buf text = {0};

    json_write(&text, v);
    return keep_text(a, &text);
}

/* Grammars that are not schemas are strings. */
static void add_grammar(struct ready_texts *r, struct arena *a, const struct json *grammar)
{
    struct str type = json_string(json_get(grammar, "type"));
    struct str all[] = {json_string(json_get_str(grammar, type)),
                        json_string(json_get(grammar, "behind_thought"))};

    for (size_t i = 0; i < ARRAY_LEN(all) && type.p; i++)
        if (all[i].len >= READY_LEAST)
            add_text_of(r, all[i].p)->text = quote_text(a, all[i]);
}

void ready_texts_make(struct ready_texts *r, struct arena *a, const struct sampling *s,
                      struct token_span banned)
{
    const struct json *plain[] = {s->stop, s->allowed_token_ids, s->bad_words};
    const struct json *schema = sampling_schema(s);

    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (is_long(plain[i]))
            add_text_of(r, plain[i])->text = write_value_text(a, plain[i]);
    if (is_long(s->logit_bias)) {
        struct buf text = {0};
        struct json_out o = json_out_to(&text);

        ready_bias_write(&o, s->logit_bias, banned);
        add_text_of(r, s->logit_bias)->text = keep_text(a, &text);
    }
    if (is_long(schema)) {
        struct ready_text *t = add_text_of(r, schema);

        t->text = write_value_text(a, schema);
        t->quoted = quote_text(a, t->text);
    }
    add_grammar(r, a, s->grammar);
}

const struct ready_text *ready_texts_of(const struct ready_texts *r, const void *of)
{
    for (size_t i = 0; r && of && i < r->n; i++)
        if (r->at[i].of == of)
            return &r->at[i];
    return NULL;
}
