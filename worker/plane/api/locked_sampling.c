/* Parameters of a request that have no effect because its session locks them (lock_sampling): their
 * names go to dropped_fields. */
#include "common/base/arena.h"
#include "common/codec/json.h"
#include "worker/dialect/request_members.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/call/sampling_merge.h"
#include "worker/session/store/session.h"

void api_call_note_locked(struct api_call *c, const struct session *s,
                          const struct engine_pool *engines)
{
    struct arena *a = &c->arena;
    struct json names;

    if (!s || !str_eq(session_pool(s), str_cstr(engine_pool_name(engines))))
        return;
    names = sampling_list_overruled(a, c->req, session_sampling(s), session_lock_sampling(s));
    for (uint32_t i = 0; i < names.n; i++)
        request_add_unobeyed(a, arena_cstr(a, json_string(&names.items[i])), c->req);
}
