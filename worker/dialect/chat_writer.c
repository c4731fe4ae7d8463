/* Writes answers of POST /v1/chat/completions. Chunk order: role, deltas, finish_reason, usage,
 * [DONE]. The text of a custom tool's call is sent at the end of the call, because it must be
 * unwrapped first. */
#include "worker/dialect/writers.h"

#include "common/base/attrs.h"
#include "common/base/cancel.h"
#include "common/base/lookup.h"
#include "common/codec/json.h"
#include "worker/dialect/request_fields.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/chat_request.h"

/* The open call of a custom tool in one streamed answer. */
struct open_custom {
    bool is_open;
    uint32_t tool;
    struct grown arguments;
};

struct chat_writer {
    struct writer w;          /* must be first */
    bool has_tools;           /* `tools` has been read */
    struct lookup tools;      /* name -> 1 if the tool is custom; empty: no custom tools */
    struct open_custom *open; /* one per answer; NULL: no custom call yet */
};

/* Returns the writer, which is the sink's ctx. */
static struct writer *writer_of(void *ctx)
{
    return ctx;
}

static bool is_custom_tool(const struct json *tool)
{
    return str_eq_c(json_string(json_get(tool, "type")), "custom");
}

/* Adds all tools to the index if one of them is custom. The first tool with a name counts, since
 * the model sees only that one. */
static void read_custom_tools(struct chat_writer *cw)
{
    const struct json *tools = json_get(cw->w.body, "tools");
    uint32_t first = 0;

    while (json_at(tools, first) && !is_custom_tool(json_at(tools, first)))
        first++;
    for (uint32_t i = 0; json_at(tools, first) && json_at(tools, i); i++) {
        bool custom = is_custom_tool(json_at(tools, i));
        const struct json *tool = json_get(json_at(tools, i), custom ? "custom" : "function");

        (void)lookup_add(&cw->tools, json_string(json_get(tool, "name")), custom);
    }
    cw->has_tools = true;
}

static bool is_custom(struct chat_writer *cw, struct str name)
{
    if (!cw->has_tools)
        read_custom_tools(cw);
    return lookup_get(&cw->tools, name) == true;
}

/* Begins the object of an answer or a chunk: {"id", "object", "created", "model". Leaves it
 * open. */
static void begin_chat_body(struct writer *w, struct json_out *o, const char *object)
{
    json_out_obj(o);
    json_out_key(o, "id");
    write_id(o, "chatcmpl-", w->head.response_id);
    json_out_member_cstr(o, "object", object);
    json_out_member_i64(o, "created", (int64_t)w->head.created_s);
    json_out_member_str(o, "model", w->req->model.p ? w->req->model : STR(""));
}

static void begin_chunk_body(struct writer *w, struct json_out *o)
{
    begin_chat_body(w, o, "chat.completion.chunk");
}

/* Begins a chunk and its delta, which stay open. */
static void begin_chunk(struct writer *w, struct json_out *o, uint32_t index)
{
    sse_begin(w, NULL, o);
    begin_chunk_body(w, o);
    json_out_member_arr(o, "choices");
    json_out_obj(o);
    json_out_member_i64(o, "index", index);
    json_out_member_obj(o, "delta");
}

/* Ends the delta and the chunk. An absent finish_reason is written as null. With include_usage,
 * every chunk but the last has "usage": null. */
static void end_chunk(struct writer *w, struct json_out *o, struct str finish_reason)
{
    json_out_end_obj(o);
    json_out_member_str(o, "finish_reason", finish_reason);
    json_out_end_obj(o);
    json_out_end_arr(o);
    if (w->req->include_usage)
        json_out_member_null(o, "usage");
    json_out_end_obj(o);
    sse_end(w);
}

/* In a stream, sends a first chunk with the role for each of the n answers. */
static void on_chat_head(void *ctx, const struct answer_head *h)
{
    struct writer *w = writer_of(ctx);
    struct json_out o;

    writer_begin(w, h);
    for (uint32_t i = 0; w->req->stream && i < w->req->n; i++) {
        begin_chunk(w, &o, i);
        json_out_member_cstr(&o, "role", "assistant");
        json_out_member_cstr(&o, "content", "");
        end_chunk(w, &o, (struct str){0});
    }
}

/* Sends a chunk with one member. Does nothing without `stream`. */
static void write_delta(struct writer *w, uint32_t index, const char *key, struct str text)
{
    struct json_out o;

    if (!w->req->stream || !text.len)
        return;
    begin_chunk(w, &o, index);
    json_out_member_str(&o, key, text);
    end_chunk(w, &o, (struct str){0});
}

