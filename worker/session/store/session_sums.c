/* Computes sums of a session's answers (session_sums.h, struct forest_sums). */
#include "worker/session/store/session_sums.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/store.h"

static void sum_weights(struct forest_sums *x, const struct checkpoint *t)
{
    uint64_t number;

    for (uint32_t i = 0; i < t->n_versions; i++) {
        struct str version = t->versions[i].version;

        if (version.len == 0)
            continue;
        x->newest = version;
        if (str_to_u64(version, INT64_MAX, &number) != 0)
            continue;
        x->oldest = x->numbered ? MIN_OF(x->oldest, number) : number;
        x->numbered = true;
    }
}

/* Adds a call's time. If it overlaps earlier calls, its parts count in proportion. */
static void add_time(struct session *s, const struct checkpoint *t, uint64_t now_ms)
{
    struct forest_sums *x = &s->forest.sums;
    uint64_t before = MAX_OF(x->last_ms, s->created_ms);
    uint64_t passed = now_ms > before ? (now_ms - before) * 1000 : 0;
    uint64_t all = t->queue_us + t->engine_us + t->gateway_us, kept = MIN_OF(all, passed);
    double share = all > 0 ? (double)kept / (double)all : 0;
    uint64_t queue = (uint64_t)((double)t->queue_us * share);
    uint64_t engine = (uint64_t)((double)t->engine_us * share);

    x->spent_us[x->last_ms ? SPENDING_TOOLS : SPENDING_START] += passed - kept;
    x->spent_us[SPENDING_QUEUE] += queue;
    x->spent_us[SPENDING_ENGINE] += engine;
    x->spent_us[SPENDING_GATEWAY] += kept - MIN_OF(kept, queue + engine);
    x->last_ms = MAX_OF(x->last_ms, now_ms);
}

void session_sums_add(struct session *s, struct checkpoint *const *answers, uint32_t n,
                      uint64_t now_ms)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct checkpoint *t = answers[i];

        if (i == 0)
            add_time(s, t, now_ms);
        if (!session_keeps_pool(s, t))
            continue;
        s->forest.sums.turns++;
        s->forest.sums.truncated += checkpoint_truncated(t);
        s->forest.sums.sampled += t->n;
        sum_weights(&s->forest.sums, t);
    }
}

void session_sums_reset(struct session *s)
{
    s->forest.sums = (struct forest_sums){.copied = s->forest.tokens};
}

/* --- at the end of a session --- */

/* Returns the session's time up to end_ms, or up to its completion; an open session's time up to
 * its newest answer. */
static uint64_t time_to(const struct session *s, uint64_t end_ms, uint64_t spent_us[SPENDINGS])
{
    uint64_t sum = 0, run_us;

    end_ms = MAX_OF(end_ms, MAX_OF(s->forest.sums.last_ms, s->created_ms));
    run_us = (end_ms - s->created_ms) * 1000;
    memcpy(spent_us, s->forest.sums.spent_us, sizeof(s->forest.sums.spent_us));
    for (int i = 0; i < SPENDINGS; i++)
        sum += spent_us[i];
    spent_us[s->forest.sums.last_ms ? SPENDING_SCORING : SPENDING_START] +=
        run_us - MIN_OF(run_us, sum);
    return run_us;
}

void session_measure(const struct session *s, uint64_t now_ms, struct session_measures *ret)
{
    const struct session_options *o = &s->options;

    *ret = (struct session_measures){.evaluation = o->evaluation,
                                     .known = session_resident(s) && s->filled};
    if (!ret->known)
        return;
    ret->rewarded = reward_number(&s->reward, &ret->reward);
    ret->task = json_text(json_get(o->labels, "task"));
    ret->model = o->pool.len > 0 ? o->pool : o->adapter;
    ret->group = o->group;
    ret->turns = s->forest.sums.turns;
    ret->truncated = s->forest.sums.truncated;
    ret->sampled = s->forest.sums.sampled;
    ret->tokens = s->forest.tokens - s->forest.sums.copied;
    ret->numbered = s->forest.sums.numbered;
    ret->oldest = s->forest.sums.oldest;
    ret->newest = s->forest.sums.newest;
    ret->began_ms = s->created_ms;
    ret->run_us = time_to(s, s->completed_ms ? s->completed_ms : now_ms, ret->spent_us);
}

bool session_take_uncounted(struct session *s)
{
    bool uncounted = s->uncounted;

    s->uncounted = false;
    return uncounted;
}

void session_expect_export(struct session *s)
{
    s->uncounted = true;
}

/* --- rows --- */

/* Writes us / 1e6 as json_out_double does, but faster, because a row has seven such numbers. */
static void put_seconds(struct json_out *o, const char *name, uint64_t us)
{
    char text[24];
    size_t at = sizeof(text);

    json_out_key(o, name);
    if (us % 1000000 == 0) {
        json_out_i64(o, (int64_t)(us / 1000000));
        return;
    }
    for (int i = 0; i < 6; i++, us /= 10)
        text[--at] = (char)('0' + us % 10);
    text[--at] = '.';
    do
        text[--at] = (char)('0' + us % 10);
    while ((us /= 10) > 0);
    json_out_raw(o, str_of(text + at, sizeof(text) - at));
}

void session_sums_put(const struct session *s, struct json_out *o)
{
    static const char *const names[SPENDINGS] = {"start",   "queue", "engine",
                                                 "gateway", "tools", "scoring"};
    uint64_t end_ms = s->completed_ms || !session_has_ended(s) ? s->completed_ms : s->ended_ms;
    uint64_t spent_us[SPENDINGS], run_us = time_to(s, end_ms, spent_us);

    json_out_member_obj(o, "time_s");
    put_seconds(o, "run", run_us);
    for (int i = 0; i < SPENDINGS; i++)
        put_seconds(o, names[i], spent_us[i]);
    json_out_end_obj(o);
    json_out_member_i64(o, "turns", (int64_t)s->forest.sums.turns);
    json_out_member_i64(o, "sampled_tokens", (int64_t)s->forest.sums.sampled);
    json_out_member_i64(o, "truncated_turns", (int64_t)s->forest.sums.truncated);
}
