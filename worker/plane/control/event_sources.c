/* Follows the events of the other workers, of the dispatcher and of other nodes while this worker's
 * /events has a viewer. Each source is one long GET of its /events?local=1 over its socket, or of
 * /events?here=1 at the address of a node, with the viewer's own keys. Only whole events are
 * relayed. The first event of a source (hello) is meant for this worker and not relayed. A source
 * that ends is asked again after AGAIN_MS, and viewers are notified that they may have missed
 * events (lost). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/fleet/place_table.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "common/os/loop.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/presented.h"
#include "common/serve/exchange.h"
#include "worker/plane/control/events.h"
#include "worker/plane/service/service.h"

enum {
    AGAIN_MS = 1000,
    PARTIAL_MAX = 8 << 20,
    DISPATCHER = BOARD_WORKERS_MAX,
    NODES, /* number of the first node */
    SOURCES = NODES + FLEET_NODES_MAX
};

struct event_source {
    struct event_sources *all;
    enum reach from;
    char address[FLEET_ADDRESS_MAX]; /* of a node: where the client connects to */
    struct http_client *client;      /* client of the source; NULL: not used yet */
    struct http_call *call;          /* the long GET; NULL: not followed now */
    struct buf partial;              /* bytes of an event that has not arrived completely */
    bool refused;                    /* the answer is no event stream */
    bool greeted;                    /* the first event, hello, has arrived */
};

struct event_sources {
    struct service *service;
    void (*relay)(void *ctx, struct str events, enum reach from);
    void (*lost)(void *ctx, enum reach from);
    void *ctx;
    enum reach reach;   /* of the sources that are followed */
    struct buf headers; /* request headers with the viewer's keys */
    struct loop_timer
        again; /* checks which sources are not followed; active while there is a viewer */
    struct event_source at[SOURCES]; /* sources by index */
};

/* Makes the set. It follows no source yet. */
struct event_sources *
event_sources_new(struct service *a, void (*relay)(void *ctx, struct str events, enum reach from),
                  void (*lost)(void *ctx, enum reach from), void *ctx)
{
    struct event_sources *s = mem_zalloc(sizeof(*s));

    s->service = a;
    s->relay = relay;
    s->lost = lost;
    s->ctx = ctx;
    for (size_t i = 0; i < ARRAY_LEN(s->at); i++) {
        s->at[i].all = s;
        s->at[i].from = i < NODES ? REACH_NODE : REACH_FLEET;
    }
    return s;
}

/* --- one source --- */

static void on_head(void *ctx, const struct http1_head *h)
{
    struct event_source *from = ctx;

    from->refused = h->status != 200;
}

/* Returns the length of the whole events, including the empty line after the last. */
static size_t whole_events(struct str bytes)
{
    for (size_t n = bytes.len; n >= 2; n--) {
        if (bytes.p[n - 1] == '\n' && bytes.p[n - 2] == '\n')
            return n;
    }
    return 0;
}

/* Relays the events that have arrived completely, and keeps the rest. */
static void relay_events(struct event_source *from)
{
    struct str whole = str_sub(buf_str(&from->partial), 0, whole_events(buf_str(&from->partial)));
    size_t taken = whole.len;

    if (!from->greeted && taken > 0) {
        size_t hello = str_find(whole, STR("\n\n"), 0) + 2;

        from->greeted = true;
        whole = str_sub(whole, hello, SIZE_MAX);
    }
    if (whole.len > 0)
        from->all->relay(from->all->ctx, whole, from->from);
    buf_consume(&from->partial, taken);
}

/* Forgets a source that has ended. Viewers may have missed events only of a source that had sent
 * its hello. */
static void forget_source(struct event_source *from)
{
    bool followed = from->greeted;

    from->call = NULL;
    from->greeted = false;
    buf_done(&from->partial);
    if (followed)
        from->all->lost(from->all->ctx, from->from);
}

/* Drops a source that sends no end of an event before it fills memory. */
static void on_body(void *ctx, struct str bytes)
{
    struct event_source *from = ctx;

    if (from->refused)
        return;
    buf_add_str(&from->partial, bytes);
    relay_events(from);
    if (from->partial.len > PARTIAL_MAX) { /* no valid event is so long */
        http_call_cancel(from->call);
        forget_source(from);
    }
}

static void on_done(void *ctx)
{
    forget_source(ctx);
}

static void on_failed(void *ctx, const struct err *e, bool began)
{
    (void)e;
    (void)began;
    forget_source(ctx);
}