static void on_chat_text(void *ctx, uint32_t index, struct str text)
{
    write_delta(writer_of(ctx), index, "content", text);
}

static void on_chat_reasoning(void *ctx, uint32_t index, struct str text)
{
    write_delta(writer_of(ctx), index, "reasoning_content", text);
}

/* Reports whether the request has functions instead of tools, so that calls are sent as
 * function_call. */
static bool is_legacy(const struct writer *w)
{
    return json_is(json_get(w->body, "functions"), JSON_ARRAY) &&
           json_is_null(json_get(w->body, "tools"));
}

static struct str finish_of(const struct writer *w, struct str reason)
{
    return is_legacy(w) && str_eq_c(reason, "tool_calls") ? STR("function_call") : reason;
}

/* Sends a fragment of a call to a client that sent functions. The first fragment has the name; no
 * fragment has an id. */
static void legacy_fragment(struct writer *w, uint32_t index, struct str name, struct str arguments)
{
    struct json_out o;

    begin_chunk(w, &o, index);
    json_out_member_obj(&o, "function_call");
    if (name.p)
        json_out_member_str(&o, "name", name);
    json_out_member_str(&o, "arguments", arguments);
    json_out_end_obj(&o);
    end_chunk(w, &o, (struct str){0});
}

/* Member names by kind of tool: of the call, and of its text. */
static const char *const kind_words[2][2] = {{"function", "arguments"}, {"custom", "input"}};

/* Sends one fragment of a call. id_name: id and name, for the first fragment; NULL: not the
 * first. */
static void call_fragment(struct writer *w, uint32_t index, uint32_t tool, bool custom,
                          const struct str *id_name, struct str text)
{
    struct json_out o;

    begin_chunk(w, &o, index);
    json_out_member_arr(&o, "tool_calls");
    json_out_obj(&o);
    json_out_member_i64(&o, "index", tool);
    if (id_name) {
        json_out_member_str(&o, "id", id_name[0]);
        json_out_member_cstr(&o, "type", kind_words[custom][0]);
    }
    json_out_member_obj(&o, kind_words[custom][0]);
    if (id_name)
        json_out_member_str(&o, "name", id_name[1]);
    json_out_member_str(&o, kind_words[custom][1], text);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    json_out_end_arr(&o);
    end_chunk(w, &o, (struct str){0});
}

static void open_custom(struct chat_writer *cw, uint32_t index, uint32_t tool)
{
    if (!cw->open)
        cw->open = arena_calloc(cw->w.a, cw->w.req->n, sizeof(*cw->open));
    cw->open[index] = (struct open_custom){.is_open = true, .tool = tool};
}

/* Sends the text of the answer's open custom call, if there is one. */
static void close_custom(struct chat_writer *cw, uint32_t index)
{
    struct open_custom *c = cw->open ? &cw->open[index] : NULL;

    if (!c || !c->is_open)
        return;
    c->is_open = false;
    call_fragment(&cw->w, index, c->tool, true, NULL,
                  freeform_input(cw->w.a, grown_str(&c->arguments)));
}

static void on_chat_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id,
                               struct str name)
{
    struct chat_writer *cw = ctx;
    const struct str id_name[2] = {id, name};
    bool custom = cw->w.req->stream && is_custom(cw, name);

    if (!cw->w.req->stream)
        return;
    close_custom(cw, index);
    if (custom)
        open_custom(cw, index, tool);
    if (is_legacy(&cw->w))
        legacy_fragment(&cw->w, index, name, STR(""));
    else
        call_fragment(&cw->w, index, tool, custom, id_name, STR(""));
}

static void on_chat_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str text)
{
    struct chat_writer *cw = ctx;

    if (!cw->w.req->stream)
        return;
    if (cw->open && cw->open[index].is_open)
        grown_add(cw->w.a, &cw->open[index].arguments, text);
    else if (is_legacy(&cw->w))
        legacy_fragment(&cw->w, index, (struct str){0}, text);
    else
        call_fragment(&cw->w, index, tool, false, NULL, text);
}

static void on_chat_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    (void)tool;
    close_custom(ctx, index);
}

