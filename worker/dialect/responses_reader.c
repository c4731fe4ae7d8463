/*
 * Reads requests of POST /v1/responses. Items become messages.
 *
 * reasoning, assistant messages and calls belong to one turn of the model. They are collected in
 * r->spoken until an item of a different role comes. Then spoken_flush makes one message of them.
 *   reasoning, message, function_call, function_call, function_call_output
 *   ->  assistant(thought, text, 2 calls), tool
 * Order: the conversation of previous_response_id with the instructions at its start; then the
 * items.
 */
#include "common/base/limits.h"
#include "worker/dialect/request_fields.h"

#include "common/base/attrs.h"
#include "common/codec/json_build.h"
#include "worker/dialect/image_parts.h"
#include "worker/dialect/request_members.h"
#include "worker/dialect/responses.h"
#include "worker/dialect/responses_client_tools.h"
#include "worker/dialect/responses_references.h"
#include "worker/dialect/responses_tools.h"
#include "worker/text/request/chat.h"

struct responses_reader {
    struct arena *a;
    const struct dialect_past *past;
    struct json *messages;
    struct chat_request *req;
    struct str instructions;     /* instructions of the previous response's request */
    struct response_tools tools; /* all tools of the request */
    uint32_t n_leading;          /* number of leading items that only add tools */
    bool compacts;               /* the input ends with a compaction_trigger */
    struct spoken spoken;
    struct references references;
    uint32_t at; /* index of the current item in input, for errors */
    struct err *e;
};

static const struct str summarise = STR_LIT(
    "This conversation is about to be replaced by a summary, and whoever goes on will know nothing "
    "else of it. Write that summary now: what was asked for and by which rules, what has been "
    "found out and decided and why, what was changed (exact names, paths and commands), what is "
    "still to be done and what comes next. Write the summary alone, and call no tools.");

static const char compacted[] =
    "The conversation before this was replaced by the following summary of it:";

static int fail_item(struct responses_reader *r, const char *field, const char *what)
{
    char path[FIELD_PATH_MAX];

    path_at(path, "input[%u].%s", r->at, field);
    return err_field(r->e, path, "%s must be %s", path, what);
}

/* Checks an id or a name of a call. */
static int check_name(struct responses_reader *r, const char *field, struct str text)
{
    char path[FIELD_PATH_MAX];

    if (!text.len)
        return fail_item(r, field, "a non-empty string");
    if (text.len > REQUEST_CALL_TEXT_MAX)
        return field_call_text(path_at(path, "input[%u].%s", r->at, field), text, r->e);
    return 0;
}

/* Returns the conversation up to a response, and its instructions. NULL: unknown id. */
static const struct json *past_messages(struct responses_reader *r, struct str id,
                                        struct str *ret_instructions)
{
    *ret_instructions = (struct str){0};
    if (!r->past || !r->past->response || !id.len)
        return NULL;
    return r->past->response(r->past->ctx, r->a, response_bare_id(id), ret_instructions);
}

/* --- items of the assistant --- */

/* Adds the summary of a compacted conversation as a user's message. */
static void push_summary(struct responses_reader *r, struct str summary)
{
    struct str text = arena_printf(r->a, "%s\n\n%.*s", compacted, (int)summary.len, summary.p);

    spoken_flush(r->a, &r->spoken, r->messages);
    json_push(r->a, r->messages, json_message(r->a, STR("user"), json_make_string(text)));
}

/* Begins an item of that answer: items of two stored answers make two messages. Looks up an answer
 * only if the turn's items name two, because a helper waits for the loop at each look. */
static void join_answer(struct responses_reader *r, struct str answer)
{
    struct str before = r->spoken.answer;

    if (before.len &&
        (!answer.len || str_eq(before, answer) || !references_is_stored(r->past, answer)))
        return;
    if (before.len && references_is_stored(r->past, before))
        spoken_flush(r->a, &r->spoken, r->messages);
    r->spoken.answer = answer;
}

