/*
 * Reads requests of POST /v1/chat/completions. chat_parse reads the members one after the other.
 * The first invalid one ends it with an error that names the field by its path
 * ("messages[3].tool_calls[0].id").
 *
 *   messages     -> chat.messages: each message in normalised form (request_fields.h)
 *   tools        -> chat.tools, which the template prints as the client wrote them
 *   functions    -> like tools, for the older API; answered with function_call
 *   tool_choice  -> tool_choice, tool_function or tool_allowed
 *   SAMPLING members -> sampling; sampling_given has the values to echo
 *
 * Members that are not read are accepted. request_members.def lists the members that are read;
 * others count as dropped.
 */
#include "common/base/limits.h"
#include "worker/dialect/request_fields.h"

#include "common/codec/json_build.h"
#include "worker/dialect/image_parts.h"
#include "worker/dialect/known_body.h"
#include "worker/dialect/request_members.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/chat.h"

/* --- messages --- */

/* Reads the call of a custom tool. Its text becomes arguments, as the model wrote them. */
static int read_custom_call(struct arena *a, const struct json *v, const char *path,
                            struct json *ret, struct err *e)
{
    const struct json *custom = json_get(v, "custom"), *input = json_get(custom, "input");
    struct str id = json_string(json_get(v, "id")), name = json_string(json_get(custom, "name"));
    char at[FIELD_PATH_MAX];

    if (!name.len)
        return field_fail(e, "must be a non-empty string", "%s.custom.name", path);
    if (id.len > REQUEST_CALL_TEXT_MAX)
        return field_call_text(path_at(at, "%s.id", path), id, e);
    if (name.len > REQUEST_CALL_TEXT_MAX)
        return field_call_text(path_at(at, "%s.custom.name", path), name, e);
    if (!json_is(input, JSON_STRING))
        return field_fail(e, "must be a string", "%s.custom.input", path);
    *ret = tool_call_json(a, id, name, freeform_arguments(a, input));
    return 0;
}

/* Reads one entry of tool_calls. Arguments that are an object become the JSON text of that
 * object. */
static int read_call(struct arena *a, const struct json *v, const char *path, struct json *ret,
                     struct err *e)
{
    const struct json *f = json_get(v, "function");
    struct str name = json_string(json_get(f, "name"));
    const struct json *arguments = json_get(f, "arguments");
    struct str id = json_string(json_get(v, "id"));
    char at[FIELD_PATH_MAX];

    if (!json_is(v, JSON_OBJECT))
        return err_field(e, path, "%s must be an object", path);
    if (!json_is_null(json_get(v, "id")) && !id.p)
        return field_fail(e, "must be a string", "%s.id", path);
    if (!f && json_is(json_get(v, "custom"), JSON_OBJECT))
        return read_custom_call(a, v, path, ret, e);
    if (!json_is(f, JSON_OBJECT))
        return field_fail(e, "must be an object", "%s.function", path);
    if (!name.len)
        return field_fail(e, "must be a non-empty string", "%s.function.name", path);
    if (id.len > REQUEST_CALL_TEXT_MAX)
        return field_call_text(path_at(at, "%s.id", path), id, e);
    if (name.len > REQUEST_CALL_TEXT_MAX)
        return field_call_text(path_at(at, "%s.function.name", path), name, e);
    if (json_is(arguments, JSON_OBJECT))
        *ret = tool_call_json(a, id, name, json_string(json_keep(a, json_text_of(a, arguments))));
    else if (json_is_null(arguments) || json_is(arguments, JSON_STRING))
        *ret =
            tool_call_json(a, id, name, json_is_null(arguments) ? STR("") : json_string(arguments));
    else
        return field_fail(e, "must be a string", "%s.function.arguments", path);
    return 0;
}

/* Reads tool_calls of message `at` into *m. An empty list adds no member. */
static int read_calls(struct arena *a, const struct json *list, uint32_t at, struct json *m,
                      struct err *e)
{
    struct json calls = json_empty(JSON_ARRAY);
    char path[FIELD_PATH_MAX];

