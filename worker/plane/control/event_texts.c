#include "worker/plane/control/event_texts.h"

#include "common/base/utf8.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "common/serve/feed.h"
#include "worker/plane/call/call_watch.h"
#include "worker/text/tokens/tokenizer.h"

void event_put_gone(struct str id, bool ended, struct buf *out)
{
    struct buf json = {0};
    struct json_out o = json_out_to(&json);

    json_out_obj(&o);
    json_out_member_str(&o, "session_id", id);
    json_out_member_bool(&o, "ended", ended);
    json_out_end_obj(&o);
    feed_event(out, "session_gone", buf_str(&json));
    buf_done(&json);
}

void event_put_call(const struct call_place *c, bool ended, struct buf *out)
{
    struct buf json = {0};
    struct json_out o = json_out_to(&json);

    json_out_obj(&o);
    json_out_member_i64(&o, "call", (int64_t)c->call);
    if (!ended)
        json_out_member_str(&o, "parent", c->parent);
    json_out_end_obj(&o);
    feed_event(out, ended ? "call_end" : "call", buf_str(&json));
    buf_done(&json);
}

/* Writes [id, text or null, logprob or null], and the bytes as base64 if they are no valid text. */
static void put_token(const struct tokenizer *tok, const struct call_tokens *k, size_t i,
                      struct json_out *o)
{
    struct str bytes = tokenizer_text(tok, k->ids.at[i]);
    bool text = bytes.p && utf8_valid(bytes);

    json_out_arr(o);
    json_out_i64(o, k->ids.at[i]);
    json_out_str(o, text ? bytes : (struct str){0});
    if (k->logprobs)
        json_out_double(o, (double)k->logprobs[i]);
    else
        json_out_null(o);
    if (bytes.p && !text) {
        struct buf spelt = {0};

        base64_append(&spelt, bytes.p, bytes.len);
        json_out_str(o, buf_str(&spelt));
        buf_done(&spelt);
    }
    json_out_end_arr(o);
}

void event_put_tokens(const struct tokenizer *tok, const struct call_tokens *k, struct buf *out)
{
    struct buf json = {0};
    struct json_out o = json_out_to(&json);

    json_out_obj(&o);
    json_out_member_i64(&o, "call", (int64_t)k->call);
    json_out_member_i64(&o, "index", k->index);
    json_out_member_i64(&o, "n", (int64_t)k->n);
    if (k->text.p)
        json_out_member_str(&o, "text", k->text);
    if (k->so_far)
        json_out_member_bool(&o, "so_far", true);
    json_out_member_arr(&o, "tokens");
    for (size_t i = 0; i < k->ids.n; i++)
        put_token(tok, k, i, &o);
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    feed_event(out, "tokens", buf_str(&json));
    buf_done(&json);
}
