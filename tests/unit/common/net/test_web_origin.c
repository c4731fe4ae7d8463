#include "common/net/web_origin.h"

#include "common/base/attrs.h"
#include "testing.h"

static bool is_local(const char *host)
{
    struct web_url u;

    return !web_host_parse(str_cstr(host), &u) && web_host_is_local(&u);
}

static bool has(const char *list, const char *host)
{
    struct web_url u;

    cr_assert_null(web_host_parse(str_cstr(host), &u), "%s", host);
    return web_hosts_has(str_cstr(list), &u);
}

static bool same_site(const char *origin, const char *hosts)
{
    struct web_url u;

    return web_origin_parse(str_cstr(origin), &u) && web_origin_is(&u, str_cstr(hosts));
}

TEST(web_origin, local_hosts)
{
    static const char *const local[] = {"127.0.0.1",       "10.1.2.3:80", "localhost",
                                        "LOCALHOST.:8",    "a.localhost", "[::1]",
                                        "[2001:db8::1]:9", "localhost:"};
    static const char *const other[] = {"",           "example",    "localhost.example",
                                        "xlocalhost", "127.1",      "localhost..",
                                        "[::1",       "[::g]",      "::1",
                                        ".",          "a:b",        "a:0",
                                        "1.2.3.4.5",  "[127.0.0.1]"};

    for (size_t i = 0; i < ARRAY_LEN(local); i++)
        cr_assert(is_local(local[i]), "%s", local[i]);
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        cr_assert(!is_local(other[i]), "%s", other[i]);
}

TEST(web_origin, lists)
{
    cr_assert(has("gw.example", "GW.example:1") && has("a, gw.example.", "gw.example"));
    cr_assert(has("gw.example:80", "gw.example") && !has("gw.example:80", "gw.example:81"));
    cr_assert(has("*.example", "a.b.example") && !has("*.example", "example"));
    cr_assert(!has("*.example", "xexample") && !has("gw.example", "a.gw.example"));
    cr_assert(has("[fe80::1]", "[fe80::1]:7") && !has("gw", "gw.example"));
    cr_assert_eq(web_hosts_check(STR("a, *.b.c:80,[::1]"), NULL), 0);
}

TEST(web_origin, bad_entries)
{
    static const char *const bad[] = {"*", "", "a,", "a b", "http://a", "a/b", "*.*.a", "a:x"};
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        e = (struct err){0};
        cr_assert_eq(web_hosts_check(str_cstr(bad[i]), &e), -1, "%s", bad[i]);
        cr_assert_eq(e.kind, ERR_CONFIG);
    }
}

TEST(web_origin, origins)
{
    cr_assert(same_site("http://a.example", "A.example.") && same_site("https://a", "x, a:443"));
    cr_assert(same_site("http://[::1]:8600", "[::1]:8600"));
    cr_assert(!same_site("http://a", "a:443") && !same_site("https://a", "a:80"));
    cr_assert(!same_site("null", "null") && !same_site("", "") && !same_site("a", "a"));
    cr_assert(!same_site("file://a", "a") && !same_site("http://a/b", "a"));
    cr_assert(!same_site("http://a", "") && !same_site("http://a", "b"));
}
