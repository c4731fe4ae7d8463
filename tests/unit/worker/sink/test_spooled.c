#include "testing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/sink/spooled.h"

/* Opens a group's file with this text. Returns the kind of the error, or ERR_NONE. */
static enum err_kind open_group(const char *text)
{
    char path[] = "/tmp/rg-spooled-XXXXXX";
    int fd = mkstemp(path);
    struct spooled s = {0};
    struct err e = {0};

    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    (void)close(fd);
    if (spooled_open_group(path, &s, &e) == 0) {
        cr_expect(s.pieces.n == 1 && str_eq_c(spooled_piece(&s, 0), text));
    } else {
        cr_expect(s.bytes.p == NULL && s.pieces.n == 0);
        cr_expect(strstr(e.text, path) != NULL, "%s", e.text);
    }
    spooled_close(&s);
    cr_assert_eq(unlink(path), 0);
    return e.kind;
}

/* A damaged entry must not fail again and again at the head of the queue. */
TEST(spooled, a_group_is_an_object_with_members)
{
    static const char *const bad[] = {"",           "{}",  "[]", "null", "{\"group\":\"g\"",
                                      "{\"a\":1}{", "\x80"};

    cr_expect_eq(open_group("{\"group\":\"g\",\"n\":3}"), ERR_NONE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        cr_expect_eq(open_group(bad[i]), ERR_INVALID, "%s", bad[i]);
}

TEST(spooled, a_group_that_is_gone)
{
    struct spooled s = {0};
    struct err e = {0};

    cr_expect_eq(spooled_open_group("/tmp/rg-spooled-none", &s, &e), -1);
    cr_expect_eq(e.kind, ERR_NOT_FOUND);
}
