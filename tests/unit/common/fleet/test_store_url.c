#include "common/fleet/store_url.h"

#include "common/base/buf.h"
#include "testing.h"

/* Compares a parsed URL with "tls user@host:port/db name file sentinel"; - is a missing part. */
static void assert_url(const char *text, const char *want)
{
    struct store_url u;
    struct buf got = {0};
    struct err e = {0};

    cr_assert_eq(store_url_parse(str_cstr(text), &u, &e), 0, "%s: %s", text, e.text);
    buf_printf(&got, "%d %s@%s:%u/%u %s %s %s", u.tls, u.user ? u.user : "-", u.host,
               (unsigned)u.port, (unsigned)u.db, u.name, u.password_file ? u.password_file : "-",
               u.sentinel ? u.sentinel : "-");
    cr_assert(str_eq_c(buf_str(&got), want), "%s: %.*s", text, (int)got.len, got.p);
    buf_done(&got);
    store_url_done(&u);
}

static void assert_refused(const char *text, const char *why)
{
    struct store_url u;
    struct err e = {0};

    cr_assert_eq(store_url_parse(str_cstr(text), &u, &e), -1, "%s", text);
    cr_assert(strstr(e.text, why), "%s: %s", text, e.text);
    cr_assert(!strstr(e.text, "s3cret"), "%s", e.text);
}

TEST(store_url, parts_have_defaults)
{
    assert_url("redis://h", "0 -@h:6379/0 rollgate - -");
    assert_url("redis://h/", "0 -@h:6379/0 rollgate - -");
    assert_url("rediss://u@h.example:1/3?name=run-42&password_file=/a/b=c",
               "1 u@h.example:1/3 run-42 /a/b=c -");
    assert_url("redis://[::1]:7/15?sentinel=mymaster", "0 -@::1:7/15 rollgate - mymaster");
    assert_url("redis://[::1]?sentinel=m", "0 -@::1:26379/0 rollgate - m");
}

TEST(store_url, faults_name_the_value)
{
    assert_refused("", "neither redis:// nor rediss://");
    assert_refused("http://h", "neither redis:// nor rediss://");
    assert_refused("redis://", "host");
    assert_refused("redis://:6379", "host");
    assert_refused("redis://h:0", "port is not 1 to 65535");
    assert_refused("redis://h:65536", "port is not 1 to 65535");
    assert_refused("redis://h:", "port");
    assert_refused("redis://[::1", "closing ]");
    assert_refused("redis://[::1]x", "closing ]");
    assert_refused("redis://h/a", "database is no number from 0 to 1000000");
    assert_refused("redis://h?nam=x", "unknown option: \"nam\"");
    assert_refused("redis://h?name=", "no value: \"name\"");
    assert_refused("redis://h?name=a&name=b", "twice");
    assert_refused("redis://h?name=A", "a-z, 0-9 and -: \"A\"");
    assert_refused(
        "redis://h?name=0123456789012345678901234567890123456789012345678901234567890123",
        "1 to 63");
    assert_refused("redis://a,redis://b", "a fleet has one server");
    assert_refused("redis://a,b", "a fleet has one server");
    assert_refused("redis://a?name=x,redis://b", "a fleet has one server");
    assert_refused("redis://u:s3cret@h", "password");
    assert_refused("redis://:s3cret@h", "password");
    assert_refused("redis://@h", "user before @ is empty");
    assert_refused("redis://u@h", "needs password_file");
}

TEST(store_url, faults_show_no_password)
{
    static const char *const texts[] = {"redis://u:pa/s3cret@h",
                                        "redis://u:pa?s3cret@h",
                                        "redis://u:12?s3cret@h",
                                        "redis://u@s3cret@h",
                                        "redis://u:s3cret",
                                        "redis://:s3cret",
                                        "redis://[s3cret",
                                        "redis://[::1]s3cret",
                                        "redis://u:12/s3cret?x@h",
                                        "redis://u:@s3cret@h",
                                        "redis://s3cret@h",
                                        "redis://u:12/s3cret?name=x@h",
                                        "redis://h?name=a&u:s3=x?s3cret@h"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_refused(texts[i], "store's URL");
}
