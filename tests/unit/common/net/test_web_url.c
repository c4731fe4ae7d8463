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

#define A23 "aaaaaaaaaaaaaaaaaaaaaaa"
#define A92 A23 A23 A23 A23

static void shown(struct str url, const char *text)
{
    struct buf b = {0};

    buf_puts(&b, "<");
    web_url_show(url, &b);
    cr_assert(str_eq_c(str_sub(buf_str(&b), 1, b.len), text), "%.*s", (int)b.len, b.p);
    buf_done(&b);
}

TEST(web_url, shown_without_what_may_be_a_key)
{
    shown(STR("https://a.example:1/b/@c.png?key=1#2"), "https://a.example:1/b/@c.png");
    shown(STR("http://user:pass@x/a#key"), "http://x/a");
    shown(STR("http://user:p@ss@x"), "http://x");
    shown(STR("http://u:p\\@x/"), "http://x/");
    shown(STR("http://x#u@y/"), "http://x");
    shown(STR("http://"), "http://");
}

TEST(web_url, shown_up_to_the_end_of_a_character)
{
    struct buf url = {0};

    buf_puts(&url, "http://");
    while (url.len < WEB_SHOWN_MAX - 1)
        buf_add_c(&url, 'a');
    buf_add_c(&url, 0);
    url.len--;
    shown(buf_str(&url), url.p);
    buf_puts(&url, "\xc3\xa9");
    shown(buf_str(&url), "http://" A92 "...");
    buf_done(&url);
}
