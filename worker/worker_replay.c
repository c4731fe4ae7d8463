/* Replays the journal when a place is opened: every record is checked and applied; content that is
 * not needed now is not kept (session_store_lazy). A record of an unknown version stops the start;
 * an invalid record is skipped and logged. Fragments of calls without a commit are dropped then,
 * because the process that ran these calls has ended: only one process at a time has a journal
 * open. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/journal.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/fragments.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/setup.h"
#include "worker/sink/sink.h"
#include "worker/worker_state.h"

/* Handles an invalid record: it is damaged, or belongs to a session whose beginning was compacted
 * away (logged once; dropped below). */
static void replay_skip(struct worker_state *w, struct str session_id, struct str payload,
                        const struct err *why)
{
    struct ledger *l = w->service.calls.ledger;
    bool ended = false;

    w->skipped++;
    if (!session_find_any(w->service.calls.store, session_id, &ended) && !ended) {
        *vec_push(&w->orphans) = mem_strndup(session_id.p, session_id.len);
        return;
    }
    log_error(&(struct log_scope){.session = session_id}, "journal: record does not apply",
              LOG_T("error", why->text));
    if (l->copy)
        ledger_add_replayed(l, w->opening_index, session_id, payload,
                            (uint32_t)journal_records(w->opening, session_id));
}

static bool is_beginning(struct str payload)
{
    const char *kind = session_record_kind(payload);

    return kind && strcmp(kind, "create") == 0;
}

/* Begins a session again. In a fleet a session may begin twice, if the journal was damaged and all
 * records were read from the store again. Returns whether the record was applied. */
static bool begin_anew(struct worker_state *w, struct str session_id, struct str payload)
{
    struct err e = {0};

    return w->service.calls.ledger->copy && is_beginning(payload) &&
           session_forget(w->service.calls.store, session_id) &&
           session_apply(w->service.calls.store, payload, &e) == 0;
}

/* Counts the record for the fleet's store, without what came before a session's beginning. */
static void add_to_copy(const struct worker_state *w, struct str session_id, struct str payload,
                        uint32_t number)
{
    struct ledger *l = w->service.calls.ledger;

    if (number > 0 && is_beginning(payload))
        ledger_skip_replayed(l, w->opening, session_id);
    ledger_add_replayed(l, w->opening_index, session_id, payload, number);
}

/* Replays a record of the journal. Notes show which answers had been delivered. */
static int on_replayed(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct worker_state *w = ctx;
    struct err bad = {0};
    uint32_t number;

    if (str_eq_c(session_id, JOURNAL_NOTE)) {
        deliveries_replay(w->service.calls.ledger->deliveries, payload);
        return 0;
    }
    if (session_apply(w->service.calls.store, payload, &bad) &&
        !begin_anew(w, session_id, payload)) {
        /* a record of a different program, which must not be dropped */
        if (bad.kind == ERR_UNSUPPORTED) {
            *e = bad;
            return -1;
        }
        replay_skip(w, session_id, payload, &bad);
        return 0;
    }
    number = (uint32_t)journal_records(w->opening, session_id);
    if (w->service.calls.ledger->copy)
        add_to_copy(w, session_id, payload, number);
    fragments_add(w->replayed, w->opening, session_id, payload, number);
    ledger_replay_delivery(w->service.calls.ledger, payload);
    return 0;
}

/* Drops the remaining records of a session without a beginning. If the session was deleted, its
 * end stays, and nothing was lost. In a fleet the session is read from the store. */
static void drop_orphan(struct worker_state *w, struct journal *j, char *id)
{
    bool ended = false;

    if (!session_find_any(w->service.calls.store, str_cstr(id), &ended) && !ended)
        journal_drop_session(j, str_cstr(id));
    w->skipped -= ended;
    if (ended)
        ledger_end_session(w->service.calls.ledger, str_cstr(id));
    free(id);
}

/* Opens the journal, then the sessions, then the sinks' spool of that place, which needs the
 * sessions. */
int worker_state_open_place(struct worker_state *w, uint32_t index, struct err *e)
{
    struct call_env *env = &w->service.calls;
    struct journal_options o;
    struct journal_stats stats;
    struct journal *j;
    char dir[4096];
    uint64_t start_ms = clock_ms();
    int rc;

    if (setup_journal(w->h, index, dir, sizeof(dir), &o))
        return err_set(e, ERR_CONFIG, "the state folder's path is too long");
    session_store_lazy(env->store, true);
    w->opening_index = index;
    w->replayed = fragments_new();
    rc = journal_open(w->loop, &o, on_replayed, w, &w->opening, e);
    j = w->opening;
    session_store_lazy(env->store, false);
    if (rc == 0)
        fragments_drop_all(w->replayed, j);
    fragments_free(w->replayed);
    if (rc)
        return -1;
    places_add(env->residency->places, index, j);
    while (w->orphans.n > 0)
        drop_orphan(w, j, vec_pop(&w->orphans));
    journal_stats(j, &stats);
    if (w->skipped > 0)
        log_warn(NULL, "journal: records skipped", LOG_U("records", w->skipped));
    w->skipped = 0;
    metrics_count(env->page, METRIC_journal_replayed, stats.replayed);
    metrics_count(env->page, METRIC_journal_repairs, stats.repairs);
    metrics_count(env->page, METRIC_journal_replay_us, (clock_ms() - start_ms) * 1000);
    if (stats.replayed > 0)
        log_info(NULL, "journal replayed", LOG_U("index", index), LOG_U("records", stats.replayed),
                 LOG_U("ms", clock_ms() - start_ms));
    return sinks_open_place(w->service.sinks, env->store, w->h->state_dir, index, e);
}
