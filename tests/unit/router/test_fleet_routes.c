/* Requests in a fleet over real sockets. The test is the client, the nodes, the own worker, and the
 * keeper that writes the place table. */
#include "common/base/clock.h"
#include "common/fleet/place_table.h"
#include "common/net/http1.h"
#include "common/proc/board.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "door.h"
#include "router/clients.h"
#include "router/hub.h"
#include "router/lendings.h"
#include "router/upstreams.h"
#include "testing.h"

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_MS = 10000, NODES = 3, SELF = 0, B = 1, C = 2, SILENT_MS = 60 };

#define ID "0123456789abcdef0123456789abcdef"
#define GET(place) "GET /sessions/w" #place "-" ID " HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define POST(place, path, length)         \
    "POST /sessions/w" #place "-" ID path \
    " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " #length "\r\n\r\n"
#define FOUND "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define MISDIRECTED "HTTP/1.1 421 Misdirected\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

struct fleet {
    struct config config;
    struct heritage heritage;
    struct hub hub;
    struct door door; /* socket of the own worker */
    struct place_table *table;
    int listener[NODES]; /* listeners of the other nodes; -1: the node is gone */
    uint64_t epoch;
    int client, link; /* `link`: the router's last connection to a node or worker; -1: none */
    char text[1 << 18];
};

/* Sets the owner of a place. Places 0, 256 and 512 are the first of the blocks of a, b and c. */
static void set_owner(struct fleet *f, uint32_t index, uint32_t node)
{
    struct fleet_place place = {.index = index, .node = node, .epoch = ++f->epoch, .whole = true};

    cr_assert(place_table_set(f->table, &place));
}

