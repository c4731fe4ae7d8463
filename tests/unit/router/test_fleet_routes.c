/* Requests in a fleet: the owner of their place, and holds (fleet_kit.h). */
#include "fleet_kit.h"

TEST_WITH(fleet_routes, a_request_goes_to_the_owner_of_its_place, fleet)
{
    ask(f, GET(0));
    cr_assert_null(strstr(node_hears(f, SELF, "\r\n\r\n"), HTTP1_FORWARDED_BY));
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    node_ends(f);
    for (uint32_t node = B; node <= C; node++) {
        ask(f, node == B ? GET(256) : GET(512));
        node_hears(f, node, "\r\n\r\n");
        cr_assert(strstr(f->text, HTTP1_FORWARDED_BY ": a "), "%s", f->text);
        cr_assert(strstr(f->text, "\r\nHost: 127.0.0.1:"), "%s", f->text);
        cr_assert(strstr(f->text, "\r\nX-Forwarded-Host: localhost\r\n"), "%s", f->text);
        say(f->link, FOUND);
        expect(f, "HTTP/1.1 200", "ok");
        node_ends(f);
    }
    set_owner(f, 512, B);
    ask(f, GET(512));
    node_hears(f, B, "\r\n\r\n");
}

TEST_WITH(fleet_routes, a_request_is_held_while_its_place_has_no_owner, fleet)
{
    set_owner(f, 256, FLEET_NO_NODE);
    ask(f, POST(256, "/fork", 5) "ab");
    wait_held(f, true);
    cr_assert(!wait_for(f, f->listener[B], SILENT_MS));
    set_owner(f, 512, B); /* a different place */
    cr_assert(!wait_for(f, f->listener[B], SILENT_MS));
    say(f->client, "cde");
    set_owner(f, 256, C);
    cr_assert(strstr(node_hears(f, C, "abcde"), "/fork"));
    wait_held(f, false);
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
}

TEST_WITH(fleet_routes, a_place_that_a_lost_node_owns_has_no_owner, fleet)
{
    uint16_t port = 1;

    set_node(f, B, port, FLEET_LOST);
    ask(f, GET(256));
    wait_held(f, true);
    set_owner(f, 256, SELF);
    place_table_set_own(f->table, 256, f->epoch, 0);
    cr_assert(!wait_for(f, f->client, SILENT_MS)); /* no worker serves it yet */
    set_owner(f, 256, C);
    node_hears(f, C, "\r\n\r\n");
}

TEST_WITH(fleet_routes, an_index_is_unknown_when_the_table_has_all_places, fleet)
{
    ask(f, GET(768));
    expect(f, "HTTP/1.1 404", "\"unknown_session\"");
    for (int is_there = 0; is_there < 2; is_there++) {
        place_table_set_complete(f->table, clock_boot_ms(), 0);
        ask(f, GET(768));
        wait_held(f, true);
        if (is_there)
            set_owner(f, 768, B);
        place_table_set_complete(f->table, clock_boot_ms(), UINT64_MAX);
        if (is_there)
            node_hears(f, B, "\r\n\r\n");
        else
            expect(f, "HTTP/1.1 404", "\"unknown_session\"");
    }
}

TEST_WITH(fleet_routes, no_index_is_unknown_while_the_keeper_stands_still, fleet)
{
    place_table_set_complete(f->table, clock_boot_ms(), clock_boot_ms() + SILENT_MS);
    ask(f, GET(768));
    expect(f, "HTTP/1.1 404", "\"unknown_session\"");
    cr_assert(!wait_for(f, f->listener[B], 2 * SILENT_MS));
    ask(f, GET(768));
    wait_held(f, true);
    place_table_set_complete(f->table, clock_boot_ms(), UINT64_MAX);
    expect(f, "HTTP/1.1 404", "\"unknown_session\"");
}

