/* Data of its request that a batch's parts share, and one part's answer as a message.
 *
 * The request was read once, perhaps by a helper, and may have any length: nothing of it is copied
 * for a part, or read again. Its memory is separate from the front's. It exists as long as the
 * front's call or any part's, which may outlive the batch (--on-disconnect, a retry). */
#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "common/codec/json_build.h"
#include "common/os/helpers.h"
#include "worker/dialect/request_fields.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/call/give_back.h"
#include "worker/text/request/chat_request.h"

struct batch_request {
    struct arena arena;            /* memory of everything that was read */
    const struct chat_request *of; /* the request with all prompts */
    struct call_env *env;
    struct str id; /* id of its session */
    atomic_uint holders;
};

/* Releases the request when an arena that held it is freed, on any thread: a helper frees much
 * memory. */
static void release_request(void *thing)
{
    struct batch_request *r = thing;
    struct arena arena;

    if (atomic_fetch_sub_explicit(&r->holders, 1, memory_order_acq_rel) > 1)
        return;
    arena = r->arena;
    if (helpers_within())
        arena_done(&arena);
    else
        call_free_later(r->env, &arena, r->id);
}

static void hold_request(struct batch_request *r, struct arena *a)
{
    (void)atomic_fetch_add_explicit(&r->holders, 1, memory_order_relaxed);
    arena_hold(a, release_request, r);
}

struct batch_request *batch_share(struct api_call *front)
{
    struct batch_request *r = ARENA_NEW(&front->arena, struct batch_request);

    r->of = front->req;
    r->env = &front->service->calls;
    r->id = arena_str(&front->arena, str_cstr(front->id));
    r->arena = front->arena;
    front->arena = (struct arena){.sum = r->arena.sum};
    hold_request(r, &front->arena);
    return r;
}

size_t batch_shared_bytes(const struct batch_request *r)
{
    return r->arena.held_bytes;
}

struct chat_request *batch_part_request(struct batch_request *r, uint32_t k, struct arena *a)
{
    struct chat_request *req = ARENA_NEW(a, struct chat_request);

    hold_request(r, a);
    *req = *r->of;
    chat_request_take_prompt(req, &r->of->prompts[k]);
    req->n_prompts = 1;
    req->prompts = NULL;
    return req;
}

const struct json *batch_message(struct arena *a, struct str text)
{
    return json_keep(a, json_message(a, STR("assistant"), json_make_string(text)));
}
