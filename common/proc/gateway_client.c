/* Requests of commands (gateway_client.h). A loop of its own runs for each request until http_fetch
 * has the whole answer. */
#include "common/proc/gateway_client.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/net/http1.h"
#include "common/net/http_client.h"
#include "common/net/http_fetch.h"
#include "common/os/file.h"
#include "common/os/loop.h"
#include "common/proc/command_line.h"
#include "common/proc/keys.h"

enum { ANSWER_MS = 60000, KEY_FILE_MAX = 64 << 10 };

struct gateway_client {
    struct loop *loop;
    struct http_client *http;
    char *key; /* or NULL */
    char *url;
    int status;
    struct buf *answer;                                           /* the caller's, during a call */
    bool (*on_bytes)(void *ctx, struct str bytes, struct err *e); /* during a stream */
    void *ctx;
    struct http_call *call;
};

struct gateway_client_options gateway_client_take_options(int *argc, char **argv, const char *url)
{
    return (struct gateway_client_options){
        .url = command_line_take_value(argc, argv, "--gateway", url),
        .key_file = command_line_take_value(argc, argv, "--key-file", NULL),
        .ca_file = command_line_take_value(argc, argv, "--ca-file", NULL),
    };
}

/* A blank inside the line is refused, because it would break the Authorization header. */
char *gateway_client_read_key(const char *path, struct buf *mistakes)
{
    struct buf text = {0};
    struct str rest, key;
    char *ret = NULL;
    struct err e;

    if (file_read(path, KEY_FILE_MAX, &text, &e)) {
        buf_printf(mistakes, "--key-file: %s\n", e.text);
    } else {
        rest = buf_str(&text);
        key = keys_next_line(&rest);
        if (key.len == 0 || memchr(key.p, ' ', key.len))
            buf_printf(mistakes, "--key-file: %s: the first line has no key\n", path);
        else
            ret = mem_strndup(key.p, key.len);
    }
    buf_done(&text);
    return ret;
}

struct gateway_client *gateway_client_new(const struct gateway_client_options *o,
                                          struct buf *mistakes)
{
    struct http_client_options http = {.ca_file = o->ca_file, .pinned = o->pinned, .max_idle = 4};
    struct gateway_client *c = mem_zalloc(sizeof(*c));
    struct err e;

    c->url = mem_strdup(o->url);
    if (o->key_file && !(c->key = gateway_client_read_key(o->key_file, mistakes))) {
        gateway_client_free(c);
        return NULL;
    }
    if (!(c->loop = loop_new(&e)) || http_client_new(c->loop, o->url, &http, &c->http, &e)) {
        buf_printf(mistakes, "--gateway: %s\n", e.text);
        gateway_client_free(c);
        return NULL;
    }
    return c;
}

void gateway_client_free(struct gateway_client *c)
{
    if (!c)
        return;
    if (c->http)
        http_client_free(c->http);
    if (c->loop)
        loop_free(c->loop);
    free(c->key);
    free(c->url);
    free(c);
}

/* Writes as the answer why there is none. */
static void add_failure(struct gateway_client *c, const struct err *e)
{
    buf_printf(c->answer, "no answer from %s: %s", c->url, e->text);
}

static void on_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct gateway_client *c = ctx;

    c->status = status;
    if (status)
        buf_add_str(c->answer, body);
    else
        add_failure(c, e);
    loop_stop(c->loop);
}

int gateway_client_call(struct gateway_client *c, const char *method, const char *path,
                        struct str body, struct buf *answer)
{
    struct http_request r = {
        .method = method, .path = str_cstr(path), .total_timeout_ms = ANSWER_MS};
    struct buf headers = {0}, sent = {0};

    if (body.len > 0) {
        buf_add_str(&sent, body);
        r.body = &sent;
        buf_puts(&headers, "Content-Type: application/json\r\n");
    }
    if (c->key)
        buf_printf(&headers, "Authorization: Bearer %s\r\n", c->key);
    r.headers = buf_str(&headers);
    buf_clear(answer);
    c->answer = answer;
    (void)http_fetch(c->http, &r, NULL, on_answer, c);
    loop_run(c->loop);
    buf_done(&headers);
    buf_done(&sent);
    return c->status;
}

/* --- streams --- */

static void on_stream_head(void *ctx, const struct http1_head *h)
{
    struct gateway_client *c = ctx;

    c->status = h->status;
}

static void on_stream_bytes(void *ctx, struct str bytes)
{
    struct gateway_client *c = ctx;
    struct err e = {0};

    if (c->status != 200) {
        buf_add_str(c->answer, bytes);
        return;
    }
    if (c->on_bytes(c->ctx, bytes, &e))
        return;
    c->status = 0;
    buf_puts(c->answer, e.text);
    http_call_cancel(c->call);
    loop_stop(c->loop);
}

static void on_stream_end(void *ctx)
{
    struct gateway_client *c = ctx;

    loop_stop(c->loop);
}

static void on_stream_failed(void *ctx, const struct err *e, bool began)
{
    struct gateway_client *c = ctx;

    (void)began;
    c->status = 0;
    add_failure(c, e);
    loop_stop(c->loop);
}

int gateway_client_stream(struct gateway_client *c, const char *path,
                          bool (*on_bytes)(void *ctx, struct str bytes, struct err *e), void *ctx,
                          struct buf *answer)
{
    static const struct http_events events = {on_stream_head, on_stream_bytes, on_stream_end,
                                              on_stream_failed};
    struct http_request r = {
        .method = "GET", .path = str_cstr(path), .first_timeout_ms = ANSWER_MS};
    struct buf headers = {0};

    if (c->key)
        buf_printf(&headers, "Authorization: Bearer %s\r\n", c->key);
    r.headers = buf_str(&headers);
    buf_clear(answer);
    c->answer = answer;
    c->on_bytes = on_bytes;
    c->ctx = ctx;
    c->status = 0;
    c->call = http_client_start(c->http, &r, &events, c);
    loop_run(c->loop);
    buf_done(&headers);
    return c->status;
}

struct str gateway_client_reason(struct arena *a, struct str answer)
{
    const struct json *v = NULL;
    struct str text = {0};
    struct err e;

    if (json_parse(a, answer, &v, &e) == 0)
        text = json_string(json_get(json_get(v, "error"), "message"));
    return text.p ? text : answer;
}

bool gateway_client_takes_id(const char *id)
{
    return !strpbrk(id, "/?# \r\n") && strlen(id) <= 128;
}
