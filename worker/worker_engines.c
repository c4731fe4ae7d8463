/* Opens and changes a worker's engines (worker_state.h): those of the settings, or of the last
 * /admin/engines, and everything that depends on them. */

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/engine/pool/weights_file.h"
#include "worker/session/store/session.h"
#include "worker/setup.h"
#include "worker/worker_state.h"

/* Sets what depends on the engines' kinds: whether images are accepted, and how sessions keep their
 * history. */
void worker_engines_changed(struct worker_state *w)
{
    bool all_text = engine_pool_all_text(w->service.calls.engines);
    struct session_defaults sessions = setup_sessions(w->h->config, all_text);

    setup_calls(&w->service.calls, w->h->config, w->h->model);
    if (all_text == w->all_text)
        return;
    w->all_text = all_text;
    session_store_configure(w->service.calls.store, &sessions);
}

/* Makes the pool with the current engines. `o` has all options except the set. */
static int open_pool(struct worker_state *w, struct engine_options *o, struct err *e)
{
    struct engine_set set;
    bool told = false;
    int rc;

    if (engine_set_load(&set, w->engine_home, &told, e))
        return -1;
    if (told && w->h->place == 0)
        log_warn(NULL, "--engine is not what it was when /admin/engines changed the engines: "
                       "--engine holds, the change does not");
    if (set.edition > 0 && w->h->place == 0)
        log_info(NULL, "engines are those of the last /admin/engines",
                 LOG_U("edition", set.edition), LOG_U("engines", set.n));
    for (size_t i = 0; w->h->place == 0 && i < set.pools.n; i++)
        log_info(NULL, "engines of this name are a pool of their own, which is never trained",
                 LOG_T("pool", set.pools.at[i]));
    if (w->h->place == 0 && engine_set_keep_pools(&set, w->engine_home, e))
        log_warn(NULL, "the names of pools are not kept for the next start",
                 LOG_T("error", e->text));
    o->set = &set;
    rc = engine_pool_new(w->loop, o, &w->service.calls.engines, e);
    o->set = NULL;
    engine_set_done(&set);
    return rc;
}

/* Applies the weight version that the trainer had set before this worker started. */
static int recall_weights(struct worker_state *w, struct err *e)
{
    struct weights_told told;

    w->service.weights_seen = weights_stamp(w->h->state_dir);
    if (weights_load(w->h->state_dir, &told, e))
        return -1;
    if ((told.version.len > 0 || told.loras.n > 0) && w->h->place == 0)
        log_info(NULL, "versions of weights are those that were told last",
                 LOG_S("version", buf_str(&told.version)), LOG_U("adapters", told.loras.n));
    engine_pool_follow(w->service.calls.engines, &told);
    weights_told_done(&told);
    return 0;
}

int worker_engines_open(struct worker_state *w, void (*on_health)(void *ctx), void *ctx,
                        struct err *e)
{
    struct service *a = &w->service;
    struct engine_options o = setup_engines(w->h->config, w->h->model);

    o.metrics = w->h->page;
    o.board = w->h->board;
    o.slot = w->h->slot;
    o.on_health = on_health;
    o.health_ctx = ctx;
    o.tasks = a->calls.tasks;
    w->engine_home = mem_zalloc(sizeof(*w->engine_home));
    *w->engine_home = setup_engine_home(w->h);
    a->engine_home = w->engine_home;
    a->engines_seen = engine_set_stamp(w->h->state_dir);
    if (open_pool(w, &o, e) || recall_weights(w, e) ||
        scorers_new(w->loop, (const char *const *)w->h->config->scorer.at, w->h->config->scorer.n,
                    &o, &a->scorers, e))
        return -1;
    worker_engines_changed(w);
    return 0;
}

void worker_engines_reload(struct worker_state *w)
{
    struct engine_options o = setup_engines(w->h->config, w->h->model);

    engine_pool_reload(w->service.calls.engines, &o);
}

void worker_engines_close(struct worker_state *w)
{
    engine_pool_free(w->service.calls.engines);
    scorers_free(w->service.scorers);
    free(w->engine_home);
}