/* Reads an item_reference: copies that item of the stored answer. */
static int read_reference(struct responses_reader *r, const struct json *item)
{
    struct str id = json_string(json_get(item, "id"));
    struct referenced_item found;
    const char *wanted;
    char path[FIELD_PATH_MAX];

    if (!id.len)
        return fail_item(r, "id", "a string");
    if (responses_check_id(path_at(path, "input[%u].id", r->at), id, r->e))
        return -1;
    wanted = references_find(&r->references, r->past, id, &found);
    if (wanted)
        return fail_item(r, "id", wanted);
    if (found.kind == REFERENCED_COMPACTION) {
        push_summary(r, found.text);
        return 0;
    }
    join_answer(r, found.response);
    r->spoken.any = true;
    if (found.kind == REFERENCED_CALL)
        json_push(r->a, &r->spoken.calls, found.call);
    else if (found.text.len)
        grown_add(r->a, found.kind == REFERENCED_THOUGHT ? &r->spoken.thought : &r->spoken.text,
                  found.text);
    return 0;
}

/* Skips an item that the model does not read. The answer reports it as dropped. */
static int skip_item(struct responses_reader *r, const struct json *item)
{
    request_add_skipped(r->a, "input", json_string(json_get(item, "type")), r->req);
    return 0;
}

/* Reports whether a different server sealed the thought. */
static bool is_sealed(const struct json *item)
{
    struct str sealed = json_string(json_get(item, "encrypted_content"));

    return sealed.len && !str_starts(sealed, STR(RESPONSES_THOUGHT_SEAL));
}

/* Reports whether an upstream of this session sealed the thought and gets it back. */
static bool is_of_session(const struct responses_reader *r, const struct json *item)
{
    return r->past && r->past->sealed &&
           r->past->sealed(r->past->ctx, json_string(json_get(item, "encrypted_content")));
}

/* Reads a thought: its content, or its summary if it has no content. */
static int read_reasoning(struct responses_reader *r, const struct json *item)
{
    static const char *const keys[] = {"content", "summary"};
    struct json text = json_make_string(STR(""));
    char path[FIELD_PATH_MAX];

    for (size_t i = 0; i < ARRAY_LEN(keys) && !text.n; i++) {
        path_at(path, "input[%u].%s", r->at, keys[i]);
        if (content_text(r->a, json_get(item, keys[i]), path, true, &text, r->e))
            return -1;
    }
    grown_add(r->a, &r->spoken.thought, json_string(&text));
    r->spoken.any = true;
    return text.n || !is_sealed(item) || is_of_session(r, item) ? 0 : skip_item(r, item);
}

/* Reads a call. A custom tool's text becomes arguments, as the model wrote them. */
static int read_call(struct responses_reader *r, const struct json *item, bool custom)
{
    struct str id = json_string(json_get(item, "call_id"));
    struct str name = json_string(json_get(item, "name"));
    const struct json *given = json_get(item, custom ? "input" : "arguments");
    struct str arguments = json_string(given);

    if (check_name(r, "call_id", id) || check_name(r, "name", name))
        return -1;
    if (!arguments.p)
        return fail_item(r, custom ? "input" : "arguments", "a string");
    if (custom)
        arguments = freeform_arguments(r->a, given);
    name = responses_flat_name(&r->tools, json_string(json_get(item, "namespace")), name);
    json_push(r->a, &r->spoken.calls, tool_call_json(r->a, id, name, arguments));
    r->spoken.any = true;
    return 0;
}

/* Reads a call of a tool that the API knows by name and the client runs. */
static int read_client_call(struct responses_reader *r, const struct json *item)
{
    struct json call = json_empty(JSON_NULL);

    if (responses_read_client_call(r->a, item, r->at, &call, r->e))
        return -1;
    json_push(r->a, &r->spoken.calls, call);
    r->spoken.any = true;
    return 0;
}

/* --- other items --- */

/* Adds a result after the turn that made its call. */
static void push_result(struct responses_reader *r, struct str id, struct json content)
{
    struct json m;

    spoken_flush(r->a, &r->spoken, r->messages);
    m = json_message(r->a, STR("tool"), content);
    json_put(r->a, &m, "tool_call_id", json_make_string(id));
    json_push(r->a, r->messages, m);
}

static int read_client_result(struct responses_reader *r, const struct json *item)
{
    struct json content = json_empty(JSON_NULL);
    struct str id = {0};

    if (responses_read_client_result(r->a, item, r->at, &id, &content, r->e))
        return -1;
    push_result(r, id, content);
    return 0;
}

