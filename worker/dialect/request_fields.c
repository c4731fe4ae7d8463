/* Reads typed members of a request, and members that all dialects share (request_fields.h). A field
 * function returns 0 if the member is absent or valid, otherwise -1 and the error. So readers chain
 * them with ||. */

#include "worker/dialect/request_fields.h"

#include "common/base/attrs.h"
#include "common/base/limits.h"
#include "common/codec/json_build.h"
#include "common/codec/sampling.h"
#include "worker/dialect/request_members.h"
#include "worker/text/parsers/schema_check.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/purpose.h"

#include <stdarg.h>
#include <stdio.h>

static const struct json *given_member(const struct json *o, const char *name)
{
    const struct json *v = json_get(o, name);

    return json_is_null(v) ? NULL : v;
}

int field_bool(const struct json *o, const char *name, bool *ret, struct err *e)
{
    const struct json *v = given_member(o, name);

    if (!v)
        return 0;
    if (v->kind != JSON_BOOL)
        return err_field(e, name, "%s must be true or false", name);
    *ret = json_is_true(v);
    return 0;
}

int field_str(const struct json *o, const char *name, struct str *ret, struct err *e)
{
    const struct json *v = given_member(o, name);

    if (!v)
        return 0;
    if (v->kind != JSON_STRING)
        return err_field(e, name, "%s must be a string", name);
    *ret = json_string(v);
    return 0;
}

int field_u32(const struct json *o, const char *name, uint32_t min, uint32_t max, uint32_t *ret,
              struct err *e)
{
    const struct json *v = given_member(o, name);
    int64_t n;

    if (!v)
        return 0;
    if (json_to_i64(v, &n) != 0 || n < (int64_t)min || n > (int64_t)max)
        return err_field(e, name, "%s must be an integer from %u to %u", name, min, max);
    *ret = (uint32_t)n;
    return 0;
}

int field_kind(const struct json *o, const char *name, enum json_kind kind, const struct json **ret,
               struct err *e)
{
    static const char *const kinds[] = {
        [JSON_NULL] = "null",       [JSON_BOOL] = "true or false", [JSON_NUMBER] = "a number",
        [JSON_STRING] = "a string", [JSON_ARRAY] = "a list",       [JSON_OBJECT] = "an object",
    };

    *ret = given_member(o, name);
    if (*ret && (*ret)->kind != kind)
        return err_field(e, name, "%s must be %s", name, kinds[kind]);
    return 0;
}

int field_call_text(const char *path, struct str text, struct err *e)
{
    return err_field(e, path, "%s has %zu bytes, but may have %d at most", path, text.len,
                     REQUEST_CALL_TEXT_MAX);
}

const char *path_at(char out[FIELD_PATH_MAX], const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(out, FIELD_PATH_MAX, fmt, ap);
    va_end(ap);
    return out;
}

