/* Opens and sweeps the pictures of a worker's sessions (worker_state.h): one store in the state
 * folder. */

#include "common/net/web_rules.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/ids.h"
#include "worker/ledger/ledger.h"
#include "worker/media/media_store.h"
#include "worker/plane/control/handlers.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/setup.h"
#include "worker/worker_state.h"

enum { FETCHERS = 8 };

/* Opens the rules for fetching pictures, and the threads that fetch. Several threads cost little,
 * because they mostly wait. */
static int open_web(struct worker_state *w, void (*on_lost)(void *env, unsigned n), struct err *e)
{
    const struct config *c = w->h->config;

    if (c->media_fetch.n == 0)
        return 0;
    if (web_rules_new((const char *const *)c->media_fetch.at, c->media_fetch.n,
                      (const char *const *)c->media_fetch_address.at, c->media_fetch_address.n,
                      &w->web, e) ||
        call_fetchers_begin(&w->service.calls, FETCHERS, setup_fetch_limit(c), on_lost, e))
        return -1;
    w->service.calls.web = w->web;
    return 0;
}

int worker_media_open(struct worker_state *w, void (*on_lost)(void *env, unsigned n), struct err *e)
{
    const struct config *c = w->h->config;
    struct media_options o = {.state_dir = w->h->state_dir,
                              .sync = c->durability == DURABILITY_POWER,
                              .session_bytes = (uint64_t)c->max_session_media_bytes};

    w->files = worker_files_new(w, &o);
    w->media = media_store_new(&o);
    w->service.calls.media = w->media;
    return open_web(w, on_lost, e);
}

void worker_media_close(struct worker_state *w)
{
    media_store_free(w->media);
    worker_files_free(w->files);
    web_rules_free(w->web);
}

static bool media_is_ours(void *ctx, struct str id)
{
    const struct worker_state *w = ctx;
    uint32_t index;

    return ids_parse(id, &index) == 0 && places_serve(w->service.calls.residency->places, index);
}

static bool media_is_kept(void *ctx, struct str id)
{
    const struct worker_state *w = ctx;

    return session_is_kept(w->service.calls.store, id) ||
           ledger_is_unread(w->service.calls.ledger, id) || control_copies(&w->service, id) ||
           control_copies_from(&w->service, id);
}

void worker_media_sweep(struct worker_state *w)
{
    (void)media_store_sweep(w->media, &(struct media_sweep){media_is_ours, media_is_kept, w});
    worker_files_sweep(w->files);
}