/* Reads the result of a call. */
static int read_output(struct responses_reader *r, const struct json *item)
{
    struct str id = json_string(json_get(item, "call_id"));
    const struct json *output = json_get(item, "output");
    struct json content;
    char path[FIELD_PATH_MAX];

    if (check_name(r, "call_id", id))
        return -1;
    if (json_is_null(output))
        return fail_item(r, "output", "a string or a list of parts");
    path_at(path, "input[%u].output", r->at);
    if (content_text(r->a, output, path, false, &content, r->e))
        return -1;
    push_result(r, id, content_alone(content));
    return 0;
}

/* Reads a message. An assistant's message joins the turn; other messages end it. */
static int read_item_message(struct responses_reader *r, const struct json *item)
{
    struct str role = json_string(json_get(item, "role"));
    const struct json *content = json_get(item, "content");
    bool assistant = str_eq_c(role, "assistant");
    struct json text;
    char path[FIELD_PATH_MAX];

    if (!assistant && !str_eq_c(role, "user") && !str_eq_c(role, "system") &&
        !str_eq_c(role, "developer"))
        return fail_item(r, "role", "user, assistant, system or developer");
    if (json_is_null(content))
        return fail_item(r, "content", "a string or a list of parts");
    path_at(path, "input[%u].content", r->at);
    if (content_text(r->a, content, path, assistant, &text, r->e))
        return -1;
    if (assistant) {
        spoken_add_text(r->a, &r->spoken, json_string(&text), r->at, r->messages);
        return 0;
    }
    text = content_alone(text);
    spoken_flush(r->a, &r->spoken, r->messages);
    json_push(r->a, r->messages, json_message(r->a, role, text));
    return 0;
}

/* Reads tools in the middle of a history. The model sees them at that point. */
static int read_added_tools(struct responses_reader *r, const struct json *item)
{
    struct json text;

    if (r->at < r->n_leading)
        return 0;
    if (responses_tools_text(r->a, &r->tools, item, r->at, &text, r->e))
        return -1;
    spoken_flush(r->a, &r->spoken, r->messages);
    if (text.n)
        json_push(r->a, r->messages, json_message(r->a, STR("developer"), text));
    return 0;
}

/* Reads the call of a tool search that the client runs. */
static int read_search(struct responses_reader *r, const struct json *item)
{
    const struct json *arguments = json_get(item, "arguments");
    struct str id = json_string(json_get(item, "call_id"));
    struct json text;

    if (check_name(r, "call_id", id))
        return -1;
    if (!json_is(arguments, JSON_OBJECT))
        return fail_item(r, "arguments", "an object");
    text = json_text_of(r->a, arguments);
    json_push(r->a, &r->spoken.calls,
              tool_call_json(r->a, id, STR("tool_search"), json_string(&text)));
    r->spoken.any = true;
    return 0;
}

/* Reads tool_search_output: the definitions found, as the result of the call. */
static int read_found(struct responses_reader *r, const struct json *item)
{
    struct str id = json_string(json_get(item, "call_id"));
    struct json text;

    if (check_name(r, "call_id", id))
        return -1;
    if (responses_tools_text(r->a, &r->tools, item, r->at, &text, r->e))
        return -1;
    push_result(r, id, text);
    return 0;
}

/* Reads a different Codex agent's message as a user's. OpenAI's server would encrypt its text. */
static int read_agent(struct responses_reader *r, const struct json *item)
{
    static const char *const keys[] = {"text", "encrypted_content"};
    const struct json *content = json_get(item, "content");
    struct grown text = {0};
    char path[FIELD_PATH_MAX];

    if (json_is(content, JSON_STRING))
        grown_add(r->a, &text, json_string(content));
    for (size_t i = 0; json_at(content, i); i++) {
        struct str part = {0};

        for (size_t k = 0; k < ARRAY_LEN(keys) && !part.p; k++)
            part = json_string(json_get(json_at(content, i), keys[k]));
        if (!part.p)
            return fail_item(r, path_at(path, "content[%zu]", i), "a part with a text");
        grown_add(r->a, &text, part);
    }
    spoken_flush(r->a, &r->spoken, r->messages);
    if (text.len)
        json_push(r->a, r->messages,
                  json_message(r->a, STR("user"), json_make_string(grown_str(&text))));
    return 0;
}

/* Reads a compaction, which the model sees as a user's message. If a different server sealed it, it
 * cannot be read and is skipped. */
