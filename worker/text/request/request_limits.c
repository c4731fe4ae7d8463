/*
 * Two kinds of limits. Counts and lengths are looked up in the body before its dialect reads it, by
 * the names of all dialects, so they cost little. Memory is a budget of the arena: the smaller of a
 * fixed one and one that grows with the body. The error names the setting of the smaller one.
 */
#include "worker/text/request/request_limits.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/base/limits.h"
#include "common/codec/json.h"

size_t request_limits_budget(const struct request_limits *l, size_t body_bytes)
{
    uint64_t grown = UINT64_MAX;

    if (l->growth && !__builtin_mul_overflow((uint64_t)body_bytes, l->growth, &grown))
        grown += REQUEST_MEMORY_FREE;
    if (l->memory_bytes && l->memory_bytes < grown)
        grown = l->memory_bytes;
    return grown == UINT64_MAX ? 0 : grown;
}

int request_limits_memory(const struct request_limits *l, const struct arena *a, struct err *e)
{
    if (!arena_over(a))
        return 0;
    if (a->max_bytes == l->memory_bytes)
        return err_set(e, ERR_BODY_TOO_LARGE,
                       "reading this request takes more than %zu bytes of memory "
                       "(--max-request-memory)",
                       a->max_bytes);
    return err_set(e, ERR_BODY_TOO_LARGE,
                   "reading this request takes more than %zu bytes of memory, %u for each byte of "
                   "its body (--max-request-growth)",
                   a->max_bytes, l->growth);
}

/* Checks a number against a setting; 0 allows any number. */
static int check_limit(enum limit setting, const char *field, size_t n, uint64_t max, struct err *e)
{
    return max == 0 || n <= max ? 0 : limit_refuse(setting, field, n, max, e);
}

static size_t length_of(const struct json *v)
{
    return json_is(v, JSON_ARRAY) ? v->n : 0;
}

/* Counts tools, including those in namespaces. */
static size_t count_tools(const struct json *list)
{
    size_t n = length_of(list);

    for (size_t i = 0; i < length_of(list); i++)
        n += length_of(json_get(json_at(list, i), "tools"));
    return n;
}

/* Checks a list of ids or words for sampling, or an object with them as names. A list as long as
 * the vocabulary is allowed. */
static int check_sampled_ids(const struct request_limits *l, const struct json *body, struct err *e)
{
    static const char *const fields[] = {"allowed_token_ids", "stop_token_ids", "logit_bias",
                                         "bad_words"};
    uint32_t max = l->vocabulary ? l->vocabulary : (uint32_t)REQUEST_IDS_MAX;

    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const struct json *v = json_get(body, fields[i]);

        if ((json_is(v, JSON_ARRAY) || json_is(v, JSON_OBJECT)) && v->n > max)
            return err_field(e, fields[i], "%s: %u are too many; %s %u ids", fields[i], v->n,
                             l->vocabulary ? "this model has" : "without --model there may be",
                             max);
    }
    return 0;
}

static int check_prompt(const struct request_limits *l, const struct json *v, const char *field,
                        struct err *e)
{
    if (l->context == 0 || length_of(v) <= l->context || v->items[0].kind != JSON_NUMBER)
        return 0;
    (void)err_field(e, field,
                    "This model's maximum context length is %u tokens. However, %s has %u token "
                    "ids.",
                    l->context, field, v->n);
    e->kind = ERR_CONTEXT_LENGTH;
    e->overflow = (struct err_overflow){v->n, 1, l->context};
    return -1;
}

/* Checks one prompt of ids, or several. */
static int check_prompts(const struct request_limits *l, const struct json *prompt, struct err *e)
{
    char field[32];

    for (uint32_t i = 0; i < length_of(prompt) && prompt->items[0].kind == JSON_ARRAY; i++) {
        (void)snprintf(field, sizeof(field), "prompt[%u]", i);
        if (check_prompt(l, &prompt->items[i], field, e))
            return -1;
    }
    return check_prompt(l, prompt, "prompt", e);
}

/* Counts the values in v, including lists and objects. Counting stops above `enough`. */
static size_t count_values(const struct json *v, size_t enough)
{
    size_t n = 0;

    for (uint32_t i = 0; json_is(v, JSON_ARRAY) && i < v->n && n <= enough; i++)
        n += 1 + count_values(&v->items[i], enough - MIN_OF(n, enough));
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n && n <= enough; i++)
        n += 1 + count_values(&v->members[i].value, enough - MIN_OF(n, enough));
    return n;
}

/* Checks fields that are recorded with each call as they came. Rendering and sampling hardly use
 * them, so no other limit would apply. */