TEST_WITH(fleet_routes, a_hold_ends_with_no_owner, fleet)
{
    f->config.fleet_hold_ms = 50;
    set_owner(f, 256, FLEET_NO_NODE);
    ask(f, GET(256));
    expect(f, "HTTP/1.1 503", "\"no_owner\"");
    cr_assert(strstr(f->text, "Retry-After: ") && strstr(f->text, "x-should-retry: true"));
    ask(f, GET(256)); /* the next request is held again */
    wait_held(f, true);
}

TEST_WITH(fleet_routes, an_owner_that_refuses_is_asked_again_or_its_follower, fleet)
{
    ask(f, GET(256));
    for (int i = 0; i < 3; i++) { /* b does not know of its claim yet */
        node_hears(f, B, "\r\n\r\n");
        say(f->link, MISDIRECTED);
        node_ends(f);
    }
    wait_held(f, true);
    set_owner(f, 256, C);
    node_hears(f, C, "\r\n\r\n");
    cr_assert(strstr(f->text, "GET /sessions/w256-") == f->text, "%s", f->text);
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
}

TEST_WITH(fleet_routes, a_call_whose_node_ends_waits_for_the_next_owner, fleet)
{
    ask(f, POST(256, "/v1/chat/completions", 4) "ab");
    node_hears(f, B, "ab");
    say(f->client, "cd");
    node_hears(f, B, "cd");
    set_owner(f, 256, FLEET_NO_NODE);
    node_ends(f);
    wait_held(f, true);
    set_owner(f, 256, C);
    node_hears(f, C, "abcd");
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    say(f->client, GET(512)); /* the connection continues */
    node_hears(f, C, "GET /sessions/w512-");
}

TEST_WITH(fleet_routes, a_chunked_call_is_repeated_as_it_came, fleet)
{
    ask(f, "POST /sessions/w256-" ID "/v1/messages HTTP/1.1\r\nHost: localhost\r\n"
           "Connection: Expect\r\nExpect: 100-continue\r\n"
           "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2");
    cr_assert(strstr(node_hears(f, B, "\r\n\r\n"), "Expect: 100-continue\r\n"));
    set_owner(f, 256, C);
    node_ends(f);
    node_hears(f, C, "\r\n\r\n");
    say(f->link, "HTTP/1.1 100 Continue\r\n\r\n");
    expect(f, "HTTP/1.1 100", "\r\n\r\n");
    node_hears(f, C, "3\r\nabc\r\n");
    say(f->client, "\r\nde\r\n0\r\n\r\n");
    node_hears(f, C, "0\r\n\r\n");
    cr_assert_str_eq(f->text, "2\r\nde\r\n0\r\n\r\n");
}