int field_fail(struct err *e, const char *what, const char *fmt, ...)
{
    char path[2 * FIELD_PATH_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    return err_field(e, path, "%s %s", path, what);
}

/* --- members that all dialects share --- */

/* Returns a copy of a header's value in the arena, since a call may outlive its exchange. */
static struct str copy_header(struct arena *a, const struct dialect_headers *h, const char *name)
{
    struct str wanted = str_cstr(name);

    for (size_t i = 0; h && i < h->n; i++)
        if (str_eq(h->at[i].name, wanted) && h->at[i].value.len > 0)
            return arena_str(a, h->at[i].value);
    return (struct str){0};
}

enum { KEY_MAX = 64 };

/* Returns the key, or its hash if it is long, because each call keeps its key. */
static struct str idempotency_key(struct arena *a, struct str given)
{
    uint64_t hash[2];

    if (given.len <= KEY_MAX)
        return given;
    str_hash128(given, hash);
    return arena_str(a, str_of((const char *)hash, sizeof(hash)));
}

/* The agent that sent a request, as its headers and metadata name it. */
struct speaker {
    struct str name;    /* name of a sub-agent; absent: the main agent */
    struct str purpose; /* a word of the table in purpose.h; absent: unknown */
};

static const struct json *turn_metadata(struct arena *a, const struct dialect_headers *h)
{
    const struct json *v = NULL;
    struct str text = copy_header(a, h, "x-codex-turn-metadata");

    return text.len && json_parse(a, text, &v, NULL) == 0 ? v : NULL;
}

/* Reports whether the kind is a spawned agent. The header and the metadata have different words for
 * it. */
static bool is_spawned(struct str kind)
{
    return str_eq_c(kind, "collab_spawn") || str_eq_c(kind, "thread_spawn");
}

/* Reads Codex's headers. A header has the kind of a sub-agent; the turn's metadata have its name.
 * The agent at the root of its own tree is "/root": the user's agent, or a spawned agent with a
 * history of its own. Only the kind separates the two, so that name counts as absent. */
static struct speaker codex_speaker(struct arena *a, const struct dialect_headers *h)
{
    const struct json *turn = turn_metadata(a, h);
    struct str kind = copy_header(a, h, "x-openai-subagent");
    struct speaker s = {.name = json_string(json_get(turn, "agent_name"))};
    struct str request = json_string(json_get(turn, "request_kind"));

    if (str_eq_c(s.name, "/root"))
        s.name = (struct str){0};
    if (!kind.len)
        kind = json_string(json_get(turn, "subagent_kind"));
    if (str_eq_c(copy_header(a, h, "x-openai-memgen-request"), "true"))
        s.purpose = STR("memory_consolidation");
    else if (str_eq_c(request, "compaction") || str_eq_c(request, "memory"))
        s.purpose = request;
    if (purpose_of(kind) != PURPOSE_SUB_AGENT && kind.len)
        s.purpose = kind;
    else if (kind.len && !s.name.len)
        s.name = is_spawned(kind) ? json_string(json_get(turn, "thread_id")) : kind;
    if (!s.name.len && !s.purpose.len)
        s.name = kind;
    return s;
}

/* Returns the id of OpenClaw's sub-agent: the key of its session ends in :subagent:ID. */
static struct str openclaw_agent(struct arena *a, const struct dialect_headers *h)
{
    struct str key = copy_header(a, h, "x-openclaw-session-key");
    size_t at = str_find(key, STR(":subagent:"), 0);

    if (at != SIZE_MAX)
        return str_sub(key, at + strlen(":subagent:"), key.len);
    return copy_header(a, h, "x-openclaw-agent-id");
}

/* Returns the agent that sent the request. Codex has several headers, the other agents have one
 * each. */
static struct speaker speaker_of(struct arena *a, const struct dialect_headers *h)
{
    struct speaker s = codex_speaker(a, h);

    if (!s.name.len)
        s.name = copy_header(a, h, "x-claude-code-agent-id");
    if (!s.name.len && copy_header(a, h, "x-parent-session-id").len) /* opencode's sub-agents */
        s.name = copy_header(a, h, "x-session-id");
    if (!s.name.len)
        s.name = openclaw_agent(a, h);
    if (str_eq_c(copy_header(a, h, "x-deepseek-harness-compact"), "1"))
        s.purpose = STR("compact");
    return s;
}

static struct str label_of(struct arena *a, const struct speaker *s)
{
    if (!s->name.len || !s->purpose.len)
        return s->name.len ? s->name : s->purpose;
    return arena_printf(a, "%.*s:%.*s", (int)s->name.len, s->name.p, (int)s->purpose.len,
                        s->purpose.p);
}

void request_compacts(struct arena *a, struct chat_request *req)
{
    struct speaker s = {req->label, STR("compact")};

    if (purpose_of(req->label) == PURPOSE_MAIN)
        s.name = (struct str){0};
    if (purpose_of(req->label) != PURPOSE_COMPACTION)
        req->label = label_of(a, &s);
}

/* Reads labels and retry marks from headers. The first header that has a value wins. */
static void read_headers(struct arena *a, const struct dialect_headers *h, struct chat_request *ret)
{
    static const char *const parents[] = {"rollgate-parent-label", "x-claude-code-parent-agent-id",
                                          "x-codex-parent-thread-id", "x-parent-session-id"};
    struct speaker speaker = speaker_of(a, h);
    uint64_t n;

    ret->label = copy_header(a, h, "rollgate-label");
    if (!ret->label.len)
        ret->label = label_of(a, &speaker);
    for (size_t i = 0; i < ARRAY_LEN(parents) && !ret->parent_label.len; i++)
        ret->parent_label = copy_header(a, h, parents[i]);
    ret->idempotency_key = idempotency_key(a, copy_header(a, h, "idempotency-key"));
    if (str_to_u64(copy_header(a, h, "x-stainless-retry-count"), 1000, &n) == 0)
        ret->retry_count = (uint32_t)n;
}

/* Reads `model`, which each chunk of a stream repeats. */
static int read_model(const struct json *body, struct str *ret, struct err *e)
{
    if (field_str(body, "model", ret, e))
        return -1;
    if (ret->len > FIELD_MODEL_MAX)
        return err_field(e, "model", "model has %zu bytes; it may have at most %d", ret->len,
                         FIELD_MODEL_MAX);
    return 0;
}

/* Sets the defaults first, so that a failed parse leaves a valid request. */
int request_begin(struct arena *a, const struct json *body, const struct dialect_headers *headers,
                  struct chat_request *ret, struct err *e)
{
    const struct json *metadata;
    struct str user = {0};

    *ret = (struct chat_request){.chat = ARENA_NEW(a, struct chat),
                                 .sampling = ARENA_NEW(a, struct sampling),
                                 .parallel_tool_calls = true,
                                 .n = 1};
    *ret->sampling = (struct sampling)SAMPLING_DEFAULTS;
    ret->sampling_given = json_keep(a, json_empty(JSON_OBJECT));
    read_headers(a, headers, ret);
    if (read_model(body, &ret->model, e) || field_str(body, "user", &user, e) ||
        field_bool(body, "stream", &ret->stream, e) ||
        field_kind(body, "metadata", JSON_OBJECT, &metadata, e))
        return -1;
    if (!ret->label.len)
        ret->label = json_string(json_get(metadata, "rollgate_label"));
    return 0;
}

/* Stores one sampling value under `name`, the name of its field or an equivalent. */
static int request_sampling_as(struct arena *a, const char *name, const struct json *v,
                               struct chat_request *req, struct err *e)
{
    struct json *all;

    if (json_is_null(v))
        return 0;
    if (sampling_set(a, req->sampling, str_cstr(name), v, e))
        return -1;
    all = ARENA_NEW(a, struct json);
    *all = json_empty(JSON_OBJECT);
    for (uint32_t i = 0; i < req->sampling_given->n; i++) {
        const struct json_member *m = &req->sampling_given->members[i];

        json_put_str(a, all, json_string(&m->key), m->value);
    }
    json_put(a, all, name, *v);
    req->sampling_given = all;
    return 0;
}

int request_sampling(struct arena *a, const struct json *body, unsigned dialect,
                     struct chat_request *req, struct err *e)
{
    const char *name;

    for (size_t at = 0; (name = request_next_sampling(dialect, &at));) {
        if (request_sampling_as(a, name, json_get(body, name), req, e))
            return -1;
    }
    return 0;
}

/* Rejects JSON schemas that no engine can enforce, before the format goes into the sampling. */
int request_format(struct arena *a, const struct json *format, const char *path,
                   struct chat_request *req, struct err *e)
{
    static const char *const kinds[] = {"json_schema", "json_object", "regex", "ebnf",
                                        "structural_tag"};
    struct str type = json_string(json_get(format, "type"));
    struct err inner = {0};
    char at[FIELD_PATH_MAX];

    if (json_is_null(format))
        return 0;
    if (format->kind != JSON_OBJECT)
        return err_field(e, path, "%s must be an object", path);
    if (str_eq_c(type, "text"))
        return 0;
    if (str_eq_c(type, "json_schema") &&
        !json_is(json_get(json_get(format, "json_schema"), "schema"), JSON_OBJECT))
        return field_fail(e, "must be an object", "%s.json_schema.schema", path);
    if (str_eq_c(type, "json_schema") &&
        schema_check(json_get(json_get(format, "json_schema"), "schema"),
                     path_at(at, "%s.json_schema.schema", path), e))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!str_eq_c(type, kinds[i]))
            continue;
        if (request_sampling_as(a, "response_format", format, req, &inner))
            return err_field(e, path, "%s: %s", path, inner.text);
        return 0;
    }
    return err_field(e, path_at(at, "%s.type", path),
                     "%s.type must be text, json_object, json_schema, regex, ebnf or "
                     "structural_tag, not \"%.*s\"",
                     path, (int)MIN_OF(type.len, (size_t)40), type.p ? type.p : "");
}