    if (json_is_null(list))
        return 0;
    if (list->kind != JSON_ARRAY)
        return field_fail(e, "must be a list", "messages[%u].tool_calls", at);
    for (uint32_t i = 0; i < list->n; i++) {
        struct json call = json_empty(JSON_NULL);

        path_at(path, "messages[%u].tool_calls[%u]", at, i);
        if (read_call(a, &list->items[i], path, &call, e))
            return -1;
        json_push(a, &calls, call);
    }
    if (calls.n)
        json_put(a, m, "tool_calls", calls);
    return 0;
}

/* Reads a message's content. The common case, a string, needs no path for errors. */
static int read_content(struct arena *a, const struct json *content, uint32_t at, bool joined,
                        struct json *ret, struct err *e)
{
    char path[FIELD_PATH_MAX];

    if (json_is(content, JSON_STRING)) {
        *ret = *content;
        return 0;
    }
    return content_text(a, content, path_at(path, "messages[%u].content", at), joined, ret, e);
}

/* Reads the other members of an assistant message. A refusal is appended to the content. Audio is
 * rejected. */
static int read_refusal(struct arena *a, const struct json *v, uint32_t at, struct json *content,
                        struct err *e)
{
    struct str refusal = json_string(json_get(v, "refusal"));
    struct grown text = {0};

    if (!json_is_null(json_get(v, "audio")))
        return field_fail(e, "cannot be read: the model takes text only", "messages[%u].audio", at);
    if (refusal.len) {
        grown_add(a, &text, json_string(content));
        grown_add(a, &text, refusal);
        *content = json_make_string(grown_str(&text));
    }
    return 0;
}

/* Reads an assistant message. The thought is in reasoning_content or in reasoning. function_call is
 * read if there are no tool_calls. */
static int read_assistant(struct arena *a, const struct json *v, uint32_t at, struct json *ret,
                          struct err *e)
{
    const struct json *thought = json_get(v, "reasoning_content");
    const struct json *legacy = json_get(v, "function_call");
    struct json content;
    char path[FIELD_PATH_MAX];

    if (read_content(a, json_get(v, "content"), at, true, &content, e) ||
        read_refusal(a, v, at, &content, e))
        return -1;
    *ret = json_message(a, STR("assistant"), content);
    if (!json_is(thought, JSON_STRING))
        thought = json_get(v, "reasoning");
    if (json_is(thought, JSON_STRING) && thought->n)
        json_put(a, ret, "reasoning_content", *thought);
    if (read_calls(a, json_get(v, "tool_calls"), at, ret, e))
        return -1;
    if (json_is(legacy, JSON_OBJECT) && !json_get(ret, "tool_calls")) {
        struct json calls = json_empty(JSON_ARRAY);
        struct json holder = json_empty(JSON_OBJECT);
        struct json call = json_empty(JSON_NULL);

        json_put(a, &holder, "function", *legacy);
        path_at(path, "messages[%u]", at);
        if (read_call(a, &holder, path, &call, e))
            return -1;
        json_push(a, &calls, call);
        json_put(a, ret, "tool_calls", calls);
    }
    return 0;
}

/* Reads a tool's result. The id is optional. */
static int read_tool_result(struct arena *a, const struct json *v, uint32_t at, struct json *ret,
                            struct err *e)
{
    const struct json *given = json_get(v, "tool_call_id");
    struct str id = json_string(given);
    struct json content;
    char path[FIELD_PATH_MAX];

    /* some harnesses omit the id, and the legacy role "function" has none: then the order of
     * results decides */
    if (!id.p && !json_is_null(given))
        return field_fail(e, "must be a string", "messages[%u].tool_call_id", at);
    if (id.len > REQUEST_CALL_TEXT_MAX)
        return field_call_text(path_at(path, "messages[%u].tool_call_id", at), id, e);
    if (read_content(a, json_get(v, "content"), at, false, &content, e))
        return -1;
    *ret = json_message(a, STR("tool"), content);
    if (id.p)
        json_put(a, ret, "tool_call_id", json_make_string(id));
    return 0;
}

