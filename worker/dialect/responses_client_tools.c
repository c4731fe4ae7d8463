/*
 * Reads the tools of the Responses API that the client runs (responses_client_tools.h). Each has an
 * item for the call, whose members become the call's arguments under their own names, and an item
 * for the result:
 *
 *   computer      action, actions   an image of the screen
 *   local_shell   action            a text
 *   shell         action            a list of {stdout, stderr, outcome}, as JSON
 *   apply_patch   operation         status and output, as JSON
 */
#include "worker/dialect/responses_client_tools.h"

#include "common/base/attrs.h"
#include "common/base/limits.h"
#include "common/codec/json_build.h"
#include "worker/dialect/image_parts.h"
#include "worker/dialect/request_fields.h"

/* An item and its position. */
struct client_item {
    struct arena *a;
    const struct json *item;
    uint32_t at; /* index in input, for errors */
    struct err *e;
};

typedef int (*client_result_fn)(const struct client_item *c, struct json *ret);

static int read_screenshot(const struct client_item *c, struct json *ret);
static int read_item_text(const struct client_item *c, struct json *ret);
static int read_streams(const struct client_item *c, struct json *ret);
static int read_patched(const struct client_item *c, struct json *ret);

struct client_member {
    const char *name, *must;
    enum json_kind kind;
};

static const struct client_tool {
    const char *call, *output, *name;
    struct client_member given[2]; /* members of the call; one must be present */
    const char *lacks;             /* what the error says must be present */
    bool by_id;                    /* if call_id is missing, the item's own id is used */
    client_result_fn result;
} all_tools[] = {
    {.call = "computer_call",
     .output = "computer_call_output",
     .name = "computer",
     .given = {{"action", "an object", JSON_OBJECT}, {"actions", "a list", JSON_ARRAY}},
     .lacks = "an object, or actions a list",
     .result = read_screenshot},
    {.call = "local_shell_call",
     .output = "local_shell_call_output",
     .name = "local_shell",
     .given = {{"action", "an object", JSON_OBJECT}},
     .lacks = "an object",
     .by_id = true,
     .result = read_item_text},
    {.call = "shell_call",
     .output = "shell_call_output",
     .name = "shell",
     .given = {{"action", "an object", JSON_OBJECT}},
     .lacks = "an object",
     .result = read_streams},
    {.call = "apply_patch_call",
     .output = "apply_patch_call_output",
     .name = "apply_patch",
     .given = {{"operation", "an object", JSON_OBJECT}},
     .lacks = "an object",
     .result = read_patched},
};

/* Returns the tool whose call, or whose result, has that type, or NULL. */
static const struct client_tool *tool_of(struct str type, bool result)
{
    for (size_t i = 0; i < ARRAY_LEN(all_tools); i++)
        if (str_eq_c(type, result ? all_tools[i].output : all_tools[i].call))
            return &all_tools[i];
    return NULL;
}

bool responses_client_call(struct str type)
{
    return tool_of(type, false) != NULL;
}

bool responses_client_result(struct str type)
{
    return tool_of(type, true) != NULL;
}

static int fail_item(const struct client_item *c, const char *field, const char *what)
{
    char path[FIELD_PATH_MAX];

    path_at(path, "input[%u].%s", c->at, field);
    return err_field(c->e, path, "%s must be %s", path, what);
}

/* Reads the id of the call. Some clients put it into `id` of a local_shell_call_output. */
static int read_id(const struct client_item *c, const struct client_tool *tool, struct str *ret)
{
    char path[FIELD_PATH_MAX];

    *ret = json_string(json_get(c->item, "call_id"));
    if (!ret->len && tool->by_id)
        *ret = json_string(json_get(c->item, "id"));
    if (!ret->len)
        return fail_item(c, "call_id", "a non-empty string");
    if (ret->len > REQUEST_CALL_TEXT_MAX)
        return field_call_text(path_at(path, "input[%u].call_id", c->at), *ret, c->e);
    return 0;
}

