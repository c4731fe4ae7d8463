/* bench: rg_common
 * The least that a record's second copy can cost its sender: one command of as many bytes as an
 * append, and its reply, with nothing but send, epoll_wait and recv.
 *
 *     bench_exchange PORT BYTES RECORDS COUNT PAUSE_US
 *
 * Sends COUNT commands of BYTES bytes to the Redis server on 127.0.0.1, each a script that stores
 * RECORDS values. Prints the CPU us of one exchange. It pauses before each: a gateway's exchanges
 * do not follow one another at once either. The CPU of as many pauses alone is subtracted.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/codec/sha1.h"
#include "common/fleet/resp.h"

static const struct str script =
    STR_LIT("for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i]) end return {'done', {}}");

static int connect_to(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
    return fd;
}

/* Sends the command and waits for its reply, which arrives in one piece. */
static void exchange(int fd, int epoll, struct str command)
{
    char reply[4096];
    struct epoll_event event;
    ssize_t got;

    CHECK(send(fd, command.p, command.len, MSG_NOSIGNAL) == (ssize_t)command.len);
    CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
    got = recv(fd, reply, sizeof(reply), MSG_DONTWAIT);
    CHECK(got > 0 && reply[0] != '-');
}

static void load_script(int fd, int epoll)
{
    struct buf out = {0};

    resp_begin_command(&out, 3);
    resp_add_word(&out, STR("SCRIPT"));
    resp_add_word(&out, STR("LOAD"));
    resp_add_word(&out, script);
    exchange(fd, epoll, buf_str(&out));
    buf_done(&out);
}

static void make_command(struct buf *out, size_t bytes, size_t records)
{
    char sha[SHA1_HEX_LEN + 1], key[32];
    struct buf value = {0};

    sha1_hex(script, sha);
    for (size_t i = 0; i < bytes / records; i++)
        buf_add_c(&value, (char)(i * 31));
    resp_begin_command(out, 3 + 2 * records);
    resp_add_word(out, STR("EVALSHA"));
    resp_add_word(out, str_of(sha, SHA1_HEX_LEN));
    resp_add_number(out, records);
    for (size_t i = 0; i < records; i++) {
        (void)snprintf(key, sizeof(key), "exchange:%zu", i);
        resp_add_word(out, str_cstr(key));
    }
    for (size_t i = 0; i < records; i++)
        resp_add_word(out, buf_str(&value));
    buf_done(&value);
}

/* Returns CPU us of one round: a pause, and with fd >= 0 an exchange. */
static double measure(int fd, int epoll, struct str command, int count, long pause_us)
{
    struct timespec before, after, pause = {.tv_nsec = pause_us * 1000};

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    for (int i = 0; i < count; i++) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        if (fd >= 0)
            exchange(fd, epoll, command);
    }
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    return ((double)(after.tv_sec - before.tv_sec) * 1e6 +
            (double)(after.tv_nsec - before.tv_nsec) / 1e3) /
           count;
}

int main(int argc, char **argv)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    int fd, epoll = epoll_create1(EPOLL_CLOEXEC), count;
    struct buf command = {0};
    double both;
    long pause_us;

    CHECK(argc == 6 && epoll >= 0);
    count = atoi(argv[4]);
    pause_us = atol(argv[5]);
    fd = connect_to(atoi(argv[1]));
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    load_script(fd, epoll);
    make_command(&command, (size_t)atol(argv[2]), (size_t)atol(argv[3]));
    both = measure(fd, epoll, buf_str(&command), count, pause_us);
    printf("%.2f\n", both - measure(-1, epoll, buf_str(&command), count, pause_us));
    buf_done(&command);
    (void)close(fd);
    (void)close(epoll);
    return 0;
}
