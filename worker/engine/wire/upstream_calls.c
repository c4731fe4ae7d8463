/*
 * An entry belongs to the call with its id, else to the call with its index, else to the last one.
 * A new id with a name begins a new call under the same index (Gemini sends every call as index 0).
 * A new id without a name does not (older vLLM made one for each piece).
 */
#include "worker/engine/wire/upstream_calls.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/codec/json_build.h"

static const char input_head[] = "{\"input\":\"", input_tail[] = "\"}";

void upstream_calls_done(struct upstream_calls *c)
{
    for (size_t i = 0; i < c->calls.n; i++) {
        buf_done(&c->calls.at[i].id);
        buf_done(&c->calls.at[i].name);
        buf_done(&c->calls.at[i].waiting);
    }
    vec_done(&c->calls);
    for (size_t i = 0; i < UPSTREAM_TEXTS; i++)
        buf_done(&c->texts[i]);
}

static int refuse_path(struct err *e, const char *path, const char *what)
{
    return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %s %s", path, what);
}

/* --- arguments --- */

/* Scans for the end of the arguments. Numbers and words have no visible end. */
static void extent_add(struct json_extent *x, struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char ch = text.p[i];

        if (x->in_string) {
            x->in_string = x->escaped || ch != '"';
            x->escaped = !x->escaped && ch == '\\';
        } else if (ch == '"') {
            x->in_string = x->began = true;
        } else if (ch == '{' || ch == '[') {
            x->began = true;
            x->depth++;
        } else if ((ch == '}' || ch == ']') && x->depth > 0) {
            x->depth--;
        }
    }
    x->complete = x->began && x->depth == 0 && !x->in_string;
}

/* Appends the text of a custom tool as the inside of a JSON string. */
static void add_escaped(struct buf *out, struct str text)
{
    struct buf quoted = {0};

    json_write_string(&quoted, text);
    buf_add_str(out, str_sub(buf_str(&quoted), 1, quoted.len - 2));
    buf_done(&quoted);
}

static void add_clean(struct upstream_call *call, struct str text)
{
    if (call->custom && !call->has_arguments)
        buf_puts(&call->waiting, input_head);
    if (call->custom)
        add_escaped(&call->waiting, text);
    else
        buf_add_str(&call->waiting, text);
}

static void add_arguments(struct upstream_calls *c, struct upstream_call *call, struct str text)
{
    struct buf clean = {0};

    surrogates_add(&call->surrogates, text, &clean);
    add_clean(call, buf_str(&clean));
    if (!call->custom)
        extent_add(&call->extent, buf_str(&clean));
    call->has_arguments = true;
    c->bytes += text.len;
    buf_done(&clean);
}

static void end_arguments(struct upstream_call *call)
{
    struct buf clean = {0};

    surrogates_end(&call->surrogates, &clean);
    add_clean(call, buf_str(&clean));
    if (call->custom)
        buf_puts(&call->waiting, input_tail);
    buf_done(&clean);
}

/* --- finding the call of an entry --- */

struct call_piece {
    struct str id, name;
    int64_t index; /* -1: none */
    bool custom;
    const struct json *arguments; /* or NULL */
};

/* Reports whether the arguments are complete, so that a further piece belongs to a different
 * call. */
static bool follows_complete(const struct upstream_call *call, const struct call_piece *x)
{
    const struct json *v = x->arguments;

    return call->extent.complete && x->name.len > 0 && v &&
           (v->kind == JSON_OBJECT || json_string(v).len > 0);
}

static bool begins_other(const struct upstream_call *call, const struct call_piece *x)
{
    if (x->id.len > 0 && call->id.len > 0)
        return !str_eq(x->id, buf_str(&call->id)) && x->name.len > 0;
    return follows_complete(call, x);
}

/* Reports whether the name shows that the id belongs to a different call: older Mistral gave one id
 * to every call. */
static bool is_renamed(const struct upstream_call *call, const struct call_piece *x)
{
    return x->index < 0 && call->extent.complete && x->name.len > 0 && call->name.len > 0 &&
           !str_eq(x->name, buf_str(&call->name));
}

