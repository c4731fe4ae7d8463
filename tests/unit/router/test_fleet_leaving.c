/* Requests at a node that leaves its fleet, or to a named node (fleet_kit.h). */
#include "fleet_kit.h"

/* Makes this node one that leaves, whose workers have ended. */
static void leave_fleet(struct fleet *f)
{
    f->heritage.board->leaving = 1;
    f->heritage.board->slots[BOARD_WORKER0].state = BOARD_RETIRING;
}

TEST_WITH(fleet_leaving, a_node_that_leaves_passes_on_what_any_worker_serves, fleet)
{
    set_node(f, C, 1, FLEET_DRAINING);
    leave_fleet(f);
    ask(f, "GET /stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
    node_hears(f, B, "\r\n\r\n");
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    cr_assert(strstr(f->text, "\r\nConnection: close\r\n"));
    node_ends(f);
    ask(f, "GET /sessions?label=where=1&here=0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    node_hears(f, B, "\r\n\r\n");
    ask(f, "GET /stats?node=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(f, "HTTP/1.1 503", "\"draining\"");
    ask(f, "GET /sessions?limit=1&here=true HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(f, "HTTP/1.1 503", "\"draining\"");
    ask_by(f, "b", "GET /sessions HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(f, "HTTP/1.1 503", "\"draining\"");
}

/* A different node that forwarded it holds it. */
TEST_WITH(fleet_leaving,
          a_request_that_a_worker_of_a_leaving_node_hands_back_goes_to_the_next_owner, fleet)
{
    for (int by_node = 0; by_node < 2; by_node++) {
        if (by_node)
            ask_by(f, "b", POST(0, "/fork", 2) "{}");
        else
            ask(f, POST(0, "/fork", 2) "{}");
        cr_assert(wait_for(f, f->door.fd, LIMIT_MS));
        f->link = accept(f->door.fd, NULL, NULL);
        leave_fleet(f);
        node_resets(f); /* it has read nothing */
        if (by_node) {
            expect(f, "HTTP/1.1 421", "workers have ended");
        } else {
            wait_held(f, true);
            set_owner(f, 0, B);
            node_hears(f, B, "{}");
            cr_assert(strstr(f->text, "\r\nContent-Length: 2\r\n"));
            cr_assert_null(strstr(f->text, HTTP1_CONFIRMS));
            say(f->link, FOUND);
            expect(f, "HTTP/1.1 200", "ok");
            node_ends(f);
            set_owner(f, 0, SELF);
            f->heritage.board->leaving = 0;
            f->heritage.board->slots[BOARD_WORKER0].state = BOARD_READY;
        }
    }
}

/* The worker resets its link to a request without a body, as the node leaves. Node b gets it. */
static void hand_back(struct fleet *f)
{
    cr_assert(wait_for(f, f->door.fd, LIMIT_MS));
    f->link = accept(f->door.fd, NULL, NULL);
    leave_fleet(f);
    node_resets(f);
    wait_held(f, true);
    set_owner(f, 0, B);
    node_hears(f, B, "\r\n\r\n");
}

/* A worker's request has our headers, too. */
TEST_WITH(fleet_leaving, a_request_with_the_most_headers_may_be_handed_back, fleet)
{
    char text[2048];
    int n = snprintf(text, sizeof(text), "GET /sessions/w0-" ID " HTTP/1.1\r\nHost: localhost\r\n");

    for (int i = 1; i < HTTP1_CLIENT_HEADERS_MAX; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "X-%d: b\r\n", i);
    (void)snprintf(text + n, sizeof(text) - (size_t)n, "\r\n");
    ask(f, text);
    hand_back(f);
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
}

/* A worker's request has our version. */
TEST_WITH(fleet_leaving, an_old_client_whose_request_is_handed_back_gets_no_chunks, fleet)
{
    ask(f, "GET /sessions/w0-" ID " HTTP/1.0\r\nHost: localhost\r\n\r\n");
    hand_back(f);
    say(f->link, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    cr_assert_str_eq(strstr(hear(f, f->client, NULL), "\r\n\r\n"), "\r\n\r\nok");
    cr_assert_null(strstr(f->text, "chunked"));
}

/* The claims of other nodes may take longer than the lease for which a left node goes on. */
TEST_WITH(fleet_leaving, held_requests_outlast_the_end_of_a_node_that_leaves, fleet)
{
    for (int leaves = 0; leaves < 2; leaves++) {
        f->heritage.board->leaving = (uint32_t)leaves;
        f->hub.draining = false;
        set_owner(f, 256, FLEET_NO_NODE);
        ask(f, POST(256, "/fork", 2) "{}");
        wait_held(f, true);
        f->heritage.board->draining = (uint32_t)leaves;
        f->hub.draining = true;
        clients_close_idle(&f->hub);
        if (!leaves) {
            expect(f, "HTTP/1.1 503", "no_owner");
            continue;
        }
        cr_assert(!wait_for(f, f->client, SILENT_MS));
        set_owner(f, 256, C);
        node_hears(f, C, "{}");
        say(f->link, FOUND);
        expect(f, "HTTP/1.1 200", "ok");
    }
}

TEST_WITH(fleet_leaving, a_node_that_leaves_holds_requests_while_its_calls_end, fleet)
{
    f->config.fleet_hold_ms = SILENT_MS / 2;
    f->config.grace_ms = LIMIT_MS;
    leave_fleet(f);
    ask(f, GET(0));
    cr_assert(!wait_for(f, f->client, SILENT_MS));
    set_owner(f, 0, B);
    node_hears(f, B, "\r\n\r\n");
}

/* With --fleet-leave the port is closed first; requests of clients that are connected are sent on.
 * With a plain stop the node keeps its places: other nodes hold their requests until it returns. */
TEST_WITH(fleet_leaving, a_node_that_stops_refuses_clients_and_hands_back_what_nodes_forward, fleet)
{
    f->heritage.board->draining = 1;
    ask(f, GET(0));
    expect(f, "HTTP/1.1 503", "\"draining\"");
    ask_by(f, "b", GET(0));
    expect(f, "HTTP/1.1 421", "is stopping");
    ask_by(f, "b", "POST /sessions HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect(f, "HTTP/1.1 503", "\"draining\"");
    set_owner(f, 0, B);
    leave_fleet(f);
    ask(f, GET(0));
    node_hears(f, B, "\r\n\r\n");
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    ask_by(f, "b", GET(0));
    expect(f, "HTTP/1.1 421", "does not own");
}

/* A request that names a node has no place: only the loss of that node ends it. */
TEST_WITH(fleet_leaving, a_request_that_names_a_node_ends_when_that_is_lost, fleet)
{
    const char *request = "GET /fleet?node=b HTTP/1.1\r\nHost: localhost\r\n\r\n";

    set_owner(f, 0, C);
    ask(f, request);
    node_hears(f, B, "\r\n\r\n");
    set_node(f, C, 1, FLEET_LOST);
    set_owner(f, 0, SELF);
    cr_assert(!wait_for(f, f->link, SILENT_MS + 200));
    say(f->link, FOUND);
    expect(f, "HTTP/1.1 200", "ok");
    node_ends(f);
    ask(f, request);
    node_hears(f, B, "\r\n\r\n");
    set_node(f, B, 1, FLEET_LOST);
    expect(f, "HTTP/1.1 503", "the node b is lost");
}

TEST_WITH(fleet_leaving, a_leaving_node_asks_the_adopter_of_a_place_while_that_serves, fleet)
{
    set_owner(f, 1, SELF);
    f->heritage.board->slots[BOARD_WORKER0 + 1].state = BOARD_EMPTY;
    f->heritage.board->slots[BOARD_WORKER0 + 1].adopter = 1;
    f->heritage.board->leaving = 1;
    ask(f, GET(1));
    expect(f, "HTTP/1.1 503", "worker_unavailable"); /* not held: the socket is no file here */
    f->heritage.board->slots[BOARD_WORKER0].state = BOARD_RETIRING;
    ask(f, GET(1));
    wait_held(f, true);
}
