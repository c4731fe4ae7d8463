/* The errors of all routes and of one. The kinds, statuses and codes are those of err.def. `places`
 * says which routes can have a kind, by marks that are computed from the route (marks_of). A kind
 * without a row can come from any route. */
#include "worker/plane/api/openapi_parts.h"

#include <stdio.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "worker/plane/api/routes.h"

#define CONTENT "{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}"

static const struct {
    enum err_kind kind;
    int status;
    const char *code;
    bool retry;
    const char *meaning;
} errors[] = {

#define X(kind, status, code, retry, openai, messages, meaning) \
    {ERR_##kind, status, code, retry, meaning},
#include "common/base/err.def"
#undef X
};

/* Marks of routes for errors. */
enum {
    ON_CALLS = 1 << 0,    /* model calls */
    ON_SESSIONS = 1 << 1, /* /sessions/{id}... */
    ON_GROUPS = 1 << 2,
    ON_ATTEMPTS = 1 << 3,
    ON_NAMES = 1 << 4, /* a name other than a session's in the path, or a resource that may lack */
    ON_KEYS = 1 << 5,  /* routes that need a key */
    ON_BODIES = 1 << 6,
    ON_EXPORTS = 1 << 7,
    ON_WRITES = 1 << 8,  /* routes that must store something */
    ON_WORKERS = 1 << 9, /* routes behind a router */
    ON_NO_TOLD = 1 << 10,
    ON_COPIES = 1 << 11, /* routes that copy a session's records */
};

static const struct {
    enum err_kind kind;
    unsigned on;
} places[] = {
    {ERR_INVALID, ON_WORKERS},
    {ERR_INVALID_IMAGE, ON_CALLS},
    {ERR_CONTEXT_LENGTH, ON_CALLS},
    {ERR_HISTORY_CONFLICT, ON_CALLS},
    {ERR_MISSING_KEY, ON_KEYS},
    {ERR_WRONG_SCOPE, ON_KEYS},
    {ERR_UNKNOWN_SESSION, ON_SESSIONS},
    {ERR_NOT_FOUND, ON_NAMES},
    {ERR_UNKNOWN_GROUP, ON_GROUPS},
    {ERR_METHOD, ON_NO_TOLD},
    {ERR_STALLED, ON_BODIES},
    {ERR_STATE_CONFLICT, ON_CALLS | ON_SESSIONS},
    {ERR_FOREIGN, ON_CALLS | ON_EXPORTS},
    {ERR_TRUNCATED, ON_CALLS},
    {ERR_GROUP_EXISTS, ON_GROUPS},
    {ERR_SESSION_ENDED, ON_SESSIONS},
    {ERR_BUDGET, ON_CALLS},
    {ERR_GROUP_LOST, ON_GROUPS},
    {ERR_ATTEMPT_ENDED, ON_ATTEMPTS},
    {ERR_BODY_TOO_LARGE, ON_BODIES},
    {ERR_CODING, ON_BODIES},
    {ERR_UNASSEMBLABLE, ON_EXPORTS | ON_COPIES},
    {ERR_REWARD_MISSING, ON_EXPORTS},
    {ERR_UPGRADE, ON_NO_TOLD},
    {ERR_QUEUE_FULL, ON_CALLS},
    {ERR_MAX_NODES, ON_CALLS},
    {ERR_PROMPT_LEAK, ON_CALLS},
    {ERR_ENGINE_INVALID, ON_CALLS},
    {ERR_WORKER_INVALID, ON_WORKERS},
    {ERR_WORKER_UNAVAILABLE, ON_WORKERS},
    {ERR_DRAINING, ON_WORKERS},
    {ERR_ENGINE_UNAVAILABLE, ON_CALLS},
    {ERR_STORAGE_FULL, ON_WRITES},
    {ERR_STORAGE_FAILED, ON_WRITES},
    {ERR_MEMORY_FULL, ON_SESSIONS},
    {ERR_ENGINE_TIMEOUT, ON_CALLS},
    {ERR_ENGINE_REFUSED, ON_CALLS},
};

static bool is_named(const char *path)
{
    return strstr(path, "{response}") || strstr(path, "{name}") || strstr(path, "{media}") ||
           str_starts(str_cstr(path), STR("/fleet"));
}

static bool copies(const char *path)
{
    return strcmp(path, "/sessions/{id}/fork") == 0 || strcmp(path, "/sessions/{id}/snapshot") == 0;
}

/* Returns the route's marks. */
static unsigned marks_of(const struct told_route *t)
{
    bool session = strncmp(t->path, "/sessions/{id}", 14) == 0;
    bool group = strncmp(t->path, "/groups", 7) == 0 || strncmp(t->path, "/queues", 7) == 0;
    unsigned on = 0;

    on |= t->dialect ? ON_CALLS : 0;
    on |= session ? ON_SESSIONS : 0;
    on |= group ? ON_GROUPS : 0;
    on |= strncmp(t->path, "/attempts", 9) == 0 ? ON_ATTEMPTS : 0;
    on |= is_named(t->path) ? ON_NAMES : 0;
    on |= copies(t->path) ? ON_COPIES : 0;
    on |= t->scopes & ~SCOPE_P ? ON_KEYS : 0;
    on |= t->takes_body ? ON_BODIES : 0;
    on |= t->inputs && (t->inputs->inputs & INPUT_EXPORTS) ? ON_EXPORTS : 0;
    on |= strcmp(t->method, "GET") != 0 ? ON_WRITES : 0;
    on |= strcmp(t->plane, "operation") != 0 ? ON_WORKERS : 0;
    return on;
}

/* Reports whether a route with these marks can have an error of this kind. */
static bool is_possible(enum err_kind kind, unsigned on)
{
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (places[i].kind == kind)
            return places[i].on & on;
    }
    return true;
}