static int listen_tcp(uint16_t *port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*port)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, len), 0);
    cr_assert_eq(listen(fd, 8), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static void set_node(struct fleet *f, uint32_t slot, uint16_t port, enum fleet_node_state state)
{
    struct fleet_node node = {.state = state, .block = slot};

    (void)snprintf(node.name, sizeof(node.name), "%c", 'a' + (char)slot);
    (void)snprintf(node.address, sizeof(node.address), "127.0.0.1:%u", port);
    place_table_set_node(f->table, slot, &node);
}

static void open_fleet(struct fleet *f)
{
    struct loop *l;
    struct err e;

    (void)signal(SIGPIPE, SIG_IGN);
    memset(f, 0, sizeof(*f));
    f->client = f->link = -1;
    door_folder(&f->door);
    f->config.max_body_bytes = 1 << 20;
    f->config.max_header_bytes = 1 << 16;
    f->config.idle_timeout_ms = f->config.header_timeout_ms = f->config.body_timeout_ms =
        f->config.send_timeout_ms = f->config.fleet_hold_ms = 60000;
    f->table = place_table_new();
    f->heritage = (struct heritage){.config = &f->config,
                                    .board = board_new(),
                                    .fleet = f->table,
                                    .run_dir = f->door.folder,
                                    .state_dir = f->door.folder};
    f->heritage.board->workers = 1;
    f->heritage.board->slots[BOARD_WORKER0].state = BOARD_READY;
    cr_assert_eq(heritage_socket_path(f->door.folder, 0, f->door.path, sizeof(f->door.path)), 0);
    door_listen(&f->door);
    f->listener[SELF] = f->door.fd;
    for (uint32_t slot = 0; slot < NODES; slot++) {
        uint16_t port = 0;

        if (slot != SELF)
            f->listener[slot] = listen_tcp(&port);
        set_node(f, slot, port, FLEET_UP);
        set_owner(f, slot * FLEET_BLOCK_SIZE, slot);
    }
    place_table_set_self(f->table, SELF);
    l = loop_new(&e);
    hub_init(&f->hub, &f->heritage, l, upstreams_new(&f->heritage, l, &e));
    cr_assert_not_null(f->hub.upstreams, "%s", e.text);
    clients_init(&f->hub);
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_fleet(struct fleet *f)
{
    struct loop *l = f->hub.loop;

    clients_close_all(&f->hub);
    (void)loop_poll(l, 0);
    lendings_free(f->hub.lendings);
    upstreams_free(f->hub.upstreams);
    hub_done(&f->hub);
    loop_free(l);
    board_free(f->heritage.board);
    place_table_free(f->table);
    drop(&f->client);
    drop(&f->link);
    drop(&f->listener[B]);
    drop(&f->listener[C]);
    door_close(&f->door);
}

static void say(int fd, const char *text)
{
    cr_assert_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void ask(struct fleet *f, const char *request)
{
    int fds[2];

    drop(&f->client);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    f->client = fds[0];
    clients_add(&f->hub, fds[1], STR("10.0.0.1"));
    say(f->client, request);
}

/* Runs the router until fd is readable, for at most limit_ms. */
static bool wait_for(struct fleet *f, int fd, uint64_t limit_ms)
{
    uint64_t until_ms = clock_ms() + limit_ms;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (poll(&p, 1, 0) == 0) {
        if (clock_ms() >= until_ms)
            return false;
        (void)loop_poll(f->hub.loop, 1);
    }
    return true;
}

/* Runs the router until a request is held, or none is. */
static void wait_held(struct fleet *f, bool held)
{
    uint64_t until_ms = clock_ms() + LIMIT_MS;

    while (list_is_empty(&f->hub.held) == held) {
        cr_assert_lt(clock_ms(), until_ms);
        (void)loop_poll(f->hub.loop, 1);
    }
}

static const char *hear(struct fleet *f, int fd, const char *end)
{
    size_t n = 0;
    ssize_t got = 1;

    f->text[0] = '\0';
    while (got > 0 && !(end && strstr(f->text, end))) {
        cr_assert(wait_for(f, fd, LIMIT_MS), "nothing comes after: %s", f->text);
        got = recv(fd, f->text + n, sizeof(f->text) - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
        f->text[n] = '\0';
    }
    return f->text;
}

/* Reads the request that a node gets, up to `end`, on the link or on a new one. */
static const char *node_hears(struct fleet *f, uint32_t node, const char *end)
{
    if (f->link < 0) {
        cr_assert(wait_for(f, f->listener[node], LIMIT_MS), "node %u gets nothing", node);
        f->link = accept(f->listener[node], NULL, NULL);
        cr_assert_geq(f->link, 0);
    }
    return hear(f, f->link, end);
}

/* Lets the node read n bytes. */
static void node_takes(struct fleet *f, size_t n)
{
    while (n > 0) {
        ssize_t got;

        cr_assert(wait_for(f, f->link, LIMIT_MS));
        got = recv(f->link, f->text, MIN_OF(n, sizeof(f->text)), 0);
        cr_assert_gt(got, 0);
        n -= (size_t)got;
    }
}

/* Closes the node's connection. */
static void node_ends(struct fleet *f)
{
    drop(&f->link);
}

static void node_resets(struct fleet *f)
{
    (void)setsockopt(f->link, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                     sizeof(struct linger));
    node_ends(f);
}

static void expect(struct fleet *f, const char *status, const char *part)
{
    hear(f, f->client, part);
    cr_assert(strstr(f->text, status) == f->text && strstr(f->text, part), "%s", f->text);
}

TEST(fleet_routes, a_request_goes_to_the_owner_of_its_place)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, GET(0));
    cr_assert_null(strstr(node_hears(&f, SELF, "\r\n\r\n"), HTTP1_FORWARDED_BY));
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    node_ends(&f);
    for (uint32_t node = B; node <= C; node++) {
        ask(&f, node == B ? GET(256) : GET(512));
        node_hears(&f, node, "\r\n\r\n");
        cr_assert(strstr(f.text, HTTP1_FORWARDED_BY ": a\r\n"), "%s", f.text);
        cr_assert(strstr(f.text, "\r\nHost: 127.0.0.1:"), "%s", f.text);
        cr_assert(strstr(f.text, "\r\nX-Forwarded-Host: localhost\r\n"), "%s", f.text);
        say(f.link, FOUND);
        expect(&f, "HTTP/1.1 200", "ok");
        node_ends(&f);
    }
    set_owner(&f, 512, B);
    ask(&f, GET(512));
    node_hears(&f, B, "\r\n\r\n");
    close_fleet(&f);
}

TEST(fleet_routes, a_request_is_held_while_its_place_has_no_owner)
{
    struct fleet f;

    open_fleet(&f);
    set_owner(&f, 256, FLEET_NO_NODE);
    ask(&f, POST(256, "/fork", 5) "ab");
    wait_held(&f, true);
    cr_assert(!wait_for(&f, f.listener[B], SILENT_MS));
    set_owner(&f, 512, B); /* a different place */
    cr_assert(!wait_for(&f, f.listener[B], SILENT_MS));
    say(f.client, "cde");
    set_owner(&f, 256, C);
    cr_assert(strstr(node_hears(&f, C, "abcde"), "/fork"));
    wait_held(&f, false);
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    close_fleet(&f);
}

TEST(fleet_routes, a_place_that_a_lost_node_owns_has_no_owner)
{
    struct fleet f;
    uint16_t port = 1;

    open_fleet(&f);
    set_node(&f, B, port, FLEET_LOST);
    ask(&f, GET(256));
    wait_held(&f, true);
    set_owner(&f, 256, SELF);
    place_table_set_own(f.table, 256, f.epoch, 0);
    cr_assert(!wait_for(&f, f.client, SILENT_MS)); /* no worker serves it yet */
    set_owner(&f, 256, C);
    node_hears(&f, C, "\r\n\r\n");
    close_fleet(&f);
}

TEST(fleet_routes, a_hold_ends_with_no_owner)
{
    struct fleet f;

    open_fleet(&f);
    f.config.fleet_hold_ms = 50;
    set_owner(&f, 256, FLEET_NO_NODE);
    ask(&f, GET(256));
    expect(&f, "HTTP/1.1 503", "\"no_owner\"");
    cr_assert(strstr(f.text, "Retry-After: ") && strstr(f.text, "x-should-retry: true"));
    ask(&f, GET(256)); /* the next request is held again */
    wait_held(&f, true);
    close_fleet(&f);
}

TEST(fleet_routes, an_owner_that_refuses_is_asked_again_or_its_follower)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, GET(256));
    for (int i = 0; i < 3; i++) { /* b does not know of its claim yet */
        node_hears(&f, B, "\r\n\r\n");
        say(f.link, MISDIRECTED);
        node_ends(&f);
    }
    wait_held(&f, true);
    set_owner(&f, 256, C);
    node_hears(&f, C, "\r\n\r\n");
    cr_assert(strstr(f.text, "GET /sessions/w256-") == f.text, "%s", f.text);
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    close_fleet(&f);
}

