/* Reads one request, on the loop or in a helper: body, hash, and whether the calls in its history
 * may belong to one answer. */

#include "common/base/limits.h"
#include "common/os/helpers.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/regroup.h"
#include "worker/dialect/responses.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/known_bodies.h"
#include "worker/plane/call/told.h"
#include "worker/plane/call/work.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"

/* A body with less new text has so few content parts that the loop may read them. */
enum { PARTS_LEAST = 64 << 10 };

static int check_content_parts(const struct api_call *c, const struct body_text *body,
                               struct err *e)
{
    if ((c->knows ? body->tail.len : body->whole.len) < PARTS_LEAST)
        return 0;
    return request_limits_parts(c->req->chat->messages, e);
}

/* Keeps the members that the answer echoes, while a helper has the body. They do not count in the
 * limit of reading. */
static void keep_echo(struct api_call *c)
{
    size_t used = c->arena.used_bytes;

    if (c->dialect->asked)
        c->asked = c->dialect->asked(&c->arena, c->req, c->body);
    c->arena.used_bytes = used;
}

/* Checks the length of the echo: events of a stream repeat the request's members in one piece. */
static int check_echo(const struct api_call *c, struct err *e)
{
    size_t n = api_call_echo_bytes(c);

    if (!c->req->stream || n <= STREAM_ECHO_MAX)
        return 0;
    return err_field(e, "stream",
                     "stream must be false: its events would repeat %zu bytes of the request "
                     "(instructions, tools and the like), and may repeat %d",
                     n, STREAM_ECHO_MAX);
}

void api_call_drop_body(const struct api_call *c)
{
    struct str body = exchange_closed_body(c->x);

    if (helpers_within() && c->came_bytes == 0 && body.len >= BODY_DROP_LEAST)
        exchange_drop_body(c->x, body);
}

bool api_call_compacted(struct str text)
{
    struct told told;

    return told_read(text, &told) && responses_asked_compacts(told.asked);
}

/* Opens the ranges of the body that work_note_body reads, and returns the body. */
static struct str open_ends(const struct exchange *x)
{
    struct str body = exchange_closed_body(x);
    size_t tail = body.len > WORK_HASHED_BYTES ? body.len - WORK_HASHED_BYTES : 0;

    exchange_open_body(x, str_sub(body, 0, WORK_HASHED_BYTES));
    exchange_open_body(x, str_sub(body, tail, body.len));
    return body;
}

/* Records the work on the board. A known beginning is not hashed again. */
static int mark_work(struct api_call *c, const struct work_tools *tools, struct err *e)
{
    struct str body = open_ends(c->x);
    bool knows = c->known && body.len <= WORK_HASHED_BYTES;

    return work_note_body(&c->body_hash, tools, body,
                          knows ? known_reading_hashed(c->known, c->dialect, body) : NULL, c->hash,
                          e);
}

/* Reads the request, in a helper if the body is long (work.h). The function has the call's arena
 * for itself meanwhile. */
int api_call_read(void *call, void *tool, struct err *e)
{
    struct api_call *c = call;
    struct body_text body;
    int rc;

    if (mark_work(c, tool, e))
        return -1;
    rc = api_call_read_body(c, &body, e);
    if (rc == 0)
        rc = check_content_parts(c, &body, e);
    body.hash = c->came_bytes ? NULL : c->hash; /* lifting pictures may have changed the text */
    if (rc == 0) {
        request_hash(&body, c->body, c->hash);
        long_tools_hash(c->req->chat->tools, c->req->chat->tools_hash);
        c->req->chat->tools_hashed = true;
    }
    if (c->knows)
        known_reading_end(c->known, exchange_body(c->x), rc == 0 && c->req->n_shown == 0);
    if (c->knows && rc == 0)
        known_reading_tell(c->known, c->req->chat);
    if (rc == 0) {
        keep_echo(c);
        rc = check_echo(c, e);
    }
    api_call_drop_body(c); /* everything needed of it is in the arena, or known */
    if (rc) {
        arena_done(&c->arena); /* done in this thread, because freeing much memory takes long */
        return -1;
    }
    if (c->dialect == &dialect_compact)
        /* so that it does not count as a repetition of a request to /responses */
        c->hash[0] = ~c->hash[0];
    c->regroups =
        regroup_wanted(c->req->chat->messages, c->knows ? known_reading_messages(c->known) : NULL);
    return 0;
}
