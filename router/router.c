/* A drain accepts what waits in the queue, closes idle connections, gives others --grace to finish,
 * then ends the process. */

#include "router/router.h"

#include <signal.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/proc/child.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/keys.h"
#include "router/browser_gate.h"
#include "router/client_tls.h"
#include "router/clients.h"
#include "router/front.h"
#include "router/lendings.h"
#include "router/upstreams.h"

enum {
    FAREWELL_MS = 500, /* less than the supervisor waits after --grace */
    LOOK_MS = 100      /* between two looks at requests that nothing serves */
};

/* One router process. */
struct router {
    struct hub hub;
    struct front front;
    struct child child;
    struct keys *keys;
    struct loop_timer grace;
    uint64_t grace_end_ms; /* after a failed start */
};

/* Ends the process with requests still running. */
static void end_at_once(struct loop_timer *t)
{
    struct router *r = CONTAINER_OF(t, struct router, grace);

    log_warn(NULL, "requests are cut off at the end of the grace time",
             LOG_U("connections", r->hub.conn_count));
    loop_stop(r->hub.loop);
}

/* Answers held requests first. Their connections may linger: a client that still sends its body
 * would get a reset from a closed one. */
static void on_grace_end(struct loop_timer *t)
{
    struct router *r = CONTAINER_OF(t, struct router, grace);

    if (clients_end_held(&r->hub))
        loop_timer_set(r->hub.loop, &r->grace, FAREWELL_MS, end_at_once);
    else
        end_at_once(t);
}

/* Ends a drain without connections. First accepts those in the queue, which would get a reset
 * otherwise. */
static void on_empty(struct hub *h)
{
    struct router *r = CONTAINER_OF(h, struct router, hub);

    front_take_queued(&r->front);
    if (h->conn_count == 0)
        loop_stop(h->loop);
}

/* After a failed start: requests of workers that are ready get the grace time, and those that no
 * process serves are cut. */
static void on_failed_look(struct loop_timer *t)
{
    struct router *r = CONTAINER_OF(t, struct router, grace);

    clients_close_unserved(&r->hub);
    if (loop_now_ms(r->hub.loop) < r->grace_end_ms)
        loop_timer_set(r->hub.loop, t, LOOK_MS, on_failed_look);
    else
        on_grace_end(t);
}

/* Begins the drain. */
static void on_drain(struct child *c)
{
    struct router *r = CONTAINER_OF(c, struct router, child);
    uint64_t grace_ms = (uint64_t)r->hub.config->grace_ms;

    front_take_queued(&r->front);
    front_drain(&r->front);
    r->hub.draining = true;
    upstreams_leave_behind(r->hub.upstreams);
    r->hub.on_empty = on_empty;
    clients_close_idle(&r->hub);
    if (r->hub.conn_count == 0)
        on_empty(&r->hub);
    r->grace_end_ms = loop_now_ms(r->hub.loop) + grace_ms;
    if (atomic_load(&r->hub.heritage->board->failed))
        loop_timer_set(r->hub.loop, &r->grace, 1, on_failed_look);
    else
        loop_timer_set(r->hub.loop, &r->grace, grace_ms, on_grace_end);
}

/* Accepts on a retired router's socket, too. */
static void on_adopt(struct child *c, const struct heritage_place *place)
{
    struct router *r = CONTAINER_OF(c, struct router, child);
    struct err e;

    if (front_add(&r->front, place->listen_fd, &e) != 0)
        log_error(NULL, "a retired router's socket is not served", LOG_T("reason", e.text));
}

/* Loads the keys for /metrics, the gate and other nodes. On -1 the previous keys stay. */
static int load_keys(struct router *r, const struct config *c, struct err *e)
{
    struct keys *fresh = NULL;
    bool workers_here = c->upstream.n == 0; /* whose secret is in the state folder */

    bool needed = r->hub.heritage->fleet ||
                  (c->admin_key_file && (workers_here || c->metrics_auth || c->key_secret_file));

    if (needed && keys_load(c->admin_key_file, c->key_secret_file, c->state_dir, &fresh, e) != 0)
        return -1;
    hub_set_keys(&r->hub, fresh);
    keys_free(r->keys);
    r->keys = fresh;
    return 0;
}

/* Applies new limits, keys, peers and certificates. */
static void on_reload(struct child *c)
{
    struct router *r = CONTAINER_OF(c, struct router, child);
    struct err e;

    front_reload(&r->front);
    if (upstreams_reload_peers(r->hub.upstreams, &e) != 0)
        log_error(NULL, "peers are unchanged", LOG_T("reason", e.text));
    if (load_keys(r, r->hub.config, &e) != 0)
        log_error(NULL, "keys are unchanged", LOG_T("reason", e.text));
    if (client_tls_load(&r->hub, &e) != 0)
        log_error(NULL, "the certificate is unchanged", LOG_T("reason", e.text));
    lendings_recall(r->hub.lendings); /* workers do not check what a reload forbids */
}

/* Prepares everything and accepts connections. Returns 0, or -1 with e. */
static int start_router(struct router *r, const struct heritage *h, struct loop *l, struct err *e)
{
    struct upstreams *u = upstreams_new(h, l, e);

    if (u == NULL)
        return -1;
    hub_init(&r->hub, h, l, u);
    clients_init(&r->hub);
    (void)signal(SIGPIPE, SIG_IGN);
    if (load_keys(r, h->config, e) != 0 || client_tls_load(&r->hub, e) != 0 ||
        child_init(&r->child, l, h, on_drain, e) != 0)
        return -1;
    r->child.on_reload = on_reload;
    r->child.on_adopt = on_adopt;
    return front_init(&r->front, &r->hub, e);
}

/* Closes everything. Returns false if a TLS handshake does not end. */
static bool stop_router(struct router *r)
{
    bool ended;

    front_done(&r->front);
    child_done(&r->child);
    r->hub.on_empty = NULL;
    clients_close_all(&r->hub);
    loop_poll(r->hub.loop, 0); /* frees the closed connections */
    ended = client_tls_stop(&r->hub);
    lendings_free(r->hub.lendings);
    upstreams_free(r->hub.upstreams);
    keys_free(r->keys);
    hub_done(&r->hub);
    return ended;
}

size_t router_capacity(size_t descriptors)
{
    return front_capacity(descriptors);
}

void router_check(const struct config *c, struct buf *mistakes)
{
    upstreams_check(c, mistakes);
    client_tls_check(c, mistakes);
    browser_gate_check_hosts(c, mistakes);
}

int router_run(const struct heritage *h)
{
    struct router r = {0};
    struct err e = {0};
    struct loop *l = loop_new(&e);
    int status = 1;

    if (l != NULL && start_router(&r, h, l, &e) == 0) {
        child_ready(&r.child, "");
        loop_run(l);
        status = 0;
    }
    if (status != 0) {
        log_error(NULL, "the router cannot start", LOG_T("reason", e.text));
        child_failed(h, e.text);
    }
    if (r.hub.loop != NULL && !stop_router(&r))
        _exit(status);
    loop_free(l);
    return status;
}
