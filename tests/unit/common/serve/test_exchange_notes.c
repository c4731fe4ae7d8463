/* Notes on the arrival of answers, and their waiters. */
#include <unistd.h>

#include "common/net/http1.h"
#include "exchange_kit.h"

#define CONFIRMING "GET /a HTTP/1.1\r\nHost: h\r\n" HTTP1_CONFIRMS ": 1\r\n\r\n"

static bool one_arrived(const struct fixture *f)
{
    return f->arrived == 1;
}

static bool one_dropped(const struct fixture *f)
{
    return f->dropped == 1;
}

static bool woken(const struct fixture *f)
{
    return f->known.woken;
}

/* --- notes --- */

static const char key_a[] = "aaaaaaaaaaaaaaaa1", key_b[] = "aaaaaaaaaaaaaaaa2",
                  key_c[] = "cccccccccccccccc1";

static void on_arrived(void *ctx, struct str key)
{
    cr_assert(str_eq_c(key, key_a));
    ((struct fixture *)ctx)->arrived++;
}

static void on_dropped(void *ctx)
{
    ((struct fixture *)ctx)->dropped++;
}

static void note(struct fixture *f, struct exchange *x)
{
    exchange_note(x,
                  &(struct exchange_note){
                      .key = str_cstr(key_a), .arrived = on_arrived, .drop = on_dropped, .ctx = f});
}

TEST_WITH(exchange, without_confirmations_the_kernel_is_believed, fixture)
{
    int fd;

    fd = open_asked(f);
    note(f, f->x[0]);
    cr_assert(exchange_under_way(f->x[0], str_cstr(key_a)));
    cr_assert_not(exchange_under_way(f->x[0], str_cstr(key_b)));
    exchange_reply(f->x[0], 200, "text/plain", STR("yes"));
    run_until(f, one_arrived);
    cr_assert_eq(f->dropped, 1, "after that it is dropped, too");
    close(fd);
}

TEST_WITH(exchange, who_confirms_is_waited_for, fixture)
{
    int first, second;

    open_all(f);
    first = client(f, CONFIRMING);
    run_until(f, one_came);
    note(f, f->x[0]);
    exchange_reply(f->x[0], 200, "text/plain", STR("yes"));
    run_until(f, one_closed);
    cr_assert_eq(f->arrived, 0, "all is in the kernel, but nobody has said that it arrived");
    second = client(f, PLAIN);
    run_until(f, two_came);
    cr_assert(exchange_under_way(f->x[1], str_cstr(key_a)));
    exchange_check_delivery(f->x[1], str_of(key_a, EXCHANGE_NOTE_START));
    cr_assert_eq(f->arrived, 0);
    say(first, "\r\n");
    exchange_check_delivery(f->x[1], str_of(key_c, EXCHANGE_NOTE_START));
    cr_assert_eq(f->arrived, 0, "another one's notes are left alone");
    exchange_check_delivery(f->x[1], str_of(key_a, EXCHANGE_NOTE_START));
    cr_assert_eq(f->arrived, 1, "before the loop has come to it");
    cr_assert_not(exchange_under_way(f->x[1], str_cstr(key_a)));
    exchange_reply(f->x[1], 200, "text/plain", STR("yes"));
    close(first);
    close(second);
}

TEST_WITH(exchange, an_answer_is_lost_with_its_connection, fixture)
{
    int fd;

    open_all(f);
    fd = client(f, CONFIRMING);
    run_until(f, one_came);
    note(f, f->x[0]);
    exchange_reply(f->x[0], 200, "text/plain", STR("yes"));
    run_until(f, one_closed);
    close(fd);
    run_until(f, one_dropped);
    cr_assert_eq(f->arrived, 0);
}

/* --- waiting for one under way --- */

static bool wait_for(struct fixture *f, struct exchange *x, const char *key, uint64_t max_ms)
{
    return exchange_await(x, str_of(key, EXCHANGE_NOTE_START), max_ms, &f->known);
}

TEST_WITH(exchange, a_second_one_looks_again_once_the_first_has_arrived, fixture)
{
    int first, second;

    open_all(f);
    first = client(f, CONFIRMING);
    run_until(f, one_came);
    note(f, f->x[0]);
    second = client(f, PLAIN);
    run_until(f, two_came);
    cr_assert(wait_for(f, f->x[1], key_b, 0));
    exchange_reply(f->x[0], 200, "text/plain", STR("yes"));
    run_until(f, one_closed);
    cr_assert_not(f->known.woken);
    say(first, "\r\n");
    run_until(f, woken);
    cr_assert_eq(f->arrived, 1);
    exchange_reply(f->x[1], 200, "text/plain", STR("yes"));
    close(first);
    close(second);
}

TEST_WITH(exchange, nobody_waits_longer_than_the_limit, fixture)
{
    int fd;

    fd = open_asked(f);
    cr_assert(wait_for(f, f->x[0], key_a, 5));
    run_until(f, woken);
    cr_assert_not(wait_for(f, f->x[0], key_a, 5), "it has waited that long in all");
    exchange_reply(f->x[0], 200, "text/plain", STR("yes"));
    run_until(f, one_closed);
    close(fd);
}
