#include "common/net/web_rules.h"

#include "common/base/attrs.h"
#include "common/net/web_url.h"
#include "testing.h"

static struct web_rules *rules(const char *hosts)
{
    struct web_rules *r = NULL;
    struct err e = {0};

    cr_assert_eq(web_rules_new(&hosts, 1, NULL, 0, &r, &e), 0, "%s", e.text);
    return r;
}

static bool lets(const char *hosts, const char *url)
{
    struct web_rules *r = rules(hosts);
    struct web_url u;
    bool is_let;

    cr_assert_null(web_url_parse(str_cstr(url), &u), "%s", url);
    is_let = web_rules_refuse(r, &u) == NULL;
    web_rules_free(r);
    return is_let;
}

TEST(web_rules, hosts)
{
    cr_assert(lets("example.com", "https://EXAMPLE.com/a"));
    cr_assert(!lets("example.com", "http://example.com/a"));
    cr_assert(!lets("example.com", "https://a.example.com/"));
    cr_assert(!lets("example.com", "https://example.com:8443/"));
    cr_assert(lets("a.org, example.com", "https://example.com"));
    cr_assert(lets("*.example.com", "https://a.b.example.com"));
    cr_assert(!lets("*.example.com", "https://example.com"));
    cr_assert(!lets("*.example.com", "https://badexample.com"));
    cr_assert(lets("http://example.com", "http://example.com"));
    cr_assert(lets("http://example.com", "https://example.com"));
    cr_assert(lets("https://example.com:444", "https://example.com:444"));
    cr_assert(!lets("https://example.com:444", "https://example.com"));
    cr_assert(lets("*", "https://anything.org") && !lets("*", "http://anything.org"));
    cr_assert(lets("http://*:8080", "http://anything.org:8080/"));
    cr_assert(!lets("http://*:8080", "http://anything.org/"));
    cr_assert(lets("[::1]", "https://[::1]/") && lets("10.0.0.1", "https://10.0.0.1/"));
}

TEST(web_rules, bad_ones)
{
    static const char *const bad[] = {"",      ",",     "a,",      "ftp://x", "x/y", "x y",
                                      "*x",    "*.",    "a.*.b",   "x:0",     "**",  "*:x",
                                      "x@y.z", "127.1", "http://", "[::1",    "x.",  "*.*"};
    static const char *const nets[] = {"", "10.0.0.0/99", "x"};
    struct web_rules *r = NULL;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        e = (struct err){0};
        cr_assert_eq(web_rules_new(&bad[i], 1, NULL, 0, &r, &e), -1, "%s", bad[i]);
        cr_assert(e.kind == ERR_CONFIG && str_find(str_cstr(e.text), STR("media-fetch"), 0) == 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(nets); i++) {
        e = (struct err){0};
        cr_assert_eq(web_rules_new(NULL, 0, &nets[i], 1, &r, &e), -1, "%s", nets[i]);
        cr_assert(e.kind == ERR_CONFIG);
    }
}
