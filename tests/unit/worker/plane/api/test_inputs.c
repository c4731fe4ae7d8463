/* The table of fields of control-plane requests, and the checks that use it. */
#include "worker/plane/api/inputs.h"

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "testing.h"
#include "worker/export/build/export.h"
#include "worker/plane/api/routes.h"

static const struct api_route *route(const char *method, const char *path)
{
    const struct routes *all[] = {&routes_global, &routes_session};

    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        for (size_t i = 0; i < all[k]->n; i++) {
            const struct api_route *r = &all[k]->at[i];

            if (strcmp(r->method, method) == 0 && strcmp(r->path, path) == 0)
                return r;
        }
    }
    cr_assert(false, "no route %s %s", method, path);
    return NULL;
}

/* Calls inputs_check without keeping its result. */
static int check(const struct api_route *r, struct str query, struct str body, struct err *e)
{
    struct arena a = {0};
    int rc = inputs_check(r, query, body, &a, NULL, e);

    arena_done(&a);
    return rc;
}

static void refused(const char *method, const char *path, const char *query, const char *body,
                    const char *param, const char *said)
{
    struct err e = {0};

    cr_expect_eq(check(route(method, path), str_cstr(query), str_cstr(body), &e), -1,
                 "%s %s?%s %s is taken", method, path, query, body);
    cr_expect_eq(e.kind, ERR_INVALID);
    cr_expect_str_eq(e.param, param, "%s?%s %s: %s", path, query, body, e.text);
    cr_expect(strstr(e.text, said), "%s?%s %s: %s", path, query, body, e.text);
}

static void taken(const char *method, const char *path, const char *query, const char *body)
{
    struct err e = {0};

    cr_expect_eq(check(route(method, path), str_cstr(query), str_cstr(body), &e), 0,
                 "%s %s?%s %s: %s", method, path, query, body, e.text);
}

/* Checks the body that a handler gets, written as text. The received text is freed before. */
static void is_read_as(const char *given, const char *told)
{
    struct arena a = {0};
    struct buf text = {0}, out = {0};
    const struct json *body;
    struct err e = {0};

    buf_puts(&text, given);
    cr_assert_eq(inputs_check(route("POST", "/sessions"), STR(""), buf_str(&text), &a, &body, &e),
                 0, "%s", e.text);
    if (text.len > 0)
        memset(text.p, 'x', text.len);
    if (body)
        json_write(&out, body);
    cr_expect(str_eq_c(buf_str(&out), told), "%s is read as %.*s", given, (int)out.len, out.p);
    buf_done(&text);
    buf_done(&out);
    arena_done(&a);
}

TEST(inputs, a_body_that_passed_is_the_handlers)
{
    is_read_as("", "");
    is_read_as("  \n", "");
    is_read_as(" null ", "");
    is_read_as("{}", "{}");
    is_read_as(" {\"metadata\": {\"a\": [1.50, \"b\"], \"c\": \"d\\u0041\"}}\n",
               "{\"metadata\":{\"a\":[1.50,\"b\"],\"c\":\"dA\"}}");
}

TEST(inputs, unknown_names_are_refused_with_the_known_ones)
{
    refused("POST", "/complete", "", "{\"reward\": 1.0}", "reward", "did you mean \"reward_info\"");
    refused("POST", "/finalize", "", "{\"formt\": \"xml\"}", "formt", "did you mean \"format\"");
    refused("POST", "/finalize", "formt=verl", "", "formt", "query parameter \"formt\"");
    refused("POST", "/sessions", "", "{\"label\": {}}", "label", "did you mean \"labels\"");
    refused("POST", "/sessions", "", "{\"session_id\": \"mine\"}", "session_id", "Known: ");
    refused("POST", "/sessions", "count=2", "", "count", "takes no query parameters");
    refused("GET", "/wait", "timeout=1", "", "timeout", "did you mean \"timeout_s\"");
    refused("POST", "/abort", "", "{\"reasn\": \"x\"}", "reasn", "did you mean \"reason\"");
    refused("DELETE", "", "", "{\"reason\": \"x\"}", "reason", "takes no body fields");
    refused("GET", "", "record=1", "", "record", "did you mean \"records\"");
    refused("GET", "/sessions", "labels=a=b", "", "labels", "did you mean \"label\"");
    refused("POST", "/admin/pause", "", "{\"timeout\": 1}", "timeout", "timeout_s");
    refused("POST", "/sessions", "", "{\"sampling_params\": {\"temprature\": 0}}", "temprature",
            "did you mean \"temperature\"");
    refused("POST", "/sessions", "", "{\"lock_sampling\": [\"temp\"]}", "lock_sampling", "Known: ");
}