static struct upstream_call *find_call(const struct upstream_calls *c, const struct call_piece *x)
{
    for (size_t i = c->calls.n; i > 0 && x->id.len > 0; i--) {
        struct upstream_call *call = &c->calls.at[i - 1];

        if (!str_eq(buf_str(&call->id), x->id) || (x->index >= 0 && x->index != call->index))
            continue;
        return is_renamed(call, x) ? NULL : call;
    }
    for (size_t i = c->calls.n; i > 0; i--) {
        struct upstream_call *call = &c->calls.at[i - 1];

        if (x->index >= 0 ? x->index == call->index : !call->is_function)
            return begins_other(call, x) ? NULL : call;
    }
    return NULL;
}

static bool is_numbered(const struct call_piece *x)
{
    return x->index >= 0 || x->id.len > 0;
}

/* Reports whether an entry without id and index begins a call. A name begins one, unless the
 * event has only this entry and the last call of that name is incomplete: some servers repeat the
 * name. */
static bool begins_unnumbered(const struct upstream_call *last, const struct call_piece *x,
                              bool alone)
{
    return !is_numbered(x) && x->name.len > 0 &&
           !(alone && str_eq(buf_str(&last->name), x->name) && !last->extent.complete);
}

static struct upstream_call *append_call(struct upstream_calls *c, const struct call_piece *x)
{
    struct upstream_call *call = vec_push(&c->calls);

    *call = (struct upstream_call){.index = x->index, .custom = x->custom};
    return call;
}

/* --- adding one entry --- */

static int read_member(const struct json *from, const char *key, const char *path, struct str *ret,
                       struct err *e)
{
    const struct json *v = json_get(from, key);
    char at[128];

    *ret = json_string(v);
    (void)snprintf(at, sizeof(at), "%s.%s", path, key);
    return json_is_null(v) || ret->p ? 0 : refuse_path(e, at, "must be a string");
}

static int read_index(const struct json *entry, const char *path, int64_t *ret, struct err *e)
{
    const struct json *v = json_get(entry, "index");
    char at[128];

    *ret = -1;
    (void)snprintf(at, sizeof(at), "%s.index", path);
    if (json_is_null(v))
        return 0;
    if (json_to_i64(v, ret) || *ret < 0)
        return refuse_path(e, at, "must be an integer of 0 or more");
    return 0;
}

static int read_entry(const struct json *entry, const char *path, struct call_piece *x,
                      struct err *e)
{
    const struct json *custom = json_get(entry, "custom"), *function = json_get(entry, "function");
    struct str type = json_string(json_get(entry, "type"));
    char at[128];

    if (!json_is(entry, JSON_OBJECT))
        return refuse_path(e, path, "must be an object");
    x->custom = json_is(custom, JSON_OBJECT) || str_eq_c(type, "custom");
    (void)snprintf(at, sizeof(at), "%s.%s", path, x->custom ? "custom" : "function");
    if (type.len > 0 && !str_eq_c(type, "function") && !str_eq_c(type, "custom"))
        return err_set(
            e, ERR_ENGINE_INVALID,
            "the engine's answer is invalid: %s.type is \"%.*s\", not function or custom", path,
            (int)MIN_OF(type.len, (size_t)40), type.p);
    if (!json_is_null(function) && !json_is(function, JSON_OBJECT))
        return refuse_path(e, at, "must be an object");
    function = x->custom ? custom : function;
    x->arguments = json_get(function, x->custom ? "input" : "arguments");
    return read_index(entry, path, &x->index, e) || read_member(entry, "id", path, &x->id, e) ||
                   read_member(function, "name", at, &x->name, e)
               ? -1
               : 0;
}

/* Sets the id or name of a call, which may be known already. */
static void set_text(struct upstream_calls *c, struct buf *to, struct str text)
{
    if (to->len > 0 || text.len == 0)
        return;
    surrogates_add_whole(text, to);
    c->bytes += text.len;
}

static bool is_white(struct str text)
{
    return str_trim(text).len == 0;
}

