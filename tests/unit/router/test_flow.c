#include "router/flow.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "testing.h"

static struct iovec piece(const char *p, size_t n)
{
    return (struct iovec){.iov_base = (char *)(uintptr_t)p, .iov_len = n};
}

TEST(flow, what_the_sink_refuses_is_parked_in_order)
{
    enum { N = 3 << 20 };
    struct flow f = {0};
    char *data = malloc(N), *got = malloc(N);
    size_t at = 0;
    bool taken = true;
    int fd[2];

    for (size_t i = 0; i < N; i++)
        data[i] = (char)(i * 2654435761u >> 24);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    flow_begin(&f, HTTP1_LENGTH, N);
    for (size_t i = 0; i < N; i += N / 4) {
        struct iovec iov[2] = {piece(data + i, 1000), piece(data + i + 1000, N / 4 - 1000)};

        cr_assert_eq(flow_write(&f, fd[0], iov, 2, 0, &taken), 0);
    }
    cr_assert(!taken);
    cr_assert(flow_parked(&f));
    while (at < N) {
        ssize_t n = read(fd[1], got + at, N - at);

        cr_assert(n > 0);
        at += (size_t)n;
        cr_assert_eq(flow_flush(&f, fd[0], &taken), 0);
    }
    cr_assert(taken);
    cr_assert_eq(memcmp(data, got, N), 0);
    close(fd[1]);
    cr_assert_eq(
        flow_write(&f, fd[0], &(struct iovec){.iov_base = data, .iov_len = 1}, 1, 0, &taken), -1);
    close(fd[0]);
    flow_clear(&f);
    free(data);
    free(got);
}

TEST(flow, a_slow_sink_gets_small_reads_and_a_proven_one_large_ones)
{
    struct flow f = {0};
    static char block[256 * 1024];
    struct iovec iov = piece(block, sizeof(block));
    int fd[2], roomy = 1 << 20;
    bool taken;

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    cr_assert_eq(setsockopt(fd[0], SOL_SOCKET, SO_SNDBUFFORCE, &roomy, sizeof(roomy)) &&
                     setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &roomy, sizeof(roomy)),
                 0);
    flow_begin(&f, HTTP1_UNTIL_CLOSE, 0);
    for (int i = 0; i < 64; i++) {
        iov.iov_len = f.window_bytes;
        cr_assert_eq(flow_write(&f, fd[0], &iov, 1, 0, &taken), 0);
        cr_assert(taken);
        for (size_t left = iov.iov_len; left > 0;)
            left -= (size_t)read(fd[1], block, left);
    }
    cr_assert_eq(f.window_bytes, sizeof(block));
    iov.iov_len = sizeof(block);
    while (taken)
        cr_assert_eq(flow_write(&f, fd[0], &iov, 1, 0, &taken), 0);
    cr_assert_eq(f.window_bytes, 64 * 1024);
    close(fd[0]);
    close(fd[1]);
    flow_clear(&f);
}

TEST(flow, a_spliced_body_arrives_in_order_and_ends_where_its_length_says)
{
    enum { N = 3 << 20, BEHIND = 100 };
    struct flow f;
    char *data = malloc(N + BEHIND), *got = malloc(N + BEHIND);
    size_t sent = 0, at = 0;
    int source[2], sink[2];
    bool taken = true, refused = false;

    for (size_t i = 0; i < N + BEHIND; i++)
        data[i] = (char)(i * 2654435761u >> 24);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, source), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sink), 0);
    flow_init(&f);
    cr_assert_eq(pipe2(f.pipe, O_NONBLOCK | O_CLOEXEC), 0);
    flow_begin(&f, HTTP1_LENGTH, N);
    while (at < N) {
        ssize_t n = sent < N + BEHIND ? write(source[1], data + sent, N + BEHIND - sent) : 0;

        sent += n > 0 ? (size_t)n : 0;
        if (!flow_parked(&f) && !f.done)
            cr_assert(flow_splice(&f, source[0], 100000) > 0);
        cr_assert_eq(flow_flush(&f, sink[0], &taken), 0);
        refused = refused || !taken;
        cr_assert_eq(taken, !flow_parked(&f));
        if (refused) { /* the sink reads only after it has refused bytes */
            n = read(sink[1], got + at, 30000);
            at += n > 0 ? (size_t)n : 0;
        }
    }
    cr_assert(f.done && f.left_bytes == 0 && !flow_parked(&f));
    cr_assert_eq(memcmp(data, got, N), 0);
    cr_assert_eq(read(source[0], got, N), BEHIND, "what stands behind the body is left there");
    for (int i = 0; i < 2; i++) {
        close(source[i]);
        close(sink[i]);
        close(f.pipe[i]);
    }
    free(data);
    free(got);
}

TEST(flow, many_small_chunks_use_a_turns_share_up)
{
    struct flow f = {0};
    size_t used, pass, budget = 10000;

    flow_begin(&f, HTTP1_CHUNKED, 0);
    cr_assert_eq(flow_take(&f, STR("1\r\na\r\n1\r\nb\r\n1\r\nc\r\n"), &used, &pass, NULL), 0);
    cr_assert_eq(f.chunked.size_lines, 3);
    flow_spend(&f, 0, used, &budget);
    cr_assert_eq(budget, 10000 - 18 - 3 * 128);
    flow_spend(&f, 3, 100, &budget);
    cr_assert_eq(budget, 10000 - 118 - 3 * 128);
    flow_spend(&f, 9, 100, &budget);
    cr_assert_eq(budget, 10000 - 218 - 6 * 128, "another body has begun");
    flow_spend(&f, 0, 20000, &budget);
    cr_assert_eq(budget, 0);
}

TEST(flow, bodies_end_where_their_framing_says)
{
    struct flow f = {0};
    size_t used, pass;

    flow_begin(&f, HTTP1_LENGTH, 5);
    cr_assert_eq(flow_take(&f, STR("hel"), &used, &pass, NULL), 0);
    cr_assert(!f.done);
    cr_assert_eq(flow_take(&f, STR("loGET"), &used, &pass, NULL), 0);
    cr_assert(f.done && used == 2 && pass == 2);
    flow_begin(&f, HTTP1_NO_BODY, 0);
    cr_assert(f.done);
    flow_begin(&f, HTTP1_CHUNKED, 0);
    f.strip = true;
    cr_assert_eq(flow_take(&f, STR("2\r\n"), &used, &pass, NULL), 0);
    cr_assert(used == 3 && pass == 0);
    cr_assert_eq(flow_take(&f, STR("ok\r\n0\r\n\r\n"), &used, &pass, NULL), 0);
    cr_assert(used == 2 && pass == 2);
    cr_assert_eq(flow_take(&f, STR("\r\n0\r\n\r\n"), &used, &pass, NULL), 0);
    cr_assert(!f.done && used == 2 && pass == 0);
    cr_assert_eq(flow_take(&f, STR("0\r\n\r\n"), &used, &pass, NULL), 0);
    cr_assert(f.done && used == 5 && pass == 0);
    cr_assert_eq(flow_take(&(struct flow){.body = HTTP1_CHUNKED}, STR("x"), &used, &pass, NULL),
                 -1);
}
