/* Writes answers of POST /v1/completions. Every chunk has one choice. text_offset counts the
 * characters of all earlier tokens of the answer, so each answer keeps a count (offsets). Thoughts
 * are part of the text, since completions are not parsed. */
#include "worker/dialect/writers.h"

#include "common/base/cancel.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/chat_request.h"

struct completions_writer {
    struct writer w; /* must be first */
    size_t *offsets; /* by answer: characters of its tokens so far */
};

/* Begins the object of an answer or a chunk: {"id", "object", "created", "model". Leaves it
 * open. */
static void begin_completion_body(struct writer *w, struct json_out *o)
{
    json_out_obj(o);
    json_out_key(o, "id");
    write_id(o, "cmpl-", w->head.response_id);
    json_out_member_cstr(o, "object", "text_completion");
    json_out_member_i64(o, "created", (int64_t)w->head.created_s);
    json_out_member_str(o, "model", w->req->model.p ? w->req->model : STR(""));
}

/* Writes logprobs as parallel lists: tokens, their logprobs, a map of alternatives for each, and
 * offsets. Stops early if the answer is cancelled. */
static void write_logprobs(struct completions_writer *cw, struct json_out *o, uint32_t index,
                           const struct token_logprob *lp, size_t n)
{
    json_out_obj(o);
    json_out_member_arr(o, "tokens");
    for (size_t i = 0; i < n && !cancel_wanted(); i++)
        logprob_token(o, &lp[i]);
    json_out_end_arr(o);
    json_out_member_arr(o, "token_logprobs");
    for (size_t i = 0; i < n && !cancel_wanted(); i++)
        json_out_double(o, (double)lp[i].logprob);
    json_out_end_arr(o);
    json_out_member_arr(o, "top_logprobs");
    for (size_t i = 0; i < n && !cancel_wanted(); i++) {
        json_out_obj(o);
        for (uint32_t k = 0; k < lp[i].n_top; k++) {
            struct buf key = {0};

            logprob_text(&key, &lp[i].top[k]);
            json_out_key_str(o, buf_str(&key));
            json_out_double(o, (double)lp[i].top[k].logprob);
            buf_done(&key);
        }
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
    json_out_member_arr(o, "text_offset");
    for (size_t i = 0; i < n && !cancel_wanted(); i++) {
        json_out_i64(o, (int64_t)cw->offsets[index]);
        cw->offsets[index] += utf8_count(lp[i].bytes);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}

/* Begins a choice, up to its logprobs. Leaves it open. */
static void write_choice(struct json_out *o, uint32_t index, struct str text,
                         struct str finish_reason)
{
    json_out_obj(o);
    json_out_member_i64(o, "index", index);
    json_out_member_str(o, "text", text);
    json_out_member_str(o, "finish_reason", finish_reason);
    json_out_key(o, "logprobs");
}

/* Sends an event with one choice. lp NULL: no logprobs. finish_reason absent: null. */
static void write_chunk(struct completions_writer *cw, uint32_t index, struct str text,
                        struct str finish_reason, const struct token_logprob *lp, size_t n)
{
    struct json_out o;

    sse_begin(&cw->w, NULL, &o);
    begin_completion_body(&cw->w, &o);
    json_out_member_arr(&o, "choices");
    write_choice(&o, index, text, finish_reason);
    if (lp)
        write_logprobs(cw, &o, index, lp, n);
    else
        json_out_null(&o);
    json_out_end_obj(&o);
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    sse_end(&cw->w);
}

static void on_completion_head(void *ctx, const struct answer_head *h)
{
    struct completions_writer *cw = ctx;

    writer_begin(&cw->w, h);
}

static void on_completion_text(void *ctx, uint32_t index, struct str text)
{
    struct completions_writer *cw = ctx;

    if (cw->w.req->stream && text.len)
        write_chunk(cw, index, text, (struct str){0}, NULL, 0);
}

static void on_completion_reasoning(void *ctx, uint32_t index, struct str text)
{
    on_completion_text(ctx, index, text);
}

/* Ignores calls: completions are not parsed for them. */
static void on_completion_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id,
                                     struct str name)
{
    (void)ctx, (void)index, (void)tool, (void)id, (void)name;
}

static void on_completion_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str text)
{
    (void)ctx, (void)index, (void)tool, (void)text;
}

static void on_completion_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    (void)ctx, (void)index, (void)tool;
}

static void on_completion_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp,
                                   size_t n)
{
    struct completions_writer *cw = ctx;

    if (cw->w.req->stream && cw->w.req->logprobs && n)
        write_chunk(cw, index, STR(""), (struct str){0}, lp, n);
}

static void on_completion_keepalive(void *ctx)
{
    struct completions_writer *cw = ctx;

    if (cw->w.req->stream)
        write_chunk(cw, 0, STR(""), (struct str){0}, NULL, 0);
}

/* Writes the single JSON object of a request without `stream`. */
static void write_whole(struct completions_writer *cw, const struct finished_answer *answers,
                        size_t n, const struct call_usage *usage)
{
    struct json_out o = json_out_to(cw->w.out);

    begin_completion_body(&cw->w, &o);
    json_out_member_arr(&o, "choices");
    for (size_t i = 0; i < n; i++) {
        const struct finished_answer *t = &answers[i];

        write_choice(&o, t->index, json_string(json_get(t->message, "content")), t->finish_reason);
        if (cw->w.req->logprobs)
            write_logprobs(cw, &o, t->index, t->logprobs, t->n_logprobs);
        else
            json_out_null(&o);
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    json_out_key(&o, "usage");
    openai_usage(&o, usage);
    json_out_end_obj(&o);
}

/* Ends the answer. A stream ends with an empty chunk per answer for its finish reason, then usage
 * and [DONE]. */
static void on_completion_finish(void *ctx, const struct finished_answer *answers, size_t n,
                                 const struct call_usage *usage)
{
    struct completions_writer *cw = ctx;

    if (!cw->w.req->stream) {
        write_whole(cw, answers, n, usage);
        return;
    }
    for (size_t i = 0; i < n; i++)
        write_chunk(cw, answers[i].index, STR(""), answers[i].finish_reason, NULL, 0);
    openai_stream_end(&cw->w, usage, begin_completion_body);
}

static void on_completion_failed(void *ctx, const struct err *e)
{
    openai_stream_failed(ctx, e);
}

/* Makes a writer for n answers. */
struct dialect_writer *completions_writer_new(struct arena *a, const struct chat_request *req,
                                              const struct json *body, struct buf *out)
{
    static const struct answer_sink sink = ANSWER_SINK_OF(completion, .sealed = NULL);
    struct completions_writer *cw = ARENA_NEW(a, struct completions_writer);

    writer_init(&cw->w, &sink, a, req, body, out);
    cw->offsets = arena_calloc(a, req->n, sizeof(*cw->offsets));
    return &cw->w.base;
}
