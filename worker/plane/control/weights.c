/* The trainer's versions of weights and adapters, as this worker applies them: the file of the
 * state folder has them (weights_file.h). */
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/weights_file.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/respond.h"
#include "worker/plane/service/service.h"

int weights_follow(struct service *a, struct err *e)
{
    uint64_t stamp = weights_stamp(a->heritage->state_dir);
    struct weights_told told;

    if (stamp == a->weights_seen)
        return 0;
    if (weights_load(a->heritage->state_dir, &told, e)) {
        a->weights_failed = stamp;
        return -1;
    }
    if (!a->versions_unknown) {
        a->weights_seen = stamp;
        engine_pool_follow(a->calls.engines, &told);
    }
    weights_told_done(&told);
    return 0;
}

int weights_keep(struct service *a, struct str adapter, struct str version, struct err *e)
{
    const struct heritage *h = a->heritage;
    struct str name = adapter.len > 0 ? adapter : (struct str){0};

    if (weights_tell(h->state_dir, name, version, h->config->durability == DURABILITY_POWER, e))
        return -1;
    if (adapter.len == 0)
        run_note_version(&a->calls, version);
    return weights_follow(a, e);
}

void admin_adapters_get(struct service_request *r)
{
    struct buf answer = {0};

    buf_puts(&answer, "{\"adapters\":");
    engine_pool_write_loras(r->service->calls.engines, &answer);
    heritage_put_unreachable(r->service->heritage, &(struct json_out){&answer, true});
    buf_add_c(&answer, '}');
    respond_json(r, &answer);
    buf_done(&answer);
}