TEST(fleet_routes, a_call_whose_node_ends_waits_for_the_next_owner)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, POST(256, "/v1/chat/completions", 4) "ab");
    node_hears(&f, B, "ab");
    say(f.client, "cd");
    node_hears(&f, B, "cd");
    set_owner(&f, 256, FLEET_NO_NODE);
    node_ends(&f);
    wait_held(&f, true);
    set_owner(&f, 256, C);
    node_hears(&f, C, "abcd");
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    say(f.client, GET(512)); /* the connection continues */
    node_hears(&f, C, "GET /sessions/w512-");
    close_fleet(&f);
}

TEST(fleet_routes, a_chunked_call_is_repeated_as_it_came)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, "POST /sessions/w256-" ID "/v1/messages HTTP/1.1\r\nHost: localhost\r\n"
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2");
    node_hears(&f, B, "\r\n\r\n");
    set_owner(&f, 256, C);
    node_ends(&f);
    node_hears(&f, C, "\r\n\r\n");
    say(f.link, "HTTP/1.1 100 Continue\r\n\r\n");
    node_hears(&f, C, "3\r\nabc\r\n");
    say(f.client, "\r\nde\r\n0\r\n\r\n");
    node_hears(&f, C, "0\r\n\r\n");
    cr_assert_str_eq(f.text, "2\r\nde\r\n0\r\n\r\n");
    close_fleet(&f);
}