static int read_compaction(struct responses_reader *r, const struct json *item)
{
    struct str text = compaction_open(r->a, json_string(json_get(item, "encrypted_content")));

    if (!text.p)
        return skip_item(r, item);
    push_summary(r, text);
    return 0;
}

static int read_trigger(struct responses_reader *r, const struct json *input)
{
    if (r->at + 1 < input->n)
        return fail_item(r, "type", "the last item's, where it is compaction_trigger");
    r->compacts = true;
    return 0;
}

/* Reports whether only the vendor's server uses the item. */
static bool is_foreign(struct str type)
{
    return str_ends(type, STR("_call")) || str_ends(type, STR("_output")) ||
           str_starts(type, STR("mcp_")) || str_eq_c(type, "program") ||
           str_eq_c(type, "configuration_update");
}

/* Reads one item by its type. An item without a type is a message or a reference. */
static int read_input_item(struct responses_reader *r, const struct json *item)
{
    const struct json *kind = json_get(item, "type");
    struct str type = json_string(kind);

    if (!json_is(item, JSON_OBJECT))
        return fail_item(r, "type", "a member of an object");
    if (!json_is_null(kind) && !type.p)
        return fail_item(r, "type", "a string");
    if (references_is_item(item))
        return read_reference(r, item);
    join_answer(r, references_answer(item));
    if (!type.p || str_eq_c(type, "message"))
        return read_item_message(r, item);
    if (str_eq_c(type, "function_call"))
        return read_call(r, item, false);
    if (str_eq_c(type, "custom_tool_call"))
        return read_call(r, item, true);
    if (str_eq_c(type, "function_call_output") || str_eq_c(type, "custom_tool_call_output"))
        return read_output(r, item);
    if (responses_client_call(type))
        return read_client_call(r, item);
    if (responses_client_result(type))
        return read_client_result(r, item);
    if (str_eq_c(type, "reasoning"))
        return read_reasoning(r, item);
    if (str_eq_c(type, "additional_tools"))
        return read_added_tools(r, item);
    if (str_eq_c(type, "agent_message"))
        return read_agent(r, item);
    if (str_find(type, STR("compaction"), 0) != SIZE_MAX)
        return read_compaction(r, item);
    if (r->tools.client_search && str_eq_c(type, "tool_search_call"))
        return read_search(r, item);
    if (r->tools.client_search && str_eq_c(type, "tool_search_output"))
        return read_found(r, item);
    if (str_eq_c(type, "ghost_snapshot")) /* Codex's own data for its undo */
        return 0;
    if (is_foreign(type))
        return skip_item(r, item);
    return fail_item(
        r, "type",
        arena_printf(r->a, "a known kind of item, not '%.*s'", (int)MIN_OF(type.len, 64), type.p)
            .p);
}

static bool is_trigger(const struct json *item)
{
    return str_eq_c(json_string(json_get(item, "type")), "compaction_trigger");
}

bool responses_compacts(const struct json *body)
{
    const struct json *input = json_get(body, "input");

    return json_is(input, JSON_ARRAY) && input->n > 0 && is_trigger(&input->items[input->n - 1]);
}

/* Reads input. A string is one user message. */
static int read_items(struct responses_reader *r, const struct json *input)
{
    if (json_is(input, JSON_STRING)) {
        json_push(r->a, r->messages, json_message(r->a, STR("user"), *input));
        return 0;
    }
    if (!json_is(input, JSON_ARRAY))
        return err_field(r->e, "input", "input must be a string or a list of items");
    for (r->at = 0; r->at < input->n; r->at++)
        if (is_trigger(&input->items[r->at]) ? read_trigger(r, input)
                                             : read_input_item(r, &input->items[r->at]))
            return -1;
    spoken_flush(r->a, &r->spoken, r->messages);
    return 0;
}

/* Ends the conversation with a request for a summary. Tools stay in the prompt, so that it begins
 * with tokens that the engine has cached, but must not be called. */
static void ask_for_summary(struct responses_reader *r, struct chat_request *req)
{
    json_push(r->a, r->messages, json_message(r->a, STR("user"), json_make_string(summarise)));
    req->tool_choice = CHOICE_NONE;
    request_compacts(r->a, req);
}