TEST_WITH(fleet_routes, an_order_that_a_lost_node_may_have_obeyed_is_not_repeated, fleet)
{
    for (int i = 0; i < 2; i++) {
        set_owner(f, 256, B);
        ask(f, POST(256, "/fork", 2) "{}");
        node_hears(f, B, "{}");
        set_owner(f, 256, C);
        if (i == 0)
            node_ends(f);
        else
            node_resets(f); /* on a new link, which does not show what was read */
        expect(f, "HTTP/1.1 503", "worker_unavailable");
        cr_assert(!wait_for(f, f->listener[C], SILENT_MS));
    }
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

TEST_WITH(fleet_routes, a_long_body_waits_until_a_node_accepts_it, fleet)
{
    ask(f, POST(256, "/v1/messages", 180020));
    cr_assert(strstr(node_hears(f, B, "\r\n\r\n"), "\r\nExpect: 100-continue\r\n"));
    say(f->client, "0123456789");
    cr_assert(!wait_for(f, f->link, SILENT_MS));
    set_owner(f, 256, C);
    say(f->link, MISDIRECTED);
    node_ends(f);
    node_hears(f, C, "\r\n\r\n");
    cr_assert(!wait_for(f, f->link, SILENT_MS));
    say(f->link, "HTTP/1.1 100 Continue\r\n\r\n");
    node_takes(f, 10);
    pass_body(f, 180000);
    say(f->client, "0123456789");
    node_takes(f, 10);
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    ask(f, POST(256, "/v1/messages", 180020)); /* an accepted body is not kept */
    node_hears(f, C, "\r\n\r\n");
    say(f->link, "HTTP/1.1 100 Continue\r\n\r\n");
    pass_body(f, 100000);
    node_ends(f);
    expect(f, "HTTP/1.1 503", "\"overloaded_error\"");
}

/* Its router or machine may be stuck while its keeper renews its places. */
TEST_WITH(fleet_routes, a_body_that_its_node_never_accepts_ends_with_no_owner, fleet)
{
    for (int is_short = 0; is_short < 2; is_short++) {
        uint64_t asked_ms = clock_ms();

        f->config.fleet_hold_ms = SILENT_MS;
        f->config.fleet_lease_ms = 2 * SILENT_MS;
        ask(f, is_short ? "POST /sessions/w256-" ID "/fork HTTP/1.1\r\nHost: localhost\r\n"
                          "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
                        : POST(256, "/fork", 180020) "begin");
        node_hears(f, B, "\r\n\r\n");
        expect(f, "HTTP/1.1 503", "no_owner");
        cr_assert_geq(clock_ms() - asked_ms, 2 * SILENT_MS, "a node has one lease at least");
        cr_assert(strstr(f->text, "\r\nConnection: close\r\n"));
        cr_assert(strstr(f->text, "\r\nx-should-retry: true\r\n"));
        node_ends(f);
    }
    f->config.fleet_hold_ms = f->config.fleet_lease_ms = 8 * SILENT_MS;
    ask(f, POST(256, "/fork", 180020) "begin");
    node_hears(f, B, "\r\n\r\n");
    say(f->link, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\n12");
    expect(f, "HTTP/1.1 413", "12");
    cr_assert(!wait_for(f, f->client, 9 * SILENT_MS)); /* it has refused the body */
    say(f->link, "34");
    hear(f, f->client, "34");
}

TEST_WITH(fleet_routes, a_node_that_drains_may_accept_a_body_after_its_calls, fleet)
{
    struct fleet_node node;
    uint64_t asked_ms;

    f->config.fleet_hold_ms = f->config.fleet_lease_ms = SILENT_MS;
    f->config.grace_ms = 2 * SILENT_MS;
    cr_assert(place_table_node(f->table, B, &node));
    node.state = FLEET_DRAINING;
    place_table_set_node(f->table, B, &node);
    asked_ms = clock_ms();
    ask(f, POST(256, "/fork", 180020) "begin");
    node_hears(f, B, "\r\n\r\n");
    expect(f, "HTTP/1.1 503", "no_owner");
    cr_assert_geq(clock_ms() - asked_ms, 3 * SILENT_MS);
}

/* Reports whether probes are sent on the newest connection of a client. */
static bool sends_probes(const struct fleet *f)
{
    const struct conn *c = LIST_FIRST_OF(&f->hub.conns, struct conn, item);
    int on = 0;
    socklen_t len = sizeof(on);

    cr_assert_not_null(c);
    cr_assert_eq(getsockopt(c ? c->fd : -1, SOL_SOCKET, SO_KEEPALIVE, &on, &len), 0);
    return on != 0;
}

TEST_WITH(fleet_routes, a_node_that_vanishes_within_a_body_is_noticed, fleet)
{
    ask(f, POST(0, "/fork", 9) "begin");
    node_hears(f, SELF, "begin");
    cr_assert(!sends_probes(f));
    drop(&f->client);
    hear(f, f->link, NULL); /* else the request may be sent again */
    node_ends(f);
    ask_by(f, "b", POST(0, "/fork", 9) "begin");
    node_hears(f, SELF, "begin");
    cr_assert(sends_probes(f));
}

TEST_WITH(fleet_routes, a_long_body_of_another_node_is_accepted, fleet)
{
    ask_by(f, "b",
           "POST /sessions/w0-" ID "/v1/messages HTTP/1.1\r\nHost: localhost\r\n"
           "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    cr_assert_null(strstr(node_hears(f, SELF, "\r\n\r\n"), "Expect"));
    expect(f, "HTTP/1.1 100", "\r\n\r\n");
    say(f->client, "abcde");
    node_hears(f, SELF, "abcde");
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
}

TEST_WITH(fleet_routes, a_node_that_cannot_be_reached_is_tried_until_it_can, fleet)
{
    uint16_t port = 0;

    drop(&f->listener[B]);
    f->listener[B] = listen_tcp(&port);
    set_node(f, B, port, FLEET_UP);
    for (int claims = 0; claims < 2; claims++) {
        drop(&f->listener[B]);
        ask(f, POST(256, "/fork", 2) "{}");
        wait_held(f, true);
        cr_assert(!wait_for(f, f->client, SILENT_MS));
        f->listener[B] = listen_tcp(&port);
        if (claims)
            set_owner(f, 256, B); /* with a later epoch */
        cr_assert_eq(wait_for(f, f->listener[B], 500), claims != 0);
        node_hears(f, B, "{}");
        say(f->link, FOUND);
        expect(f, "HTTP/1.1 200", "ok");
        node_ends(f);
    }
}

TEST_WITH(fleet_routes, a_link_that_died_while_idle_is_replaced_at_once, fleet)
{
    ask(f, GET(256));
    node_hears(f, B, "\r\n\r\n");
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    say(f->client, POST(256, "/fork", 2) "{}");
    node_hears(f, B, "{}");
    node_resets(f); /* the request was not read */
    node_hears(f, B, "{}");
}

/* There is one hop: a request that a node forwarded here is neither forwarded again nor held. */
TEST_WITH(fleet_routes, a_forwarded_request_is_served_here_or_misdirected, fleet)
{
    char epoch[64];

    ask_by(f, "b", GET(0));
    node_hears(f, SELF, "\r\n\r\n");
    node_ends(f);
    ask_by(f, "b", GET(512));
    (void)snprintf(epoch, sizeof(epoch), "the epoch that it knows is %llu",
                   (unsigned long long)f->epoch);
    expect(f, "HTTP/1.1 421", "\"misdirected\"");
    cr_assert(strstr(f->text, epoch), "%s", f->text);
    set_owner(f, 512, FLEET_NO_NODE);
    ask_by(f, "b", GET(512));
    expect(f, "HTTP/1.1 421", "\"misdirected\"");
    ask_by(f, "a", GET(256));
    expect(f, "HTTP/1.1 421", "--fleet-address");
}

/* Returns the value of the line in the last text, which must have it once; 0: there is none. */
static unsigned long waited_ms(const struct fleet *f)
{
    const char *line = strstr(f->text, HTTP1_WAITED ": ");

    cr_assert(!line || !strstr(line + 1, HTTP1_WAITED), "%s", f->text);
    return line ? strtoul(line + sizeof(HTTP1_WAITED ": ") - 1, NULL, 10) : 0;
}

/* Long polls count the time at their earlier owners. */
TEST_WITH(fleet_routes, a_request_that_is_sent_again_says_how_long_its_client_has_waited, fleet)
{
    ask(f, GET(256));
    node_hears(f, B, "\r\n\r\n");
    cr_assert_eq(waited_ms(f), 0u);
    cr_assert(!wait_for(f, f->client, SILENT_MS));
    set_owner(f, 256, C);
    say(f->link, MISDIRECTED);
    node_ends(f);
    node_hears(f, C, "\r\n\r\n");
    cr_assert_geq(waited_ms(f), (unsigned long)SILENT_MS);
    node_ends(f);
    ask_by(f, "b",
           "GET /sessions/w0-" ID " HTTP/1.1\r\nHost: localhost\r\n" HTTP1_WAITED ": 5000\r\n\r\n");
    node_hears(f, SELF, "\r\n\r\n");
    cr_assert(waited_ms(f) >= 5000 && waited_ms(f) < 5000 + LIMIT_MS, "%s", f->text);
    say(f->link, "HTTP/1.1 199 Retiring\r\n\r\n");
    node_ends(f);
    node_hears(f, SELF, "\r\n\r\n");
    cr_assert_eq(strncmp(f->text, "GET ", 4), 0);
    cr_assert_geq(strtoul(strstr(f->text, HTTP1_WAITED ": ") + sizeof(HTTP1_WAITED), NULL, 10),
                  5000u);
}

/* Only a node can prove that it is one. */
TEST_WITH(fleet_routes, a_client_that_claims_to_be_a_node_is_served_like_others, fleet)
{
    static const char *const claims[] = {"b", "b ", "b 0123456789abcdef", "0123456789abcdef"};
    char request[256];

    for (size_t i = 0; i < ARRAY_LEN(claims); i++) {
        (void)snprintf(request, sizeof(request),
                       "GET /sessions/w512-" ID " HTTP/1.1\r\nHost: localhost\r\n"
                       "Rollgate-Forwarded: %s\r\n\r\n",
                       claims[i]);
        ask(f, request);
        node_hears(f, C, "\r\n\r\n");
        cr_assert(strstr(f->text, HTTP1_FORWARDED_BY ": a "), "%s", f->text);
        cr_assert_null(strstr(f->text, "Rollgate-Forwarded"), "%s", f->text);
        say(f->link, FOUND);
        expect(f, "HTTP/1.1 200", "ok");
        node_ends(f);
    }
}

TEST_WITH(fleet_routes, an_index_of_no_node_is_unknown_and_a_forgotten_place_is_held, fleet)
{
    ask(f, GET(1024));
    expect(f, "HTTP/1.1 404", "\"unknown_session\"");
    place_table_remove(f->table, 512);
    set_owner(f, 513, B); /* b restores its places one by one */
    ask(f, GET(512));
    wait_held(f, true);
    set_owner(f, 512, B); /* b had adopted it, and restores it */
    node_hears(f, B, "\r\n\r\n");
    ask(f, GET(514)); /* its block has places, but never this one */
    expect(f, "HTTP/1.1 404", "\"unknown_session\"");
    cr_assert(place_table_set_vacant(f->table, 513, false)); /* its sessions have ended */
    ask(f, GET(513));
    expect(f, "HTTP/1.1 404", "\"unknown_session\"");
    place_table_set_self(f->table,
                         FLEET_NO_NODE); /* no place is unknown before the store is read */
    ask(f, GET(1024));
    wait_held(f, true);
}

TEST_WITH(fleet_routes, a_place_whose_node_is_forgotten_too_is_held, fleet)
{
    place_table_remove(f->table, 512); /* an older copy of the store was promoted */
    place_table_remove_node(f->table, C);
    ask(f, GET(512));
    wait_held(f, true);
    set_owner(f, 512, B);
    node_hears(f, B, "\r\n\r\n");
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    cr_assert(place_table_set_vacant(f->table, 512, false)); /* its sessions have ended */
    place_table_remove(f->table, 512);
    ask(f, GET(512));
    expect(f, "HTTP/1.1 404", "\"unknown_session\"");
}

TEST_WITH(fleet_routes, a_client_that_leaves_is_held_no_longer, fleet)
{
    set_owner(f, 256, FLEET_NO_NODE);
    ask(f, GET(256));
    wait_held(f, true);
    drop(&f->client);
    wait_held(f, false);
    cr_assert_eq(f->hub.conn_count, 0u);
}

TEST_WITH(fleet_routes, groups_go_to_the_node_of_the_dispatcher, fleet)
{
    f->config.dispatcher = true;
    ask(f, "GET /groups HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_held(f, true); /* no node has the place yet */
    set_owner(f, FLEET_DISPATCHER, C);
    node_hears(f, C, "\r\n\r\n");
    set_owner(f, FLEET_DISPATCHER, FLEET_NO_NODE);
    ask(f, "GET /queues/train/next HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_held(f, true);
}

TEST_WITH(fleet_routes, groups_wait_for_the_process_of_the_dispatcher, fleet)
{
    f->config.dispatcher = true;
    set_owner(f, FLEET_DISPATCHER, SELF);
    ask(f, "GET /groups HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_held(f, true);
    f->heritage.board->slots[BOARD_DISPATCHER].state = BOARD_READY;
    expect(f, "HTTP/1.1 503", "worker_unavailable"); /* it does not listen in this test */
}
