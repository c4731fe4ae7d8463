/* Maintains a worker's journals once a second: drops and compacts away records that are not needed
 * (worker_replay.c opens them). */
#include <stdlib.h>
#include <sys/statvfs.h>

#include "common/base/log.h"
#include "common/journal/journal.h"
#include "common/os/task.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/ledger/ledger.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/worker_state.h"

bool worker_disk_low(const struct worker_state *w)
{
    const struct config *c = w->h->config;
    struct statvfs v;

    if (c->durability == DURABILITY_NONE || statvfs(w->h->state_dir, &v))
        return false;
    return (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)c->journal_min_free;
}

enum { LOOK_PLACES = 64 }; /* places that are checked between two pauses */

static bool session_needed(void *ctx, struct str id)
{
    const struct call_env *env = ctx;
    bool ended = false;

    return session_find_any(env->store, id, &ended) || ended ||
           !ledger_drop_session(env->ledger, id);
}

void worker_journals_drop_gone(struct worker_state *w)
{
    struct call_env *env = &w->service.calls;
    char *id;

    while ((id = session_take_gone(env->store))) {
        ledger_end_session(env->ledger, str_cstr(id));
        free(id);
    }
}

/* A task: compacts until no journal needs it. */
static void compact(void *ctx)
{
    struct worker_state *w = ctx;
    const struct places *p = w->service.calls.residency->places;
    struct err e = {0};
    size_t i = 0;

    w->compacting = true;
    while (i < p->n) {
        int rc = journal_compact(p->at[i].journal, false, &e);

        if (rc < 0) {
            log_warn(NULL, "journal: compaction failed", LOG_T("error", e.text));
            w->compact_after = w->ticks + WORKER_LOOK_OVER_TICKS;
            break;
        }
        i = rc > 0 ? 0 : i + 1;
        if (rc > 0 && task_pause(&e))
            break;
    }
    w->compacting = false;
}

/* Drops absent sessions from journal i. Returns -1 if cancelled. */
MAY_PAUSE static int drop_absent(struct worker_state *w, size_t i)
{
    const struct call_env *env = &w->service.calls;
    struct journal_look at = {0};
    struct err e;

    while (journal_drop_batch(env->residency->places->at[i].journal, &at, session_needed,
                              (void *)(uintptr_t)env, LOOK_PLACES))
        if (task_pause(&e))
            return -1;
    w->many_absent = w->many_absent || at.dropped >= JOURNAL_LAST_WORDS;
    return 0;
}

/* A task: drops sessions that are not needed from all journals. */
static void drop_all_absent(void *ctx)
{
    struct worker_state *w = ctx;

    w->dropping = true;
    w->many_absent = false;
    for (size_t i = 0; i < w->service.calls.residency->places->n; i++)
        if (drop_absent(w, i))
            break;
    w->dropping = false;
}

void worker_journals_look_over(struct worker_state *w)
{
    struct call_env *env = &w->service.calls;
    const struct places *p = env->residency->places;
    struct journal_stats s;
    uint64_t disk = 0, live = 0, records = 0, bytes = 0;

    worker_journals_drop_gone(w);
    if (!w->dropping && (w->ticks % WORKER_LOOK_OVER_TICKS == 0 || w->many_absent))
        (void)task_start(env->tasks, STR("journals"), drop_all_absent, w);
    for (size_t i = 0; i < p->n; i++) {
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
    if (!w->compacting && w->ticks >= w->compact_after)
        (void)task_start(env->tasks, STR("journals"), compact, w);
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