/* Reads the stored conversation of previous_response_id, if given. */
static int read_previous(struct responses_reader *r, const struct json *body)
{
    struct str id = {0};
    const struct json *past;

    if (field_str(body, "previous_response_id", &id, r->e))
        return -1;
    if (!id.p)
        return 0;
    if (responses_check_id("previous_response_id", id, r->e))
        return -1;
    past = past_messages(r, id, &r->instructions);
    if (!past)
        return err_field(r->e, "previous_response_id",
                         "previous_response_id names no response of this session");
    for (uint32_t i = 0; i < past->n; i++)
        json_push(r->a, r->messages, past->items[i]);
    return 0;
}

static bool begins_with_instructions(const struct json *messages, struct str instructions)
{
    const struct json *first = json_at(messages, 0);

    return str_eq_c(json_string(json_get(first, "role")), "system") &&
           str_eq(json_string(json_get(first, "content")), instructions);
}

/* Puts the instructions first. They replace those of the previous response. */
static int read_instructions(struct responses_reader *r, const struct json *body)
{
    struct str text = {0};
    struct str before = r->instructions;
    struct json all = json_empty(JSON_ARRAY);

    if (field_str(body, "instructions", &text, r->e))
        return -1;
    if (!text.len || begins_with_instructions(r->messages, text))
        return 0;
    json_push(r->a, &all, json_message(r->a, STR("system"), json_make_string(text)));
    for (uint32_t i = before.len && begins_with_instructions(r->messages, before);
         i < r->messages->n; i++)
        json_push(r->a, &all, r->messages->items[i]);
    *r->messages = all;
    return 0;
}

/* Reads the messages in the order given at the head. */
static int read_input_messages(struct arena *a, const struct json *body,
                               const struct dialect_past *past, bool compact,
                               struct chat_request *req, struct err *e)
{
    struct json messages = json_empty(JSON_ARRAY);
    struct responses_reader r = {.a = a, .past = past, .messages = &messages, .req = req, .e = e};
    int rc;

    spoken_init(&r.spoken);
    r.n_leading = responses_leading_tools(body);
    response_tools_read(&r.tools, a, body);
    rc = read_previous(&r, body) || read_instructions(&r, body) ||
         read_items(&r, json_get(body, "input"));
    references_done(&r.references);
    if (rc)
        return -1;
    if (!messages.n)
        return err_field(e, "input", "input must not be empty");
    if (r.compacts || compact)
        ask_for_summary(&r, req);
    req->chat->messages = json_keep(a, messages);
    return 0;
}

/* --- the rest --- */

/* Reads tool_choice: a word, one tool by name, or a choice among some tools. */
static int read_response_choice(struct arena *a, const struct json *body, struct chat_request *req,
                                struct err *e)
{
    const struct json *v = json_get(body, "tool_choice");
    struct str word = json_string(v);
    struct str type = json_string(json_get(v, "type"));

    if (json_is_null(v) || str_eq_c(word, "auto"))
        return 0;
    if (str_eq_c(word, "none")) {
        req->tool_choice = CHOICE_NONE;
    } else if (str_eq_c(word, "required")) {
        req->tool_choice = CHOICE_REQUIRED;
    } else if (str_eq_c(type, "function") || str_eq_c(type, "custom")) {
        req->tool_function = json_string(json_get(v, "name"));
        if (!req->tool_function.len)
            return err_field(e, "tool_choice.name", "tool_choice.name must be a non-empty string");
        req->tool_choice = CHOICE_FUNCTION;
    } else if (str_eq_c(type, "allowed_tools")) {
        return request_allowed(a, v, "tool_choice", req, e);
    } else if (type.len) {
        return err_field(e, "tool_choice.type",
                         "tool_choice.type is a tool that cannot be run here");
    } else {
        return err_field(e, "tool_choice",
                         "tool_choice must be auto, none, required or a function");
    }
    return request_choice_fits(req, "tool_choice", e);
}

/* Reads text.format, in the flat form. */
static int read_text_format(struct arena *a, const struct json *body, struct chat_request *req,
                            struct err *e)
{
    const struct json *text;

    if (field_kind(body, "text", JSON_OBJECT, &text, e))
        return -1;
    return request_flat_format(a, json_get(text, "format"), "text.format", req, e);
}