/* Rewrites {"type", "name", "schema"} to Chat Completions' nested form. */
int request_flat_format(struct arena *a, const struct json *format, const char *path,
                        struct chat_request *req, struct err *e)
{
    static const char *const keys[] = {"name", "schema", "strict", "description"};
    struct json all = json_empty(JSON_OBJECT);
    struct json schema = json_empty(JSON_OBJECT);
    char at[FIELD_PATH_MAX];

    if (!str_eq_c(json_string(json_get(format, "type")), "json_schema"))
        return request_format(a, format, path, req, e);
    if (!json_is(json_get(format, "schema"), JSON_OBJECT))
        return field_fail(e, "must be an object", "%s.schema", path);
    if (schema_check(json_get(format, "schema"), path_at(at, "%s.schema", path), e))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (!json_is_null(json_get(format, keys[i])))
            json_put(a, &schema, keys[i], *json_get(format, keys[i]));
    json_put(a, &all, "type", json_make_string(STR("json_schema")));
    json_put(a, &all, "json_schema", schema);
    return request_format(a, json_keep(a, all), path, req, e);
}

/* Adds the effort, unless chat_template_kwargs already has one. */
int request_kwargs(struct arena *a, const struct json *body, const struct json *effort,
                   const char *effort_path, struct chat_request *req, struct err *e)
{
    const struct json *kwargs;
    struct json all = json_empty(JSON_OBJECT);

    if (field_kind(body, "chat_template_kwargs", JSON_OBJECT, &kwargs, e))
        return -1;
    if (json_is_null(effort)) {
        req->chat->kwargs = kwargs;
        return 0;
    }
    if (effort->kind != JSON_STRING)
        return err_field(e, effort_path, "%s must be a string", effort_path);
    for (uint32_t i = 0; kwargs && i < kwargs->n; i++)
        json_put_str(a, &all, json_string(&kwargs->members[i].key), kwargs->members[i].value);
    if (!json_get(kwargs, "reasoning_effort"))
        json_put(a, &all, "reasoning_effort", *effort);
    req->chat->kwargs = json_keep(a, all);
    req->thinking.effort_field = effort_path;
    req->thinking.effort = json_string(effort);
    return 0;
}