TEST(fleet_routes, an_order_that_a_lost_node_may_have_obeyed_is_not_repeated)
{
    struct fleet f;

    open_fleet(&f);
    for (int i = 0; i < 2; i++) {
        set_owner(&f, 256, B);
        ask(&f, POST(256, "/fork", 2) "{}");
        node_hears(&f, B, "{}");
        set_owner(&f, 256, C);
        if (i == 0)
            node_ends(&f);
        else
            node_resets(&f); /* on a new link, which does not show what was read */
        expect(&f, "HTTP/1.1 503", "worker_unavailable");
        cr_assert(!wait_for(&f, f.listener[C], SILENT_MS));
    }
    close_fleet(&f);
}

/* Passes n bytes of the body on, in pieces. */
static void pass_body(struct fleet *f, size_t n)
{
    static char piece[20001];

    memset(piece, 'x', sizeof(piece) - 1);
    for (; n > 0; n -= strlen(piece)) {
        say(f->client, piece);
        node_takes(f, strlen(piece));
    }
}

TEST(fleet_routes, a_long_body_waits_until_a_node_accepts_it)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, POST(256, "/v1/messages", 180020));
    cr_assert(strstr(node_hears(&f, B, "\r\n\r\n"), "\r\nExpect: 100-continue\r\n"));
    say(f.client, "0123456789");
    cr_assert(!wait_for(&f, f.link, SILENT_MS));
    set_owner(&f, 256, C);
    say(f.link, MISDIRECTED);
    node_ends(&f);
    node_hears(&f, C, "\r\n\r\n");
    cr_assert(!wait_for(&f, f.link, SILENT_MS));
    say(f.link, "HTTP/1.1 100 Continue\r\n\r\n");
    node_takes(&f, 10);
    pass_body(&f, 180000);
    say(f.client, "0123456789");
    node_takes(&f, 10);
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    ask(&f, POST(256, "/v1/messages", 180020)); /* an accepted body is not kept */
    node_hears(&f, C, "\r\n\r\n");
    say(f.link, "HTTP/1.1 100 Continue\r\n\r\n");
    pass_body(&f, 100000);
    node_ends(&f);
    expect(&f, "HTTP/1.1 503", "\"overloaded_error\"");
    close_fleet(&f);
}

TEST(fleet_routes, a_long_body_of_another_node_is_accepted)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, "POST /sessions/w0-" ID "/v1/messages HTTP/1.1\r\nHost: localhost\r\n"
            "Rollgate-Forwarded: b\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    cr_assert_null(strstr(node_hears(&f, SELF, "\r\n\r\n"), "Expect"));
    expect(&f, "HTTP/1.1 100", "\r\n\r\n");
    say(f.client, "abcde");
    node_hears(&f, SELF, "abcde");
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    close_fleet(&f);
}

TEST(fleet_routes, a_node_that_cannot_be_reached_is_tried_until_it_can)
{
    struct fleet f;
    uint16_t port = 0;

    open_fleet(&f);
    drop(&f.listener[B]);
    f.listener[B] = listen_tcp(&port);
    set_node(&f, B, port, FLEET_UP);
    for (int claims = 0; claims < 2; claims++) {
        drop(&f.listener[B]);
        ask(&f, POST(256, "/fork", 2) "{}");
        wait_held(&f, true);
        cr_assert(!wait_for(&f, f.client, SILENT_MS));
        f.listener[B] = listen_tcp(&port);
        if (claims)
            set_owner(&f, 256, B); /* with a later epoch */
        cr_assert_eq(wait_for(&f, f.listener[B], 500), claims != 0);
        node_hears(&f, B, "{}");
        say(f.link, FOUND);
        expect(&f, "HTTP/1.1 200", "ok");
        node_ends(&f);
    }
    close_fleet(&f);
}

TEST(fleet_routes, a_link_that_died_while_idle_is_replaced_at_once)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, GET(256));
    node_hears(&f, B, "\r\n\r\n");
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    say(f.client, POST(256, "/fork", 2) "{}");
    node_hears(&f, B, "{}");
    node_resets(&f); /* the request was not read */
    node_hears(&f, B, "{}");
    close_fleet(&f);
}

