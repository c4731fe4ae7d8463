#include "worker/sink/redis_url.h"

#include "testing.h"

static struct redis_url good(const char *text)
{
    struct redis_url u;
    struct err e = {0};

    cr_assert_eq(redis_url_parse(str_cstr(text), &u, &e), 0, "%s: %s", text, e.text);
    return u;
}

TEST(redis_url, forms)
{
    struct redis_url u = good("//h");

    cr_assert_str_eq(u.host, "h");
    cr_assert_eq(u.port, 6379);
    cr_assert_eq(u.db, 0);
    cr_assert_str_eq(u.stream, "rollgate:trajectories");
    cr_assert_null(u.password_file);
    redis_url_done(&u);

    u = good("redis://[::1]:7000/3?stream=a:b&user=me&password_file=/x/y");
    cr_assert_str_eq(u.host, "::1");
    cr_assert_eq(u.port, 7000);
    cr_assert_eq(u.db, 3);
    cr_assert_str_eq(u.stream, "a:b");
    cr_assert_str_eq(u.user, "me");
    cr_assert_str_eq(u.password_file, "/x/y");
    redis_url_done(&u);

    u = good("unix:/run/redis.sock?stream=s");
    cr_assert_null(u.host);
    cr_assert_str_eq(u.path, "/run/redis.sock");
    cr_assert_str_eq(u.stream, "s");
    redis_url_done(&u);
}

TEST(redis_url, refused)
{
    static const char *const bad[] = {
        "",
        "h:6379",
        "//",
        "//:1",
        "//h:0",
        "//h:65536",
        "//h/x",
        "//h?a=b",
        "//me:pw@h",
        "//h?stream=",
        "rediss://h",
        "unix:",
        "//h:1x",
        "//h:",
        "//[::1",
        "//[::1]x6379",
        "//[::1]:",
        "//[]:1",
        "//h?user=a&user=a&password_file=b",
        "//h?user=a",
        "//h?stream=a&stream=b",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct redis_url u;
        struct err e = {0};

        cr_assert_eq(redis_url_parse(str_cstr(bad[i]), &u, &e), -1, "%s", bad[i]);
        cr_assert_eq(e.kind, ERR_INVALID);
    }
}
