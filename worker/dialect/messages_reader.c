/*
 * Reads requests of POST /v1/messages and /v1/messages/count_tokens.
 *
 * A message of Anthropic's API is a list of blocks; normalised messages are flat. One user message
 * with tool results becomes several messages. Text blocks are collected (parts) until a result
 * comes. Then they become a user message (flush_user), followed by the result as a tool message.
 * All blocks of an assistant message become one assistant turn (struct spoken).
 *
 *   user: [text, tool_result, text]   ->   user, tool, user
 *   assistant: [thinking, text, tool_use, tool_use]   ->   assistant with two tool_calls
 *
 * Both paths share most members (parse_both). messages also needs max_tokens.
 */
#include "common/base/limits.h"
#include "worker/dialect/messages.h"

#include "common/base/attrs.h"
#include "common/codec/json_build.h"
#include "worker/dialect/image_parts.h"
#include "worker/dialect/request_members.h"
#include "worker/text/request/chat.h"

/* Position of a block, for errors. */
struct block_position {
    uint32_t message, block;
};

struct messages_reader {
    struct arena *a;
    struct anthropic_tools tools;
    struct json messages;
    struct chat_request *req;
    const struct dialect_past *past;
    struct err *e;
};

/* --- system --- */

/* Reports whether the text is Claude Code's billing block. The block has the client's version,
 * which changes between runs and has no meaning for a model. */
static bool is_billing(struct str text)
{
    return str_starts(text, STR("x-anthropic-billing-header:"));
}

/* Reads a system prompt: a text, or a list of text blocks without the billing block. A single block
 * becomes its text. */
static int read_system(struct messages_reader *r, const struct json *v, const char *path,
                       struct json *ret)
{
    struct arena *a = r->a;
    struct json list = json_empty(JSON_ARRAY);

    if (content_text(a, blocks_as_text(a, v, &r->tools), path, false, ret, r->e))
        return -1;
    if (ret->kind == JSON_STRING)
        return 0;
    for (uint32_t i = 0; i < ret->n; i++)
        if (!is_billing(json_string(json_get(&ret->items[i], "text"))))
            json_push(a, &list, ret->items[i]);
    *ret = list.n ? content_alone(list) : json_make_string(STR(""));
    return 0;
}

/* --- user blocks --- */

/* Adds the collected blocks as one user message, if there are any. */
static void flush_user(struct messages_reader *r, struct json *parts)
{
    if (!parts->n)
        return;
    json_push(r->a, &r->messages, json_message(r->a, STR("user"), content_alone(*parts)));
    *parts = json_empty(JSON_ARRAY);
}

static int fail_block(struct block_position at, const char *what, struct err *e)
{
    char path[FIELD_PATH_MAX];

    path_at(path, "messages[%u].content[%u].%s", at.message, at.block, what);
    return err_field(e, path, "%s must be a string", path);
}

static int fail_long_name(struct block_position at, const char *what, struct str text,
                          struct err *e)
{
    char path[FIELD_PATH_MAX];

    return field_call_text(path_at(path, "messages[%u].content[%u].%s", at.message, at.block, what),
                           text, e);
}

/* Reads a tool_result block, which becomes a tool message. */
static int read_result(struct messages_reader *r, const struct json *block,
                       struct block_position at, struct json *parts)
{
    struct arena *a = r->a;
    struct err *e = r->e;
    struct str id = json_string(json_get(block, "tool_use_id"));
    struct json content;
    struct json m;
    char path[FIELD_PATH_MAX];

    if (!id.p)
        return field_fail(e, "must be a string", "messages[%u].content[%u].tool_use_id", at.message,
                          at.block);
    if (id.len > REQUEST_CALL_TEXT_MAX)
        return fail_long_name(at, "tool_use_id", id, e);
    path_at(path, "messages[%u].content[%u].content", at.message, at.block);
    if (content_text(a, blocks_as_text(a, json_get(block, "content"), &r->tools), path, false,
                     &content, e))
        return -1;
    content = content_alone(content);
    flush_user(r, parts);
    m = json_message(a, STR("tool"), content);
    json_put(a, &m, "tool_call_id", json_make_string(id));
    json_push(a, &r->messages, m);
    return 0;
}

/* Reads one block of a user message. Collects it in `parts`, or adds it as a result. */
static int read_user_block(struct messages_reader *r, const struct json *block,
                           struct block_position at, struct json *parts)
{
    struct arena *a = r->a;
    struct err *e = r->e;
    struct str type = json_string(json_get(block, "type"));
    struct str text = json_string(json_get(block, "text"));
    struct json part = json_empty(JSON_OBJECT);
    char path[FIELD_PATH_MAX];

