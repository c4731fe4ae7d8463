/* A worker's journals once a second: what nobody needs is dropped and compacted away (opening them:
 * worker_replay.c). */
#include <stdlib.h>
#include <sys/statvfs.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/journal/journal.h"
#include "common/os/loop.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "common/proc/metrics.h"
#include "worker/residency/places.h"
#include "worker/residency/residency.h"
#include "worker/session/session.h"
#include "worker/worker_state.h"

bool worker_disk_low(const struct worker_state *w)
{
    const struct config *c = w->h->config;
    struct statvfs v;

    if (c->durability == DURABILITY_NONE || statvfs(w->h->state_dir, &v))
        return false;
    return (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)c->journal_min_free;
}

/* Of a look-over; the clock is looked at behind so many places. */
enum { LOOK_SLICE_US = 1000, LOOK_PLACES = 64 };

struct look_over {
    struct worker_state *worker;
    struct loop_task task;  /* posted between two slices */
    bool goes_on;           /* it has not ended */
    size_t place;           /* the journal at hand */
    struct journal_look at; /* in it */
};

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

/* A slice. */
static void on_look(struct loop_task *t)
{
    struct look_over *l = CONTAINER_OF(t, struct look_over, task);
    struct worker_state *w = l->worker;
    struct call_env *env = &w->service.calls;
    const struct places *p = env->residency->places;
    uint64_t until_us = clock_us() + LOOK_SLICE_US;

    while (l->place < p->n) {
        if (!journal_drop_some(p->at[l->place].journal, &l->at, session_needed, env->store,
                               LOOK_PLACES)) {
            w->many_absent = w->many_absent || l->at.dropped >= JOURNAL_LAST_WORDS;
            l->at = (struct journal_look){0};
            l->place++;
        }
        if (clock_us() >= until_us) {
            loop_task_post_behind(w->loop, t, on_look);
            return;
        }
    }
    l->goes_on = false;
}

/* For sessions that nobody needs, of all journals. The last look-over may not have ended. */
static void begin_look(struct worker_state *w)
{
    struct look_over *l = w->look ? w->look : mem_zalloc(sizeof(*l));

    w->look = l;
    if (l->goes_on)
        return;
    w->many_absent = false;
    *l = (struct look_over){.worker = w, .goes_on = true};
    on_look(&l->task);
}

void worker_journals_stop(struct worker_state *w)
{
    loop_task_cancel(w->loop, &w->compact);
    if (w->look)
        loop_task_cancel(w->loop, &w->look->task);
    free(w->look);
    w->look = NULL;
}

void worker_journals_look_over(struct worker_state *w)
{
    struct call_env *env = &w->service.calls;
    const struct places *p = env->residency->places;
    struct journal_stats s;
    uint64_t disk = 0, live = 0, records = 0, bytes = 0;

    drop_gone(w);
    if (w->ticks % WORKER_LOOK_OVER_TICKS == 0 || w->many_absent)
        begin_look(w);
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
