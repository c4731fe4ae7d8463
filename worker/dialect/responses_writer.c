/*
 * Writes answers of POST /v1/responses. Stream grammar:
 *   response.created response.in_progress (output_item.added ... output_item.done)*
 *   response.completed | response.incomplete | response.failed
 * sequence_number counts all events from 0. Items are reasoning, message, function_call,
 * custom_tool_call and tool_search_call, in the order the model wrote them. A tool_search_call has
 * no inner events.
 */
#include "worker/dialect/responses_internal.h"

#include <stdio.h>

#include "common/base/cancel.h"
#include "common/codec/json.h"
#include "worker/dialect/request_fields.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/thought_blocks.h"

/* --- events --- */

/* Begins an event's object with its type and number. */
static void begin_event(struct responses_writer *rw, struct json_out *o, const char *type)
{
    sse_begin(&rw->w, type, o);
    json_out_obj(o);
    json_out_member_cstr(o, "type", type);
    json_out_member_i64(o, "sequence_number", rw->sequence++);
}

static void end_response_event(struct responses_writer *rw, struct json_out *o)
{
    json_out_end_obj(o);
    sse_end(&rw->w);
}

static void begin_item_event(struct responses_writer *rw, struct json_out *o, const char *type)
{
    begin_event(rw, o, type);
    json_out_member_i64(o, "output_index", rw->n_items);
}

/* Begins an event within the open item. */
static void begin_inner(struct responses_writer *rw, struct json_out *o, const char *type)
{
    begin_item_event(rw, o, type);
    json_out_member_str(o, "item_id", rw->id);
    if (rw->open == ITEM_MESSAGE || rw->open == ITEM_REASONING)
        json_out_member_i64(o, "content_index", 0);
}

/* Sends output_item.added or output_item.done with the open item. */
static void item_event(struct responses_writer *rw, const char *type, bool done)
{
    struct json_out o;

    if (!rw->w.req->stream)
        return;
    begin_item_event(rw, &o, type);
    json_out_key(&o, "item");
    responses_item(rw, &o, done);
    end_response_event(rw, &o);
}

/* Sends content_part.added or .done. Calls have no parts. */
static void part_event(struct responses_writer *rw, const char *type, struct str text)
{
    struct json_out o;

    if (!rw->w.req->stream || rw->open >= ITEM_COMPACTION)
        return;
    begin_inner(rw, &o, type);
    json_out_key(&o, "part");
    responses_part(rw, &o, text);
    end_response_event(rw, &o);
}