/* Rejects background work, and state that only the vendor's server has. */
static int reject_unsupported(const struct json *body, struct err *e)
{
    bool background = false;

    if (field_bool(body, "background", &background, e))
        return -1;
    if (background)
        return err_field(e, "background", "background is not supported: the answer comes at once");
    if (!json_is_null(json_get(body, "conversation")))
        return err_field(e, "conversation",
                         "conversation is not supported: send the items or previous_response_id");
    if (!json_is_null(json_get(body, "prompt")))
        return err_field(e, "prompt", "prompt templates are not supported: send the items");
    return 0;
}

/* Checks members that are only echoed. */
static int check_echoed(const struct json *body, struct err *e)
{
    struct str truncation = {0};
    const struct json *v;
    bool store;

    return field_bool(body, "store", &store, e) || field_str(body, "truncation", &truncation, e) ||
           field_kind(body, "max_tool_calls", JSON_NUMBER, &v, e) ||
           field_kind(body, "stream_options", JSON_OBJECT, &v, e);
}

/* Reads include, which may ask for logprobs. */
static int read_include(const struct json *body, struct chat_request *req, struct err *e)
{
    const struct json *include;

    if (field_kind(body, "include", JSON_ARRAY, &include, e))
        return -1;
    for (uint32_t i = 0; include && i < include->n; i++)
        if (str_eq_c(json_string(&include->items[i]), "message.output_text.logprobs"))
            req->logprobs = true;
    return 0;
}

/* Reads the other members, on both paths. */
static int read_other_members(struct arena *a, const struct json *body,
                              const struct dialect_past *past, struct chat_request *ret,
                              struct err *e)
{
    const struct json *reasoning;
    bool compacts = ret->tool_choice == CHOICE_NONE;

    if (responses_read_tools(a, body, ret, e) ||
        (!compacts && read_response_choice(a, body, ret, e)) ||
        request_sampling(a, body, IN_RESPONSES, ret, e) || read_text_format(a, body, ret, e) ||
        read_include(body, ret, e) || field_kind(body, "reasoning", JSON_OBJECT, &reasoning, e) ||
        request_kwargs(a, body, json_get(reasoning, "effort"), "reasoning.effort", ret, e) ||
        field_bool(body, "parallel_tool_calls", &ret->parallel_tool_calls, e) ||
        reject_unsupported(body, e) || check_echoed(body, e) ||
        field_u32(body, "top_logprobs", 0, FIELD_TOP_LOGPROBS_MAX, &ret->top_logprobs, e))
        return -1;
    if (ret->top_logprobs && !ret->logprobs)
        request_add_skipped(a, "", STR("top_logprobs"), ret);
    ret->include_usage = true;
    return image_parts_normalise(a, past, ret, e);
}

/* Parses a request of /responses. store has no effect: every answer is stored with its session. */
static int responses_parse(struct arena *a, const struct json *body,
                           const struct dialect_headers *headers, const struct dialect_past *past,
                           struct chat_request *ret, struct err *e)
{
    if (request_begin(a, body, headers, ret, e) ||
        read_input_messages(a, body, past, false, ret, e))
        return -1;
    return read_other_members(a, body, past, ret, e);
}

/* Parses a request of /responses/compact, which is never streamed. */
static int compact_parse(struct arena *a, const struct json *body,
                         const struct dialect_headers *headers, const struct dialect_past *past,
                         struct chat_request *ret, struct err *e)
{
    if (request_begin(a, body, headers, ret, e))
        return -1;
    if (ret->stream)
        return err_field(e, "stream", "stream must be false: a compaction comes whole");
    if (read_input_messages(a, body, past, true, ret, e))
        return -1;
    return read_other_members(a, body, past, ret, e);
}

const struct dialect dialect_compact = {.name = "responses",
                                        .id_head = "resp_",
                                        .members = IN_RESPONSES,
                                        .list = "input",
                                        .parse = compact_parse,
                                        .writer = compact_writer_new,
                                        .asked = compact_asked,
                                        .recorded = responses_recorded,
                                        .error = responses_write_error};

const struct dialect dialect_responses = {.name = "responses",
                                          .id_head = "resp_",
                                          .ends_whole = true,
                                          .members = IN_RESPONSES,
                                          .list = "input",
                                          .parse = responses_parse,
                                          .writer = responses_writer_new,
                                          .asked = responses_asked,
                                          .recorded = responses_recorded,
                                          .error = responses_write_error};