/* Reports whether a second value follows the arguments: some servers repeat a call at the end. */
static bool exceeds_value(const struct upstream_call *call, const struct json *v)
{
    struct str text = str_trim(json_string(v));
    bool value = text.len > 0 && (text.p[0] == '{' || text.p[0] == '[');

    if (json_is(v, JSON_OBJECT))
        return call->has_arguments;
    return (call->whole && text.len > 0) || (call->extent.complete && value);
}

/* Adds arguments: a string, or an object, which is complete. */
static int accept_arguments(struct upstream_calls *c, struct upstream_call *call,
                            const struct json *v, const char *path, struct err *e)
{
    struct buf text = {0};
    char at[128];

    (void)snprintf(at, sizeof(at), "%s.%s", path,
                   call->custom ? "custom.input" : "function.arguments");
    if (json_is_null(v))
        return 0;
    if (!json_is(v, JSON_STRING) && (call->custom || !json_is(v, JSON_OBJECT)))
        return refuse_path(e, at,
                           call->custom ? "must be a string" : "must be a string or an object");
    if (call->ended && is_white(json_string(v)) && json_is(v, JSON_STRING))
        return 0;
    if (call->ended || exceeds_value(call, v))
        return refuse_path(e, at, "go on after their end");
    if (json_is(v, JSON_STRING)) {
        if (json_string(v).len > 0)
            add_arguments(c, call, json_string(v));
        return 0;
    }
    json_write(&text, v);
    add_arguments(c, call, buf_str(&text));
    call->whole = true;
    buf_done(&text);
    return 0;
}

static int accept_entry(struct upstream_calls *c, struct upstream_call *call,
                        const struct call_piece *x, const char *path, struct err *e)
{
    char at[128];

    (void)snprintf(at, sizeof(at), "%s.%s.name", path, x->custom ? "custom" : "function");
    if (x->name.len > 0 && call->name.len > 0 && !str_eq(buf_str(&call->name), x->name))
        return refuse_path(e, at, "is not the one that the call began with");
    if (!json_is_null(x->arguments) && x->custom != call->custom)
        return refuse_path(e, path, "is of another type than its call began with");
    set_text(c, &call->name, x->name);
    set_text(c, &call->id, x->id);
    return accept_arguments(c, call, x->arguments, path, e);
}

ssize_t upstream_calls_add(struct upstream_calls *c, const struct json *entry, const char *path,
                           bool alone, bool stream, struct err *e)
{
    struct call_piece x = {0};
    struct upstream_call *call = NULL;

    if (read_entry(entry, path, &x, e) < 0)
        return -1;
    if (stream && c->calls.n > 0 && !begins_unnumbered(&c->calls.at[c->calls.n - 1], &x, alone))
        call = find_call(c, &x);
    if (call && !alone && !is_numbered(&x))
        return refuse_path(e, path, "has no index and no id, so its call is unknown");
    if (!call)
        call = append_call(c, &x);
    return accept_entry(c, call, &x, path, e) < 0 ? -1 : call - c->calls.at;
}

int upstream_calls_add_function(struct upstream_calls *c, const struct json *function,
                                const char *path, struct err *e)
{
    struct call_piece x = {.index = -1, .arguments = json_get(function, "arguments")};
    struct upstream_call *call = c->calls.n > 0 ? &c->calls.at[0] : NULL;

    if (!json_is(function, JSON_OBJECT))
        return refuse_path(e, path, "must be an object");
    if (read_member(function, "name", path, &x.name, e) < 0)
        return -1;
    if (call && !call->is_function)
        return refuse_path(e, path, "stands next to tool_calls");
    if (!call)
        call = append_call(c, &x);
    call->is_function = true;
    return accept_entry(c, call, &x, path, e);
}

/* --- sending in order --- */

static void add_message(const struct upstream_out *out, const char *key, struct json value)
{
    struct json m = json_empty(JSON_OBJECT);

    json_put(out->arena, &m, key, value);
    json_push(out->arena, out->list, m);
}

static struct json text_value(const struct upstream_out *out, struct buf *b)
{
    struct json text = json_make_string(arena_str(out->arena, buf_str(b)));

    buf_clear(b);
    return text;
}