int responses_read_client_call(struct arena *a, const struct json *item, uint32_t at,
                               struct json *ret, struct err *e)
{
    const struct client_item c = {a, item, at, e};
    const struct client_tool *tool = tool_of(json_string(json_get(item, "type")), false);
    struct json arguments = json_empty(JSON_OBJECT), text;
    struct str id;

    if (read_id(&c, tool, &id))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(tool->given) && tool->given[i].name; i++) {
        const struct client_member *m = &tool->given[i];
        const struct json *v = json_get(item, m->name);

        if (json_is_null(v))
            continue;
        if (!json_is(v, m->kind))
            return fail_item(&c, m->name, m->must);
        json_put(a, &arguments, m->name, *v);
    }
    if (!arguments.n)
        return fail_item(&c, tool->given[0].name, tool->lacks);
    text = json_text_of(a, &arguments);
    *ret = tool_call_json(a, id, str_cstr(tool->name), json_string(&text));
    return 0;
}

/* Reads the image of the computer's screen. Acknowledged safety checks concern only the client and
 * its vendor, so the model does not read them. */
static int read_screenshot(const struct client_item *c, struct json *ret)
{
    const struct json *output = json_get(c->item, "output");
    const struct json *checks = json_get(c->item, "acknowledged_safety_checks");
    struct str type = json_string(json_get(output, "type"));
    char path[FIELD_PATH_MAX];

    if (!json_is(output, JSON_OBJECT))
        return fail_item(c, "output", "an object of type computer_screenshot");
    if (!str_eq_c(type, "computer_screenshot") && !str_eq_c(type, "input_image"))
        return fail_item(c, "output.type", "computer_screenshot");
    if (!json_is_null(checks) && checks->kind != JSON_ARRAY)
        return fail_item(c, "acknowledged_safety_checks", "a list");
    path_at(path, "input[%u].output", c->at);
    *ret = json_empty(JSON_ARRAY);
    json_push(c->a, ret, image_parts_wait(c->a, output, path));
    return 0;
}

static int read_item_text(const struct client_item *c, struct json *ret)
{
    const struct json *output = json_get(c->item, "output");
    char path[FIELD_PATH_MAX];

    if (json_is_null(output))
        return fail_item(c, "output", "a string or a list of parts");
    path_at(path, "input[%u].output", c->at);
    if (content_text(c->a, output, path, false, ret, c->e))
        return -1;
    *ret = content_alone(*ret);
    return 0;
}

/* Reads the output and the outcome of each command. */
static int read_streams(const struct client_item *c, struct json *ret)
{
    const struct json *output = json_get(c->item, "output");

    if (!json_is(output, JSON_STRING) && !json_is(output, JSON_ARRAY))
        return fail_item(c, "output", "a list of outputs or a string");
    *ret = output->kind == JSON_STRING ? *output : json_text_of(c->a, output);
    return 0;
}

static int read_patched(const struct client_item *c, struct json *ret)
{
    static const char *const names[] = {"status", "output"};
    struct json outcome = json_empty(JSON_OBJECT);

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct json *v = json_get(c->item, names[i]);

        if (json_is_null(v))
            continue;
        if (v->kind != JSON_STRING)
            return fail_item(c, names[i], "a string");
        json_put(c->a, &outcome, names[i], *v);
    }
    if (!outcome.n)
        return fail_item(c, "status", "completed or failed");
    *ret = json_text_of(c->a, &outcome);
    return 0;
}

int responses_read_client_result(struct arena *a, const struct json *item, uint32_t at,
                                 struct str *ret_id, struct json *ret, struct err *e)
{
    const struct client_item c = {a, item, at, e};
    const struct client_tool *tool = tool_of(json_string(json_get(item, "type")), true);

    if (read_id(&c, tool, ret_id))
        return -1;
    return tool->result(&c, ret);
}
