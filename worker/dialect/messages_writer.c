/*
 * Writes answers of POST /v1/messages. Stream grammar:
 *   message_start (content_block_start delta* content_block_stop)* message_delta message_stop
 * with ping anywhere. Blocks are thinking, text and tool_use, in the order the model wrote them.
 */
#include "worker/dialect/writers.h"

#include "common/codec/json.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/thought_blocks.h"

enum block { BLOCK_NONE, BLOCK_THINKING, BLOCK_REDACTED, BLOCK_TEXT, BLOCK_TOOL };

struct anthropic_writer {
    struct writer w; /* must be first */
    enum block open;
    uint32_t index;     /* index of the open or next block */
    struct grown blank; /* white space that has not opened a block yet */
    struct told_seals told;
};

static void begin_event(struct anthropic_writer *aw, struct json_out *o, const char *name)
{
    sse_begin(&aw->w, name, o);
    json_out_obj(o);
    json_out_member_cstr(o, "type", name);
}

static void end_anthropic_event(struct anthropic_writer *aw, struct json_out *o)
{
    json_out_end_obj(o);
    sse_end(&aw->w);
}

/* Writes the usage. The cache members are 0, since this dialect does not report an engine's
 * cache. */
static void write_usage(struct json_out *o, const struct call_usage *u)
{
    json_out_obj(o);
    json_out_member_i64(o, "input_tokens", u->prompt_tokens);
    json_out_member_i64(o, "cache_creation_input_tokens", 0);
    json_out_member_i64(o, "cache_read_input_tokens", 0);
    json_out_member_i64(o, "output_tokens", u->completion_tokens);
    json_out_end_obj(o);
}

/* Begins a message object, up to its content. */
static void begin_message(struct anthropic_writer *aw, struct json_out *o)
{
    json_out_obj(o);
    json_out_key(o, "id");
    write_id(o, "msg_", aw->w.head.response_id);
    json_out_member_cstr(o, "type", "message");
    json_out_member_cstr(o, "role", "assistant");
    json_out_member_str(o, "model", aw->w.req->model.p ? aw->w.req->model : STR(""));
    json_out_member_arr(o, "content");
}

/* Sends message_start: the message without content, with the prompt's tokens. */
static void on_anthropic_head(void *ctx, const struct answer_head *h)
{
    struct anthropic_writer *aw = ctx;
    struct json_out o;

    writer_begin(&aw->w, h);
    if (!aw->w.req->stream)
        return;
    begin_event(aw, &o, "message_start");
    json_out_key(&o, "message");
    begin_message(aw, &o);
    json_out_end_arr(&o);
    json_out_member_null(&o, "stop_reason");
    json_out_member_null(&o, "stop_sequence");
    json_out_key(&o, "usage");
    write_usage(&o, &h->usage);
    json_out_end_obj(&o);
    end_anthropic_event(aw, &o);
}

/* Writes the upstream's signature. Without one, writes the id of the answer that the thought
 * belongs to. Clients only echo it. */
static void write_signature(struct anthropic_writer *aw, struct json_out *o, struct str own)
{
    json_out_key(o, "signature");
    if (own.len)
        json_out_str(o, own);
    else
        write_id(o, "rollgate-", aw->w.head.response_id);
}

/* Begins a content_block_delta and its delta, which stay open. */
static void begin_delta(struct anthropic_writer *aw, struct json_out *o, const char *type)
{
    begin_event(aw, o, "content_block_delta");
    json_out_member_i64(o, "index", aw->index);
    json_out_member_obj(o, "delta");
    json_out_member_cstr(o, "type", type);
}

static void end_delta(struct anthropic_writer *aw, struct json_out *o)
{
    json_out_end_obj(o);
    end_anthropic_event(aw, o);
}

/* Ends the open block, if there is one, and moves to the next index. A thought ends with its
 * signature: `own`, the upstream's, if it is known. */
static void close_signed(struct anthropic_writer *aw, struct str own)
{
    struct json_out o;

    if (aw->open == BLOCK_NONE)
        return;
    if (aw->open == BLOCK_THINKING) {
        begin_delta(aw, &o, "signature_delta");
        write_signature(aw, &o, own);
        end_delta(aw, &o);
    }
    begin_event(aw, &o, "content_block_stop");
    json_out_member_i64(&o, "index", aw->index++);
    end_anthropic_event(aw, &o);
    aw->open = BLOCK_NONE;
}

