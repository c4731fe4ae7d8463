/* A worker's places and their journals.
 *
 * Opening a place replays its journal: every record is checked and applied; content that nobody
 * asks for is not kept (session_store_lazy). A record of a newer program stops the start; one
 * that does not fit is skipped and said. */
#include <stdlib.h>
#include <sys/statvfs.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/journal.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/ledger/delivery.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/session.h"
#include "worker/setup.h"
#include "worker/sink/sink.h"
#include "worker/worker_state.h"

/* A record that does not fit: the rest of a session whose beginning was compacted away already
 * (said once, dropped below), or is damaged. */
static void replay_skip(struct worker_state *w, struct str session_id, const struct err *why)
{
    bool ended = false;

    w->skipped++;
    if (session_find_any(w->service.calls.store, session_id, &ended) || ended)
        log_error(&(struct log_scope){.session = session_id}, "journal: record does not apply",
                  LOG_T("error", why->text));
    else
        *vec_push(&w->orphans) = mem_strndup(session_id.p, session_id.len);
}

/* A record from the journal; notes tell which answers had arrived. */
static int on_replayed(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct worker_state *w = ctx;
    struct err bad = {0};
    struct str id;
    uint64_t hash[2], call;

    if (str_eq_c(session_id, JOURNAL_NOTE)) {
        deliveries_replay_note(w->service.calls.ledger->deliveries, payload);
        return 0;
    }
    if (session_apply(w->service.calls.store, payload, &bad)) {
        if (bad.kind == ERR_UNSUPPORTED) { /* a newer program's: not ours to drop */
            *e = bad;
            return -1;
        }
        replay_skip(w, session_id, &bad);
        return 0;
    }
    if (session_record_commits(payload, &id, hash, &call))
        deliveries_open(w->service.calls.ledger->deliveries, id, hash, call);
    return 0;
}

/* The rest of a session goes; of one that was deleted its end stays, and nothing was lost. */
static void drop_orphan(struct worker_state *w, struct journal *j, char *id)
{
    bool ended = false;

    (void)session_find_any(w->service.calls.store, str_cstr(id), &ended);
    w->skipped -= ended;
    if (ended)
        journal_drop_earlier(j, str_cstr(id));
    else
        journal_drop_session(j, str_cstr(id));
    free(id);
}

/* Journal, sessions, then the sinks' spool of that place, which needs the sessions. */
int worker_state_open_place(struct worker_state *w, uint32_t index, struct err *e)
{
    struct call_env *env = &w->service.calls;
    struct journal_options o;
    struct journal_stats stats;
    struct journal *j = NULL;
    char dir[4096];
    uint64_t start_ms = clock_ms();
    int rc;

    if (setup_journal(w->h, index, dir, sizeof(dir), &o))
        return err_set(e, ERR_CONFIG, "the state folder's path is too long");
    session_store_lazy(env->store, true);
    rc = journal_open(w->loop, &o, on_replayed, w, &j, e);
    session_store_lazy(env->store, false);
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

/* --- once a second --- */

bool worker_disk_low(const struct worker_state *w)
{
    const struct config *c = w->h->config;
    struct statvfs v;

    if (c->durability == DURABILITY_NONE || statvfs(w->h->state_dir, &v))
        return false;
    return (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)c->journal_min_free;
}

static bool session_needed(void *ctx, struct str id)
{
    bool ended = false;

    return session_find_any(ctx, id, &ended) || ended;
}

/* What was deleted and aborted needs its end only. */
static void drop_gone(struct worker_state *w)
{
    struct call_env *env = &w->service.calls;
    char *id;

    while ((id = session_take_gone(env->store))) {
        journal_drop_earlier(places_find(env->residency->places, str_cstr(id))->journal,
                             str_cstr(id));
        free(id);
    }
}

/* One step in every turn of the loop, until no journal needs one. */
static void on_compact(struct loop_task *t)
{
    struct worker_state *w = CONTAINER_OF(t, struct worker_state, compact);
    const struct places *p = w->service.calls.residency->places;
    struct err e = {0};

    for (size_t i = 0; i < p->n; i++) {
        int rc = journal_compact(p->at[i].journal, false, &e);

        if (rc < 0) {
            log_warn(NULL, "journal: compaction failed", LOG_T("error", e.text));
            w->compact_after = w->ticks + WORKER_LOOK_OVER_TICKS;
            return;
        }
        if (rc > 0) {
            loop_task_post(w->loop, t, on_compact);
            return;
        }
    }
}

void worker_journals_look_over(struct worker_state *w)
{
    struct call_env *env = &w->service.calls;
    const struct places *p = env->residency->places;
    struct journal_stats s;
    uint64_t disk = 0, live = 0, records = 0, bytes = 0;

    drop_gone(w);
    for (size_t i = 0; i < p->n; i++) {
        if (w->ticks % WORKER_LOOK_OVER_TICKS == 0)
            (void)journal_drop_absent(p->at[i].journal, session_needed, env->store);
        journal_stats(p->at[i].journal, &s);
        disk += s.disk_bytes;
        live += s.live_bytes;
        records += s.records;
        bytes += s.bytes;
    }
    metrics_count(env->page, METRIC_journal_records, records - w->told_records);
    metrics_count(env->page, METRIC_journal_bytes, bytes - w->told_bytes);
    w->told_records = records;
    w->told_bytes = bytes;
    metrics_set(env->page, METRIC_journal_disk, disk);
    metrics_set(env->page, METRIC_journal_live, live);
    if (w->ticks >= w->compact_after)
        loop_task_post(w->loop, &w->compact, on_compact);
}

uint64_t worker_state_table_bytes(const struct worker_state *w)
{
    const struct places *p = w->service.calls.residency->places;
    uint64_t sum = 0;

    for (size_t i = 0; i < p->n; i++)
        sum += journal_table_bytes(p->at[i].journal);
    return sum;
}

void worker_journals_reload(struct worker_state *w)
{
    const struct places *p = w->service.calls.residency->places;

    for (size_t i = 0; i < p->n; i++)
        journal_resize(p->at[i].journal, (uint64_t)w->h->config->journal_segment_bytes);
}
