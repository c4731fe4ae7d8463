/* Which half of a split an engine is, and where a decode half finds it. */
#include <string.h>

#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/net/url.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/wire/attempt.h"

enum engine_half remote_half(const void *replica)
{
    const struct remote *r = replica;

    if (r->wire->info && !r->informed)
        return HALF_UNTOLD;
    if (!r->facts.half)
        return HALF_WHOLE;
    return strcmp(r->facts.half, "prefill") == 0 ? HALF_PREFILL : HALF_DECODE;
}

/* Returns the data-parallel rank for the request: the session's, or the one that the session names,
 * which goes to both halves. -1: the engine chooses. */
static int64_t rank_of(const struct remote *r, const struct engine_request *q)
{
    int64_t rank = remote_rank_of(r, q);

    if (rank < 0 && json_to_i64(json_get(q->sampling->engine_extra, "routed_dp_rank"), &rank) != 0)
        return -1;
    return rank;
}

struct engine_pairing remote_pairing(const void *replica, const struct engine_request *q)
{
    const struct remote *r = replica;
    struct url url = {0};
    struct err e = {0};

    /* valid, because it was parsed when it was opened */
    (void)url_parse(str_cstr(r->target->rest), &url, &e);
    return (struct engine_pairing){
        .host = url.host, .port = r->facts.bootstrap_port, .rank = rank_of(r, q)};
}