    if (!type.p)
        return fail_block(at, "type", e);
    if (str_eq_c(type, "tool_result"))
        return read_result(r, block, at, parts);
    if (image_parts_type(type)) {
        path_at(path, "messages[%u].content[%u]", at.message, at.block);
        json_push(a, parts, image_parts_wait(a, block, path));
        return 0;
    }
    if (!str_eq_c(type, "text"))
        return err_field(e, path_at(path, "messages[%u].content[%u].type", at.message, at.block),
                         "messages[%u].content[%u].type is '%.*s', but the model takes text only",
                         at.message, at.block, (int)MIN_OF(type.len, 60), type.p);
    if (!text.p)
        return fail_block(at, "text", e);
    json_put(a, &part, "type", json_make_string(STR("text")));
    json_put(a, &part, "text", json_make_string(text));
    json_push(a, parts, part);
    return 0;
}

/* Reads a user message: a string or a list of blocks. */
static int read_user(struct messages_reader *r, const struct json *content, uint32_t message)
{
    struct json parts = json_empty(JSON_ARRAY);
    struct err *e = r->e;

    if (json_is(content, JSON_STRING)) {
        json_push(r->a, &r->messages, json_message(r->a, STR("user"), *content));
        return 0;
    }
    if (!json_is(content, JSON_ARRAY))
        return field_fail(e, "must be a string or a list of blocks", "messages[%u].content",
                          message);
    if (!content->n)
        return field_fail(e, "must not be empty", "messages[%u].content", message);
    content = blocks_as_text(r->a, content, &r->tools);
    for (uint32_t i = 0; i < content->n; i++) {
        if (!json_is(&content->items[i], JSON_OBJECT))
            return field_fail(e, "must be an object", "messages[%u].content[%u]", message, i);
        if (read_user_block(r, &content->items[i], (struct block_position){message, i}, &parts))
            return -1;
    }
    flush_user(r, &parts);
    return 0;
}

/* --- assistant blocks --- */

/* Reads a tool_use block. Its input, an object, becomes the text of the call's arguments. */
static int read_use(struct arena *a, const struct json *block, struct block_position at,
                    struct spoken *s, struct err *e)
{
    struct str id = json_string(json_get(block, "id"));
    struct str name = json_string(json_get(block, "name"));
    const struct json *input = json_get(block, "input");

    if (!id.p)
        return fail_block(at, "id", e);
    if (!name.len)
        return fail_block(at, "name", e);
    if (id.len > REQUEST_CALL_TEXT_MAX)
        return fail_long_name(at, "id", id, e);
    if (name.len > REQUEST_CALL_TEXT_MAX)
        return fail_long_name(at, "name", name, e);
    if (!json_is_null(input) && input->kind != JSON_OBJECT)
        return field_fail(e, "must be an object", "messages[%u].content[%u].input", at.message,
                          at.block);
    json_push(a, &s->calls,
              tool_call_json(a, id, name,
                             json_is_null(input)
                                 ? STR("{}")
                                 : json_string(json_keep(a, json_text_of(a, input)))));
    return 0;
}

/* Rejects a compaction block. The gateway never saw the history that such a summary replaces, so
 * the block cannot be skipped. */
static int reject_summary(struct block_position at, struct err *e)
{
    char path[FIELD_PATH_MAX];

    path_at(path, "messages[%u].content[%u].type", at.message, at.block);
    return err_field(e, path,
                     "%s is 'compaction': a summary that another server made is not taken, send "
                     "it as a user's text",
                     path);
}

/* Reports whether an upstream of this session sealed the thought. The upstream then gets it back
 * with its answer. */
static bool is_of_session(const struct messages_reader *r, const struct json *block)
{
    return str_eq_c(json_string(json_get(block, "type")), "redacted_thinking") && r->past &&
           r->past->sealed && r->past->sealed(r->past->ctx, json_string(json_get(block, "data")));
}

/* Adds a block to the turn. Other blocks (foreign redacted_thinking, server_tool_use ...) are
 * skipped, since no model here wrote or can read them. */
static int read_assistant_block(struct messages_reader *r, const struct json *block,
                                struct block_position at, struct spoken *s)
{
    struct arena *a = r->a;
    struct err *e = r->e;
    struct str type = json_string(json_get(block, "type"));