/* Writes the logprobs object of a chunk or a choice. Stops early if the answer is cancelled. */
static void write_logprobs(struct json_out *o, const struct token_logprob *lp, size_t n)
{
    json_out_obj(o);
    json_out_member_arr(o, "content");
    for (size_t i = 0; i < n && !cancel_wanted(); i++)
        logprob_entry(o, &lp[i]);
    json_out_end_arr(o);
    json_out_member_null(o, "refusal");
    json_out_end_obj(o);
}

/* Sends logprobs in chunks of their own, since parsers may hold deltas back. */
static void on_chat_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp, size_t n)
{
    struct writer *w = writer_of(ctx);
    struct json_out o;

    if (!w->req->stream || !w->req->logprobs || !n)
        return;
    begin_chunk(w, &o, index);
    json_out_end_obj(&o);
    json_out_key(&o, "logprobs");
    write_logprobs(&o, lp, n);
    json_out_member_null(&o, "finish_reason");
    json_out_end_obj(&o);
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    sse_end(w);
}

/* Sends an empty delta: all clients accept it, and proxies see bytes. */
static void on_chat_keepalive(void *ctx)
{
    struct writer *w = writer_of(ctx);
    struct json_out o;

    if (!w->req->stream)
        return;
    begin_chunk(w, &o, 0);
    end_chunk(w, &o, (struct str){0});
}

/* Reports whether the member belongs to the API, or (content_parts) only to the record. */
static bool is_known_member(struct str name)
{
    static const char *const own[] = {"role", "content", "reasoning_content", "tool_calls",
                                      "content_parts"};

    return str_is_one_of(name, own, ARRAY_LEN(own));
}

static bool has_signed_members(const struct json *m)
{
    for (uint32_t i = 0; json_is(m, JSON_OBJECT) && i < m->n; i++)
        if (!is_known_member(json_string(&m->members[i].key)))
            return true;
    return false;
}

/* Writes the members that an upstream signed, under the upstream's names, next to the API's
 * members. */
static void write_signed(struct json_out *o, const struct json *m)
{
    for (uint32_t i = 0; json_is(m, JSON_OBJECT) && i < m->n; i++) {
        if (is_known_member(json_string(&m->members[i].key)))
            continue;
        json_out_member_of(o, json_string(&m->members[i].key), &m->members[i].value);
    }
}

/* Reports whether a call has more members than id, type and function. */
static bool call_is_signed(const struct json *call)
{
    return json_is(call, JSON_OBJECT) && call->n > 3;
}