/* There is one hop: a request that a node forwarded here is neither forwarded again nor held. */
TEST(fleet_routes, a_forwarded_request_is_served_here_or_misdirected)
{
    static const char from_b[] = "GET /sessions/w%d-" ID " HTTP/1.1\r\nHost: localhost\r\n"
                                 "Rollgate-Forwarded: %s\r\n\r\n";
    char request[256], epoch[64];
    struct fleet f;

    open_fleet(&f);
    (void)snprintf(request, sizeof(request), from_b, 0, "b");
    ask(&f, request);
    node_hears(&f, SELF, "\r\n\r\n");
    node_ends(&f);
    (void)snprintf(request, sizeof(request), from_b, 512, "b");
    ask(&f, request);
    (void)snprintf(epoch, sizeof(epoch), "the epoch that it knows is %llu",
                   (unsigned long long)f.epoch);
    expect(&f, "HTTP/1.1 421", "\"misdirected\"");
    cr_assert(strstr(f.text, epoch), "%s", f.text);
    set_owner(&f, 512, FLEET_NO_NODE);
    ask(&f, request);
    expect(&f, "HTTP/1.1 421", "\"misdirected\"");
    (void)snprintf(request, sizeof(request), from_b, 256, "a");
    ask(&f, request);
    expect(&f, "HTTP/1.1 421", "--fleet-address");
    close_fleet(&f);
}

TEST(fleet_routes, an_index_of_no_node_is_unknown_and_a_forgotten_place_is_held)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, GET(1024));
    expect(&f, "HTTP/1.1 404", "\"unknown_session\"");
    place_table_remove(f.table, 512);
    set_owner(&f, 513, B); /* b restores its places one by one */
    ask(&f, GET(512));
    wait_held(&f, true);
    set_owner(&f, 512, B); /* b had adopted it, and restores it */
    node_hears(&f, B, "\r\n\r\n");
    ask(&f, GET(514)); /* its block has places, but never this one */
    expect(&f, "HTTP/1.1 404", "\"unknown_session\"");
    cr_assert(place_table_set_vacant(f.table, 513, false)); /* its sessions have ended */
    ask(&f, GET(513));
    expect(&f, "HTTP/1.1 404", "\"unknown_session\"");
    place_table_set_self(f.table, FLEET_NO_NODE); /* no place is unknown before the store is read */
    ask(&f, GET(1024));
    wait_held(&f, true);
    close_fleet(&f);
}

TEST(fleet_routes, a_place_whose_node_is_forgotten_too_is_held)
{
    struct fleet f;

    open_fleet(&f);
    place_table_remove(f.table, 512); /* an older copy of the store was promoted */
    place_table_remove_node(f.table, C);
    ask(&f, GET(512));
    wait_held(&f, true);
    set_owner(&f, 512, B);
    node_hears(&f, B, "\r\n\r\n");
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    cr_assert(place_table_set_vacant(f.table, 512, false)); /* its sessions have ended */
    place_table_remove(f.table, 512);
    ask(&f, GET(512));
    expect(&f, "HTTP/1.1 404", "\"unknown_session\"");
    close_fleet(&f);
}

TEST(fleet_routes, a_client_that_leaves_is_held_no_longer)
{
    struct fleet f;

    open_fleet(&f);
    set_owner(&f, 256, FLEET_NO_NODE);
    ask(&f, GET(256));
    wait_held(&f, true);
    drop(&f.client);
    wait_held(&f, false);
    cr_assert_eq(f.hub.conn_count, 0u);
    close_fleet(&f);
}

