/* Functions that the answer writers share (writers.h): SSE events, OpenAI's error and usage
 * objects, logprobs, ids, and text that grows in an arena. */

#include "worker/dialect/writers.h"

#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/responses_tools.h"
#include "worker/text/request/thought_blocks.h"

void writer_init(struct writer *w, const struct answer_sink *sink, struct arena *a,
                 const struct chat_request *req, const struct json *body, struct buf *out)
{
    *w = (struct writer){.base = {.sink = sink}, .a = a, .req = req, .body = body, .out = out};
}

void writer_begin(struct writer *w, const struct answer_head *h)
{
    w->head = *h;
    w->head.session_id = arena_str(w->a, h->session_id);
    w->head.response_id = arena_str(w->a, response_bare_id(h->response_id));
    w->begun = true;
}

/* The JSON must be one line, since a line end would end the event. */
void sse_begin(struct writer *w, const char *event, struct json_out *o)
{
    if (event) {
        buf_puts(w->out, "event: ");
        buf_puts(w->out, event);
        buf_add_c(w->out, '\n');
    }
    buf_puts(w->out, "data: ");
    *o = json_out_to(w->out);
}

void sse_end(struct writer *w)
{
    buf_puts(w->out, "\n\n");
}

/* Writes param as null if no field is at fault. */
void openai_error_object(struct json_out *o, const struct err *e)
{
    json_out_obj(o);
    json_out_member_cstr(o, "message", e->text);
    json_out_member_cstr(o, "type", err_openai_type(e));
    json_out_member_str(o, "param", e->param[0] ? str_cstr(e->param) : (struct str){0});
    json_out_member_cstr(o, "code", err_code(e));
    json_out_end_obj(o);
}

/* Writes the body of an error, before any byte of an answer was sent. */
void openai_write_error(const struct err *e, struct str request_id, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_key(&o, "error");
    openai_error_object(&o, e);
    if (request_id.len)
        json_out_member_str(&o, "request_id", request_id);
    json_out_end_obj(&o);
}

void openai_usage(struct json_out *o, const struct call_usage *u)
{
    json_out_obj(o);
    json_out_member_i64(o, "prompt_tokens", u->prompt_tokens);
    json_out_member_i64(o, "completion_tokens", u->completion_tokens);
    json_out_member_i64(o, "total_tokens", (int64_t)u->prompt_tokens + u->completion_tokens);
    json_out_member_obj(o, "prompt_tokens_details");
    json_out_member_i64(o, "cached_tokens", u->cached_tokens);
    json_out_end_obj(o);
    json_out_member_obj(o, "completion_tokens_details");
    json_out_member_i64(o, "reasoning_tokens", u->reasoning_tokens);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

void openai_stream_end(struct writer *w, const struct call_usage *u,
                       void (*begin_chunk)(struct writer *w, struct json_out *o))
{
    struct json_out o;

    if (w->req->include_usage) {
        sse_begin(w, NULL, &o);
        begin_chunk(w, &o);
        json_out_member_arr(&o, "choices");
        json_out_end_arr(&o);
        json_out_key(&o, "usage");
        openai_usage(&o, u);
        json_out_end_obj(&o);
        sse_end(w);
    }
    buf_puts(w->out, "data: [DONE]\n\n");
}

/* Fails a stream. Does nothing before the head: nothing was sent, so the api layer answers with a
 * status. */
void openai_stream_failed(struct writer *w, const struct err *e)
{
    struct json_out o;

    if (!w->req->stream || !w->begun)
        return;
    sse_begin(w, NULL, &o);
    json_out_obj(&o);
    json_out_key(&o, "error");
    openai_error_object(&o, e);
    json_out_end_obj(&o);
    sse_end(w);
}

/* Replaces invalid bytes, since a token may end inside a character and JSON must be valid UTF-8. */
void logprob_text(struct buf *out, const struct token_logprob *lp)
{
    struct str s = lp->bytes;

    while (s.len) {
        size_t n = utf8_valid_len(s);

        buf_add(out, s.p, n);
        s = str_sub(s, n, s.len);
        if (s.len) {
            buf_puts(out, "\xef\xbf\xbd");
            s = str_sub(s, 1, s.len);
        }
    }
}

void logprob_token(struct json_out *o, const struct token_logprob *lp)
{
    struct buf clean = {0};

    if (utf8_valid_len(lp->bytes) == lp->bytes.len) {
        json_out_str(o, lp->bytes.p ? lp->bytes : STR(""));
        return;
    }
    logprob_text(&clean, lp);
    json_out_str(o, buf_str(&clean));
    buf_done(&clean);
}

/* Writes a token's text, its logprob, and its exact bytes. */
static void write_logprob(struct json_out *o, const struct token_logprob *lp)
{
    json_out_key(o, "token");
    logprob_token(o, lp);
    json_out_member_double(o, "logprob", (double)lp->logprob);
    json_out_member_arr(o, "bytes");
    for (size_t i = 0; i < lp->bytes.len; i++)
        json_out_i64(o, (unsigned char)lp->bytes.p[i]);
    json_out_end_arr(o);
}

void logprob_entry(struct json_out *o, const struct token_logprob *lp)
{
    json_out_obj(o);
    write_logprob(o, lp);
    json_out_member_arr(o, "top_logprobs");
    for (uint32_t i = 0; i < lp->n_top; i++) {
        json_out_obj(o);
        write_logprob(o, &lp->top[i]);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}

void write_id(struct json_out *o, const char *prefix, struct str id)
{
    json_out_raw(o, STR("\""));
    buf_puts(o->b, prefix);
    buf_add_str(o->b, id);
    buf_add_c(o->b, '"');
}

/* Doubles the capacity if needed. The old bytes stay in the arena. */
void grown_add(struct arena *a, struct grown *g, struct str s)
{
    if (g->cap - g->len < s.len) {
        size_t cap = MAX_OF(g->cap * 2, g->len + s.len + 256);
        char *p = arena_alloc(a, cap);

        if (g->len)
            memcpy(p, g->p, g->len);
        g->p = p;
        g->cap = cap;
    }
    if (s.len)
        memcpy(g->p + g->len, s.p, s.len);
    g->len += s.len;
}

bool text_blank(struct str s)
{
    return str_trim(s).len == 0;
}

bool sent_seals_add(struct told_seals *t, struct arena *a, struct str seal)
{
    for (size_t i = 0; i < t->n; i++) {
        if (str_eq(t->at[i], seal))
            return false;
    }
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 4;
        t->at = arena_grow_alone(a, t->at, t->cap * sizeof(*t->at));
    }
    t->at[t->n++] = arena_str(a, seal);
    return true;
}

void writer_send_unsent_seals(struct writer *w, const struct json *message,
                              void (*sealed)(void *ctx, uint32_t index, struct str seal,
                                             bool signs_text))
{
    struct thought_block *blocks;
    size_t n = thought_blocks_read(w->a, message, &blocks);

    for (size_t i = 0; i < n; i++) {
        if (blocks[i].seal.len)
            sealed(w, 0, blocks[i].seal, blocks[i].signs_text);
    }
}
