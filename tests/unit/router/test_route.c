#include "router/route.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/net/http1.h"
#include "testing.h"

#define HEX "0123456789abcdef0123456789abcdef"
#define MAC HEX HEX

static bool refused; /* whether the keys of the last route were refused */

/* Finds the route of a request. The line has method and target. */
static struct route route_of(const char *line, const char *headers)
{
    static struct http1_head h;
    static char text[2000];
    struct err e = {0};
    struct route r;

    (void)snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: a\r\n%s\r\n", line, headers);
    cr_assert_eq(http1_request(&h, str_cstr(text), 0, sizeof(text), &e), 1, "%s", e.text);
    refused = route_find(&h, NULL, &r, &e) != 0;
    return r;
}

static struct route route(const char *target, const char *headers)
{
    char line[500];

    (void)snprintf(line, sizeof(line), "POST %s", target);
    return route_of(line, headers);
}

static const struct {
    const char *target, *headers;
    enum route_kind kind;
    uint32_t index;
    bool named;
} cases[] = {
    {"/sessions/w0-" HEX, "", ROUTE_WORKER, 0, true},
    {"/sessions/w12-" HEX "/v1/x", "", ROUTE_WORKER, 12, true},
    {"/sessions/w999999-" HEX "?a=b/c", "", ROUTE_WORKER, 999999, true},
    {"/sessions/w1000000-" HEX, "", ROUTE_ANY, 0, true},
    {"/sessions/w01-" HEX, "", ROUTE_ANY, 0, true},
    {"/sessions/w-" HEX, "", ROUTE_ANY, 0, true},
    {"/sessions/W1-" HEX, "", ROUTE_ANY, 0, true},
    {"/sessions/w1-" HEX "0", "", ROUTE_ANY, 0, true},
    {"/sessions/w1-0123", "", ROUTE_ANY, 0, true},
    {"/sessions/", "", ROUTE_ANY, 0, false},
    {"/sessions", "", ROUTE_ANY, 0, false},
    {"/sessions?x", "x-api-key: rga-w1-" HEX "-" MAC "\r\n", ROUTE_ANY, 0, false},
    {"//sessions/w1-" HEX, "", ROUTE_ANY, 0, false},
    {"/sessions%2fw1-" HEX, "", ROUTE_ANY, 0, false},
    {"/health", "", ROUTE_HEALTH, 0, false},
    {"/health?x=1", "", ROUTE_HEALTH, 0, false},
    {"/health/", "", ROUTE_ANY, 0, false},
    {"/ready", "", ROUTE_READY, 0, false},
    {"/metrics", "", ROUTE_METRICS, 0, false},
    {"/v1/messages", "x-api-key: rga-w3-" HEX "-" MAC "\r\n", ROUTE_WORKER, 3, true},
    {"/v1/messages", "Authorization: BEARER   rgr-w3-" HEX "-" MAC " \r\n", ROUTE_WORKER, 3, true},
    {"/v1/messages", "Authorization: Basic rgr-w3-" HEX "-" MAC "\r\n", ROUTE_ANY, 0, false},
    {"/v1/messages", "Authorization: Bearer admin\r\nx-api-key: rga-w2-" HEX "-" MAC "\r\n",
     ROUTE_WORKER, 2, true},
    {"/v1/messages", "x-api-key: rga-w3-" HEX "\r\n", ROUTE_ANY, 0, true},
    {"/v1/messages", "x-api-key: rga-\r\n", ROUTE_ANY, 0, true},
    {"/ui", "x-api-key: rga-w3-" HEX "-" MAC "\r\n", ROUTE_ANY, 0, false},
    {"/admin/pause", "x-api-key: rga-w3-" HEX "-" MAC "\r\n", ROUTE_ANY, 0, false},
    {"/fleet/drain", "x-api-key: rga-w3-" HEX "-" MAC "\r\n", ROUTE_ANY, 0, false},
    {"/uix", "x-api-key: rga-w3-" HEX "-" MAC "\r\n", ROUTE_WORKER, 3, true},
};

