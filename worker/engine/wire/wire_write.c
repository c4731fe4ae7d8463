/*
 * Writes the members of requests to engines (wire_write.h). Each function writes one member, and
 * nothing if the request does not set it, so that a wire's writer is a list of calls.
 */
#include "worker/engine/wire/wire_write.h"

#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/net/http_client.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/ready_texts.h"
#include "worker/engine/wire/remote.h"

enum { JSON_COPIED = 16 << 10 }; /* longest text that is copied instead of referenced */

void wire_stop_ids(struct json_out *o, const char *key, const struct engine_request *q,
                   const struct engine_options *opt)
{
    const struct json *given = q->sampling->stop_token_ids;

    if (q->sampling->ignore_eos || (!json_is(given, JSON_ARRAY) && opt->n_stop_ids == 0))
        return;
    json_out_member_arr(o, key);
    for (size_t i = 0; given && i < given->n; i++)
        json_out_value(o, json_at(given, i));
    for (size_t i = 0; i < opt->n_stop_ids; i++)
        json_out_i64(o, opt->stop_ids[i]);
    json_out_end_arr(o);
}

void wire_bias(struct wire_send *s, struct json_out *o, const struct engine_request *q)
{
    const struct json *given = q->sampling->logit_bias;
    const struct ready_text *ready = ready_texts_of(q->ready, given);

    if (!given && q->banned.n == 0)
        return;
    json_out_key(o, "logit_bias");
    if (ready)
        wire_json(s, o, ready->text);
    else
        ready_bias_write(o, given, q->banned);
}

/* Extends a picture's base64: returns its last four characters, changed to have a zero byte after
 * the picture's bytes. */
static struct str lengthen_base64(struct str base64, char more[8])
{
    char last[4];
    size_t n = 0;

    if (base64_decode(str_sub(base64, base64.len - 4, base64.len), last, &n) != 0)
        n = 0; /* cannot fail, because we made the base64 */
    last[n] = 0;
    base64_encode(last, n + 1, more);
    return str_of(more, base64_encoded_len(n + 1));
}

void wire_json(struct wire_send *s, struct json_out *o, struct str text)
{
    bool copied = text.len <= JSON_COPIED;

    json_out_raw(o, copied ? text : STR(""));
    if (!copied)
        *vec_push(&s->inserts) = (struct http_insert){.bytes = text, .at = s->body.len};
}

/* Writes the base64 of a picture in memory. */
static void put_base64(struct wire_send *s, struct str base64, bool zero)
{
    bool cut = zero && base64.len >= 4;
    char more[8];

    *vec_push(&s->inserts) = (struct http_insert){
        .bytes = str_sub(base64, 0, base64.len - (cut ? 4 : 0)), .at = s->body.len};
    if (cut)
        buf_add_str(&s->body, lengthen_base64(base64, more));
}

void wire_data_url(struct wire_send *s, struct json_out *o, const struct engine_image *image,
                   bool zero)
{
    json_out_raw(o, STR("\"data:image/"));
    buf_add_str(o->b, image->format);
    buf_puts(o->b, ";base64,");
    if (image->file)
        *vec_push(&s->inserts) = (struct http_insert){
            .at = s->body.len, .file = image->file, .file_bytes = image->bytes, .zero = zero};
    else
        put_base64(s, image->base64, zero);
    buf_add_c(o->b, '"');
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

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        json_out_member_double(o, all[i].name, all[i].value);
    json_out_member_bool(o, "ignore_eos", s->ignore_eos);
}

void wire_given(struct json_out *o, const char *key, const struct json *v)
{
    if (!v)
        return;
    json_out_member_value(o, key, v);
}

void wire_value(struct wire_send *s, struct json_out *o, const struct engine_request *q,
                const char *key, const struct json *v)
{
    const struct ready_text *ready = ready_texts_of(q->ready, v);

    if (!v)
        return;
    json_out_key(o, key);
    if (ready)
        wire_json(s, o, ready->text);
    else
        json_out_value(o, v);
}

void wire_text(struct wire_send *s, struct json_out *o, const struct engine_request *q,
               const char *key, struct str text)
{
    const struct ready_text *ready = ready_texts_of(q->ready, text.p);

    json_out_key(o, key);
    if (ready)
        wire_json(s, o, ready->text);
    else
        json_out_str(o, text);
}

struct str wire_grammar(const struct sampling *s, const char *kind)
{
    if (!str_eq_c(json_string(json_get(s->grammar, "type")), kind))
        return (struct str){0};
    return json_string(json_get(s->grammar, kind));
}

void wire_scheduling(struct json_out *o, const struct engine_request *q, const char *salt_key,
                     int priority)
{
    const struct json *extra = q->sampling->engine_extra;

    if (q->kv_salt.len > 0 && !json_get(extra, salt_key))
        json_out_member_str(o, salt_key, q->kv_salt);
    if (priority != 0 && !json_get(extra, "priority"))
        json_out_member_i64(o, "priority",
                            priority * (int64_t)MIN_OF(q->call, (uint64_t)INT32_MAX));
}