/* Sends what has come of a call after it was last sent. */
static void send_call(struct upstream_calls *c, size_t i, const struct upstream_out *out)
{
    struct upstream_call *call = &c->calls.at[i];
    struct json entry = json_empty(JSON_OBJECT), function = json_empty(JSON_OBJECT);
    struct json list = json_empty(JSON_ARRAY);

    if (call->begun && call->waiting.len == 0)
        return;
    json_put(out->arena, &entry, "index", json_make_i64(out->arena, (int64_t)i));
    if (!call->begun) {
        if (call->id.len > 0)
            json_put(out->arena, &entry, "id",
                     json_make_string(arena_str(out->arena, buf_str(&call->id))));
        json_put(out->arena, &function, "name",
                 json_make_string(arena_str(out->arena, buf_str(&call->name))));
    }
    json_put(out->arena, &function, "arguments", text_value(out, &call->waiting));
    json_put(out->arena, &entry, "function", function);
    json_push(out->arena, &list, entry);
    add_message(out, "tool_calls", list);
    call->begun = true;
}

static bool has_texts(const struct upstream_calls *c)
{
    return c->texts[UPSTREAM_TEXT].len > 0 || c->texts[UPSTREAM_THOUGHT].len > 0;
}

static void send_waiting_texts(struct upstream_calls *c, const struct upstream_out *out)
{
    if (c->texts[UPSTREAM_THOUGHT].len > 0)
        add_message(out, "reasoning_content", text_value(out, &c->texts[UPSTREAM_THOUGHT]));
    if (c->texts[UPSTREAM_TEXT].len > 0)
        add_message(out, "content", text_value(out, &c->texts[UPSTREAM_TEXT]));
}

/* Continues the call that was sent last. Returns false if more of it may come. */
static bool send_open(struct upstream_calls *c, const struct upstream_out *out, bool last)
{
    struct upstream_call *open = &c->calls.at[c->n_begun - 1];
    bool follows = has_texts(c) || c->n_begun < c->calls.n;

    if (open->ended)
        return true;
    if (last)
        end_arguments(open);
    send_call(c, c->n_begun - 1, out);
    open->ended = last || (open->extent.complete && follows);
    return open->ended;
}

static void send_ready(struct upstream_calls *c, const struct upstream_out *out, bool last)
{
    for (;;) {
        struct upstream_call *next;

        if (c->n_begun > 0 && !send_open(c, out, last))
            return;
        send_waiting_texts(c, out);
        if (c->n_begun >= c->calls.n)
            return;
        next = &c->calls.at[c->n_begun];
        if (next->name.len == 0)
            return;
        if (last)
            end_arguments(next);
        next->ended = last;
        send_call(c, c->n_begun++, out);
    }
}

bool upstream_calls_are_sent(const struct upstream_calls *c)
{
    return c->n_begun == c->calls.n && (c->calls.n == 0 || c->calls.at[c->calls.n - 1].ended) &&
           !has_texts(c);
}

void upstream_calls_advance(struct upstream_calls *c, const struct upstream_out *out)
{
    send_ready(c, out, false);
}

void upstream_calls_text(struct upstream_calls *c, int kind, struct str text,
                         const struct upstream_out *out)
{
    surrogates_add(&c->surrogates[kind], text, &c->texts[kind]);
    send_ready(c, out, false);
}

int upstream_calls_end(struct upstream_calls *c, const struct upstream_out *out, struct err *e)
{
    for (int kind = 0; kind < UPSTREAM_TEXTS; kind++)
        surrogates_end(&c->surrogates[kind], &c->texts[kind]);
    for (size_t i = 0; i < c->calls.n; i++) {
        if (c->calls.at[i].name.len == 0)
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's answer is invalid: tool call %zu has no name", i);
    }
    send_ready(c, out, true);
    return 0;
}

size_t upstream_calls_replaced(const struct upstream_calls *c)
{
    size_t n = c->surrogates[UPSTREAM_TEXT].replaced + c->surrogates[UPSTREAM_THOUGHT].replaced;

    for (size_t i = 0; i < c->calls.n; i++)
        n += c->calls.at[i].surrogates.replaced;
    return n;
}