/* Sends a delta or done event of a text, a thought, arguments or an input. */
static void text_event(struct responses_writer *rw, bool done, struct str text)
{
    static const char *const types[][2] = {
        [ITEM_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done"},
        [ITEM_MESSAGE] = {"response.output_text.delta", "response.output_text.done"},
        [ITEM_CALL] = {"response.function_call_arguments.delta",
                       "response.function_call_arguments.done"},
        [ITEM_CUSTOM] = {"response.custom_tool_call_input.delta",
                         "response.custom_tool_call_input.done"},
    };
    static const char *const keys[] = {[ITEM_REASONING] = "text",
                                       [ITEM_MESSAGE] = "text",
                                       [ITEM_CALL] = "arguments",
                                       [ITEM_CUSTOM] = "input"};
    struct json_out o;

    if (!rw->w.req->stream || rw->open == ITEM_SEARCH || rw->open == ITEM_COMPACTION)
        return;
    begin_inner(rw, &o, types[rw->open][done]);
    if (rw->open == ITEM_CALL && done)
        json_out_member_str(&o, "name", rw->name);
    json_out_member_str(&o, done ? keys[rw->open] : "delta", text);
    if (rw->open == ITEM_MESSAGE) {
        json_out_member_arr(&o, "logprobs");
        json_out_end_arr(&o);
    }
    end_response_event(rw, &o);
}

/* Sends the events that end the open item, and keeps the item for the response object. A custom
 * tool's text is sent here, because it must be unwrapped first. */
static void close_item(struct responses_writer *rw)
{
    struct buf item = {0};
    struct json_out o = json_out_to(&item);

    if (rw->open == ITEM_NONE)
        return;
    if (rw->open == ITEM_CUSTOM) {
        struct str input = freeform_input(rw->w.a, grown_str(&rw->text));

        text_event(rw, false, input);
        text_event(rw, true, input);
    } else {
        text_event(rw, true, grown_str(&rw->text));
    }
    part_event(rw, "response.content_part.done", grown_str(&rw->text));
    item_event(rw, "response.output_item.done", true);
    responses_item(rw, &o, true);
    if (rw->output.len)
        grown_add(rw->w.a, &rw->output, STR(","));
    grown_add(rw->w.a, &rw->output, buf_str(&item));
    buf_done(&item);
    if (rw->open == ITEM_MESSAGE)
        rw->logprobs_told = rw->logprobs.len;
    rw->open = ITEM_NONE;
    rw->n_items++;
}

/* Ends the open item and begins one of `kind`. Ids count within a kind. All kinds of calls count
 * together, so that the number in an id is the call's index in the message. */
static void open_item(struct responses_writer *rw, enum item kind)
{
    static const char *const heads[] = {
        [ITEM_REASONING] = "rs_", [ITEM_MESSAGE] = "msg_", [ITEM_COMPACTION] = "cmp_",
        [ITEM_CALL] = "fc_",      [ITEM_CUSTOM] = "ctc_",  [ITEM_SEARCH] = "tsc_"};
    struct str rid = rw->w.head.response_id;
    uint32_t nth = rw->of_kind[kind]++;

    close_item(rw);
    rw->open = kind;
    rw->seal = (struct str){0};
    rw->text = (struct grown){0};
    if (kind >= ITEM_CALL)
        nth = rw->of_kind[ITEM_CALL] + rw->of_kind[ITEM_CUSTOM] + rw->of_kind[ITEM_SEARCH] - 1;
    if (nth || kind >= ITEM_CALL)
        rw->id = arena_printf(rw->w.a, "%s%.*s_%u", heads[kind], (int)rid.len, rid.p, nth);
    else
        rw->id = arena_printf(rw->w.a, "%s%.*s", heads[kind], (int)rid.len, rid.p);
    item_event(rw, "response.output_item.added", false);
    part_event(rw, "response.content_part.added", STR(""));
}

/* --- the sink --- */

/* Reports whether deltas are sent at once. */
static bool sends_deltas(const struct responses_writer *rw)
{
    return rw->w.req->stream && !rw->compacts;
}

/* Sends an event with the whole response object. */
static void response_event(struct responses_writer *rw, const char *type, const char *status,
                           const struct call_usage *usage, const struct err *e)
{
    struct json_out o;

    begin_event(rw, &o, type);
    json_out_key(&o, "response");
    responses_object(rw, &o, status, usage, e);
    end_response_event(rw, &o);
}

/* Sends created and in_progress, before anything is generated. */
static void on_response_head(void *ctx, const struct answer_head *h)
{
    struct responses_writer *rw = ctx;

    writer_begin(&rw->w, h);
    if (!rw->w.req->stream)
        return;
    response_event(rw, "response.created", "in_progress", NULL, NULL);
    response_event(rw, "response.in_progress", "in_progress", NULL, NULL);
}

static void add_item_text(struct responses_writer *rw, struct str text)
{
    grown_add(rw->w.a, &rw->text, text);
    if (rw->open != ITEM_CUSTOM)
        text_event(rw, false, text);
}

/* Sends a text. White space alone opens no message: a call may follow, and clients drop empty
 * messages. */
static void on_response_text(void *ctx, uint32_t index, struct str text)
{
    struct responses_writer *rw = ctx;

    (void)index;
    if (!sends_deltas(rw) || !text.len)
        return;
    if (rw->open != ITEM_MESSAGE) {
        grown_add(rw->w.a, &rw->blank, text);
        if (text_blank(text))
            return;
        text = grown_str(&rw->blank);
        open_item(rw, ITEM_MESSAGE);
    }
    add_item_text(rw, text);
    rw->blank.len = 0;
}

/* Sends a thought. Opens a reasoning item if none is open. */
static void on_response_reasoning(void *ctx, uint32_t index, struct str text)
{
    struct responses_writer *rw = ctx;

    (void)index;
    if (!sends_deltas(rw) || !text.len)
        return;
    if (rw->open != ITEM_REASONING)
        open_item(rw, ITEM_REASONING);
    add_item_text(rw, text);
}

/* Ends the open thought with its seal. If no thought is open, the seal becomes an item of its own
 * without text, but only if the client asked for seals. */
static void add_seal(struct responses_writer *rw, struct str seal)
{
    if (rw->open != ITEM_REASONING && !responses_wants_encrypted(rw))
        return;
    if (rw->open != ITEM_REASONING)
        open_item(rw, ITEM_REASONING);
    rw->seal = arena_str(rw->w.a, seal);
    close_item(rw);
}

static void on_response_sealed(void *ctx, uint32_t index, struct str seal, bool signs_text)
{
    struct responses_writer *rw = ctx;

    (void)index, (void)signs_text;
    if (sends_deltas(rw) && sent_seals_add(&rw->told, rw->w.a, seal))
        add_seal(rw, seal);
}

/* Begins the item of a call. The model's name for the tool leads to the request's tool, which has
 * the kind and the namespace. */
static void begin_call(struct responses_writer *rw, struct str id, struct str name)
{
    struct str space;
    const struct json *tool = responses_tool(&rw->tools, name, &space);
    bool custom = str_eq_c(json_string(json_get(tool, "type")), "custom");
    bool search = !tool && str_eq_c(name, "tool_search") && rw->tools.client_search;

    close_item(rw);
    rw->call_id = arena_str(rw->w.a, id);
    rw->name = tool ? json_string(json_get(tool, "name")) : arena_str(rw->w.a, name);
    rw->space = space;
    rw->blank.len = 0;
    open_item(rw, search ? ITEM_SEARCH : custom ? ITEM_CUSTOM : ITEM_CALL);
}

static void on_response_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id,
                                   struct str name)
{
    struct responses_writer *rw = ctx;

