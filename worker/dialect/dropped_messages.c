/*
 * Finds members of messages, items and content parts without effect (request_dropping.h). Quiet are
 * members that clients repeat from answers, and those that name or cache something. A value that
 * asks for nothing (null, false, an empty list ...) is quiet, too.
 */
#include "worker/dialect/request_dropping.h"

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/codec/json_build.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/request_members.h"

/* Members of messages and parts that a reader reads, and quiet ones. */
static const char *const known[] = {
    "role", "content", "type", "text", "id", "name", "tool_calls", "tool_call_id", "call_id",
    /* read */
    "reasoning_content", "reasoning", "function_call", "refusal", "audio", "tool_use_id", "input",
    "arguments", "output", "namespace", "source", "title", "image_url", "file_id",
    /* part of an answer */
    "status", "annotations", "logprobs", "parsed", "parsed_arguments", "parsed_output", "phase",
    "provider_specific_fields", "model", "stop_reason", "stop_sequence", "stop_details", "usage",
    "caller", "index",
    /* of the last message, reported as continuation */
    "prefix", "partial",
    /* caching */
    "cache_control", "prompt_cache_breakpoint"};

static bool is_empty(const struct json *v)
{
    return json_is_null(v) || (v->kind == JSON_BOOL && !json_is_true(v)) ||
           (v->kind != JSON_BOOL && v->kind != JSON_NUMBER && v->n == 0);
}

/* Reports whether the thought that these forms repeat is also in a member that is read. */
static bool repeats_thought(const struct json *message, struct str name)
{
    static const char *const forms[] = {"reasoning_details", "thinking_blocks"};

    return str_is_one_of(name, forms, ARRAY_LEN(forms)) &&
           (json_string(json_get(message, "reasoning_content")).len ||
            json_string(json_get(message, "reasoning")).len);
}

/* Reports whether the member has an effect, or asks for nothing. */
static bool is_obeyed(unsigned dialects, const struct json *object, struct str name,
                      const struct json *v)
{
    if (str_is_one_of(name, known, ARRAY_LEN(known)) || is_empty(v))
        return true;
    if (str_eq_c(name, "detail")) /* pictures are never made smaller than the model's own limits */
        return !str_eq_c(json_string(v), "low");
    if (str_eq_c(name, "citations")) /* a list of an answer; an object asks for them */
        return v->kind == JSON_ARRAY || !json_is_true(json_get(v, "enabled"));
    if (str_eq_c(name, "is_error")) /* Anthropic's results say in their text what failed */
        return dialects & IN_MESSAGES;
    return repeats_thought(object, name);
}

/* Records the members of an object without effect, as "PLACE.NAME". */
static void check_members(struct dropping *d, struct str place, const struct json *object)
{
    for (uint32_t i = 0; i < object->n; i++) {
        const struct json_member *m = &object->members[i];
        struct str name = json_string(&m->key);

        if (!is_obeyed(d->dialects, object, name, &m->value))
            drop_member(d, place, name, USE_UNKNOWN);
    }
}

/* --- lists --- */

/* Reports whether the part's members are checked. Other kinds are read by name, or skipped and
 * reported. */
static bool is_plain_block(struct str type)
{
    static const char *const types[] = {"text",        "input_text",   "output_text", "image_url",
                                        "input_image", "image",        "tool_use",    "tool_result",
                                        "document",    "search_result"};

    return str_is_one_of(type, types, ARRAY_LEN(types));
}

/* Checks the parts of a content, and those of a tool's result among them. */
static void check_content(struct dropping *d, struct str place, const struct json *list, bool inner)
{
    for (uint32_t i = 0; json_is(list, JSON_ARRAY) && i < list->n; i++) {
        const struct json *part = &list->items[i], *image = json_get(part, "image_url");

        if (!json_is(part, JSON_OBJECT) || !is_plain_block(json_string(json_get(part, "type"))))
            continue;
        check_members(d, place, part);
        if (str_eq_c(json_string(json_get(image, "detail")), "low"))
            drop_member(d, place, STR("detail"), USE_UNKNOWN);
        if (!inner)
            check_content(d, place, json_get(part, "content"), true);
    }
}

/* Reports whether the item's members are checked. Other kinds have readers of their own. */
static bool is_plain_item(struct str type)
{
    static const char *const types[] = {"message", "function_call", "custom_tool_call",
                                        "function_call_output", "custom_tool_call_output"};

    return !type.p || str_is_one_of(type, types, ARRAY_LEN(types));
}

/* Reports whether a message's name says who speaks. An answer's and a result's only repeat. */
static bool is_speaker(struct str role)
{
    return str_eq_c(role, "user") || str_eq_c(role, "system") || str_eq_c(role, "developer");
}

static void check_item(struct dropping *d, const struct json *item)
{
    bool items = d->dialects & IN_RESPONSES;
    struct str place = items ? STR("input") : STR("messages");
    struct str inner = items ? STR("input.content") : STR("messages.content");
    const char *list = items && json_get(item, "output") ? "output" : "content";

    if (items && !is_plain_item(json_string(json_get(item, "type"))))
        return;
    check_members(d, place, item);
    if (!d->readers.template_names && is_speaker(json_string(json_get(item, "role"))) &&
        json_string(json_get(item, "name")).len > 0)
        drop_member(d, place, STR("name"), USE_UNUSED);
    check_content(d, inner, json_get(item, list), false);
}

bool request_item_drops(const struct dialect *d, const struct json *item)
{
    struct arena tmp = {0};
    struct dropped_fields found = {0};
    struct dropping x = {
        .a = &tmp, .dialects = d->members, .to = &found, .names = json_empty(JSON_ARRAY)};

    check_item(&x, item);
    arena_done(&tmp);
    return found.unknown + found.unused > 0;
}

void drop_messages(struct dropping *d, const struct json *body, uint32_t from)
{
    bool items = d->dialects & IN_RESPONSES;
    const struct json *list = json_get(body, items ? "input" : "messages");
    const struct json *include = json_get(body, "include");

    for (uint32_t i = from; json_is(list, JSON_ARRAY) && i < list->n; i++)
        check_item(d, &list->items[i]);
    for (uint32_t i = 0; items && json_is(include, JSON_ARRAY) && i < include->n; i++) {
        struct str what = json_string(&include->items[i]);

        if (!str_eq_c(what, "reasoning.encrypted_content") &&
            !str_eq_c(what, "message.output_text.logprobs"))
            drop_member(d, STR("include"), what, USE_UNKNOWN);
    }
}