static void close_block(struct anthropic_writer *aw)
{
    close_signed(aw, (struct str){0});
}

/* Ends the open block and begins the next one, up to the inside of content_block. */
static void begin_block(struct anthropic_writer *aw, struct json_out *o, enum block kind,
                        const char *type)
{
    close_block(aw);
    aw->open = kind;
    begin_event(aw, o, "content_block_start");
    json_out_member_i64(o, "index", aw->index);
    json_out_member_obj(o, "content_block");
    json_out_member_cstr(o, "type", type);
}

/* Sends a delta with one text. */
static void text_delta(struct anthropic_writer *aw, const char *type, const char *key,
                       struct str text)
{
    struct json_out o;

    begin_delta(aw, &o, type);
    json_out_member_str(&o, key, text);
    end_delta(aw, &o);
}

/* Sends a text. White space alone opens no text block: clients drop such blocks, and a call may
 * follow. */
static void on_anthropic_text(void *ctx, uint32_t index, struct str text)
{
    struct anthropic_writer *aw = ctx;
    struct json_out o;

    (void)index;
    if (!aw->w.req->stream || !text.len)
        return;
    if (aw->open != BLOCK_TEXT) {
        grown_add(aw->w.a, &aw->blank, text);
        if (text_blank(text))
            return;
        text = grown_str(&aw->blank);
        begin_block(aw, &o, BLOCK_TEXT, "text");
        json_out_member_cstr(&o, "text", "");
        json_out_end_obj(&o);
        end_anthropic_event(aw, &o);
    }
    text_delta(aw, "text_delta", "text", text);
    aw->blank.len = 0;
}

static void open_thinking(struct anthropic_writer *aw)
{
    struct json_out o;

    if (aw->open == BLOCK_THINKING)
        return;
    begin_block(aw, &o, BLOCK_THINKING, "thinking");
    json_out_member_cstr(&o, "thinking", "");
    json_out_member_cstr(&o, "signature", "");
    json_out_end_obj(&o);
    end_anthropic_event(aw, &o);
}

/* Sends a thought. Opens a thinking block if none is open. */
static void on_anthropic_reasoning(void *ctx, uint32_t index, struct str text)
{
    struct anthropic_writer *aw = ctx;

    (void)index;
    if (!aw->w.req->stream || !text.len)
        return;
    open_thinking(aw);
    text_delta(aw, "thinking_delta", "thinking", text);
}

/* Ends the open thought with its signature. If no thought is open, the signature is in a thinking
 * block of its own without text. A seal that signs no text is a redacted block. */
static void on_anthropic_sealed(void *ctx, uint32_t index, struct str seal, bool signs_text)
{
    struct anthropic_writer *aw = ctx;
    struct json_out o;

    (void)index;
    if (!aw->w.req->stream || !sent_seals_add(&aw->told, aw->w.a, seal))
        return;
    if (signs_text) {
        open_thinking(aw);
        close_signed(aw, seal);
        return;
    }
    begin_block(aw, &o, BLOCK_REDACTED, "redacted_thinking");
    json_out_member_str(&o, "data", seal);
    json_out_end_obj(&o);
    end_anthropic_event(aw, &o);
    close_block(aw);
}

/* Begins a call's block with an empty input. The arguments follow as JSON text in deltas. */
static void on_anthropic_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id,
                                    struct str name)
{
    struct anthropic_writer *aw = ctx;
    struct json_out o;

    (void)index, (void)tool;
    if (!aw->w.req->stream)
        return;
    aw->blank.len = 0;
    begin_block(aw, &o, BLOCK_TOOL, "tool_use");
    json_out_member_str(&o, "id", id);
    json_out_member_str(&o, "name", name);
    json_out_member_obj(&o, "input");
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    end_anthropic_event(aw, &o);
}

static void on_anthropic_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str text)
{
    struct anthropic_writer *aw = ctx;

    (void)index, (void)tool;
    if (aw->w.req->stream && text.len)
        text_delta(aw, "input_json_delta", "partial_json", text);
}

static void on_anthropic_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    struct anthropic_writer *aw = ctx;

    (void)index, (void)tool;
    if (aw->w.req->stream)
        close_block(aw);
}

static void on_anthropic_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp,
                                  size_t n)
{
    (void)ctx, (void)index, (void)lp, (void)n; /* this dialect has no logprobs */
}

