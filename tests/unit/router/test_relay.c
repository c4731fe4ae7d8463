/* Exchanges over real sockets, one after the other. The test is the client and the own worker. */
#include "fleet_kit.h"

#define MODELS "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"

static const char *worker_hears(struct fleet *f, const char *end)
{
    return node_hears(f, SELF, end);
}

/* Connects a client whose request's head the worker has read. */
static void ask_plain(struct fleet *f)
{
    ask(f, MODELS);
    worker_hears(f, "\r\n\r\n");
}

TEST_WITH(relay, requests_share_a_link_and_hop_by_hop_lines_end, fleet)
{
    connect_client(f);
    for (int i = 0; i < 3; i++) {
        const char *heard;

        say(f->client,
            "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: x-hop\r\nx-hop: 1\r\n"
            "x-end: 2\r\n\r\n");
        heard = worker_hears(f, "\r\n\r\n");
        cr_assert(strstr(heard, "GET /v1/models HTTP/1.1\r\n") && strstr(heard, "x-end: 2\r\n"));
        cr_assert_null(strstr(heard, "x-hop"));
        say(f->link, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes");
        heard = hear(f, f->client, "\r\n\r\nyes");
        cr_assert(strstr(heard, "HTTP/1.1 200 OK\r\n") == heard, "%s", heard);
        hear(f, f->link, "\r\n"); /* the answer is confirmed */
        cr_assert_str_eq(f->text, "\r\n");
    }
    cr_assert_eq(upstreams_idle(f->hub.upstreams), 1u);
}

/* The worker reported that it retires and closed the link: it has not acted. This is repeated once
 * only. */
TEST_WITH(relay, what_cannot_have_been_acted_on_is_sent_again_once, fleet)
{
    ask_plain(f);
    say(f->link, "HTTP/1.1 199 Retiring\r\n\r\n");
    node_ends(f);
    cr_assert(strstr(worker_hears(f, "\r\n\r\n"), "GET /v1/models"));
    say(f->link, "HTTP/1.1 199 Retiring\r\n\r\n");
    node_ends(f);
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 503 ") == f->text, "%s", f->text);
}

TEST_WITH(relay, a_worker_that_may_have_acted_is_not_asked_again, fleet)
{
    ask_plain(f);
    node_ends(f);
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 503 ") == f->text, "%s", f->text);
}

TEST_WITH(relay, an_answer_that_breaks_off_has_no_end, fleet)
{
    ask_plain(f);
    say(f->link, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    hear(f, f->client, "abc");
    node_ends(f);
    hear(f, f->client, NULL); /* reads until the connection ends */
    cr_assert_null(strstr(f->text, "0\r\n\r\n"));
}

TEST_WITH(relay, a_malformed_answer_is_the_workers_fault, fleet)
{
    ask_plain(f);
    say(f->link, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab");
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 502 ") == f->text && strstr(f->text, "worker_invalid"),
              "%s", f->text);
    say(f->client, MODELS); /* the connection continues, on a new link */
    node_ends(f);
    worker_hears(f, "\r\n\r\n");
}

/* A malformed body gets 400, and the worker, which has read a part, loses the connection. */
TEST_WITH(relay, a_bad_body_ends_both_sides, fleet)
{
    ask(f, "POST /v1/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
           "3\r\nabc\r\n");
    worker_hears(f, "abc");
    say(f->client, "zz\r\n");
    hear(f, f->client, "\r\n\r\n");
    cr_assert(strstr(f->text, "HTTP/1.1 400 ") == f->text, "%s", f->text);
    hear(f, f->link, NULL);
}

TEST_WITH(relay, a_client_that_leaves_takes_its_link_along, fleet)
{
    ask_plain(f);
    drop(&f->client);
    hear(f, f->link, NULL); /* reads the end */
    cr_assert_eq(f->hub.conn_count, 0u);
}
