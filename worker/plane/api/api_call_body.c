/*
 * Reads the body of a request into a chat_request: JSON, then its dialect, under the request's own
 * limits. A long body's pictures are lifted out before. If something that was lifted is not a
 * picture, it is put back, and everything is read again, so errors are those of the original body.
 * May run in a helper, which asks the loop for data of the session.
 */

#include "common/codec/json.h"
#include "common/os/helpers.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/image_lifts.h"
#include "worker/dialect/request_members.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/known_bodies.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/upstream_body.h"
#include "worker/plane/call/work.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/request/request_limits.h"

static struct dialect_headers list_headers(const struct exchange *x, struct arena *a)
{
    struct dialect_header *at, h;
    size_t n = 0;

    while (exchange_header_at(x, n, &h.name, &h.value))
        n++;
    at = arena_calloc(a, n, sizeof(*at));
    for (size_t i = 0; i < n; i++)
        (void)exchange_header_at(x, i, &at[i].name, &at[i].value);
    return (struct dialect_headers){at, n};
}

/* A look-up in the session for an earlier response. */
struct past_look {
    struct api_call *call;
    struct arena *arena;
    struct str response_id;
    const struct json *messages; /* found messages, or the one message; or NULL */
    bool compacts;               /* the one message answers a compaction */
    struct str
        asked; /* echo text of the request, in the session that the call holds, or in the arena */
    /* instructions if they are not in `asked`: text of the first message */
    struct str instructions;
    struct str seal; /* seal to look for */
    bool has_seal;
    member_taken_fn takes; /* tells which members the engines handle themselves */
};

/* Finds the conversation up to a stored response; runs on the loop. */
static void look_back(void *ctx)
{
    struct past_look *l = ctx;
    bool ended = false;
    struct session *s = session_find(l->call->service->calls.store, str_cstr(l->call->id), &ended);
    struct session_past_response past;

    if (!s || !session_find_response(s, l->response_id, &past))
        return;
    l->asked = past.asked;
    l->instructions = past.instructions;
    /* copied, because it may be freed when a helper reads it */
    if (s != l->call->held && past.asked.p)
        l->asked = arena_str(l->arena, past.asked);
    l->messages = session_messages(s, l->arena, l->response_id);
}

/* Looks up on the loop, which owns the sessions. A helper asks the loop to do it. */
static void look(struct past_look *l, void (*fn)(void *ctx))
{
    if (helpers_within())
        (void)helpers_ask(l->call->service->calls.helpers, fn, l);
    else
        fn(l);
}

/* Finds the engines by model and session; runs on the loop. */
static void look_at_engines(void *ctx)
{
    struct past_look *l = ctx;
    const struct call_env *env = &l->call->service->calls;
    bool ended = false;
    const struct engine_pool *p = call_engines(
        env, l->call->req->model, session_find(env->store, str_cstr(l->call->id), &ended));

    l->takes = p ? call_upstream_takes(p, l->call->dialect->name) : NULL;
}

/* Returns the instructions of the request that was found. */
static struct str instructions_of(struct arena *a, const struct past_look *l)
{
    const struct json *asked;

    if (l->instructions.p || !l->asked.p || json_parse(a, l->asked, &asked, NULL) != 0)
        return l->instructions;
    return json_string(json_get(asked, "instructions"));
}

/* dialect_past.response. If it is called in a helper, the helper waits for the loop. */
static const struct json *past_response(void *ctx, struct arena *a, struct str response_id,
                                        struct str *ret_instructions)
{
    struct api_call *c = ctx;
    struct past_look l = {.call = c, .arena = a, .response_id = response_id};

    look(&l, look_back);
    *ret_instructions = instructions_of(a, &l);
    return l.messages;
}

/* Finds one stored message; runs on the loop. */
static void look_at_one(void *ctx)
{
    struct past_look *l = ctx;
    bool ended = false;
    const struct session *s =
        session_find(l->call->service->calls.store, str_cstr(l->call->id), &ended);

    struct str told = {0};

    l->messages = s ? session_message(s, l->response_id, &told) : NULL;
    l->compacts = api_call_compacted(told);
}

static const struct json *past_message(void *ctx, struct str response_id, bool *ret_compacts)
{
    struct past_look l = {.call = ctx, .response_id = response_id};

    look(&l, look_at_one);
    *ret_compacts = l.compacts;
    return l.messages;
}

/* Finds whether the session has such a seal; runs on the loop. */
static void look_for_seal(void *ctx)
{
    struct past_look *l = ctx;
    bool ended = false;
    const struct session *s =
        session_find(l->call->service->calls.store, str_cstr(l->call->id), &ended);

    l->has_seal = s && session_has_seal(s, l->seal);
}

static bool past_sealed(void *ctx, struct str seal)
{
    struct past_look l = {.call = ctx, .seal = seal};

    look(&l, look_for_seal);
    return l.has_seal;
}