/* Sends ping, the dialect's own keepalive event. */
static void on_anthropic_keepalive(void *ctx)
{
    struct anthropic_writer *aw = ctx;
    struct json_out o;

    if (!aw->w.req->stream)
        return;
    begin_event(aw, &o, "ping");
    end_anthropic_event(aw, &o);
}

/* --- the whole message --- */

/* Writes the input of a whole tool_use block exactly as the model wrote it, including the spelling
 * of numbers. */
static void write_input(struct arena *a, struct json_out *o, struct str arguments)
{
    const struct json *v = NULL;

    if (json_parse(a, arguments, &v, NULL) == 0 && v->kind == JSON_OBJECT) {
        json_out_raw(o, str_trim(arguments));
        return;
    }
    /* not an object: the model's text is kept in a member */
    json_out_obj(o);
    if (arguments.len)
        json_out_member_str(o, "_raw", arguments);
    json_out_end_obj(o);
}

/* Writes one tool_use block for each call. */
static void write_tool_uses(struct anthropic_writer *aw, struct json_out *o,
                            const struct json *calls)
{
    for (size_t i = 0; json_at(calls, i); i++) {
        const struct json *call = json_at(calls, i);
        const struct json *f = json_get(call, "function");

        json_out_obj(o);
        json_out_member_cstr(o, "type", "tool_use");
        json_out_member_value(o, "id", json_get(call, "id"));
        json_out_member_value(o, "name", json_get(f, "name"));
        json_out_key(o, "input");
        write_input(aw->w.a, o, json_string(json_get(f, "arguments")));
        json_out_end_obj(o);
    }
}

static void write_thinking(struct anthropic_writer *aw, struct json_out *o, struct str text,
                           struct str signature)
{
    json_out_obj(o);
    json_out_member_cstr(o, "type", "thinking");
    json_out_member_str(o, "thinking", text.p ? text : STR(""));
    write_signature(aw, o, signature);
    json_out_end_obj(o);
}

static void write_thought(struct anthropic_writer *aw, struct json_out *o, const struct json *m)
{
    struct thought_block *blocks;
    size_t n = thought_blocks_read(aw->w.a, m, &blocks);

    for (size_t i = 0; i < n; i++) {
        const struct thought_block *b = &blocks[i];

        if (b->signs_text || b->text.len)
            write_thinking(aw, o, b->text, b->signs_text ? b->seal : (struct str){0});
        if (b->signs_text || !b->seal.len)
            continue;
        json_out_obj(o);
        json_out_member_cstr(o, "type", "redacted_thinking");
        json_out_member_str(o, "data", b->seal);
        json_out_end_obj(o);
    }
}

/* Writes the blocks of a whole message in the stream's order: thought, text, calls. */
static void write_content(struct anthropic_writer *aw, struct json_out *o, const struct json *m)
{
    struct str text = json_string(json_get(m, "content"));

    write_thought(aw, o, m);
    if (!text_blank(text)) {
        json_out_obj(o);
        json_out_member_cstr(o, "type", "text");
        json_out_member_str(o, "text", text);
        json_out_end_obj(o);
    }
    write_tool_uses(aw, o, json_get(m, "tool_calls"));
}

/* Writes the stop reason. "stop" becomes stop_sequence if a stop string ended the answer, otherwise
 * end_turn. */
static void write_stop(struct json_out *o, const struct finished_answer *t)
{
    const char *reason = str_eq_c(t->finish_reason, "length")           ? "max_tokens"
                         : str_eq_c(t->finish_reason, "tool_calls")     ? "tool_use"
                         : str_eq_c(t->finish_reason, "content_filter") ? "refusal"
                         : t->stop_text.p                               ? "stop_sequence"
                                                                        : "end_turn";

    json_out_member_cstr(o, "stop_reason", reason);
    json_out_member_str(o, "stop_sequence",
                        str_eq_c(str_cstr(reason), "stop_sequence") ? t->stop_text
                                                                    : (struct str){0});
}