static int check_recorded(const struct request_limits *l, const struct json *body, struct err *e)
{
    static const char *const fields[] = {"metadata", "chat_template_kwargs"};

    for (size_t i = 0; i < ARRAY_LEN(fields) && l->recorded_bytes; i++)
        if (check_limit(LIMIT_max_metadata_bytes, fields[i],
                        json_text_bytes(json_get(body, fields[i]), SIZE_MAX), l->recorded_bytes, e))
            return -1;
    return limit_check(LIMIT_REQUEST_ARGUMENTS_MAX, "chat_template_kwargs",
                       count_values(json_get(body, "chat_template_kwargs"), SIZE_MAX), e);
}

/* Checks one stop string or a list, under either name. Searching them needs memory for every
 * byte. */
static int check_stops(const struct json *body, struct err *e)
{
    static const char *const fields[] = {"stop", "stop_sequences"};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        n += json_text_bytes(json_get(body, fields[i]), SIZE_MAX);
        if (limit_check(LIMIT_REQUEST_STOP_BYTES_MAX, fields[i], n, e))
            return -1;
    }
    return 0;
}

/* Checks the length of bad_words, the words that an answer must not contain. */
static int check_words(const struct json *body, struct err *e)
{
    return limit_check(LIMIT_REQUEST_WORD_BYTES_MAX, "bad_words",
                       json_text_bytes(json_get(body, "bad_words"), SIZE_MAX), e);
}

int request_limits_lists(const struct request_limits *l, const struct json *body, struct err *e)
{
    static const char *const schemas[] = {"tools", "functions", "response_format", "text",
                                          "output_config"};
    static const char *const stops[] = {"stop", "stop_sequences", "stop_token_ids"};
    static const char *const messages[] = {"messages", "input"};
    size_t bytes = 0;

    if (limit_check(LIMIT_REQUEST_MEMBERS_MAX, "body", body->n, e) ||
        check_limit(LIMIT_max_tools, "tools", count_tools(json_get(body, "tools")), l->tools, e) ||
        check_limit(LIMIT_max_tools, "functions", length_of(json_get(body, "functions")), l->tools,
                    e))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(stops); i++)
        if (check_limit(LIMIT_max_stops, stops[i], length_of(json_get(body, stops[i])), l->stops,
                        e))
            return -1;
    if (check_stops(body, e))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(messages); i++)
        if (check_limit(LIMIT_max_messages, messages[i], length_of(json_get(body, messages[i])),
                        l->messages, e))
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(schemas) && l->schema_bytes; i++) {
        bytes += json_text_bytes(json_get(body, schemas[i]), SIZE_MAX);
        if (check_limit(LIMIT_max_schema_bytes, schemas[i], bytes, l->schema_bytes, e))
            return -1;
    }
    if (check_sampled_ids(l, body, e) || check_words(body, e) ||
        check_prompts(l, json_get(body, "prompt"), e))
        return -1;
    return check_recorded(l, body, e);
}

int request_limits_batch(const struct json *body, uint32_t n_prompts, struct err *e)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < body->n; i++)
        if (!str_eq_c(json_string(&body->members[i].key), "prompt"))
            n += 1 + body->members[i].key.n + json_text_bytes(&body->members[i].value, SIZE_MAX);
    return limit_check(LIMIT_REQUEST_BATCH_BYTES_MAX, "prompt", n * n_prompts, e);
}

/* Checks one text of a message, or a list of parts. */
static int check_text(const char *field, const struct json *v, struct err *e)
{
    if (json_is(v, JSON_STRING))
        return limit_check(LIMIT_REQUEST_TEXT_MAX, field, v->n, e);
    for (size_t i = 0; i < length_of(v); i++)
        if (check_text(field, json_get(&v->items[i], "text"), e))
            return -1;
    return 0;
}

static int check_arguments(const struct json *calls, struct err *e)
{
    for (size_t i = 0; i < length_of(calls); i++)
        if (check_text("tool_calls", json_get(json_get(&calls->items[i], "function"), "arguments"),
                       e))
            return -1;
    return 0;
}

int request_limits_parts(const struct json *messages, struct err *e)
{
    static const struct str names[] = {STR_LIT("content"), STR_LIT("tool_calls"),
                                       STR_LIT("reasoning_content")};
    size_t parts = 0, calls = 0;

    for (size_t i = 0; i < length_of(messages); i++) {
        const struct json *at[ARRAY_LEN(names)];

        json_get_each(&messages->items[i], names, ARRAY_LEN(names), at);
        parts += length_of(at[0]);
        calls += length_of(at[1]);
        if (check_text("content", at[0], e) || check_text("reasoning_content", at[2], e) ||
            check_arguments(at[1], e))
            return -1;
    }
    if (limit_check(LIMIT_REQUEST_CALLS_MAX, "tool_calls", calls, e))
        return -1;
    return limit_check(LIMIT_REQUEST_PARTS_MAX, "content", parts, e);
}
