#include "exchange_kit.h"

#include <unistd.h>

#include "common/proc/presented.h"

/* Uses an exchange after its end: its head is readable, and sent bytes are dropped. */
static void use_after_end(struct exchange *x)
{
    struct buf bytes = {0};
    struct presented shown = {0};

    cr_assert(str_eq_c(exchange_method(x), "GET"));
    cr_assert(str_eq_c(exchange_path(x), "/a"));
    cr_assert(str_eq_c(exchange_query(x), "b=c"));
    cr_assert(str_eq_c(exchange_authority(x), "h"));
    cr_assert(str_eq_c(exchange_header(x, "x-api-key"), "secret"));
    cr_assert_null(exchange_header(x, "x-other").p);
    exchange_keys(x, &shown);
    cr_assert_eq(shown.n, 1u);
    cr_assert_eq(exchange_body(x).len, 0u);
    cr_assert(exchange_peer_gone(x));
    exchange_set_header(x, "x-late", STR("1"));
    exchange_start(x, "text/plain");
    buf_puts(&bytes, "nowhere");
    exchange_send(x, &bytes);
    cr_assert_eq(bytes.len, 0u);
    cr_assert_eq(exchange_waiting(x), 0u);
    exchange_end(x);
    exchange_fail(x);
    exchange_reply(x, 200, "text/plain", STR("nowhere"));
    buf_puts(&bytes, "nowhere");
    exchange_reply_buf(x, 200, "text/plain", &bytes);
    buf_done(&bytes);
}

static int open_retained(struct fixture *f)
{
    int fd;

    open_all(f);
    fd = client(f, "GET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Api-Key: secret\r\n\r\n");
    run_until(f, one_came);
    exchange_retain(f->x[0]);
    return fd;
}

static bool one_busy(const struct fixture *f)
{
    return f->closed == 1 && server_busy(f->server) == 1;
}

static bool none_busy(const struct fixture *f)
{
    return server_busy(f->server) == 0;
}

TEST_WITH(exchange_retained, outlives_a_client_that_leaves, fixture)
{
    int fd = open_retained(f);

    close(fd);
    run_until(f, one_busy);
    use_after_end(f->x[0]);
    run_until(f, always);
    use_after_end(f->x[0]);
    exchange_release(f->x[0]);
    run_until(f, none_busy);
}

TEST_WITH(exchange_retained, outlives_its_answer, fixture)
{
    int fd = open_retained(f);

    exchange_reply(f->x[0], 200, "text/plain", STR("all"));
    run_until(f, one_busy);
    cr_assert_eq(f->delivered, 1);
    exchange_reply(f->x[0], 200, "text/plain", STR("nowhere"));
    exchange_release(f->x[0]);
    run_until(f, none_busy);
    close(fd);
}

TEST_WITH(exchange_retained, is_released_before_its_answer, fixture)
{
    int fd = open_retained(f);

    exchange_release(f->x[0]);
    exchange_reply(f->x[0], 200, "text/plain", STR("all"));
    run_until(f, one_closed);
    cr_assert_eq(f->delivered, 1);
    run_until(f, none_busy);
    close(fd);
}

TEST_WITH(exchange_retained, ends_with_the_server, fixture)
{
    int fd = open_retained(f);

    exchange_release(f->x[0]);
    close(fd);
}