TEST(inputs, values_are_held_to_type_and_range)
{
    refused("POST", "/sessions", "", "{\"count\": 1025}", "count", "from 1 to 1024, not 1025");
    refused("POST", "/sessions", "", "{\"count\": \"2\"}", "count", "not \"2\"");
    refused("POST", "/sessions", "", "{\"count\": 1.5}", "count", "an integer");
    refused("POST", "/sessions", "", "{\"history\": \"forest\"}", "history", "tree, chains");
    refused("POST", "/sessions", "", "{\"labels\": {\"a\": [1]}}", "labels.a", "not a list");
    refused("POST", "/sessions", "", "{\"ignore_tools\": 1}", "ignore_tools", "true or false");
    refused("GET", "/sessions", "limit=0", "", "limit", "from 1 to 1000, not \"0\"");
    refused("GET", "/sessions", "phase=foo", "", "phase", "open, completed");
    refused("GET", "/sessions", "label=group:1", "", "label", "NAME=VALUE");
    refused("GET", "/sessions", "label=%3D1", "", "label", "NAME=VALUE");
    refused("GET", "/wait", "timeout_s=3601", "", "timeout_s", "from 0 to 3600");
    refused("GET", "/wait", "timeout_s=1&timeout_s=2", "", "timeout_s", "stands twice");
    refused("POST", "/finalize", "", "{\"train_once\": 2}", "train_once", "on or off, not 2");
    refused("POST", "/finalize", "max_tokens=0", "", "max_tokens", "from 1 to");
    refused("POST", "/finalize", "", "{\"uid\": \"\"}", "uid", "not empty, of at most 1024 bytes");
    refused("POST", "/admin/weight_version", "", "{\"version\": -1}", "version", "not -1");
    refused("POST", "/admin/weight_version", "", "{\"version\": 1.5}", "version", "integer");
    refused("POST", "/admin/weight_version", "", "{\"version\": true}", "version", "not true");
    refused("POST", "/complete", "", "{\"finished\": \"yes\"}", "finished", "not \"yes\"");
    refused("POST", "/complete", "", "{\"reward_info\": 1}", "reward_info", "an object, not 1");
    refused("POST", "/complete", "", "{\"reason\": \"a\", \"reason\": \"b\"}", "", "stands twice");
    refused("POST", "/complete", "", "[1]", "", "must be a JSON object");
}

TEST(inputs, what_is_known_is_taken)
{
    taken("POST", "/sessions", "", "");
    taken("POST", "/sessions", "", " null ");
    taken("POST", "/sessions", "", "{\"labels\": {\"a\": 1, \"b\": \"c\"}, \"metadata\": null}");
    taken("POST", "/sessions", "", "{\"sampling_params\": {\"max_new_tokens\": 5, \"top_k\": 2}}");
    taken("GET", "/sessions", "label=group&limit=1000&local=1", "");
    taken("GET", "/sessions", "label=a:b%3D1&phase=expired&", "");
    taken("GET", "/wait", "timeout_s=1.0", "");
    taken("GET", "", "records", "");
    taken("POST", "/finalize", "uid=a&train_once=1", "{\"max_tokens\": \"50\", \"drift\": false}");
    taken("POST", "/admin/weight_version", "local=1", "{\"version\": null}");
    taken("POST", "/admin/weight_version", "", "{\"version\": \"step-7\"}");
    taken("POST", "/admin/weight_version", "", "{\"version\": 0}");
}

/* The table and the readers of exports must have the same names and values. */
TEST(inputs, exports_read_what_the_table_lists)
{
    for (size_t i = 0; i < inputs_all.n; i++) {
        const struct input *in = &inputs_all.at[i];
        struct str left = str_cstr(in->choices);

        while ((in->sets & INPUT_EXPORTS) && in->kind == INPUT_KIND_NAME && left.len > 0) {
            struct str one = str_trim(str_cut(&left, ','));
            struct export_options o;
            struct err e = {0};

            export_options_init(&o);
            cr_expect_eq(export_option(&o, str_cstr(in->name), one, &e), 0, "%s: %s", in->name,
                         e.text);
        }
    }
}

TEST(inputs, hostile_names_stay_text)
{
    struct err e = {0};

    cr_expect_eq(check(route("GET", "/wait"), STR("%ff%fe=1&%00=2"), STR(""), &e), -1);
    cr_expect(strstr(e.text, "unknown query parameter"), "%s", e.text);
}
