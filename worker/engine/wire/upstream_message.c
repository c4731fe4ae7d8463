/* Members are read in a fixed order: thought, content, calls. Every dialect writes them in this
 * order. */
#include "worker/engine/wire/upstream_message.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"

enum { PATH_MAX_BYTES = 96, NESTED_MAX = 3, THOUGHT_PARTS = 100, THOUGHT_SIGNED };

/* Members in which servers put the thought. */
static const char *const thoughts[] = {"reasoning_content", "reasoning", "reasoning_text",
                                       "thinking"};

void upstream_message_done(struct upstream_message *m)
{
    upstream_calls_done(&m->calls);
    upstream_signed_done(&m->signed_members);
    buf_done(&m->said);
}

size_t upstream_message_bytes(const struct upstream_message *m)
{
    return m->bytes + m->calls.bytes + m->signed_members.bytes;
}

static int refuse_member(struct err *e, const char *path, const char *key, const char *what)
{
    return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %s.%s %s", path, key,
                   what);
}

/* State of reading one document's message or delta. */
struct reader {
    struct upstream_message *m;
    const struct json *from;
    const char *path;
    bool stream;
    const struct upstream_out *out;
    struct err *e;
};

static void pass_text_on(struct reader *r, int kind, struct str text)
{
    r->m->bytes += text.len;
    upstream_calls_text(&r->m->calls, kind, text, r->out);
    if (kind == UPSTREAM_TEXT && r->stream)
        buf_add_str(&r->m->said, text);
}

/* --- the thought --- */

/* Adds the thought, unless it comes from a different member. */
static void add_thought(struct reader *r, int from, struct str text)
{
    if (text.len == 0 || (r->m->thought_from && r->m->thought_from != from + 1))
        return;
    r->m->thought_from = from + 1;
    pass_text_on(r, UPSTREAM_THOUGHT, text);
}

static int read_thought(struct reader *r)
{
    for (size_t i = 0; i < ARRAY_LEN(thoughts); i++) {
        const struct json *v = json_get(r->from, thoughts[i]);

        if (!json_is_null(v) && v->kind != JSON_STRING)
            return refuse_member(r->e, r->path, thoughts[i], "must be a string");
        add_thought(r, (int)i, json_string(v));
    }
    return 0;
}

static void read_signed_thought(struct reader *r)
{
    struct buf text = {0};

    upstream_signed_thought(r->from, &text);
    add_thought(r, THOUGHT_SIGNED, buf_str(&text));
    buf_done(&text);
}

/* Collects the texts of a thinking part, which may contain parts. */
static void gather_texts(const struct json *v, unsigned depth, struct buf *out)
{
    static const char *const keys[] = {"thinking", "text", "reasoning", "summary", "content"};

    if (json_is(v, JSON_STRING))
        buf_add_str(out, json_string(v));
    if (depth == 0)
        return;
    for (size_t i = 0; json_at(v, i); i++)
        gather_texts(json_at(v, i), depth - 1, out);
    for (size_t i = 0; json_is(v, JSON_OBJECT) && i < ARRAY_LEN(keys); i++) {
        const struct json *inner = json_get(v, keys[i]);

        if (json_is_null(inner))
            continue;
        gather_texts(inner, depth, out);
        return;
    }
}

/* --- the content --- */