/* Ends the answer. This dialect has one answer per request. */
static void on_anthropic_finish(void *ctx, const struct finished_answer *answers, size_t n,
                                const struct call_usage *usage)
{
    struct anthropic_writer *aw = ctx;
    struct json_out o = json_out_to(aw->w.out);

    (void)n;
    if (!aw->w.req->stream) {
        begin_message(aw, &o);
        write_content(aw, &o, answers[0].message);
        json_out_end_arr(&o);
        write_stop(&o, &answers[0]);
        json_out_key(&o, "usage");
        write_usage(&o, usage);
        json_out_end_obj(&o);
        return;
    }
    writer_send_unsent_seals(&aw->w, answers[0].message, on_anthropic_sealed);
    close_block(aw);
    begin_event(aw, &o, "message_delta");
    json_out_member_obj(&o, "delta");
    write_stop(&o, &answers[0]);
    json_out_end_obj(&o);
    json_out_key(&o, "usage");
    write_usage(&o, usage);
    end_anthropic_event(aw, &o);
    begin_event(aw, &o, "message_stop");
    end_anthropic_event(aw, &o);
}

/* --- errors --- */

/* Writes the text for an exceeded context length. Claude Code compacts its history if it reads
 * these words of Anthropic's API, and ends its run otherwise. The answer's tokens count if the
 * prompt alone would fit. */
static void write_overflow(const struct err *e, struct buf *out)
{
    uint64_t prompt = e->overflow.prompt, answer = e->overflow.answer, max = e->overflow.max;
    bool fits = prompt <= max;
    uint64_t tokens = fits ? prompt + answer : prompt;

    if (prompt == 0 || max == 0 || tokens <= max) {
        buf_printf(out, "prompt is too long: %s", e->text);
        return;
    }
    buf_printf(out, "prompt is too long: %llu tokens > %llu maximum", (unsigned long long)tokens,
               (unsigned long long)max);
    if (fits && answer > 1)
        buf_printf(out,
                   " (input length and `max_tokens` exceed context limit: %llu + %llu > %llu, "
                   "decrease input length or `max_tokens` and try again)",
                   (unsigned long long)prompt, (unsigned long long)answer, (unsigned long long)max);
}

static void write_message_text(struct json_out *o, const struct err *e)
{
    struct buf words = {0};

    if (e->kind == ERR_CONTEXT_LENGTH)
        write_overflow(e, &words);
    else
        buf_puts(&words, e->text);
    json_out_str(o, buf_str(&words));
    buf_done(&words);
}

/* Writes the "error" member of a body or a stream event. */
static void write_error(struct json_out *o, const struct err *e)
{
    json_out_member_obj(o, "error");
    json_out_member_cstr(o, "type", err_messages_type(e));
    json_out_key(o, "message");
    write_message_text(o, e);
    /* with this code the SDK's tool runner sends the whole history instead */
    if (strcmp(e->param, "thread") == 0) {
        json_out_member_obj(o, "details");
        json_out_member_cstr(o, "error_code", "thread_unsupported_request");
        json_out_member_arr(o, "unsupported");
        json_out_cstr(o, "thread");
        json_out_end_arr(o);
        json_out_end_obj(o);
    }
    json_out_end_obj(o);
}

/* Writes the body of an error, before any byte of an answer was sent. */
void anthropic_write_error(const struct err *e, struct str request_id, struct buf *out)
{
    struct json_out o = json_out_to(out);

    json_out_obj(&o);
    json_out_member_cstr(&o, "type", "error");
    write_error(&o, e);
    if (request_id.len)
        json_out_member_str(&o, "request_id", request_id);
    json_out_end_obj(&o);
}

/* Fails a stream. Does nothing before the head: nothing was sent, so the api layer answers with a
 * status. */
static void on_anthropic_failed(void *ctx, const struct err *e)
{
    struct anthropic_writer *aw = ctx;
    struct json_out o;

    if (!aw->w.req->stream || !aw->w.begun)
        return;
    begin_event(aw, &o, "error");
    write_error(&o, e);
    end_anthropic_event(aw, &o);
}

void anthropic_write_count(size_t n_tokens, struct buf *out)
{
    buf_printf(out, "{\"input_tokens\":%zu}", n_tokens);
}

struct dialect_writer *anthropic_writer_new(struct arena *a, const struct chat_request *req,
                                            const struct json *body, struct buf *out)
{
    static const struct answer_sink sink = ANSWER_SINK_OF(anthropic, .sealed = on_anthropic_sealed);
    struct anthropic_writer *aw = ARENA_NEW(a, struct anthropic_writer);

    writer_init(&aw->w, &sink, a, req, body, out);
    return &aw->w.base;
}
