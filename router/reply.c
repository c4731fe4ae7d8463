
#include "router/reply.h"

#include "common/net/http1.h"

/* Writes the status line and headers. */
static void begin_reply(struct buf *out, const struct reply_to *to, int status, const char *type,
                        size_t len_bytes)
{
    buf_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n", status,
               http1_reason(status), type, len_bytes);
    if (to->request_id.len > 0)
        buf_printf(out, "Rollgate-Request-Id: %.*s\r\n", (int)to->request_id.len, to->request_id.p);
    if (to->session.len > 0)
        buf_printf(out, "Rollgate-Session: %.*s\r\n", (int)to->session.len, to->session.p);
    if (to->close)
        buf_puts(out, "Connection: close\r\n");
    else if (to->old)
        buf_puts(out, "Connection: keep-alive\r\n");
}

/* Writes the error as JSON. Its texts are fixed sentences without quotes and backslashes. */
static void error_body(struct buf *body, const struct reply_to *to, const struct err *e)
{
    if (to->messages_dialect)
        buf_printf(body,
                   "{\"type\": \"error\", \"error\": {\"type\": \"%s\", \"message\": \"%s\"}}\n",
                   err_messages_type(e), e->text);
    else
        buf_printf(body,
                   "{\"error\": {\"message\": \"%s\", \"type\": \"%s\", \"code\": \"%s\", "
                   "\"param\": null}}\n",
                   e->text, err_openai_type(e), err_code(e));
}

void reply_error(struct buf *out, const struct reply_to *to, const struct err *e)
{
    struct buf body = {0};
    int status = err_status(e);

    error_body(&body, to, e);
    begin_reply(out, to, status, "application/json", body.len);
    buf_printf(out, "x-should-retry: %s\r\n", err_retry(e) ? "true" : "false");
    if (status == 503)
        buf_puts(out, "Retry-After: 1\r\n");
    if (status == 426)
        buf_puts(out, "Upgrade: HTTP/1.1\r\n");
    if (status == 405)
        buf_puts(out, "Allow: GET, HEAD\r\n");
    buf_puts(out, "\r\n");
    if (!to->head)
        buf_add_str(out, buf_str(&body));
    buf_done(&body);
}

void reply_body(struct buf *out, const struct reply_to *to, int status, const char *content_type,
                struct str body)
{
    begin_reply(out, to, status, content_type, body.len);
    if (status == 503)
        buf_puts(out, "Retry-After: 1\r\n");
    buf_puts(out, "Cache-Control: no-store\r\n\r\n");
    if (!to->head)
        buf_add_str(out, body);
}
