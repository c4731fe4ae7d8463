/*
 * Entries of settled groups for the Redis sinks: one entry each in the stream NAME:groups, which
 * names the keys of its members' entries. When the records that settled the group are durable, a
 * worker spools the entry next to the sessions' exports. That is recorded, so that a restart sends
 * only missing entries. Each entry arrives at least once, like everything that sinks receive.
 *
 * In a fleet a member may be lost before the sinks have its tokens. So each member is asked for
 * first, until they have it. Then a record fixes the group's content: if another dispatcher repeats
 * the entry, it is the same. The worker answers when every sink has the entry, because its spool
 * may be lost.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "dispatcher/book_record.h"
#include "dispatcher/desk.h"
#include "dispatcher/result.h"
#include "dispatcher/workers.h"

enum { SOON_MS = 20, AGAIN_MS = 500, AGAIN_MAX_MS = 30 * 1000 };

struct telling {
    struct desk *desk;
    char group[GROUP_ID_MAX + 1];
    /* time of submission, because a later group may have the same id by now */
    uint64_t submitted_at_ms;
    char *body;       /* NULL: it is not written yet */
    bool waits;       /* waits for the group's records to be durable */
    uint32_t rollout; /* in a fleet: the sinks have the members before this one */
    uint64_t again_ms;
    char at[ID_TEXT_MAX]; /* in a fleet: the worker that has the entry, or is asked to; or empty */
    struct http_fetch *call;
    struct loop_timer again;
    struct list_item entry;
};

static void telling_free(struct telling *t)
{
    list_remove(&t->entry);
    if (t->waits)
        desk_forget(t->desk, t);
    desk_paid(t->desk, str_cstr(t->group));
    loop_timer_stop(t->desk->loop, &t->again);
    http_fetch_cancel(t->call);
    free(t->body);
    free(t);
}

static void tell_next(struct telling *t);

static void on_telling_retry(struct loop_timer *timer)
{
    tell_next(CONTAINER_OF(timer, struct telling, again));
}

static void tell_later(struct telling *t)
{
    loop_timer_set(t->desk->loop, &t->again, t->again_ms, on_telling_retry);
    t->again_ms = MIN_OF(2 * t->again_ms, AGAIN_MAX_MS);
}

/* Returns the group; NULL: it was removed. */
static struct group *group_of(const struct telling *t)
{
    struct group *g = book_group(&t->desk->book, str_cstr(t->group));

    return g && g->submitted_at_ms == t->submitted_at_ms ? g : NULL;
}

/* Records that the sinks have the entry. The group may be acknowledged by now; its records are kept
 * until this is done. */
static void record_delivery(struct telling *t)
{
    const struct group *g = group_of(t);
    struct buf record = {0};
    struct err e;

    if (g && g->told)
        return;
    record_told(str_cstr(t->group), t->submitted_at_ms, clock_wall_ms(), &record);
    if (desk_write(t->desk, str_cstr(t->group), buf_str(&record), NULL, &e) < 0)
        log_warn(NULL, "a group's entry is not noted: behind a restart it comes twice",
                 LOG_T("group", t->group), LOG_T("error", e.text));
    buf_done(&record);
}

static void on_telling_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct telling *t = ctx;

    (void)e;
    t->call = NULL;
    if (worker_refuses(status)) {
        log_error(NULL, "a group's entry is not delivered to the sinks", LOG_T("group", t->group),
                  LOG_I("status", status), LOG_S("answer", str_sub(body, 0, 300)));
    } else if (status != 200) {
        loop_timer_set(t->desk->loop, &t->again, AGAIN_MS, on_telling_retry);
        return;
    } else {
        record_delivery(t);
    }
    telling_free(t);
}

static bool any_redis(const struct desk *d)
{
    const struct config *c = d->heritage->config;

    for (size_t i = 0; i < c->sink.n; i++)
        if (str_starts(str_cstr(c->sink.at[i]), STR("redis:")))
            return true;
    return false;
}

/* Writes the keys of the members' entries: SESSION/INDEX. */
static void put_keys(const struct group *g, struct json_out *o)
{
    json_out_member_arr(o, "keys");
    for (uint32_t k = 0; g->rollouts && k < group_rollouts(g); k++) {
        const struct rollout *r = &g->rollouts[k];

        for (uint64_t i = 0; r->state == ROLLOUT_SUCCEEDED && i < r->result.trajectories; i++) {
            char key[SESSION_ID_MAX + 24];

            (void)snprintf(key, sizeof(key), "%s/%llu", r->last->session, (unsigned long long)i);
            json_out_cstr(o, key);
        }
    }
    json_out_end_arr(o);
}

static char *write_entry(const struct group *g)
{
    struct group told = *g;
    struct buf body = {0};
    struct json_out o = json_out_to(&body);

    json_out_obj(&o);
    json_out_member_str(&o, "group", g->spec.id);
    json_out_member_obj(&o, "entry");
    json_out_member_str(&o, "group", g->spec.id);
    json_out_member_cstr(&o, "state", group_state_names[g->state]);
    json_out_member_i64(&o, "group_size", group_rollouts(g));
    json_out_member_i64(&o, "succeeded", g->succeeded);
    put_keys(g, &o);
    json_out_key(&o, "result");
    /* deliveries to trainers are left out, so that the entry is always the same */
    told.deliveries = 0;
    result_write_group(&told, NULL, NULL, &o);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
    return buf_take(&body);
}