/* Reads a system, developer or user message. It keeps its role and must have content. */
static int read_plain(struct arena *a, const struct json *v, uint32_t at, struct json *ret,
                      struct err *e)
{
    const struct json *content = json_get(v, "content");
    struct json text;

    if (json_is_null(content))
        return field_fail(e, "is missing", "messages[%u].content", at);
    if (read_content(a, content, at, false, &text, e))
        return -1;
    *ret = json_message(a, json_string(json_get(v, "role")), text);
    return 0;
}

/* Reads one message by its role. Every role keeps its name. */
static int read_chat_message(struct arena *a, const struct json *v, uint32_t at, struct json *ret,
                             struct err *e)
{
    struct str role = json_string(json_get(v, "role"));
    const struct json *name = json_get(v, "name");
    int r;

    if (!json_is(v, JSON_OBJECT))
        return field_fail(e, "must be an object", "messages[%u]", at);
    if (str_eq_c(role, "assistant"))
        r = read_assistant(a, v, at, ret, e);
    else if (str_eq_c(role, "tool") || str_eq_c(role, "function"))
        r = read_tool_result(a, v, at, ret, e);
    else if (str_eq_c(role, "system") || str_eq_c(role, "developer") || str_eq_c(role, "user"))
        r = read_plain(a, v, at, ret, e);
    else
        return field_fail(e, "must be system, developer, user, assistant or tool",
                          "messages[%u].role", at);
    if (r == 0 && !json_is_null(name)) {
        if (name->kind != JSON_STRING)
            return field_fail(e, "must be a string", "messages[%u].name", at);
        json_put(a, ret, "name", *name);
    }
    return r;
}

/* Reads messages, a non-empty list. Known messages count against the arena's budget as if they were
 * made again. */
static int read_chat_messages(struct arena *a, const struct json *body,
                              const struct known_messages *known, struct chat_request *req,
                              struct err *e)
{
    const struct json *list;
    struct json messages = json_empty(JSON_ARRAY);
    uint32_t n_known = known ? known->n : 0;

    if (field_kind(body, "messages", JSON_ARRAY, &list, e))
        return -1;
    if (!list || list->n == 0)
        return err_field(e, "messages", "messages must be a non-empty list");
    for (uint32_t i = 0; i < n_known; i++) {
        a->used_bytes += known->made_bytes[i];
        json_push(a, &messages, known->made[i]);
    }
    for (uint32_t i = n_known; i < list->n; i++) {
        struct json m = json_empty(JSON_NULL);

        if (read_chat_message(a, &list->items[i], i, &m, e))
            return -1;
        json_push(a, &messages, m);
    }
    req->chat->messages = json_keep(a, messages);
    req->n_plain = n_known;
    return 0;
}

/* --- tools --- */

/* Returns v without cache_control, which moves from request to request. */
static struct json copy_unmarked(struct arena *a, const struct json *v)
{
    struct json all = json_empty(JSON_OBJECT);

    if (!json_get(v, "cache_control"))
        return *v;
    for (uint32_t i = 0; i < v->n; i++) {
        struct str key = json_string(&v->members[i].key);

        if (!str_eq_c(key, "cache_control"))
            json_put(a, &all, arena_cstr(a, key), v->members[i].value);
    }
    return all;
}

/* Returns the definition as the client sent it, since templates print definitions whole. Drops
 * cache_control. */
static struct json as_sent(struct arena *a, const struct json *v)
{
    struct json tool = copy_unmarked(a, v);

    if (!json_get(json_get(v, "function"), "cache_control"))
        return tool;
    tool = json_empty(JSON_OBJECT);
    json_put(a, &tool, "type", *json_get(v, "type"));
    json_put(a, &tool, "function", copy_unmarked(a, json_get(v, "function")));
    return tool;
}

/* Adds one tool. Custom tools become functions with one text as argument. Kinds that only their
 * vendor's server runs are skipped; request_find_dropped reports them. */