TEST(route, by_path_and_key)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct route r = route(cases[i].target, cases[i].headers);

        cr_assert_eq(r.kind, cases[i].kind, "case %zu: %s", i, cases[i].target);
        cr_assert_eq(r.named, cases[i].named, "case %zu: %s", i, cases[i].target);
        if (r.kind == ROUTE_WORKER)
            cr_assert_eq(r.index, cases[i].index, "case %zu", i);
    }
}

TEST(route, one_key_of_ours_is_enough)
{
    static const struct {
        const char *headers;
        bool refused;
    } shown[] = {
        {"Authorization: Bearer rga-w1-" HEX "-" MAC "\r\nx-api-key: rga-w2-" HEX "-" MAC "\r\n",
         true},
        {"Authorization: Bearer rga-w1-" HEX "-" MAC "\r\nx-api-key: rgr-w1-" HEX "-" MAC "\r\n",
         true},
        {"x-api-key: rga-w1-" HEX "-" MAC "\r\nx-api-key: rga-w2-" HEX "-" MAC "\r\n", true},
        {"Authorization: Bearer rga-\r\napi-key: rga-w2-" HEX "-" MAC "\r\n", true},
        {"Authorization: Bearer a\r\nAuthorization: Bearer rga-w2-" HEX "-" MAC "\r\n", false},
        {"Authorization: bearer \t rga-w2-" HEX "-" MAC "\r\napi-key: rga-w2-" HEX "-" MAC "\r\n",
         false},
        {"x-api-key: a\r\napi-key: b\r\nX-Api-Key:rga-w2-" HEX "-" MAC "\r\n", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
        struct route r = route("/v1/messages", shown[i].headers);

        cr_assert_eq(refused, shown[i].refused, "case %zu", i);
        cr_assert(r.messages);
        cr_assert_eq(r.kind, refused ? ROUTE_ANY : ROUTE_WORKER, "case %zu", i);
        cr_assert_eq(r.index, refused ? 0 : 2, "case %zu", i);
    }
}

TEST(route, session_and_dialect)
{
    struct route r = route("/sessions/w1-" HEX "/v1/messages?beta=true", "");

    cr_assert(str_eq_c(r.session, "w1-" HEX));
    cr_assert(r.messages);
    r = route("/v1/messages/count_tokens", "x-api-key: rga-w3-" HEX "-" MAC "\r\n");
    cr_assert_null(r.session.p);
    cr_assert(r.messages);
    cr_assert(!route("/sessions/w1-" HEX "/v1/chat/completions", "").messages);
}

TEST(route, figures_are_those_of_the_named_node)
{
    cr_assert(str_eq_c(route("/stats?by=task&node=b", "").node, "b"));
    cr_assert(str_eq_c(route("/fleet?node=a%62", "").node, "a%62"), "nothing is decoded");
    cr_assert_null(route("/stats", "").node.p);
    cr_assert_null(route("/stats?nodes=b", "").node.p);
    cr_assert_null(route("/sessions?node=b", "").node.p);
}

TEST(route, open_is_what_is_read_and_brings_no_body)
{
    static const struct {
        const char *line, *headers;
        bool open;
    } asked[] = {
        {"GET /", "", true},
        {"HEAD /?x=1", "", true},
        {"GET /openapi.json", "Content-Length: 0\r\n", true},
        {"GET /ui", "x-api-key: rga-w3-" HEX "-" MAC "\r\n", true},
        {"HEAD /ui/app.js", "", true},
        {"GET /", "Content-Length: 1\r\n", false},
        {"GET /ui/", "Transfer-Encoding: chunked\r\n", false},
        {"HEAD /openapi.json", "Content-Length: 9\r\n", false},
        {"POST /", "", false},
        {"POST /ui/x", "Content-Length: 9\r\n", false},
        {"OPTIONS /ui", "", false},
        {"GET /uix", "", false},
        {"GET /v1/models", "", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(asked); i++)
        cr_expect_eq(route_of(asked[i].line, asked[i].headers).open, asked[i].open, "%s",
                     asked[i].line);
}
