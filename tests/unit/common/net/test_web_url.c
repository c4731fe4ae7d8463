#include "common/net/web_url.h"

#include "common/base/attrs.h"
#include "testing.h"

TEST(web_url, parts)
{
    struct web_url u;

    cr_assert_null(web_url_parse(STR("HTTPS://Example.COM/a/B.png?q=1#part"), &u));
    cr_assert(u.tls && u.port == 0 && web_url_port(&u) == 443 && !u.bracketed);
    cr_assert_str_eq(u.host, "example.com");
    cr_assert(str_eq_c(u.target, "/a/B.png?q=1") && str_eq_c(u.authority, "Example.COM"));
    cr_assert_null(web_url_parse(STR("http://10.1.2.3:8080"), &u));
    cr_assert(!u.tls && web_url_port(&u) == 8080 && u.target.len == 0);
    cr_assert_null(web_url_parse(STR("http://[FD00::1]:81?x"), &u));
    cr_assert(u.bracketed && u.port == 81 && str_eq_c(u.target, "?x"));
    cr_assert_str_eq(u.host, "fd00::1");
    cr_assert_null(web_url_parse(STR("https://a_b.x-1.example/@:"), &u));
}

TEST(web_url, refused)
{
    static const char *const bad[] = {
        "",
        "ftp://x/",
        "file:///etc/passwd",
        "//x/",
        "http:/x",
        "http://",
        "http:///a",
        "http://user@x/",
        "http://x:y@z/",
        "http://x y/",
        "http://x\\@y/",
        "http://x/\n",
        "http://x/\x7f",
        "http://\xc3\xa9/",
        "http://x:0/",
        "http://x:65536/",
        "http://x:8a/",
        "http://x:/",
        "http://x:80:80/",
        "http://.x/",
        "http://x./",
        "http://x..y/",
        "http://%31/",
        "http://[::1/",
        "http://[::1]x/",
        "http://[127.0.0.1]/",
        "http://[fe80::1%25lo]/",
        "http://[x]/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.01/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://a.0x1/",
        "http://0/",
        "http://0x/",
    };
    struct web_url u;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_assert_not_null(web_url_parse(str_cstr(bad[i]), &u), "%s", bad[i]);
}

TEST(web_url, long_ones)
{
    struct buf text = {0};
    struct web_url u;

    buf_puts(&text, "http://x/");
    while (text.len < WEB_URL_MAX)
        buf_add_c(&text, 'a');
    cr_assert_null(web_url_parse(buf_str(&text), &u));
    buf_add_c(&text, 'a');
    cr_assert_not_null(web_url_parse(buf_str(&text), &u));
    buf_clear(&text);
    buf_puts(&text, "http://");
    for (int i = 0; i < 64; i++)
        buf_add_c(&text, 'a');
    cr_assert_not_null(web_url_parse(buf_str(&text), &u));
    for (int i = 0; i < 127; i++)
        buf_puts(&text, ".a");
    cr_assert_not_null(web_url_parse(buf_str(&text), &u));
    buf_done(&text);
}

TEST(web_url, redirections)
{
    static const struct {
        const char *from, *location, *to;
    } all[] = {
        {"http://x/a/b?q", "c", "http://x/a/c"},
        {"http://x/a/b?q", "/c", "http://x/c"},
        {"http://x:8/a/b?q", "?r", "http://x:8/a/b?r"},
        {"https://x/a", "//y/z", "https://y/z"},
        {"https://x", "a", "https://x/a"},
        {"http://x?q", "a", "http://x/a"},
        {"http://x/a", "https://y/", "https://y/"},
        {"http://x/a", "file:///etc/passwd", "file:///etc/passwd"},
        {"http://x/a", "b/c:d", "http://x/b/c:d"},
        {"http://x/a", "../b", "http://x/../b"},
    };
    struct web_url u;

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct buf to = {0};

        cr_assert_null(web_url_parse(str_cstr(all[i].from), &u));
        web_url_join(&u, str_cstr(all[i].location), &to);
        cr_assert(str_eq_c(buf_str(&to), all[i].to), "%s: %.*s", all[i].location, (int)to.len,
                  to.p);
        buf_done(&to);
    }
}
