/* One HTTP answer of a model call: passes its events through the dialect's writer to the exchange.
 * on_finish comes when the commit is as durable as --durability promises; a stream's deltas come
 * before. */

#include "common/base/log.h"
#include "common/proc/config.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/service/respond.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/chat_request.h"

/* Makes the note that on_arrived gets: the hash, the call's number in its session, the session's
 * id. */
struct str api_call_note(const struct api_call *c, uint64_t number, char note[EXCHANGE_NOTE_MAX])
{
    size_t len = strlen(c->id);

    memcpy(note, c->hash, sizeof(c->hash));
    memcpy(note + sizeof(c->hash), &number, sizeof(number));
    memcpy(note + sizeof(c->hash) + sizeof(number), c->id, len);
    return str_of(note, sizeof(c->hash) + sizeof(number) + len);
}

/* The client has the whole answer, so that a repeated request is a new call from now on. */
static void on_arrived(void *ctx, struct str note)
{
    struct service *a = ctx;
    uint64_t hash[2], number;

    memcpy(hash, note.p, sizeof(hash));
    memcpy(&number, note.p + sizeof(hash), sizeof(number));
    ledger_close_delivery(a->calls.ledger, str_sub(note, sizeof(hash) + sizeof(number), SIZE_MAX),
                          hash, number);
}

/* Cuts running answers that their clients do not read, while too many bytes of the session's
 * answers wait. For their calls these clients have left. */
static void cut_unread(struct api_call *c)
{
    uint64_t max = (uint64_t)c->service->config->max_session_unread_bytes;
    struct log_scope scope = {str_cstr(c->id), str_cstr(c->request_id)};
    unsigned n = max ? exchange_cut_unread(c->x, max) : 0;

    if (n == 0)
        return;
    metrics_count_at(c->service->calls.page, METRIC_refusals, METRIC_REFUSAL_UNREAD, 0, n);
    log_warn(&scope, "answers that nobody reads were cut", LOG_U("answers", n),
             LOG_U("max_session_unread_bytes", max));
}

static void sse_start(struct api_call *c)
{
    exchange_set_header(c->x, "Cache-Control", STR("no-cache"));
    exchange_set_header(c->x, "X-Accel-Buffering", STR("no"));
    exchange_start(c->x, "text/event-stream; charset=utf-8");
}

/* Sends what the writer has made, and starts the stream before that. A keep-alive of a call without
 * a head starts nothing, because the answer may still become an error. A batch that must be
 * finished sends nothing before all its calls have begun. */
static void api_call_flush(struct api_call *c)
{
    if (c->out.len == 0 || exchange_finishing(c->x))
        return;
    if (c->has_head && !exchange_started(c->x))
        sse_start(c);
    if (exchange_started(c->x)) {
        cut_unread(c);
        exchange_send(c->x, &c->out);
    }
}

/* Writes the head, which is sent with the next event: if an engine refuses the call at once, the
 * client gets a plain error status. */
static void on_head(void *ctx, const struct answer_head *h)
{
    struct api_call *c = ctx;

    c->number = h->call;
    c->has_head = c->req->stream;
    c->writer->sink->head(c->writer, h);
}

static void on_text(void *ctx, uint32_t index, struct str delta)
{
    struct api_call *c = ctx;

    c->writer->sink->text(c->writer, index, delta);
    api_call_flush(c);
}

static void on_reasoning(void *ctx, uint32_t index, struct str delta)
{
    struct api_call *c = ctx;

    c->writer->sink->reasoning(c->writer, index, delta);
    api_call_flush(c);
}

static void on_sealed(void *ctx, uint32_t index, struct str seal, bool signs_text)
{
    struct api_call *c = ctx;

    if (!c->writer->sink->sealed)
        return;
    c->writer->sink->sealed(c->writer, index, seal, signs_text);
    api_call_flush(c);
}

static void on_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name)
{
    struct api_call *c = ctx;

    c->writer->sink->tool_begin(c->writer, index, tool, id, name);
    api_call_flush(c);
}

static void on_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str delta)
{
    struct api_call *c = ctx;

    c->writer->sink->tool_args(c->writer, index, tool, delta);
    api_call_flush(c);
}

static void on_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    struct api_call *c = ctx;

    c->writer->sink->tool_end(c->writer, index, tool);
    api_call_flush(c);
}

static void on_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp, size_t n)
{
    struct api_call *c = ctx;

    c->writer->sink->logprobs(c->writer, index, lp, n);
    api_call_flush(c);
}

/* Sends a sign of life. A waiting answer that is not a stream commits to 200 and sends spaces
 * before its JSON. */
static void on_keepalive(void *ctx)
{
    struct api_call *c = ctx;
    struct buf space = {0};

    if (exchange_finishing(c->x))
        return;
    if (c->req->stream) {
        c->writer->sink->keepalive(c->writer);
        api_call_flush(c);
        return;
    }
    if (!exchange_started(c->x))
        exchange_start(c->x, "application/json");
    buf_add_c(&space, ' ');
    exchange_send(c->x, &space);
    buf_done(&space);
}

void api_call_announce_answer(struct api_call *c)
{
    char note[EXCHANGE_NOTE_MAX];

    if (!c->noted)
        exchange_note(c->x, &(struct exchange_note){.key = api_call_note(c, c->number, note),
                                                    .arrived = on_arrived,
                                                    .ctx = c->service});
    c->noted = true;
}

/* The answer is committed and durable. */
static void on_finish(void *ctx, const struct finished_answer *answers, size_t n,
                      const struct call_usage *usage)
{
    api_call_announce_answer(ctx);
    api_call_write(ctx, answers, n, usage);
}

void api_call_end(struct api_call *c)
{
    struct buf answer;

    if (c->req->stream && !exchange_started(c->x))
        sse_start(c);
    respond_count(c->service, c->dialect_label, 200);
    api_call_flush(c);
    answer = c->out;
    c->out = (struct buf){0};
    if (c->written)
        c->written(c->written_ctx);
    api_call_free_arena(c); /* so that a slow reader holds only the answer's bytes */
    if (exchange_started(c->x)) {
        buf_done(&answer);
        exchange_end(c->x);
    } else {
        exchange_reply_buf(c->x, 200, "application/json", &answer);
        buf_done(&answer);
    }
}

/* Fails the answer. Before the HTTP head an error is a status. Afterwards it is an event of the
 * stream, or, if spaces were sent already, the error's JSON as the body. */
static void on_failed(void *ctx, const struct err *e)
{
    struct api_call *c = ctx;
    struct err shown = *e;
    struct log_scope scope = {str_cstr(c->id), str_cstr(c->request_id)};

    if (e->kind == ERR_INTERNAL)
        log_error(&scope, "call failed", LOG_T("error", e->text));
    if (!exchange_started(c->x)) {
        respond_error_to(c->service, c->x, c->dialect, c->dialect_label, c->request_id, &shown);
        return;
    }
    respond_count(c->service, c->dialect_label, err_status(e));
    if (c->req->stream)
        c->writer->sink->failed(c->writer, &shown);
    else
        c->dialect->error(&shown, str_cstr(c->request_id), &c->out);
    api_call_flush(c);
    exchange_end(c->x);
}

void api_call_fail_stuck(struct api_call *c, const struct err *e)
{
    if (!exchange_started(c->x)) {
        respond_error_to(c->service, c->x, c->dialect, c->dialect_label, c->request_id, e);
        return;
    }
    respond_count(c->service, c->dialect_label, err_status(e));
    exchange_fail(c->x);
}

const struct answer_sink api_call_sink = ANSWER_SINK_ON_AND(.sealed = on_sealed);
