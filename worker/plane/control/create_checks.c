/* Checks what a new session demands of the engines (handlers.h): its pool, the pools that it may
 * use, its own fields of their requests, and the data that they must return. */
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/scoring/scorers.h"
#include "worker/plane/control/handlers.h"
#include "worker/plane/service/service.h"
#include "worker/session/record/score.h"

static void add_name(void *ctx, const char *name)
{
    buf_printf(ctx, ", %.64s", name);
}

/* Finds the pool that the option names. */
static int find_pool(struct service *a, const char *option, struct str name,
                     struct engine_pool **ret, struct err *e)
{
    struct buf known = {0};

    *ret = engine_pool_named(a->calls.engines, name);
    if (*ret)
        return 0;
    buf_puts(&known, ENGINE_POOL_POLICY);
    engine_pool_each_name(a->calls.engines, add_name, &known);
    (void)err_field(e, option, "%s: no pool of engines is called \"%.*s\"; there are: %.*s", option,
                    (int)MIN_OF(name.len, (size_t)64), name.p, (int)MIN_OF(known.len, (size_t)400),
                    known.p);
    buf_done(&known);
    return -1;
}

/* Finds the engines that the session's calls use unless they name others. */
static int find_engines(struct service *a, const struct json *options, struct engine_pool **ret,
                        struct err *e)
{
    struct str name = json_string(json_get(options, "model"));

    *ret = a->calls.engines;
    return name.p ? find_pool(a, "model", name, ret, e) : 0;
}

/* Refuses names in `pools` that are no pool, because such a name would silently allow nothing. */
static int check_pools(struct service *a, const struct json *options, struct err *e)
{
    const struct json *pools = json_get(options, "pools");
    struct engine_pool *found;

    for (uint32_t i = 0; json_is(pools, JSON_ARRAY) && i < pools->n; i++)
        if (find_pool(a, "pools", json_string(&pools->items[i]), &found, e))
            return -1;
    return 0;
}

/* Checks options that only the policy's engines can satisfy, whatever kinds of engines a pool has
 * now or later. */
static int check_pool_options(const struct engine_pool *engines, const struct json *options,
                              struct err *e)
{
    const char *pool = engine_pool_name(engines), *field = NULL;
    int64_t top = 0;

    (void)json_to_i64(json_get(options, "top_logprobs"), &top);
    if (json_string(json_get(options, "adapter")).len)
        field = "adapter";
    else if (json_is_true(json_get(options, "sampling_support")))
        field = "sampling_support";
    else if (json_is_true(json_get(options, "indexer_topk")))
        field = "indexer_topk";
    else if (top > 0)
        field = "top_logprobs";
    if (!pool || !field)
        return 0;
    return err_field(e, field,
                     "%s is the policy's alone, and this session is made for the pool \"%s\" "
                     "(model)",
                     field, pool);
}

static int check_extra(struct service *a, const struct json *options, struct err *e)
{
    struct engine_pool *engines;

    const struct json *sampling = json_get(options, "sampling_params");

    if (find_engines(a, options, &engines, e) || check_pools(a, options, e) ||
        check_pool_options(engines, options, e))
        return -1;
    if (json_string(json_get(options, "adapter")).len &&
        engine_pool_takes_lora(engines, json_get(sampling, SAMPLING_ENGINE_EXTRA), e))
        return -1;
    return engine_pool_takes_extra(engines, json_get(sampling, SAMPLING_ENGINE_EXTRA), e);
}

/* Checks that the engines return the data of answers that the session wants to keep. */
static int check_wants(struct service *a, const struct json *options, struct err *e)
{
    struct engine_pool *engines;
    struct score_wants scores;
    int64_t top = 0;

    if (find_engines(a, options, &engines, e))
        return -1;
    if (json_is_true(json_get(options, "sampling_support")) &&
        engine_pool_tells(engines, "sampling_support", e))
        return -1;
    if (json_is_true(json_get(options, "indexer_topk")) &&
        engine_pool_tells(engines, "indexer_topk", e))
        return -1;
    if (score_wants_read(json_get(options, "score"), &scores, e))
        return -1;
    for (size_t i = 0; i < scores.n; i++)
        if (scorers_find(a->scorers, scores.at[i].engine, e))
            return -1;
    (void)json_to_i64(json_get(options, "top_logprobs"), &top);
    return top > 0 ? engine_pool_tells(engines, "top_logprobs", e) : 0;
}

int control_check_engines(struct service *a, const struct json *options, struct err *e)
{
    return check_extra(a, options, e) || check_wants(a, options, e) ? -1 : 0;
}
