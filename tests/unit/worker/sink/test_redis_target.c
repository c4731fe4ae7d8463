#include "testing.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/os/file.h"
#include "common/os/loop.h"
#include "worker/sink/sink_target.h"

enum { STALL_MS = 150, DATA = 3 << 20, PIECE = 96 << 10, PAUSE_MS = 10 };

/* A server that reads a long entry slowly, in a thread of its own, and the sink that sends it. */
struct slow_server {
    char folder[32];
    int listener;
    size_t reads_max; /* it reads nothing more after so many bytes */
    struct buf got;
    struct target_env env;
    struct target *target;
    struct loop_timer end;
    bool delivered;
};

/* Returns the data; NULL: not all of it was read. */
static const char *find_data(const struct buf *got)
{
    char head[32];
    size_t n = (size_t)snprintf(head, sizeof(head), "$4\r\ndata\r\n$%d\r\n", DATA);
    const char *at = got->len ? memmem(got->p, MIN_OF(got->len, (size_t)1024), head, n) : NULL;

    return at && got->len >= (size_t)(at - got->p) + n + DATA + 2 ? at + n : NULL;
}

static void *serve(void *ctx)
{
    static const char id[] = "$3\r\n1-1\r\n";
    struct slow_server *s = ctx;
    int fd = accept(s->listener, NULL, NULL);
    ssize_t n = 1;

    while (n > 0 && s->got.len < s->reads_max && !find_data(&s->got)) {
        (void)usleep(PAUSE_MS * 1000);
        n = read(fd, buf_reserve(&s->got, PIECE), PIECE);
        s->got.len += n > 0 ? (size_t)n : 0;
    }
    if (find_data(&s->got))
        (void)!write(fd, id, sizeof(id) - 1);
    (void)!read(fd, &(char){0}, 1); /* until the sink hangs up, if nothing more is sent */
    return NULL;
}

static void on_delivered(void *ctx, struct str session_id)
{
    struct slow_server *s = ctx;

    s->delivered = str_eq_c(session_id, "s");
    loop_stop(s->env.loop);
}

static void on_look(struct loop_timer *t)
{
    struct slow_server *s = CONTAINER_OF(t, struct slow_server, end);

    if (s->target->down)
        loop_stop(s->env.loop);
    else
        loop_timer_set(s->env.loop, t, 1, on_look);
}

static void listen_in(struct slow_server *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/redis", s->folder);
    s->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert(bind(s->listener, (struct sockaddr *)&at, sizeof(at)) == 0);
    cr_assert(listen(s->listener, 1) == 0);
}

/* Spools {"trajectories":[DATA bytes]}. */
static void spool_export(struct slow_server *s)
{
    struct buf path = {0}, aside = {0}, text = {0};

    buf_printf(&path, "%s/worker-0", s->folder);
    (void)mkdir(path.p, 0700);
    buf_printf(&path, "/spool");
    (void)mkdir(path.p, 0700);
    target_folder(s->target, 0, &path);
    (void)mkdir(path.p, 0700);
    buf_printf(&path, "/s.msgpack");
    buf_printf(&aside, "%s.new", path.p);
    buf_puts(&text, "\x81\xactrajectories\x91\xc6");
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_add_c(&text, (char)((DATA - 5) >> shift));
    for (int i = 0; i < DATA - 5; i++)
        buf_add_c(&text, (char)(i % 251));
    cr_assert_eq(file_write(path.p, aside.p, buf_str(&text), false), 0);
    buf_done(&path);
    buf_done(&aside);
    buf_done(&text);
}

static void send_export(struct slow_server *s, size_t reads_max)
{
    char setting[64];
    pthread_t thread;
    struct err e = {0};

    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/rg-sink-XXXXXX");
    cr_assert(mkdtemp(s->folder) != NULL);
    s->reads_max = reads_max;
    s->env = (struct target_env){.loop = loop_new(&e),
                                 .state_dir = s->folder,
                                 .inline_max = TARGET_INLINE_MAX,
                                 .stall_ms = STALL_MS,
                                 .delivered = on_delivered,
                                 .ctx = s};
    listen_in(s);
    (void)snprintf(setting, sizeof(setting), "redis:unix:%s/redis?stream=s", s->folder);
    cr_assert_eq(target_new(&s->env, setting, &s->target, &e), 0, "%s", e.text);
    spool_export(s);
    cr_assert_eq(pthread_create(&thread, NULL, serve, s), 0);
    target_add(s->target, 0, STR("s"));
    loop_timer_set(s->env.loop, &s->end, 1, on_look);
    loop_run(s->env.loop);
    cr_assert_eq(s->delivered, !s->target->down);
    loop_timer_stop(s->env.loop, &s->end);
    target_free(s->target); /* hangs up */
    (void)pthread_join(thread, NULL);
    loop_free(s->env.loop);
    (void)close(s->listener);
    file_remove_tree(s->folder);
}

/* It takes longer than `stall_ms`, but never stands still for so long. */
TEST(redis_target, a_server_may_read_a_long_entry_slowly)
{
    struct slow_server s = {0};
    const char *data;

    send_export(&s, SIZE_MAX);
    cr_assert(s.delivered);
    data = find_data(&s.got);
    cr_assert(data && memcmp(data + DATA, "\r\n", 2) == 0);
    for (int i = 0; i < DATA - 5; i++)
        cr_assert(data[5 + i] == (char)(i % 251), "at %d", i);
    buf_done(&s.got);
}

TEST(redis_target, a_server_that_reads_no_more_is_given_up)
{
    struct slow_server s = {0};

    send_export(&s, DATA / 2);
    cr_assert(!s.delivered);
    buf_done(&s.got);
}
