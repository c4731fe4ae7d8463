/* Lent connections and the fate of their answers. The test is the router. */
#include <netinet/in.h>
#include <unistd.h>

#include "common/net/lending.h"
#include "exchange_kit.h"

#define HEAD "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n"

static const char key[] = "aaaaaaaaaaaaaaaa1";

struct lending {
    struct fixture f;
    struct lending_channel channel;
    int client; /* client's end of the lent connection */
};

static bool one_dropped(const struct fixture *f)
{
    return f->dropped == 1;
}

static void on_arrived(void *ctx, struct str arrived)
{
    cr_assert(str_eq_c(arrived, key));
    ((struct fixture *)ctx)->arrived++;
}

static void on_dropped(void *ctx)
{
    ((struct fixture *)ctx)->dropped++;
}

/* Makes a TCP connection and returns the client's end and the router's. TCP shows whether the
 * client has read to the end. */
static void make_pair(int *ret_client, int *ret_router)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    int door = socket(AF_INET, SOCK_STREAM, 0);

    cr_assert_eq(bind(door, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(listen(door, 1), 0);
    cr_assert_eq(getsockname(door, (struct sockaddr *)&at, &n), 0);
    *ret_client = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(*ret_client, (struct sockaddr *)&at, sizeof(at)), 0);
    *ret_router = accept4(door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    cr_assert_geq(*ret_router, 0);
    close(door);
}

/* Opens a lent connection with one request, and answers it with a note. */
static void open_answered(struct lending *l)
{
    struct lending_message m = {.kind = LENDING_GIVE,
                                .length_at = (uint32_t)(strstr(HEAD, "1\r\n\r\n") - HEAD)};
    int link, router;
    struct err e;

    fixture_open(&l->f);
    open_all(&l->f);
    cr_assert_eq(lending_open(&l->channel, &e), 0, "%s", e.text);
    link = door_connect(&l->f.door);
    cr_assert_eq(lending_introduce(link, &l->channel), 0);
    make_pair(&l->client, &router);
    cr_assert_eq(lending_send(l->channel.fd, &m, STR(HEAD), router), 0);
    close(router);
    say(l->client, HEAD "x");
    run_until(&l->f, one_came);
    close(link);
    exchange_note(l->f.x[0], &(struct exchange_note){.key = str_cstr(key),
                                                     .arrived = on_arrived,
                                                     .drop = on_dropped,
                                                     .ctx = &l->f});
    exchange_reply(l->f.x[0], 200, "text/plain", STR("yes"));
}

static void close_lending(struct lending *l)
{
    close(l->channel.fd);
    close(l->channel.fd_of_worker);
    close(l->channel.page_fd);
    lending_unmap(l->channel.page);
    fixture_close(&l->f);
}

/* The kernel has the whole answer, and libh2o has not reported it yet. */
TEST(lent, who_reads_all_and_leaves_at_once_has_the_answer)
{
    struct lending l;
    char answer[512];
    ssize_t n;

    open_answered(&l);
    n = recv(l.client, answer, sizeof(answer) - 1, 0);
    cr_assert_gt(n, 3);
    answer[n] = '\0';
    cr_assert(strstr(answer, "\r\n\r\nyes") != NULL, "%s", answer);
    close(l.client);
    cr_assert(exchange_under_way(l.f.x[0], str_cstr(key)), "it is not known to be lost");
    run_until(&l.f, one_dropped);
    cr_assert_eq(l.f.arrived, 1);
    close_lending(&l);
}

TEST(lent, who_leaves_without_reading_has_none)
{
    struct lending l;

    open_answered(&l);
    close(l.client);
    cr_assert_not(exchange_under_way(l.f.x[0], str_cstr(key)));
    run_until(&l.f, one_dropped);
    cr_assert_eq(l.f.arrived, 0);
    close_lending(&l);
}