static enum thinking_mode thinking_mode_of(struct str type)
{
    static const struct {
        const char *type;
        enum thinking_mode mode;
    } all[] = {{"enabled", THINKING_ON},
               {"disabled", THINKING_OFF},
               {"adaptive", THINKING_ADAPTIVE},
               {"auto", THINKING_ADAPTIVE}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (str_eq_c(type, all[i].type))
            return all[i].mode;
    return THINKING_ODD;
}

/* Ignores the budget if thinking is disabled. A value that is no object is reported as dropped
 * (request_find_dropped). */
int request_thinking(struct arena *a, const struct json *body, struct chat_request *req,
                     struct err *e)
{
    const struct json *v = given_member(body, "thinking"),
                      *on = given_member(body, "enable_thinking");
    const struct json *budget = given_member(v, "budget_tokens");
    struct thinking_wish *w = &req->thinking;
    struct err inner = {0};

    if (req->sampling->max_thinking_tokens)
        w->budget_field = given_member(body, "max_thinking_tokens") ? "max_thinking_tokens"
                                                                    : "thinking_token_budget";
    if (!json_is(v, JSON_OBJECT))
        v = NULL;
    if (on && !v) {
        w->mode_field = "enable_thinking";
        w->mode = on->kind != JSON_BOOL ? THINKING_ODD
                  : json_is_true(on)    ? THINKING_ON
                                        : THINKING_OFF;
    }
    if (!v)
        return 0;
    w->mode_field = "thinking";
    w->mode = thinking_mode_of(json_string(given_member(v, "type")));
    if (!budget || w->mode == THINKING_OFF || req->sampling->max_thinking_tokens)
        return 0;
    w->budget_field = "thinking.budget_tokens";
    if (request_sampling_as(a, "max_thinking_tokens", budget, req, &inner))
        return err_field(e, w->budget_field, "thinking.budget_tokens: %s", inner.text);
    return 0;
}

static struct str tool_name_of(const struct json *tool)
{
    return json_string(json_get(json_get(tool, "function"), "name"));
}

static bool is_callable(const struct chat_request *req, struct str name)
{
    for (size_t i = 0; json_at(req->callable, i); i++)
        if (str_eq(tool_name_of(json_at(req->callable, i)), name))
            return true;
    return false;
}

int request_choice_fits(const struct chat_request *req, const char *path, struct err *e)
{
    if (req->tool_choice == CHOICE_REQUIRED && !req->callable)
        return err_field(e, path, "%s demands a tool, but there are no tools", path);
    if (req->tool_choice == CHOICE_FUNCTION && !is_callable(req, req->tool_function))
        return err_field(e, path, "%s names a tool that is not among the tools", path);
    return 0;
}

/* Sets req->tool_allowed to the chosen names that are callable, and reports others. If none is, no
 * tool may be called. */
int request_allowed(struct arena *a, const struct json *choice, const char *path,
                    struct chat_request *req, struct err *e)
{
    const struct json *list = json_get(choice, "tools");
    struct str mode = json_string(json_get(choice, "mode"));
    struct json names = json_empty(JSON_ARRAY);
    struct lookup callable = {.arena = a};