/* Checks the recorded fields. A body that is itself within the limit cannot exceed it. */
static int check_recorded(struct api_call *c, size_t body_bytes, struct err *e)
{
    uint64_t most = c->limits.recorded_bytes;

    if (!c->dialect->recorded || !most || MAX_OF(body_bytes, c->came_bytes) <= most)
        return 0;
    return c->dialect->recorded(&c->arena, c->body, most, e);
}

/* Reads `body` (in the call's arena, with c->lifts) into body and req, under the request's own
 * limits of memory and list lengths. */
static int api_call_parse(struct api_call *c, const struct body_text *body, struct err *e)
{
    struct dialect_headers headers = list_headers(c->x, &c->arena);
    struct past_look engines = {.call = c};
    struct dialect_past past = {past_response, past_message, past_sealed, c,
                                &c->images,    c->lifts,     NULL};
    int rc;

    c->arena.max_bytes = request_limits_budget(&c->limits, MAX_OF(body->whole.len, c->came_bytes));
    if (c->knows ? known_reading_parse(c->known, &c->arena, body, &c->body, e)
                 : json_parse_replacing(&c->arena, body->whole, &c->body, e))
        return e->kind == ERR_BODY_TOO_LARGE ? request_limits_memory(&c->limits, &c->arena, e) : -1;
    if (!json_is(c->body, JSON_OBJECT))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    if (request_limits_lists(&c->limits, c->body, e))
        return -1;
    c->req = ARENA_NEW(&c->arena, struct chat_request);
    past.known = c->knows ? known_reading_messages(c->known) : NULL;
    rc = c->dialect->parse(&c->arena, c->body, &headers, &past, c->req, e);
    if (rc == 0)
        rc = check_recorded(c, body->whole.len, e);
    if (rc == 0) {
        look(&engines, look_at_engines);
        request_find_dropped(
            &c->arena, c->dialect, c->body, c->knows ? known_reading_obeyed(c->known) : 0,
            (struct member_readers){engines.takes, model_info(c->service->calls.model)->names},
            c->req);
    }
    if (request_limits_memory(&c->limits, &c->arena, e) || rc)
        return -1;
    c->req->id_head = c->dialect->id_head;
    if (!c->req->model.len)
        c->req->model = str_cstr(model_info(c->service->calls.model)->name);
    return 0;
}

/* lifts.gone: this range of the body is not read again. */
static void on_gone(void *ctx, struct str part)
{
    const struct api_call *c = ctx;

    exchange_drop_body(c->x, part);
}

/* lifts.reach: this range is read next. */
static void on_reach(void *ctx, struct str part)
{
    const struct api_call *c = ctx;

    exchange_open_body(c->x, part);
}

static struct body_text whole_text(struct str body)
{
    return (struct body_text){.whole = body, .tail = body};
}

bool api_call_may_lift(const struct api_call *c)
{
    struct str body = exchange_closed_body(c->x);

    if (body.len <= WORK_JSON_MAX || !c->images.vision)
        return false;
    return !c->known || body.len > WORK_KNOWN_MAX ||
           image_lifts_any(body, known_reading_from(c->known, c->dialect, exchange_body(c->x)));
}

/* Copies the body into the arena: a body that is long because of pictures without them; of a known
 * body only the rest after the known beginning. */
static struct body_text take_body(struct api_call *c)
{
    struct str body = exchange_closed_body(c->x);
    bool lifts = api_call_may_lift(c);
    struct body_text text;

    c->knows = c->known && !lifts;
    if (c->knows) {
        known_reading_begin(c->known, c->dialect, exchange_body(c->x), &c->arena, &text);
        return text;
    }
    if (!lifts)
        return whole_text(arena_str(&c->arena, exchange_body(c->x)));
    c->came_bytes = body.len;
    *c->lifts = (struct image_lifts){.least = IMAGE_LIFT_LEAST,
                                     .max_bytes = c->images.image_bytes,
                                     .reach = on_reach,
                                     .gone = on_gone,
                                     .ctx = c};
    c->arena.max_bytes = request_limits_budget(&c->limits, body.len);
    return whole_text(image_lifts_lift(c->lifts, &c->arena, body));
}

int api_call_read_body(struct api_call *c, struct body_text *ret, struct err *e)
{
    struct image_lifts lifts = {0};
    struct arena first;
    int rc;

    c->lifts = &lifts;
    *ret = take_body(c);
    rc = api_call_parse(c, ret, e);
    c->lifts = NULL;
    if (lifts.n == 0 || (rc == 0 && image_lifts_used(&lifts)))
        return rc;
    first = c->arena;
    c->arena = (struct arena){.sum = first.sum};
    *ret = whole_text(image_lifts_undo(&lifts, &c->arena, ret->whole));
    arena_done(&first);
    *e = (struct err){0};
    return api_call_parse(c, ret, e);
}
