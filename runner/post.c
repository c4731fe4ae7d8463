/*
 * Builds the headers that all requests of an executor share, and passes the body to the HTTP
 * client, which frees it. Host and port belong to the client; `path` follows them in the URL.
 */
#include "runner/post.h"

#include "common/net/http_client.h"

/* A request has all these parameters. NOLINTNEXTLINE(readability-function-size) */
struct http_fetch *post_start(struct http_client *c, const char *path, const char *key,
                              struct buf *body, uint64_t total_timeout_ms, http_fetch_fn fn,
                              void *ctx)
{
    struct buf headers = {0};
    struct http_fetch *f;

    buf_puts(&headers, "Content-Type: application/json\r\n");
    if (key)
        buf_printf(&headers, "Authorization: Bearer %s\r\n", key);
    f = http_fetch(c,
                   &(struct http_request){.method = "POST",
                                          .path = str_cstr(path),
                                          .headers = buf_str(&headers),
                                          .body = body,
                                          .total_timeout_ms = total_timeout_ms},
                   NULL, fn, ctx);
    buf_done(&headers);
    return f;
}