/* Matches kinds that no client gets. */
static bool is_internal(enum err_kind kind)
{
    return kind == ERR_CONFIG || kind == ERR_IO || kind == ERR_UNSUPPORTED || kind == ERR_CANCELLED;
}

/* Writes the codes as an enumeration. */
static void write_error_codes(struct json_out *o)
{
    json_out_member_obj(o, "code");
    json_out_member_arr(o, "enum");
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        if (!is_internal(errors[i].kind))
            json_out_cstr(o, errors[i].code);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}

/* Writes the schema of an error's body. */
void openapi_error_schema(struct json_out *o)
{
    json_out_member_obj(o, "schemas");
    json_out_member_obj(o, "Error");
    json_out_member_cstr(o, "type", "object");
    json_out_member_obj(o, "properties");
    json_out_member_obj(o, "error");
    json_out_member_cstr(o, "type", "object");
    json_out_member_obj(o, "properties");
    write_error_codes(o);
    json_out_member_raw(o, "message", STR("{\"type\":\"string\"}"));
    json_out_member_raw(o, "type", STR("{\"type\":\"string\"}"));
    json_out_member_raw(o, "param", STR("{\"type\":[\"string\",\"null\"]}"));
    json_out_end_obj(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

/* Writes the shared "Error" response, with every code, its status and whether to retry. */
void openapi_error_codes(struct json_out *o)
{
    json_out_member_obj(o, "responses");
    json_out_member_obj(o, "Error");
    json_out_member_cstr(
        o, "description",
        "error.code names the failure. x-should-retry says whether the same request may be "
        "sent again. Anthropic paths answer in Anthropic's form");
    json_out_member_raw(o, "content", STR(CONTENT));
    json_out_member_arr(o, "x-codes");
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        if (is_internal(errors[i].kind))
            continue;
        json_out_obj(o);
        json_out_member_i64(o, "status", errors[i].status);
        json_out_member_cstr(o, "code", errors[i].code);
        json_out_member_bool(o, "retry", errors[i].retry);
        json_out_member_cstr(o, "meaning", errors[i].meaning);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
    json_out_end_obj(o);
}

static bool is_shown(size_t i, unsigned on)
{
    return !is_internal(errors[i].kind) && is_possible(errors[i].kind, on);
}

/* Reports whether the code is the first of its status: codes of one status are written together at
 * that point. */
static bool is_first_of_status(size_t i, unsigned on)
{
    for (size_t k = 0; k < i; k++) {
        if (errors[k].status == errors[i].status && is_shown(k, on))
            return false;
    }
    return true;
}

/* Writes one status with its possible codes, from the i-th kind on. */
static void write_status(struct json_out *o, size_t i, unsigned on)
{
    struct buf codes = {0};
    char status[8];

    for (size_t k = i; k < ARRAY_LEN(errors); k++) {
        if (errors[k].status == errors[i].status && is_shown(k, on))
            buf_printf(&codes, "%s%s", codes.len ? ", " : "", errors[k].code);
    }
    (void)snprintf(status, sizeof(status), "%d", errors[i].status);
    json_out_member_obj(o, status);
    json_out_member_str(o, "description", buf_str(&codes));
    json_out_member_raw(o, "content", STR(CONTENT));
    json_out_end_obj(o);
    buf_done(&codes);
}

/* Writes success, each possible status, and the shared error for anything else. */
void openapi_responses(struct json_out *o, const struct told_route *t)
{
    unsigned on = marks_of(t);

    json_out_member_obj(o, "responses");
    json_out_member_raw(o, "2XX", STR("{\"description\":\"Done\"}"));
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        if (is_shown(i, on) && is_first_of_status(i, on))
            write_status(o, i, on);
    }
    json_out_member_raw(o, "default", STR("{\"$ref\":\"#/components/responses/Error\"}"));
    json_out_end_obj(o);
}
