/* The body of a request (exchange.h), which lies in libh2o's input: how it is read, and how its
 * memory goes back to the system. */
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/serve/server_internal.h"

enum {
    FADE_FROM = 2 << 20, /* bodies from this length on go back before their exchange ends */
    FADE_PIECE = 1 << 20 /* in a turn: half a millisecond */
};

struct str exchange_closed_body(const struct exchange *x)
{
    return x->req->entity.base ? str_of(x->req->entity.base, x->req->entity.len) : STR("");
}

void exchange_open_body(const struct exchange *x, struct str part)
{
    packed_input_open(&x->conn->packed, part);
}

struct str exchange_body(const struct exchange *x)
{
    struct str body = exchange_closed_body(x);

    exchange_open_body(x, body);
    return body;
}

/* Whole pages of it: the input is libh2o's, and is freed as one piece. */
void exchange_drop_body(const struct exchange *x, struct str part)
{
    CHECK(part.p >= x->req->entity.base &&
          part.p + part.len <= x->req->entity.base + x->req->entity.len);
    mem_drop_pages(part.p, part.len);
}

static void on_fade(struct loop_task *t)
{
    struct exchange *x = CONTAINER_OF(t, struct exchange, fade);

    x->faded_then(x);
}

bool exchange_body_fades(struct exchange *x, void (*then)(struct exchange *x))
{
    struct str body = exchange_closed_body(x);
    struct str piece = str_sub(body, x->faded, FADE_PIECE);

    if (x->held || body.len < FADE_FROM || piece.len == 0)
        return false;
    mem_drop_pages(piece.p, piece.len);
    x->faded += piece.len;
    x->faded_then = then;
    loop_task_post_behind(x->conn->server->loop, &x->fade, on_fade);
    return true;
}