    (void)index, (void)tool;
    if (sends_deltas(rw))
        begin_call(rw, id, name);
}

static void on_response_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str text)
{
    struct responses_writer *rw = ctx;

    (void)index, (void)tool;
    if (sends_deltas(rw) && text.len)
        add_item_text(rw, text);
}

static void on_response_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    struct responses_writer *rw = ctx;

    (void)index, (void)tool;
    if (sends_deltas(rw))
        close_item(rw);
}

/* Keeps logprobs until a message is finished. Each is sent with the first message that ends after
 * it. */
static void on_response_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp,
                                 size_t n)
{
    struct responses_writer *rw = ctx;

    (void)index;
    for (size_t i = 0; i < n && rw->w.req->logprobs && !cancel_wanted(); i++) {
        struct buf b = {0};
        struct json_out o = json_out_to(&b);

        logprob_entry(&o, &lp[i]);
        if (rw->logprobs.len > rw->logprobs_told)
            grown_add(rw->w.a, &rw->logprobs, STR(","));
        grown_add(rw->w.a, &rw->logprobs, buf_str(&b));
        buf_done(&b);
    }
}

/* Sends a keepalive event. The SDKs skip unknown types; it counts in sequence_number. */
static void on_response_keepalive(void *ctx)
{
    struct responses_writer *rw = ctx;
    struct json_out o;

    if (!rw->w.req->stream)
        return;
    begin_event(rw, &o, "keepalive");
    end_response_event(rw, &o);
}

/* Makes the items of a whole message like a stream would. */
static void make_whole_items(struct responses_writer *rw, const struct json *m)
{
    struct thought_block *blocks;
    size_t n = thought_blocks_read(rw->w.a, m, &blocks);
    struct str text = json_string(json_get(m, "content"));
    const struct json *calls = json_get(m, "tool_calls");

    for (size_t i = 0; i < n; i++) {
        if (blocks[i].text.len) {
            if (rw->open != ITEM_REASONING)
                open_item(rw, ITEM_REASONING);
            add_item_text(rw, blocks[i].text);
        }
        if (blocks[i].seal.len)
            add_seal(rw, blocks[i].seal);
    }
    if (!text_blank(text)) {
        open_item(rw, ITEM_MESSAGE);
        add_item_text(rw, text);
    }
    for (size_t i = 0; json_at(calls, i); i++) {
        const struct json *f = json_get(json_at(calls, i), "function");

        begin_call(rw, json_string(json_get(json_at(calls, i), "id")),
                   json_string(json_get(f, "name")));
        add_item_text(rw, json_string(json_get(f, "arguments")));
    }
    close_item(rw);
}

/* Writes the compaction item. Codex ends its run unless there is exactly one such item, so it is
 * written even if the model's text is cut or empty. */
static void write_compaction(struct responses_writer *rw, const struct json *m)
{
    open_item(rw, ITEM_COMPACTION);
    grown_add(rw->w.a, &rw->text, compaction_summary(m));
    close_item(rw);
}

/* Ends the answer. This dialect has one answer per request. Without `stream`, its items are made
 * like in a stream, without events. */
