
#include "router/hub.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/net/http1.h"
#include "common/net/own_names.h"
#include "common/net/tls_server.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "common/proc/metrics.h"
#include "router/upstreams.h"

enum { PIPE_BYTES = 1 << 20, LOGGED_PER_SECOND = 5 };

/* Everything passed is borrowed. */
void hub_init(struct hub *h, const struct heritage *heritage, struct loop *l, struct upstreams *u)
{
    *h = (struct hub){.heritage = heritage,
                      .config = heritage->config,
                      .loop = l,
                      .upstreams = u,
                      .page = heritage->page};
    h->own_names = own_names_new();
    h->scratch = mem_alloc(HUB_SCRATCH);
    h->head = mem_zalloc(sizeof(*h->head));
    if (getrandom(&h->request_salt, sizeof(h->request_salt), GRND_NONBLOCK) < 0)
        h->request_salt = (uint32_t)clock_ms() ^ (uint32_t)getpid();
}

void hub_set_keys(struct hub *h, const struct keys *k)
{
    h->keys = h->config->admin_key_file ? k : NULL;
    h->fleet_keys = h->heritage->fleet ? k : NULL;
}

struct str hub_show_name(const struct hub *h, char text[HUB_NAME_MAX])
{
    struct str name = upstreams_own_name(h->upstreams, text);
    int n =
        snprintf(text + name.len, HUB_NAME_MAX - name.len, " %s", keys_node_proof(h->fleet_keys));

    return str_of(text, name.len + (size_t)n);
}

void hub_done(struct hub *h)
{
    while (h->spare_pipe_count > 0) {
        int *pipe = h->spare_pipes[--h->spare_pipe_count];

        close(pipe[0]);
        close(pipe[1]);
    }
    map_done(&h->callers);
    own_names_free(h->own_names);
    tls_server_free(h->tls);
    free(h->scratch);
    free(h->head);
}

/* The id is a random number of this router and a counter, so it needs no system call. */
struct str hub_request_id(struct hub *h, char text[HUB_REQUEST_ID_MAX])
{
    static const char digits[] = "0123456789abcdef";
    uint64_t v = ((uint64_t)h->request_salt << 32) | (uint32_t)++h->request_seq;
    char *p = text;

    memcpy(p, "req-", 4);
    p += 4;
    for (int shift = 60; shift >= 0; shift -= 4)
        *p++ = digits[(v >> shift) & 15];
    *p = 0;
    return str_of(text, (size_t)(p - text));
}

int hub_take_pipe(struct hub *h, int ret[2])
{
    if (h->spare_pipe_count > 0) {
        int *pipe = h->spare_pipes[--h->spare_pipe_count];

        ret[0] = pipe[0];
        ret[1] = pipe[1];
        return 0;
    }
    if (pipe2(ret, O_NONBLOCK | O_CLOEXEC) != 0)
        return -1;
    (void)fcntl(ret[0], F_SETPIPE_SZ, PIPE_BYTES); /* if the user's limit is lower: the default */
    return 0;
}

void hub_put_pipe(struct hub *h, int pipe[2], bool empty)
{
    if (empty && h->spare_pipe_count < HUB_SPARE_PIPES) {
        int *to = h->spare_pipes[h->spare_pipe_count++];

        to[0] = pipe[0];
        to[1] = pipe[1];
    } else {
        close(pipe[0]);
        close(pipe[1]);
    }
    pipe[0] = pipe[1] = -1;
}

/* Logs at most LOGGED_PER_SECOND lines. */
void hub_blame_worker(struct hub *h, const char *session, int upstream, const char *what)
{
    static struct log_limit limit;
    struct log_scope scope = {.session = str_cstr(session)};
    struct str address = upstreams_authority(h->upstreams, upstream);
    unsigned dropped;

    metrics_count(h->page, METRIC_upstream_errors, 1);
    if (log_limit_pass(&limit, LOGGED_PER_SECOND, &dropped))
        log_warn(&scope, what, address.p ? LOG_S("upstream", address) : LOG_I("upstream", upstream),
                 LOG_U("suppressed", dropped));
}
