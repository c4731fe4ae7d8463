#include "common/net/url.h"

#include "testing.h"

static struct url parse(const char *text)
{
    struct url u;
    struct err e;

    cr_assert_eq(url_parse(str_cstr(text), &u, &e), 0, "%s: %s", text, e.text);
    return u;
}

TEST(url, parts)
{
    struct url u = parse("http://engine:30000");

    cr_assert(str_eq_c(u.host, "engine") && u.port == 30000 && !u.tls && u.prefix.len == 0);
    cr_assert(str_eq_c(u.authority, "engine:30000"));
    u = parse("https://api.example.com/v1/");
    cr_assert(str_eq_c(u.host, "api.example.com") && u.port == 443 && u.tls);
    cr_assert(str_eq_c(u.prefix, "/v1"));
    u = parse("http://[::1]:8000/a/b");
    cr_assert(str_eq_c(u.host, "::1") && u.port == 8000 && str_eq_c(u.prefix, "/a/b"));
    cr_assert(str_eq_c(u.authority, "[::1]:8000"));
    u = parse("unix:/run/engine.sock");
    cr_assert(u.local && str_eq_c(u.host, "/run/engine.sock"));
}

TEST(url, refused)
{
    static const char *const bad[] = {"engine:80",     "ftp://x",     "http://",
                                      "http://:80",    "http://x:0",  "http://x:65536",
                                      "http://x:8a",   "http://x:",   "http://u@x",
                                      "http://x/?q",   "http://x/#f", "http://[::1",
                                      "http://[::1]x", "http://a b",  "http://a\r\nb",
                                      "unix:relative"};
    struct url u;
    struct err e;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        cr_assert_eq(url_parse(str_cstr(bad[i]), &u, &e), -1, "%s", bad[i]);
        cr_assert_eq(e.kind, ERR_CONFIG);
    }
    cr_assert_eq(url_parse(STR("engine:80"), &u, &e), -1);
    cr_assert_str_eq(e.text, "\"engine:80\" is not an http://, https:// or unix:/ address");
    cr_assert_eq(url_parse(STR("ftp://u:secret@x"), &u, &e), -1);
    cr_assert_null(strstr(e.text, "secret"));
}