static void on_response_finish(void *ctx, const struct finished_answer *answers, size_t n,
                               const struct call_usage *usage)
{
    struct responses_writer *rw = ctx;
    bool filtered = str_eq_c(answers[0].finish_reason, "content_filter");
    bool cut = filtered || str_eq_c(answers[0].finish_reason, "length");
    const char *status = cut ? "incomplete" : "completed";

    (void)n;
    if (cut)
        rw->incomplete = filtered ? "content_filter" : "max_output_tokens";
    if (rw->compacts) {
        write_compaction(rw, answers[0].message);
    } else if (!rw->w.req->stream) {
        on_response_logprobs(rw, 0, answers[0].logprobs, answers[0].n_logprobs);
        make_whole_items(rw, answers[0].message);
    } else {
        writer_send_unsent_seals(&rw->w, answers[0].message, on_response_sealed);
    }
    close_item(rw);
    /* an empty answer becomes an empty message, so that a client's history has the turn */
    if (!rw->n_items) {
        open_item(rw, ITEM_MESSAGE);
        close_item(rw);
    }
    if (rw->w.req->stream) {
        response_event(rw, cut ? "response.incomplete" : "response.completed", status, usage, NULL);
    } else {
        struct json_out o = json_out_to(rw->w.out);

        if (rw->alone)
            compaction_object(rw, &o, usage);
        else
            responses_object(rw, &o, status, usage, NULL);
    }
}

/* Returns the error in this API's words: agents look for the text about the context window. */
static struct err use_api_words(const struct err *e)
{
    enum { CAUSE_MAX = 500 };
    struct err own = *e;

    if (e->kind != ERR_CONTEXT_LENGTH)
        return own;
    (void)snprintf(own.text, sizeof(own.text),
                   "Your input exceeds the context window of this model. Please adjust your input "
                   "and try again. (%.*s)",
                   CAUSE_MAX, e->text);
    if (!own.param[0])
        (void)snprintf(own.param, sizeof(own.param), "input");
    return own;
}

void responses_write_error(const struct err *e, struct str request_id, struct buf *out)
{
    const struct err own = use_api_words(e);

    openai_write_error(&own, request_id, out);
}

/* Fails a stream. Codex reads about a full context window only in response.failed. */
static void on_response_failed(void *ctx, const struct err *failure)
{
    struct responses_writer *rw = ctx;
    const struct err own = use_api_words(failure), *e = &own;
    struct json_out o;

    if (!rw->w.req->stream || !rw->w.begun)
        return;
    begin_event(rw, &o, "error");
    json_out_member_cstr(&o, "code", err_code(e));
    json_out_member_cstr(&o, "message", e->text);
    json_out_member_str(&o, "param", e->param[0] ? str_cstr(e->param) : (struct str){0});
    end_response_event(rw, &o);
    if (e->kind == ERR_CONTEXT_LENGTH)
        response_event(rw, "response.failed", "failed", NULL, e);
}

static const struct answer_sink responses_sink =
    ANSWER_SINK_OF(response, .sealed = on_response_sealed);

/* Makes a writer. Reads the request's tools, to recognise calls of custom tools and namespaces. */
struct dialect_writer *responses_writer_new(struct arena *a, const struct chat_request *req,
                                            const struct json *body, struct buf *out)
{
    struct responses_writer *rw = ARENA_NEW(a, struct responses_writer);

    writer_init(&rw->w, &responses_sink, a, req, body, out);
    response_tools_read(&rw->tools, a, body);
    rw->compacts = responses_compacts(body) || json_is_true(json_get(body, COMPACTED));
    return &rw->w.base;
}

struct dialect_writer *compact_writer_new(struct arena *a, const struct chat_request *req,
                                          const struct json *body, struct buf *out)
{
    struct dialect_writer *dw = responses_writer_new(a, req, body, out);
    struct responses_writer *rw = CONTAINER_OF(dw, struct responses_writer, w.base);

    rw->compacts = rw->alone = true;
    return dw;
}

/* Makes the answer again with the writer itself, so that it equals the first one. */
void responses_write_stored(struct arena *a, const struct answer_head *head,
                            const struct finished_answer *answer, const struct json *asked,
                            struct str model, struct buf *out)
{
    const struct chat_request req = {.model = model, .n = 1};
    struct dialect_writer *dw = responses_writer_new(a, &req, asked, out);

    dw->sink->head(dw, head);
    dw->sink->finish(dw, answer, 1, &head->usage);
}
