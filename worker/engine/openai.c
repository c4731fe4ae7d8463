/*
 * Kind `openai`: POST /v1/chat/completions upstream, the client's request as it is but for `stream`
 * and `n`. Text in, text out: no ids, no logprobs.
 */
#include "worker/engine/remote.h"

/* The client's fields in their order; ours replace theirs. */
static void write_request(const struct remote *r, const struct engine_request *q,
                          struct wire_send *send)
{
    static const char *const ours[] = {"stream", "stream_options", "n"};
    struct json_out o = json_out_to(&send->body);

    /* Addresses of such servers are usually given with their /v1. */
    send->path = remote_has_v1(r) ? "/chat/completions" : "/v1/chat/completions";
    json_out_obj(&o);
    for (size_t i = 0; json_is(q->chat_body, JSON_OBJECT) && i < q->chat_body->n; i++) {
        const struct json_member *m = &q->chat_body->members[i];
        bool skip = false;

        for (size_t k = 0; k < ARRAY_LEN(ours); k++)
            skip = skip || str_eq_c(json_string(&m->key), ours[k]);
        if (skip)
            continue;
        json_out_key_str(&o, json_string(&m->key));
        json_out_value(&o, &m->value);
    }
    json_out_key(&o, "stream");
    json_out_bool(&o, send->stream);
    if (send->stream) {
        json_out_key(&o, "stream_options");
        json_out_raw(&o, STR("{\"include_usage\":true}"));
    }
    json_out_end_obj(&o);
}

static void take_scalar(struct reply *y, int id, const struct json_scan *s, struct str key)
{
    (void)y;
    (void)id;
    (void)s;
    (void)key;
}

static void take_finish(struct reply *y, struct str finish)
{
    if (!finish.p)
        return;
    y->finish = str_eq_c(finish, "length") ? REPLY_LENGTH : REPLY_STOP;
}

/* One document: a chunk of the stream, or the whole answer. */
static int take_text(struct reply *y, struct upstream_text *t, struct str text, bool stream,
                     struct err *e)
{
    struct arena a = {0};
    const struct json *v, *error;
    struct str content = {0};
    int64_t code = 500;
    int rc = -1;

    if (json_parse(&a, text, &v, e) < 0) {
        struct err why = *e;

        (void)err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %s", why.text);
        goto out;
    }
    error = json_get(v, "error");
    if (!json_is_null(error)) {
        y->failed = true;
        (void)json_to_i64(json_get(error, "code"), &code);
        y->status = code;
        buf_add_str(&y->message, json_string(json_get(error, "message")));
        rc = 0;
        goto out;
    }
    if (stream) {
        if (upstream_text_add(t, v, &content, e) < 0)
            goto out;
        buf_add_str(&y->text, content);
    }
    take_finish(y, json_string(json_get(json_at(json_get(v, "choices"), 0), "finish_reason")));
    rc = 0;
out:
    arena_done(&a);
    return rc;
}

static const struct wire wire = {
    .kind = "openai",
    .health = "/health",
    .write = write_request,
    .scalar = take_scalar,
    .text = take_text,
    .routes = 1,
};

REMOTE_ADAPTER(openai, "openai", &wire);