static int read_tool_def(const struct json *v, uint32_t i, struct tool_list *tools, struct err *e)
{
    struct str type = json_string(json_get(v, "type"));
    const struct json *f = json_get(v, "function");
    const struct json *parameters = json_get(f, "parameters");
    struct str name;

    if (!json_is(v, JSON_OBJECT))
        return field_fail(e, "must be an object", "tools[%u]", i);
    if (!type.p)
        return field_fail(e, "must be a string", "tools[%u].type", i);
    if (str_eq_c(type, "custom")) {
        const struct json *custom = json_get(v, "custom");

        name = json_string(json_get(custom, "name"));
        if (!name.len)
            return field_fail(e, "must be a non-empty string", "tools[%u].custom.name", i);
        tools_add_freeform(tools, name, json_get(custom, "description"));
        return 0;
    }
    if (!str_eq_c(type, "function"))
        return 0;
    name = json_string(json_get(f, "name"));
    if (!name.len)
        return field_fail(e, "must be a non-empty string", "tools[%u].function.name", i);
    if (!json_is_null(parameters) && parameters->kind != JSON_OBJECT)
        return field_fail(e, "must be an object", "tools[%u].function.parameters", i);
    tools_add_as_sent(tools, name, as_sent(tools->names.arena, v));
    return 0;
}

/* Reads tools. All tools that the template prints may also be called. */
static int read_chat_tools(struct arena *a, const struct json *body, struct chat_request *req,
                           struct err *e)
{
    const struct json *list;
    struct tool_list tools = tool_list_in(a);

    if (field_kind(body, "tools", JSON_ARRAY, &list, e))
        return -1;
    for (uint32_t i = 0; list && i < list->n; i++)
        if (read_tool_def(&list->items[i], i, &tools, e))
            return -1;
    if (tools.all.n)
        req->callable = req->chat->tools = json_keep(a, tools.all);
    return 0;
}

/* Reads functions and function_call, the older forms of tools and tool_choice. */
static int read_functions(struct arena *a, const struct json *body, struct chat_request *req,
                          struct err *e)
{
    const struct json *list;
    const struct json *choice = json_get(body, "function_call");
    struct tool_list tools = tool_list_in(a);

    if (field_kind(body, "functions", JSON_ARRAY, &list, e))
        return -1;
    if (req->chat->tools) {
        if (list)
            request_add_skipped(a, "", STR("functions"), req);
        if (!json_is_null(choice))
            request_add_skipped(a, "", STR("function_call"), req);
        return 0;
    }
    for (uint32_t i = 0; list && i < list->n; i++) {
        const struct json *f = &list->items[i];
        struct str name = json_string(json_get(f, "name"));

        if (!name.len)
            return field_fail(e, "must be a non-empty string", "functions[%u].name", i);
        tools_add(&tools, name, json_get(f, "description"), json_get(f, "parameters"));
    }
    if (tools.all.n)
        req->callable = req->chat->tools = json_keep(a, tools.all);
    if (list)
        req->parallel_tool_calls = false;
    if (json_is_null(choice) || str_eq_c(json_string(choice), "auto"))
        return 0;
    req->tool_choice = str_eq_c(json_string(choice), "none") ? CHOICE_NONE : CHOICE_FUNCTION;
    req->tool_function = json_string(json_get(choice, "name"));
    if (req->tool_choice == CHOICE_FUNCTION && !req->tool_function.len)
        return err_field(e, "function_call", "function_call must be auto, none or a function");
    return request_choice_fits(req, "function_call", e);
}

/* Reports whether the word is a choice. "any" is Mistral's and Anthropic's word for "required". */
static bool is_choice(struct str word)
{
    return str_eq_c(word, "auto") || str_eq_c(word, "none") || str_eq_c(word, "required") ||
           str_eq_c(word, "any");
}

/* Reads tool_choice: a word, an object that names one tool, or a choice among some tools. */
static int read_chat_choice(struct arena *a, const struct json *body, struct chat_request *req,
                            struct err *e)
{
    const struct json *v = json_get(body, "tool_choice");
    struct str word = json_string(v);
    struct str type = json_string(json_get(v, "type"));
    const struct json *f = json_get(v, "function");