/* Writes the signed members of calls, each as the last fragment of its call. */
static void write_signed_calls(struct chat_writer *cw, struct json_out *o, const struct json *calls)
{
    json_out_member_arr(o, "tool_calls");
    for (uint32_t i = 0; json_at(calls, i); i++) {
        const struct json *call = json_at(calls, i);

        bool custom = is_custom(cw, json_string(json_get(json_get(call, "function"), "name")));

        if (!call_is_signed(call))
            continue;
        json_out_obj(o);
        json_out_member_i64(o, "index", i);
        json_out_member_obj(o, kind_words[custom][0]);
        json_out_member_cstr(o, kind_words[custom][1], "");
        json_out_end_obj(o);
        for (uint32_t k = 3; k < call->n; k++)
            json_out_member_of(o, json_string(&call->members[k].key), &call->members[k].value);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

static void write_custom_call(struct chat_writer *cw, struct json_out *o, const struct json *call)
{
    const struct json *f = json_get(call, "function");

    json_out_obj(o);
    json_out_member_str(o, "id", json_string(json_get(call, "id")));
    json_out_member_cstr(o, "type", "custom");
    json_out_member_obj(o, "custom");
    json_out_member_str(o, "name", json_string(json_get(f, "name")));
    json_out_member_str(o, "input", freeform_input(cw->w.a, json_string(json_get(f, "arguments"))));
    json_out_end_obj(o);
    for (uint32_t k = 3; k < call->n; k++) { /* members that an upstream signed */
        json_out_member_of(o, json_string(&call->members[k].key), &call->members[k].value);
    }
    json_out_end_obj(o);
}

static void write_tool_calls(struct chat_writer *cw, struct json_out *o, const struct json *calls)
{
    json_out_arr(o);
    for (size_t i = 0; json_at(calls, i); i++) {
        const struct json *call = json_at(calls, i);

        if (is_custom(cw, json_string(json_get(json_get(call, "function"), "name"))))
            write_custom_call(cw, o, call);
        else
            json_out_value(o, call);
    }
    json_out_end_arr(o);
}

/* Writes the message of a whole choice. content is null if there are calls but no text. */
static void write_message(struct chat_writer *cw, struct json_out *o, const struct json *m)
{
    const struct writer *w = &cw->w;
    struct str content = json_string(json_get(m, "content"));
    const struct json *calls = json_get(m, "tool_calls");
    const struct json *thought = json_get(m, "reasoning_content");

    json_out_obj(o);
    json_out_member_cstr(o, "role", "assistant");
    json_out_key(o, "content");
    if (calls && !content.len)
        json_out_null(o);
    else
        json_out_str(o, content);
    json_out_member_null(o, "refusal");
    if (thought)
        json_out_member_value(o, "reasoning_content", thought);
    write_signed(o, m);
    if (calls && is_legacy(w)) {
        json_out_member_value(o, "function_call", json_get(json_at(calls, 0), "function"));
    } else if (calls) {
        json_out_key(o, "tool_calls");
        write_tool_calls(cw, o, calls);
    }
    json_out_end_obj(o);
}

/* Bytes reserved for the JSON around the texts, enough for most answers. */
enum { FRAME_ROOM = 640 };

/* Writes the single JSON object of a request without `stream`. */
static void write_whole(struct writer *w, const struct finished_answer *answers, size_t n,
                        const struct call_usage *usage)
{
    struct json_out o = json_out_to(w->out);
    size_t room = FRAME_ROOM;

    for (size_t i = 0; i < n; i++)
        room += json_string(json_get(answers[i].message, "content")).len;
    buf_reserve(w->out, room);
    begin_chat_body(w, &o, "chat.completion");
    json_out_key(&o, "system_fingerprint"); /* OpenRouter's client requires a string */
    json_out_cstr(&o, "fp_rollgate");
    json_out_member_arr(&o, "choices");
    for (size_t i = 0; i < n; i++) {
        json_out_obj(&o);
        json_out_member_i64(&o, "index", answers[i].index);
        json_out_key(&o, "message");
        write_message(CONTAINER_OF(w, struct chat_writer, w), &o, answers[i].message);
        json_out_key(&o, "logprobs");
        if (w->req->logprobs)
            write_logprobs(&o, answers[i].logprobs, answers[i].n_logprobs);
        else
            json_out_null(&o);
        json_out_member_str(&o, "finish_reason", finish_of(w, answers[i].finish_reason));
        json_out_end_obj(&o);
    }
    json_out_end_arr(&o);
    json_out_key(&o, "usage");
    openai_usage(&o, usage);
    json_out_end_obj(&o);
}

/* Sends the signed members of an answer in a chunk, if there are any. */
static void signed_chunk(struct chat_writer *cw, const struct finished_answer *t)
{
    struct writer *w = &cw->w;
    const struct json *calls = json_get(t->message, "tool_calls");
    struct json_out o;
    bool any = false;

    for (size_t i = 0; json_at(calls, i) && !is_legacy(w); i++)
        any = any || call_is_signed(json_at(calls, i));
    if (!any && !has_signed_members(t->message))
        return;
    begin_chunk(w, &o, t->index);
    write_signed(&o, t->message);
    if (any)
        write_signed_calls(cw, &o, calls);
    end_chunk(w, &o, (struct str){0});
}

/* Ends the answer. A stream ends with a chunk per answer for its finish reason, then usage and
 * [DONE]. */
static void on_chat_finish(void *ctx, const struct finished_answer *answers, size_t n,
                           const struct call_usage *usage)
{
    struct writer *w = writer_of(ctx);
    struct json_out o;

    if (!w->req->stream) {
        write_whole(w, answers, n, usage);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        close_custom(ctx, answers[i].index);
        signed_chunk(ctx, &answers[i]);
        begin_chunk(w, &o, answers[i].index);
        end_chunk(w, &o, finish_of(w, answers[i].finish_reason));
    }
    openai_stream_end(w, usage, begin_chunk_body);
}

static void on_chat_failed(void *ctx, const struct err *e)
{
    openai_stream_failed(writer_of(ctx), e);
}

/* Makes a writer. All writers share one static sink (ANSWER_SINK_OF). */
struct dialect_writer *chat_writer_new(struct arena *a, const struct chat_request *req,
                                       const struct json *body, struct buf *out)
{
    static const struct answer_sink sink = ANSWER_SINK_OF(chat, .sealed = NULL);
    struct chat_writer *cw = ARENA_NEW(a, struct chat_writer);

    writer_init(&cw->w, &sink, a, req, body, out);
    cw->tools.arena = a;
    return &cw->w.base;
}