    if (!json_is(list, JSON_ARRAY))
        return field_fail(e, "must be a list", "%s.tools", path);
    if (!str_eq_c(mode, "auto") && !str_eq_c(mode, "required"))
        return field_fail(e, "must be auto or required", "%s.mode", path);
    for (uint32_t i = 0; json_at(req->callable, i); i++)
        (void)lookup_add(&callable, tool_name_of(json_at(req->callable, i)), i);
    for (uint32_t i = 0; i < list->n; i++) {
        const struct json *tool = &list->items[i];
        const struct json *inner = json_get(tool, "function");
        struct str name;

        if (!inner)
            inner = json_get(tool, "custom");
        name = json_string(json_get(inner ? inner : tool, "name"));
        if (name.len && lookup_get(&callable, name) != LOOKUP_NONE)
            json_push(a, &names, json_make_string(name));
        else if (name.len)
            request_add_skipped(a, path, name, req);
    }
    if (!names.n && str_eq_c(mode, "required"))
        return field_fail(e, "names none of the tools", "%s.tools", path);
    if (names.n)
        req->tool_allowed = json_keep(a, names);
    req->tool_choice = str_eq_c(mode, "required") ? CHOICE_REQUIRED
                       : names.n                  ? CHOICE_AUTO
                                                  : CHOICE_NONE;
    return 0;
}