    if (!type.p)
        return fail_block(at, "type", e);
    if (str_eq_c(type, "tool_use"))
        return read_use(a, block, at, s, e);
    if (str_eq_c(type, "text")) {
        struct str text = json_string(json_get(block, "text"));

        if (!text.p)
            return fail_block(at, "text", e);
        grown_add(a, &s->text, text);
    } else if (str_eq_c(type, "thinking")) {
        struct str text = json_string(json_get(block, "thinking"));

        if (!text.p)
            return fail_block(at, "thinking", e);
        grown_add(a, &s->thought, text);
    } else if (str_eq_c(type, "compaction")) {
        return reject_summary(at, e);
    } else if (!is_of_session(r, block)) {
        request_add_skipped(a, "messages", type, r->req);
    }
    return 0;
}

/* Reads an assistant message as one turn, even if it has no blocks. */
static int read_assistant(struct messages_reader *r, const struct json *content, uint32_t message)
{
    struct arena *a = r->a;
    struct err *e = r->e;
    struct spoken s;

    spoken_init(&s);
    s.any = true;
    if (json_is(content, JSON_STRING))
        grown_add(a, &s.text, json_string(content));
    else if (!json_is(content, JSON_ARRAY))
        return field_fail(e, "must be a string or a list of blocks", "messages[%u].content",
                          message);
    for (uint32_t i = 0; content->kind == JSON_ARRAY && i < content->n; i++) {
        if (!json_is(&content->items[i], JSON_OBJECT))
            return field_fail(e, "must be an object", "messages[%u].content[%u]", message, i);
        if (read_assistant_block(r, &content->items[i], (struct block_position){message, i}, &s))
            return -1;
    }
    spoken_flush(a, &s, &r->messages);
    return 0;
}

/* Reads one message. system and developer messages may be anywhere in the list. */
static int read_anthropic_message(struct messages_reader *r, const struct json *v, uint32_t i)
{
    struct err *e = r->e;
    struct str role = json_string(json_get(v, "role"));
    const struct json *content = json_get(v, "content");
    struct json text;
    char path[FIELD_PATH_MAX];

    if (!json_is(v, JSON_OBJECT))
        return field_fail(e, "must be an object", "messages[%u]", i);
    if (str_eq_c(role, "user"))
        return read_user(r, content, i);
    if (str_eq_c(role, "assistant"))
        return read_assistant(r, content, i);
    if (!str_eq_c(role, "system") && !str_eq_c(role, "developer"))
        return field_fail(e, "must be user, assistant, system or developer", "messages[%u].role",
                          i);
    if (json_is_null(content))
        return field_fail(e, "is missing", "messages[%u].content", i);
    path_at(path, "messages[%u].content", i);
    if (read_system(r, content, path, &text))
        return -1;
    json_push(r->a, &r->messages, json_message(r->a, role, text));
    return 0;
}

/* Reads the system prompt, then the messages in order. */
static int read_anthropic_messages(struct messages_reader *r, const struct json *body)
{
    const struct json *list;
    const struct json *system = json_get(body, "system");
    struct json text;

    if (field_kind(body, "messages", JSON_ARRAY, &list, r->e))
        return -1;
    if (!list || !list->n)
        return err_field(r->e, "messages", "messages must be a non-empty list");
    if (!json_is_null(system)) {
        if (read_system(r, system, "system", &text))
            return -1;
        if (text.n)
            json_push(r->a, &r->messages, json_message(r->a, STR("system"), text));
    }
    for (uint32_t i = 0; i < list->n; i++)
        if (read_anthropic_message(r, &list->items[i], i))
            return -1;
    return 0;
}

/* --- the rest --- */

/* Checks the member thinking. request_thinking reads it. */
static int check_thinking(const struct json *body, struct err *e)
{
    static const char *const types[] = {"enabled", "disabled", "adaptive"};
    const struct json *v;
    struct err inner = {0};
    uint32_t budget;
    struct str type;

    if (field_kind(body, "thinking", JSON_OBJECT, &v, e))
        return -1;
    if (!v)
        return 0;
    if (field_u32(v, "budget_tokens", 1, INT32_MAX, &budget, &inner))
        return err_field(e, "thinking.budget_tokens", "thinking.%s", inner.text);
    type = json_string(json_get(v, "type"));
    if (str_is_one_of(type, types, ARRAY_LEN(types)))
        return 0;
    return err_field(e, "thinking.type", "thinking.type must be enabled, disabled or adaptive");
}

/* Reads the members that messages and count_tokens share. The choice of a tool comes after the
 * messages, because a message can add tools. */
static int parse_both(struct arena *a, const struct json *body,
                      const struct dialect_headers *headers, const struct dialect_past *past,
                      struct chat_request *ret, struct err *e)
{
    struct messages_reader r = {
        .a = a, .messages = json_empty(JSON_ARRAY), .req = ret, .past = past, .e = e};