/* Records that the member's session is lost. Returns -1 if that cannot be recorded now. */
static int lose_member(const struct telling *t)
{
    const struct group *g = group_of(t);

    return g && !group_is_delivered(g) && g->rollouts[t->rollout].state == ROLLOUT_SUCCEEDED
               ? losses_record(t->desk, g->rollouts[t->rollout].last)
               : 0;
}

/* Continues when the sinks have the member's session, or will never get it. */
static void on_member(void *ctx, int status, struct str body, const struct err *e)
{
    struct telling *t = ctx;
    struct arena a = {0};
    const struct json *v = NULL;

    (void)e;
    t->call = NULL;
    (void)json_parse(&a, body, &v, NULL);
    if (json_is_true(json_get(v, "waits")) || (status != 200 && !worker_refuses(status)) ||
        (worker_lost_session(status, body) && lose_member(t))) {
        tell_later(t);
    } else {
        t->again_ms = SOON_MS;
        t->rollout++;
        tell_next(t);
    }
    arena_done(&a);
}

/* Asks for the next member that counts. Returns whether one is waited for. */
static bool await_member(struct telling *t, struct group *g)
{
    const struct rollout *r;
    struct buf options = {0};
    char path[96];

    if (losses_seek(t->desk, g)) {
        tell_later(t);
        return true;
    }
    while (t->rollout < group_rollouts(g) && g->rollouts &&
           g->rollouts[t->rollout].state != ROLLOUT_SUCCEEDED)
        t->rollout++;
    if (t->rollout >= group_rollouts(g) || !g->rollouts)
        return false;
    r = &g->rollouts[t->rollout];
    (void)snprintf(path, sizeof(path), "/sessions/%s/deliver", r->last->session);
    group_write_export(g, false, &options);
    t->call = worker_call(t->desk->workers, str_cstr(r->last->session), "POST", str_cstr(path),
                          buf_str(&options), on_member, t);
    buf_done(&options);
    return true;
}

static void on_telling_durable(void *ctx)
{
    struct telling *t = ctx;

    t->waits = false;
    tell_next(t);
}

/* Fixes the group's content. Returns whether the record must be waited for. */
static bool fix_content(struct telling *t, const struct group *g)
{
    struct buf record = {0};
    struct err e;
    int rc;

    record_plain(RECORD_TELLING, g->spec.id, clock_wall_ms(), &record);
    rc = desk_write(t->desk, str_cstr(t->group), buf_str(&record),
                    &(struct desk_done){on_telling_durable, t, NULL}, &e);
    buf_done(&record);
    t->waits = rc == 0;
    if (rc < 0)
        tell_later(t);
    return rc <= 0;
}

/* In a fleet the call may end before the sinks have the entry. Then the same worker is asked again:
 * a second one would send it twice. */
static void give_entry(struct telling *t)
{
    if (t->desk->copy && !t->at[0])
        workers_choose(t->desk->workers, t->at);
    t->call = worker_call(t->desk->workers, t->at[0] ? str_cstr(t->at) : (struct str){0}, "POST",
                          STR("/admin/group_result"), str_cstr(t->body), on_telling_answer, t);
}

/* Makes the next call. The content of a removed group is fixed. */
static void tell_next(struct telling *t)
{
    struct group *g = group_of(t);

    if (desk_is_refusing(t->desk)) {
        tell_later(t);
        return;
    }
    if (t->desk->copy && g && !g->telling && (await_member(t, g) || fix_content(t, g)))
        return;
    if (g && !t->body)
        t->body = write_entry(g);
    give_entry(t);
}

void telling_start(struct desk *d, const struct group *g)
{
    struct telling *t;

    if (!any_redis(d) || g->told || !group_goes_to_sinks(g))
        return;
    t = mem_zalloc(sizeof(*t));
    t->desk = d;
    memcpy(t->group, g->spec.id.p, g->spec.id.len);
    t->submitted_at_ms = g->submitted_at_ms;
    t->again_ms = d->copy ? SOON_MS : AGAIN_MS;
    if (group_of(t) != g)
        t->body = write_entry(g);
    desk_owe(d, g->spec.id);
    list_append(&d->tellings, &t->entry);
    t->waits = desk_await(d, &(struct desk_done){on_telling_durable, t, NULL}) == 0;
    if (!t->waits)
        tell_next(t);
}

void tellings_removed(struct desk *d, const struct group *removed)
{
    struct telling *t;

    LIST_EACH(&d->tellings, t, struct telling, entry) {
        const struct group *g = t->body ? NULL : group_of(t);

        if (g && g == removed)
            t->body = write_entry(g);
    }
}

void tellings_resume(struct desk *d)
{
    const struct group *g;

    LIST_EACH(&d->book.all, g, struct group, all_entry) {
        if (group_settled(g))
            telling_start(d, g);
    }
    LIST_EACH(&d->book.gone, g, struct group, all_entry) {
        telling_start(d, g);
    }
}

void tellings_end(struct desk *d)
{
    struct telling *t, *next;

    LIST_EACH_SAFE(&d->tellings, t, next, struct telling, entry) {
        telling_free(t);
    }
}
