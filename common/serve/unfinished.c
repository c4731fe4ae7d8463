/* Bytes of requests that have not come whole, or are being decoded, and their limit
 * (server_options.max_unfinished_bytes). */
#include <sys/socket.h>

#include "common/base/err.h"
#include "common/serve/server_internal.h"

static void count_unfinished(struct server_conn *c, size_t bytes)
{
    c->server->unfinished_bytes += bytes - c->unfinished_bytes;
    c->unfinished_bytes = bytes;
}

static void publish_unfinished(struct server *s, bool refused)
{
    if (s->opt.on_unfinished)
        s->opt.on_unfinished(s->handler_ctx, s->unfinished_bytes, refused);
}

void server_count_unfinished(struct server_conn *c, size_t bytes)
{
    if (c->unfinished_bytes == bytes)
        return;
    count_unfinished(c, bytes);
    publish_unfinished(c->server, false);
}

#define TOO_MANY_BYTES                                               \
    "too many bytes of request bodies are under way at this worker " \
    "(--max-worker-body-bytes), and this one has most"

/* Refuses a request before it is complete. libh2o is reading and has nothing to write, so the
 * answer is written directly to the socket. libh2o then sees the end. */
static void refuse_unread(struct server_conn *most)
{
    static const char text[] =
        "{\"type\": \"error\", \"error\": {\"message\": \"" TOO_MANY_BYTES "\", \"type\": "
        "\"rate_limit_error\", \"code\": \"overloaded\", \"param\": null}}\n";
    struct buf answer = {0};

    buf_printf(&answer,
               "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\nx-should-retry: true\r\nConnection: close\r\n\r\n%s",
               sizeof(text) - 1, text);
    if (most->lent)
        lent_answers(most);
    (void)send(most->fd, answer.p, answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(most->fd, SHUT_RDWR);
    buf_done(&answer);
    most->refused = true;
    count_unfinished(most, 0);
}

/* Refuses the largest unfinished request, or `of` if all have the same size. So a small request is
 * not lost because of others. If the body is being decoded, the handler sends the answer. */
static void refuse_largest(struct server_conn *of)
{
    struct server *s = of->server;
    struct server_conn *most = of, *c;
    struct err e = {0};

    LIST_EACH(&s->conns, c, struct server_conn, item) {
        if (c->unfinished_bytes > most->unfinished_bytes)
            most = c;
    }
    if (most->exchange) {
        (void)err_set(&e, ERR_OVERLOADED, TOO_MANY_BYTES);
        exchange_refuse_body(most->exchange, &e);
    } else {
        refuse_unread(most);
    }
    publish_unfinished(s, true);
}

enum { CONFIRMATION = 2 }; /* bytes of the line by which a peer confirms an answer */

/* Returns the memory of the input, including the rest of a large page, which is always made whole.
 * A confirmation is no request. */
static size_t input_bytes(const struct server_conn *c)
{
    const h2o_buffer_t *in = c->sock->input;

    if (in->size <= CONFIRMATION)
        return 0;
    if (!c->intake.large_to)
        return in->size;
    return MAX_OF(in->size, (size_t)(c->intake.large_to - in->bytes));
}

/* Counts the bytes and enforces the limit. Other processes may read the figure at any moment, so it
 * is published after the refusals. */
static void count_limited(struct server_conn *c, size_t bytes)
{
    struct server *s = c->server;
    size_t max = MAX_OF(s->opt.max_unfinished_bytes, s->conf.max_request_entity_size);

    count_unfinished(c, bytes);
    if (s->opt.max_unfinished_bytes == 0 || s->unfinished_bytes <= max)
        publish_unfinished(s, false);
    else
        refuse_largest(c);
}

/* Counts the input of a request until the request is complete. */
void server_count_input(struct server_conn *c)
{
    if (!c->exchange && !c->refused)
        count_limited(c, input_bytes(c));
}

void server_count_decoded(struct server_conn *c, size_t bytes)
{
    count_limited(c, bytes);
}