/* Opens a client for the source's socket in the run folder, by the source's index. */
static int open_client(struct event_source *from, size_t place, struct err *e)
{
    struct event_sources *s = from->all;
    const struct heritage *h = s->service->heritage;
    struct http_client_options o = {.max_idle = 1};
    char path[128], url[160];
    int rc = place == DISPATCHER
                 ? heritage_dispatcher_path(h->run_dir, path, sizeof(path))
                 : heritage_socket_path(h->run_dir, h->board->worker_base + (uint32_t)place, path,
                                        sizeof(path));

    if (rc)
        return err_set(e, ERR_CONFIG, "the run folder's path is too long");
    (void)snprintf(url, sizeof(url), "unix:%s", path);
    return http_client_new(s->service->calls.loop, url, &o, &from->client, e);
}

static void start_source(struct event_source *from)
{
    static const struct http_events events = {on_head, on_body, on_done, on_failed};
    bool is_node = from->from == REACH_FLEET;

    from->refused = false;
    from->call =
        http_client_start(from->client,
                          &(struct http_request){
                              .method = "GET",
                              .path = is_node ? STR("/events?here=1") : STR("/events?local=1"),
                              .headers = buf_str(&from->all->headers),
                          },
                          &events, from);
}

/* Follows a source that is not followed yet. */
static void follow_source(struct event_source *from, size_t place)
{
    struct err e = {0};

    if (!from->call && (from->client || open_client(from, place, &e) == 0))
        start_source(from);
}

/* Stops to follow a source, without a report. */
static void leave_source(struct event_source *from)
{
    if (from->call)
        http_call_cancel(from->call);
    from->call = NULL;
    from->greeted = false;
    buf_done(&from->partial);
}

/* --- nodes --- */

static void close_node(struct event_source *from)
{
    if (from->call) {
        http_call_cancel(from->call);
        forget_source(from);
    }
    http_client_free(from->client);
    from->client = NULL;
}

static int open_node(struct event_source *from, const struct fleet_node *node)
{
    struct http_client_options o = {.max_idle = 1, .background = true};
    char url[FLEET_ADDRESS_MAX + 16];
    struct err e;

    memcpy(from->address, node->address, sizeof(from->address));
    (void)snprintf(url, sizeof(url), "http://%s", node->address);
    return http_client_new(from->all->service->calls.loop, url, &o, &from->client, &e);
}

/* Follows the nodes that live, at their present addresses. A frozen node is left when it is lost.
 */
static void follow_nodes(struct event_sources *s)
{
    const struct place_table *t = s->service->heritage->fleet;
    struct fleet_node node;

    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        struct event_source *from = &s->at[NODES + slot];
        bool lives = place_table_node(t, slot, &node) && node.state != FLEET_LOST && !node.is_self;

        if (from->client && (!lives || strcmp(from->address, node.address) != 0))
            close_node(from);
        if (lives && !from->call && (from->client || open_node(from, &node) == 0))
            start_source(from);
    }
}

/* --- all sources --- */

/* Runs once a second: follows each source that is ready and not followed. */
static void on_again(struct loop_timer *t)
{
    struct event_sources *s = CONTAINER_OF(t, struct event_sources, again);
    const struct heritage *h = s->service->heritage;

    for (uint32_t place = 0; place < BOARD_WORKERS_MAX; place++) {
        if (place != h->place && board_ready(h->board, BOARD_WORKER0 + place))
            follow_source(&s->at[place], place);
    }
    if (h->config->dispatcher &&
        (!h->fleet || place_table_own_epoch(h->fleet, FLEET_DISPATCHER) != 0))
        follow_source(&s->at[DISPATCHER], DISPATCHER);
    if (s->reach == REACH_FLEET && h->fleet)
        follow_nodes(s);
    loop_timer_set(s->service->calls.loop, t, AGAIN_MS, on_again);
}

/* The keys of the newest viewer are used from now on. */
void event_sources_follow(struct event_sources *s, const struct exchange *x, enum reach reach)
{
    struct presented shown = {.n = 0};
    bool farther = reach > s->reach;

    exchange_keys(x, &shown);
    buf_clear(&s->headers);
    for (size_t i = 0; i < shown.n; i++)
        buf_printf(&s->headers, "x-api-key: %.*s\r\n", (int)shown.at[i].len, shown.at[i].p);
    s->reach = MAX_OF(s->reach, reach);
    if (farther)
        on_again(&s->again);
}

void event_sources_leave(struct event_sources *s, enum reach reach)
{
    if (s->reach <= reach)
        return;
    s->reach = reach;
    if (reach == REACH_PROCESS)
        loop_timer_stop(s->service->calls.loop, &s->again);
    for (size_t i = 0; i < ARRAY_LEN(s->at); i++) {
        if (s->at[i].from > reach)
            leave_source(&s->at[i]);
    }
}

/* Frees the sources; accepts NULL. */
void event_sources_free(struct event_sources *s)
{
    if (!s)
        return;
    event_sources_leave(s, REACH_PROCESS);
    for (size_t i = 0; i < ARRAY_LEN(s->at); i++) {
        if (s->at[i].client)
            http_client_free(s->at[i].client);
    }
    buf_done(&s->headers);
    free(s);
}