    if (!json_is_null(json_get(body, "thread")))
        return err_field(e, "thread", "threads are not supported: send the whole history");
    if (request_begin(a, body, headers, ret, e) || anthropic_read_tools(a, body, &r.tools, e) ||
        read_anthropic_messages(&r, body))
        return -1;
    ret->chat->messages = json_keep(a, r.messages);
    if (r.tools.shown.all.n)
        ret->callable = ret->chat->tools = json_keep(a, r.tools.shown.all);
    if (r.tools.hidden.all.n)
        ret->callable = anthropic_all_tools(a, &r.tools);
    if (anthropic_read_choice(body, ret, e) || check_thinking(body, e) ||
        request_thinking(a, body, ret, e) ||
        request_kwargs(a, body, json_get(json_get(body, "output_config"), "effort"),
                       "output_config.effort", ret, e))
        return -1;
    ret->include_usage = true;
    return 0;
}

/* Reads output_config.format, or output_format. Skips unknown formats, since betas add some. */
static int read_output_format(struct arena *a, const struct json *body, struct chat_request *req,
                              struct err *e)
{
    const struct json *format = json_get(json_get(body, "output_config"), "format");
    const char *path = "output_config.format";

    if (json_is_null(format)) {
        format = json_get(body, "output_format");
        path = "output_format";
    }
    if (json_is_null(format))
        return 0;
    if (!str_eq_c(json_string(json_get(format, "type")), "json_schema")) {
        request_add_skipped(a, path, STR("type"), req);
        return 0;
    }
    return request_flat_format(a, format, path, req, e);
}

/* Checks the edits of the history that the client asks Anthropic's server for. Only
 * clear_thinking_* is accepted: the template decides which thoughts of earlier turns the model
 * sees. Any other edit would make a history that no client sent. */
static int check_edits(const struct json *body, struct err *e)
{
    const struct json *context, *edits;

    if (field_kind(body, "context_management", JSON_OBJECT, &context, e))
        return -1;
    edits = json_get(context, "edits");
    if (!json_is_null(edits) && edits->kind != JSON_ARRAY)
        return err_field(e, "context_management.edits", "context_management.edits must be a list");
    for (uint32_t i = 0; !json_is_null(edits) && i < edits->n; i++) {
        struct str type = json_string(json_get(&edits->items[i], "type"));
        char path[FIELD_PATH_MAX];

        if (str_starts(type, STR("clear_thinking_")))
            continue;
        path_at(path, "context_management.edits[%u].type", i);
        return err_field(e, path,
                         "%s: \"%.*s\" is not done here, as it would change the history that the "
                         "model sees; send the history as it is to be, or clear_thinking_* alone",
                         path, (int)MIN_OF(type.len, (size_t)40), type.p ? type.p : "");
    }
    return 0;
}

/* Parses a request of messages: the shared members, then those that only this path has. */
static int messages_parse(struct arena *a, const struct json *body,
                          const struct dialect_headers *headers, const struct dialect_past *past,
                          struct chat_request *ret, struct err *e)
{
    const struct json *stops = json_get(body, "stop_sequences");

    if (parse_both(a, body, headers, past, ret, e) || check_edits(body, e))
        return -1;
    if (json_is_null(json_get(body, "max_tokens")))
        return err_field(e, "max_tokens", "max_tokens is required");
    if (!json_is_null(stops) && stops->kind != JSON_ARRAY)
        return err_field(e, "stop_sequences", "stop_sequences must be a list of strings");
    if (read_output_format(a, body, ret, e) || request_sampling(a, body, IN_MESSAGES, ret, e))
        return -1;
    return image_parts_normalise(a, past, ret, e);
}

static int count_parse(struct arena *a, const struct json *body,
                       const struct dialect_headers *headers, const struct dialect_past *past,
                       struct chat_request *ret, struct err *e)
{
    if (parse_both(a, body, headers, past, ret, e) || check_edits(body, e))
        return -1;
    return image_parts_normalise(a, past, ret, e);
}

const struct dialect dialect_messages = {.name = "messages",
                                         .id_head = "msg_",
                                         .members = IN_MESSAGES,
                                         .list = "messages",
                                         .parse = messages_parse,
                                         .writer = anthropic_writer_new,
                                         .error = anthropic_write_error};

/* `.writer` is NULL: a token count is no model answer; api_call_count writes it. */
const struct dialect dialect_count_tokens = {.name = "count_tokens",
                                             .members = IN_MESSAGES,
                                             .parse = count_parse,
                                             .error = anthropic_write_error};
