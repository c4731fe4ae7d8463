/* Data that all calls of one worker share: made before the first call, freed after the last. */
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/proc/ids.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/fragments.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_rules.h"
#include "worker/plane/call/give_back.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/remains.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/tokens/tokenizer.h"

/* If it fails, call_env_close frees what was made. */
int call_env_open(struct call_env *env, const struct call_env_parts *parts, struct err *e)
{
    call_tasks_begin(env, parts);
    env->residency = mem_zalloc(sizeof(*env->residency));
    env->residency->places = mem_zalloc(sizeof(*env->residency->places));
    env->ids = ids_new(e);
    if (!env->ids)
        return -1;
    env->rules = mem_zalloc(sizeof(*env->rules));
    env->loop = parts->loop;
    env->model = parts->model;
    env->page = parts->page;
    env->scratch = model_scratch_new(env->model);
    model_scratch_count(env->scratch, &env->request_bytes);
    model_scratch_remember(env->scratch);
    env->encoder = encoder_new(model_tokenizer(env->model));
    env->store = session_store_new(env->model, parts->defaults);
    session_store_buries(env->store, call_bury, env);
    env->residency->loop = env->loop;
    env->residency->store = env->store;
    env->residency->page = env->page;
    env->residency->tasks = env->tasks;
    env->ledger = mem_zalloc(sizeof(*env->ledger));
    env->ledger->residency = env->residency;
    env->ledger->deliveries = mem_zalloc(sizeof(*env->ledger->deliveries));
    env->ledger->fragments = fragments_new();
    if (parts->journaled)
        residency_evicts(env->residency);
    return 0;
}

/* Closes in the reverse order; deliveries are recorded first. */
void call_env_close(struct call_env *env, bool keep)
{
    if (env->ledger) {
        ledger_write_deliveries(env->ledger);
        residency_done(env->residency);
        deliveries_done(env->ledger->deliveries);
        fragments_free(env->ledger->fragments);
        free(env->ledger->deliveries);
    }
    if (env->residency)
        places_done(env->residency->places);
    if (keep)
        return;
    if (env->store)
        session_store_free(env->store);
    call_tasks_free(env);
    call_rows_free(env);
    free(env->rules);
    free(env->ledger);
    if (env->residency)
        free(env->residency->places);
    free(env->residency);
    encoder_free(env->encoder);
    if (env->scratch)
        model_scratch_free(env->scratch);
    ids_free(env->ids);
}

uint32_t call_context_length(const struct call_env *env)
{
    uint32_t told = engine_pool_context(env->engines), own = env->context_length;

    return told > 0 && (own == 0 || told < own) ? told : own;
}

struct engine_pool *call_engines(const struct call_env *env, struct str model,
                                 const struct session *s)
{
    struct engine_pool *named = engine_pool_named(env->engines, model);
    struct str own = s ? session_pool(s) : (struct str){0};

    if (named)
        return named;
    return own.len ? engine_pool_named(env->engines, own) : env->engines;
}

struct answer_formats call_formats(const struct call_env *env)
{
    return env->rules->formats;
}

void call_fresh_id(void *ctx, char *out, size_t size)
{
    struct call_env *env = ctx;

    CHECK(size > 5 + 24);
    if (env->rules->formats.tool == TOOL_MISTRAL) {
        ids_hex(env->ids, out, 5);
        out[9] = '\0'; /* templates of Mistral refuse ids of any other length */
        return;
    }
    memcpy(out, "call_", 5);
    ids_hex(env->ids, out + 5, 12);
}

struct request_limits call_request_limits(const struct call_env *env)
{
    return env->rules->limits;
}

struct image_rules call_image_rules(const struct call_env *env)
{
    struct image_rules rules = env->rules->images;

    if (!engine_pool_takes_images(env->engines))
        rules.vision = NULL;
    return rules;
}