    if (is_choice(type)) /* some frameworks send {"type": "auto"} */
        word = type;
    if (json_is_null(v) || str_eq_c(word, "auto"))
        return 0;
    if (str_eq_c(word, "none")) {
        req->tool_choice = CHOICE_NONE;
    } else if (str_eq_c(word, "required") || str_eq_c(word, "any")) {
        req->tool_choice = CHOICE_REQUIRED;
    } else if (str_eq_c(type, "allowed_tools")) {
        return request_allowed(a, json_get(v, "allowed_tools"), "tool_choice.allowed_tools", req,
                               e);
    } else if (type.p) {
        req->tool_function = json_string(json_get(f ? f : json_get(v, "custom"), "name"));
        if (!req->tool_function.len)
            return err_field(e, "tool_choice.function.name",
                             "tool_choice.function.name must be a non-empty string");
        req->tool_choice = CHOICE_FUNCTION;
    } else {
        return err_field(e, "tool_choice",
                         "tool_choice must be auto, none, required or a function");
    }
    return request_choice_fits(req, "tool_choice", e);
}

/* --- the rest --- */

/* Reads include_usage. Other options have no effect. */
int chat_read_stream_options(const struct json *body, struct chat_request *req, struct err *e)
{
    const struct json *options;
    struct err inner = {0};

    if (field_kind(body, "stream_options", JSON_OBJECT, &options, e))
        return -1;
    if (field_bool(options, "include_usage", &req->include_usage, &inner))
        return err_field(e, "stream_options.include_usage", "stream_options.%s", inner.text);
    return 0;
}

/* Reads logprobs and top_logprobs. top_logprobs without logprobs is an error, since it would have
 * no effect. */
static int read_logprobs(const struct json *body, struct chat_request *req, struct err *e)
{
    if (field_bool(body, "logprobs", &req->logprobs, e) ||
        field_u32(body, "top_logprobs", 0, FIELD_TOP_LOGPROBS_MAX, &req->top_logprobs, e))
        return -1;
    if (req->top_logprobs && !req->logprobs)
        return err_field(e, "top_logprobs", "top_logprobs needs logprobs: true");
    return 0;
}

/* Rejects a request for output other than text. */
static int reject_audio(const struct json *body, struct err *e)
{
    const struct json *list;

    if (field_kind(body, "modalities", JSON_ARRAY, &list, e))
        return -1;
    for (uint32_t i = 0; list && i < list->n; i++)
        if (!str_eq_c(json_string(&list->items[i]), "text"))
            return err_field(e, "modalities", "modalities must be text: the model has no other");
    return 0;
}

/* Reads the members. Tools must precede the choice that names them. functions must come last,
 * because they count only if there are no tools. */
static int chat_parse(struct arena *a, const struct json *body,
                      const struct dialect_headers *headers, const struct dialect_past *past,
                      struct chat_request *ret, struct err *e)
{
    const struct json *store;

    if (request_begin(a, body, headers, ret, e) ||
        read_chat_messages(a, body, past ? past->known : NULL, ret, e) ||
        read_chat_tools(a, body, ret, e) || read_chat_choice(a, body, ret, e) ||
        request_sampling(a, body, IN_CHAT, ret, e) ||
        request_format(a, json_get(body, "response_format"), "response_format", ret, e) ||
        request_kwargs(a, body, json_get(body, "reasoning_effort"), "reasoning_effort", ret, e) ||
        request_thinking(a, body, ret, e) ||
        field_bool(body, "parallel_tool_calls", &ret->parallel_tool_calls, e) ||
        read_functions(a, body, ret, e) || reject_audio(body, e) ||
        field_u32(body, "n", 1, FIELD_N_MAX, &ret->n, e) || read_logprobs(body, ret, e) ||
        chat_read_stream_options(body, ret, e) || field_kind(body, "store", JSON_BOOL, &store, e))
        return -1;
    return image_parts_normalise(a, past, ret, e);
}

const struct dialect dialect_chat = {.name = "chat",
                                     .id_head = "chatcmpl-",
                                     .members = IN_CHAT,
                                     .list = "messages",
                                     .message = read_chat_message,
                                     .parse = chat_parse,
                                     .writer = chat_writer_new,
                                     .error = openai_write_error};