static int read_content_item(struct reader *r, const struct json *part, const char *path)
{
    static const char *const said[] = {"text", "output_text", "refusal"};
    static const char *const thought[] = {"thinking", "reasoning", "reasoning_text", "summary_text",
                                          "redacted_thinking"};
    struct str type = json_string(json_get(part, "type"));
    const char *key = str_eq_c(type, "refusal") ? "refusal" : "text";
    const struct json *text = json_get(part, key);

    if (!json_is(part, JSON_OBJECT))
        return err_set(r->e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: %s must be an object", path);
    if (str_is_one_of(type, thought, ARRAY_LEN(thought))) {
        struct buf all = {0};

        gather_texts(part, NESTED_MAX, &all);
        add_thought(r, THOUGHT_PARTS, buf_str(&all));
        buf_done(&all);
        return 0;
    }
    if (!str_is_one_of(type, said, ARRAY_LEN(said)))
        return err_set(r->e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: %s.type is \"%.*s\", which is no text",
                       path, (int)MIN_OF(type.len, (size_t)40), type.p ? type.p : "");
    if (!json_is_null(text) && text->kind != JSON_STRING)
        return refuse_member(r->e, path, key, "must be a string");
    pass_text_on(r, UPSTREAM_TEXT, json_string(text));
    return 0;
}

static int read_upstream_content(struct reader *r)
{
    const struct json *content = json_get(r->from, "content");
    const struct json *refusal = json_get(r->from, "refusal");
    char path[PATH_MAX_BYTES];

    if (!json_is_null(content) && content->kind != JSON_STRING && content->kind != JSON_ARRAY)
        return refuse_member(r->e, r->path, "content", "must be a string or a list of parts");
    if (!json_is_null(refusal) && refusal->kind != JSON_STRING)
        return refuse_member(r->e, r->path, "refusal", "must be a string");
    pass_text_on(r, UPSTREAM_TEXT, json_string(content));
    for (size_t i = 0; json_at(content, i); i++) {
        (void)snprintf(path, sizeof(path), "%s.content[%zu]", r->path, i);
        if (read_content_item(r, json_at(content, i), path) < 0)
            return -1;
    }
    pass_text_on(r, UPSTREAM_TEXT, json_string(refusal));
    return 0;
}

/* Refuses media, which no dialect here can express. */
static int refuse_media(struct reader *r)
{
    const struct json *images = json_get(r->from, "images");

    if (!json_is_null(json_get(r->from, "audio")))
        return refuse_member(r->e, r->path, "audio", "cannot be read: answers are text");
    if (json_is(images, JSON_ARRAY) ? images->n > 0 : !json_is_null(images))
        return refuse_member(r->e, r->path, "images", "cannot be read: answers are text");
    return 0;
}

/* --- calls --- */

static int read_upstream_call(struct reader *r, const struct json *entry, const char *path,
                              bool alone)
{
    ssize_t call = upstream_calls_add(&r->m->calls, entry, path, alone, r->stream, r->e);

    if (call < 0)
        return -1;
    upstream_signed_call(&r->m->signed_members, entry, (size_t)call);
    return 0;
}

/* Reads the calls. TGI has one entry instead of the list. */
static int read_upstream_calls(struct reader *r)
{
    const struct json *list = json_get(r->from, "tool_calls");
    const struct json *function = json_get(r->from, "function_call");
    char path[PATH_MAX_BYTES];

    (void)snprintf(path, sizeof(path), "%s.tool_calls", r->path);
    if (json_is(list, JSON_OBJECT) && read_upstream_call(r, list, path, true) < 0)
        return -1;
    if (!json_is_null(list) && list->kind != JSON_ARRAY && list->kind != JSON_OBJECT)
        return refuse_member(r->e, r->path, "tool_calls", "must be a list");
    for (size_t i = 0; json_at(list, i); i++) {
        (void)snprintf(path, sizeof(path), "%s.tool_calls[%zu]", r->path, i);
        if (read_upstream_call(r, json_at(list, i), path, list->n == 1) < 0)
            return -1;
    }
    (void)snprintf(path, sizeof(path), "%s.function_call", r->path);
    if (!json_is_null(function) &&
        upstream_calls_add_function(&r->m->calls, function, path, r->e) < 0)
        return -1;
    upstream_calls_advance(&r->m->calls, r->out);
    return 0;
}

static int read_members(struct reader *r)
{
    if (refuse_media(r) < 0 ||
        upstream_signed_message(&r->m->signed_members, r->from, r->path, r->e) < 0 ||
        read_thought(r) < 0)
        return -1;
    read_signed_thought(r);
    if (r->stream && upstream_calls_are_sent(&r->m->calls))
        upstream_signed_send(&r->m->signed_members, r->m->thought_from != 0, r->out);
    return read_upstream_content(r) < 0 || read_upstream_calls(r) < 0 ? -1 : 0;
}

/* --- choices --- */

static int read_as(struct reader *r, const struct json *from, const char *path)
{
    r->from = from;
    r->path = path;
    if (!json_is(from, JSON_OBJECT))
        return err_set(r->e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: %s must be an object", path);
    return read_members(r);
}

static int fail_repeated(struct err *e)
{
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is invalid: choices[0].message.content is neither what "
                   "came before it nor what follows that");
}

static bool has_calls(const struct json *message)
{
    const struct json *calls = json_get(message, "tool_calls");

    return (json_is(calls, JSON_ARRAY) && calls->n > 0) || json_is(calls, JSON_OBJECT) ||
           !json_is_null(json_get(message, "function_call"));
}

/* Reads a chunk. Instead of its delta it may have a `message`, which continues like one. If it has
 * both, the message repeats the deltas. A lone message that begins with everything so far may be
 * either. */
static int read_chunk(struct reader *r, const struct json *delta, const struct json *message)
{
    size_t before = upstream_message_bytes(r->m);
    struct str text = json_string(json_get(message, "content")), said = buf_str(&r->m->said);

    if (!json_is_null(delta) && read_as(r, delta, "choices[0].delta") < 0)
        return -1;
    if (json_is_null(message) || upstream_message_bytes(r->m) > before)
        return 0;
    if (!json_is_null(delta) && before > 0 && r->m->calls.calls.n == 0 && has_calls(message))
        return refuse_member(r->e, "choices[0].message", "tool_calls", "came in no delta");
    if (!json_is_null(delta) && before > 0)
        return text.len == 0 || str_eq(text, said) ? 0 : fail_repeated(r->e);
    if (said.len > 0 && str_starts(text, said))
        return fail_repeated(r->e);
    return read_as(r, message, "choices[0].message");
}

int upstream_message_add(struct upstream_message *m, const struct json *choice,
                         const struct upstream_out *out, struct err *e)
{
    bool stream = out->stream;
    struct reader r = {.m = m, .stream = stream, .out = out, .e = e};
    const struct json *message = json_get(choice, "message");

    if (!stream && json_is_null(message))
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: it has no message (choices[0].message)");
    if (stream && json_is_null(json_get(choice, "delta")) && json_is_null(message) &&
        json_string(json_get(choice, "text")).len > 0)
        return refuse_member(e, "choices[0]", "text", "is a text completion's: it has no delta");
    return stream ? read_chunk(&r, json_get(choice, "delta"), message)
                  : read_as(&r, message, "choices[0].message");
}

int upstream_message_end(struct upstream_message *m, const struct upstream_out *out, struct err *e)
{
    return upstream_calls_end(&m->calls, out, e);
}