TEST(fleet_routes, groups_go_to_the_node_of_the_dispatcher)
{
    struct fleet f;

    open_fleet(&f);
    f.config.dispatcher = true;
    ask(&f, "GET /groups HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_held(&f, true); /* no node has the place yet */
    set_owner(&f, FLEET_DISPATCHER, C);
    node_hears(&f, C, "\r\n\r\n");
    set_owner(&f, FLEET_DISPATCHER, FLEET_NO_NODE);
    ask(&f, "GET /queues/train/next HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_held(&f, true);
    close_fleet(&f);
}

TEST(fleet_routes, groups_wait_for_the_process_of_the_dispatcher)
{
    struct fleet f;

    open_fleet(&f);
    f.config.dispatcher = true;
    set_owner(&f, FLEET_DISPATCHER, SELF);
    ask(&f, "GET /groups HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_held(&f, true);
    f.heritage.board->slots[BOARD_DISPATCHER].state = BOARD_READY;
    expect(&f, "HTTP/1.1 503", "worker_unavailable"); /* it does not listen in this test */
    close_fleet(&f);
}

/* Makes this node one that leaves, whose workers have ended. */
static void leave_fleet(struct fleet *f)
{
    f->heritage.board->leaving = 1;
    f->heritage.board->slots[BOARD_WORKER0].state = BOARD_RETIRING;
}

TEST(fleet_routes, a_node_that_leaves_passes_on_what_any_worker_serves)
{
    struct fleet f;

    open_fleet(&f);
    set_node(&f, C, 1, FLEET_DRAINING);
    leave_fleet(&f);
    ask(&f, "GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
    node_hears(&f, B, "\r\n\r\n");
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    cr_assert(strstr(f.text, "\r\nConnection: close\r\n"));
    ask(&f, "GET /stats?node=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(&f, "HTTP/1.1 503", "\"draining\"");
    ask(&f, "GET /sessions?here=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(&f, "HTTP/1.1 503", "\"draining\"");
    ask(&f, "GET /sessions HTTP/1.1\r\nHost: localhost\r\nRollgate-Forwarded: b\r\n\r\n");
    expect(&f, "HTTP/1.1 503", "\"draining\"");
    close_fleet(&f);
}

TEST(fleet_routes, a_request_that_a_worker_of_a_leaving_node_hands_back_is_refused)
{
    struct fleet f;

    open_fleet(&f);
    ask(&f, GET(0));
    cr_assert(wait_for(&f, f.door.fd, LIMIT_MS));
    f.link = accept(f.door.fd, NULL, NULL);
    leave_fleet(&f);
    node_ends(&f); /* it has read nothing */
    expect(&f, "HTTP/1.1 503", "x-should-retry: true");
    close_fleet(&f);
}

TEST(fleet_routes, a_node_that_leaves_holds_requests_while_its_calls_end)
{
    struct fleet f;

    open_fleet(&f);
    f.config.fleet_hold_ms = SILENT_MS / 2;
    f.config.grace_ms = LIMIT_MS;
    leave_fleet(&f);
    ask(&f, GET(0));
    cr_assert(!wait_for(&f, f.client, SILENT_MS));
    set_owner(&f, 0, B);
    node_hears(&f, B, "\r\n\r\n");
    close_fleet(&f);
}

/* A request that names a node has no place: only the loss of that node ends it. */
TEST(fleet_routes, a_request_that_names_a_node_ends_when_that_is_lost)
{
    const char *request = "GET /fleet?node=b HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct fleet f;

    open_fleet(&f);
    set_owner(&f, 0, C);
    ask(&f, request);
    node_hears(&f, B, "\r\n\r\n");
    set_node(&f, C, 1, FLEET_LOST);
    set_owner(&f, 0, SELF);
    cr_assert(!wait_for(&f, f.link, SILENT_MS + 200));
    say(f.link, FOUND);
    expect(&f, "HTTP/1.1 200", "ok");
    node_ends(&f);
    ask(&f, request);
    node_hears(&f, B, "\r\n\r\n");
    set_node(&f, B, 1, FLEET_LOST);
    expect(&f, "HTTP/1.1 503", "the node b is lost");
    close_fleet(&f);
}

TEST(fleet_routes, a_leaving_node_asks_the_adopter_of_a_place_while_that_serves)
{
    struct fleet f;

    open_fleet(&f);
    set_owner(&f, 1, SELF);
    f.heritage.board->slots[BOARD_WORKER0 + 1].state = BOARD_EMPTY;
    f.heritage.board->slots[BOARD_WORKER0 + 1].adopter = 1;
    f.heritage.board->leaving = 1;
    ask(&f, GET(1));
    expect(&f, "HTTP/1.1 503", "worker_unavailable"); /* not held: the socket is no file here */
    f.heritage.board->slots[BOARD_WORKER0].state = BOARD_RETIRING;
    ask(&f, GET(1));
    wait_held(&f, true);
    close_fleet(&f);
}
