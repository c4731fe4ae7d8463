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

/* Bytes of a request that is not whole yet. */
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

/* The answer is written past libh2o, which is reading and has nothing to write, and then sees the
 * end. */
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

/* Refuses the largest unfinished request, or `of` if all are equal. So a small request is not lost
 * because of others. A body that is being decoded is answered by its handler. */
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

/* With the rest of a large page, which is there as a whole. */
static size_t input_bytes(const struct server_conn *c)
{
    const h2o_buffer_t *in = c->sock->input;

    if (!c->intake.large_to)
        return in->size;
    return MAX_OF(in->size, (size_t)(c->intake.large_to - in->bytes));
}

/* Counts the bytes and enforces the limit. Other processes read the figure at any moment, so it is
 * published after the refusals. */
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

/* A request comes into the connection's input until all of it is there. */
void server_count_input(struct server_conn *c)
{
    if (!c->exchange && !c->refused)
        count_limited(c, input_bytes(c));
}

void server_count_decoded(struct server_conn *c, size_t bytes)
{
    count_limited(c, bytes);
}
