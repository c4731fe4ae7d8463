/*
 * Everything is computed from the book when it is asked for; nothing is kept. A settled group does
 * not change, so each delivery of it has the same content except for the number of deliveries.
 * Metadata and labels come from the submission's text, which is parsed again here. Trees would use
 * memory for every waiting group.
 */
#include "dispatcher/result.h"

#include "common/codec/json.h"
#include "dispatcher/book.h"
#include "dispatcher/waits.h"

/* Writes a time in seconds, as everywhere in the control plane; null if it has not happened. */
static void put_time(struct json_out *o, const char *key, uint64_t ms)
{
    json_out_key(o, key);
    if (ms)
        json_out_double(o, (double)ms / 1000);
    else
        json_out_null(o);
}

static void put_raw(struct json_out *o, const char *key, const char *text)
{
    json_out_key(o, key);
    if (text)
        json_out_raw(o, str_cstr(text));
    else
        json_out_null(o);
}

static void put_member_values(const struct rollout *r, struct json_out *o)
{
    const struct result *v = &r->result;

    json_out_key(o, "reward");
    if (v->has_reward)
        json_out_double(o, v->reward);
    else
        json_out_null(o);
    put_raw(o, "reward_info", v->reward_info);
    json_out_key(o, "finished");
    if (v->has_finished)
        json_out_bool(o, v->finished);
    else
        json_out_null(o);
    json_out_member_str(o, "outcome",
                        v->has_outcome ? str_cstr(outcome_names[v->outcome]) : (struct str){0});
    json_out_member_str(o, "reason", str_cstr(v->reason));
    json_out_member_i64(o, "trajectories", v->trajectories);
    json_out_member_i64(o, "trained_tokens", v->trained_tokens);
    put_raw(o, "timings", v->timings);
    json_out_member_str(o, "log", str_cstr(v->log));
    json_out_member_str(o, "log_tail", str_cstr(v->log_tail));
}

static void put_member(const struct group *g, uint32_t k, struct json_out *o)
{
    static const struct rollout untouched;
    const struct rollout *r = g->rollouts ? &g->rollouts[k] : &untouched;
    enum rollout_state state = g->rollouts ? r->state : ROLLOUT_WAITING;
    bool live = state == ROLLOUT_RUNNING || state == ROLLOUT_SUCCEEDED || state == ROLLOUT_LOST;

    json_out_obj(o);
    json_out_member_i64(o, "rollout", k);
    json_out_member_str(o, "state", str_cstr(rollout_state_names[state]));
    json_out_member_str(o, "session_id",
                        r->last && live ? str_cstr(r->last->session) : (struct str){0});
    json_out_member_i64(o, "attempts", r->last ? r->last->number : 0);
    put_member_values(r, o);
    json_out_end_obj(o);
}

/* Writes min_version and max_version over the members that count. */
static void put_member_versions(const struct group *g, struct json_out *o)
{
    int64_t min = INT64_MAX, max = INT64_MIN;

    for (uint32_t i = 0; g->rollouts && i < group_rollouts(g); i++) {
        const struct rollout *r = &g->rollouts[i];

        if (r->state != ROLLOUT_SUCCEEDED || !r->result.has_versions)
            continue;
        min = MIN_OF(min, r->result.min_version);
        max = r->result.max_version > max ? r->result.max_version : max;
    }
    json_out_key(o, "min_version");
    if (min <= max)
        json_out_i64(o, min);
    else
        json_out_null(o);
    json_out_key(o, "max_version");
    if (min <= max)
        json_out_i64(o, max);
    else
        json_out_null(o);
}

/* Writes a member `waits`: why rollouts of the group wait, or null. */
static void result_write_waits(const struct book *b, const struct group *g,
                               const struct waits_now *now, struct json_out *o)
{
    struct buf why = {0};

    waits_of_group(b, g, now, &why);
    json_out_member_str(o, "waits", why.len ? buf_str(&why) : (struct str){0});
    buf_done(&why);
}

/* Writes the members before those of the rollouts. b and now as in result_write_group. */
static void put_group_head(const struct group *g, const struct book *b, const struct waits_now *now,
                           struct json_out *o)
{
    json_out_member_str(o, "id", g->spec.id);
    json_out_member_str(o, "state", str_cstr(group_state_names[g->state]));
    json_out_member_str(o, "queue", g->queue ? str_cstr(g->queue->name) : (struct str){0});
    json_out_member_str(o, "runner", str_cstr(g->runner->name));
    json_out_member_i64(o, "n", g->spec.n);
    json_out_member_i64(o, "succeeded", g->succeeded);
    json_out_member_i64(o, "running", g->running);
    json_out_key(o, "version");
    if (g->spec.has_version)
        json_out_i64(o, g->spec.version);
    else
        json_out_null(o);
    put_member_versions(g, o);
    put_time(o, "submitted_at", g->submitted_at_ms);
    put_time(o, "settled_at", g->settled_at_ms);
    json_out_member_i64(o, "deliveries", g->deliveries);
    if (b && !group_settled(g))
        result_write_waits(b, g, now, o);
}

void result_write_row(const struct group *g, const struct book *b, const struct waits_now *now,
                      struct json_out *o)
{
    json_out_obj(o);
    put_group_head(g, b, now, o);
    json_out_end_obj(o);
}

void result_write_group(const struct group *g, const struct book *b, const struct waits_now *now,
                        struct json_out *o)
{
    static const char *const given[] = {"metadata", "labels"};
    struct arena a = {0};
    const struct json *text = NULL;
    struct err e;

    (void)json_parse(&a, str_of(g->text, g->text_len), &text, &e);
    json_out_obj(o);
    put_group_head(g, b, now, o);
    for (size_t i = 0; i < ARRAY_LEN(given); i++) {
        json_out_key(o, given[i]);
        if (json_is(json_get(text, given[i]), JSON_OBJECT))
            json_out_value(o, json_get(text, given[i]));
        else
            json_out_raw(o, STR("{}"));
    }
    json_out_member_arr(o, "members");
    for (uint32_t k = 0; k < group_rollouts(g); k++)
        put_member(g, k, o);
    json_out_end_arr(o);
    json_out_end_obj(o);
    arena_done(&a);
}

/* Reports whether an unsettled group of the queue needs the runner: one of its rollouts waits in a
 * lane, or runs. */
static bool is_runner_wanted(const struct book *b, const struct runner *r, const struct queue *q)
{
    const struct attempt *a;

    for (size_t i = 0; i < r->lanes.n; i++) {
        const struct lane *l = r->lanes.at[i];

        if (l->queue == q && l->waiting > 0)
            return true;
    }
    if (r->running == 0)
        return false;
    LIST_EACH(&b->running, a, struct attempt, entry) {
        if (a->rollout->group->runner == r && a->rollout->group->queue == q)
            return true;
    }
    return false;
}

/* Writes the runners that groups of the queue wait for in vain. */
static void put_blocked(const struct book *b, const struct queue *q, const struct waits_now *now,
                        struct json_out *o)
{
    struct buf why = {0};

    json_out_member_arr(o, "blocked");
    for (size_t i = 0; q && i < b->runners.n; i++) {
        const struct runner *r = b->runners.at[i];

        buf_clear(&why);
        waits_of_runner(r, q, now, &why);
        if (why.len == 0 || !is_runner_wanted(b, r, q))
            continue;
        json_out_obj(o);
        json_out_member_str(o, "runner", str_cstr(r->name));
        json_out_member_str(o, "reason", buf_str(&why));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
    buf_done(&why);
}

void result_write_queue_warning(const struct book *b, struct str name, struct json_out *o)
{
    struct buf warning = {0};

    if (book_queue(b, name))
        return;
    waits_no_queue(b, name, &warning);
    json_out_member_str(o, "warning", buf_str(&warning));
    buf_done(&warning);
}

/* Returns the age in seconds of the oldest group that is not delivered. */
static double oldest_s(const struct queue *q, uint64_t now_ms)
{
    const struct group *g;

    LIST_EACH(&q->groups, g, struct group, queue_entry) {
        if (g->delivery != DELIVERY_TAKEN)
            return now_ms > g->submitted_at_ms ? (double)(now_ms - g->submitted_at_ms) / 1000 : 0;
    }
    return 0;
}

void result_write_queue_members(const struct book *b, struct str name, const struct queue *q,
                                const struct waits_now *now, struct json_out *o)
{
    static const struct queue none;
    const struct queue *c = q ? q : &none;

    json_out_member_str(o, "queue", name);
    json_out_member_i64(o, "waiting", c->n_groups[GROUP_WAITING]);
    json_out_member_i64(o, "running", c->n_groups[GROUP_RUNNING]);
    json_out_member_i64(o, "rollouts_running", c->rollouts_running);
    json_out_member_i64(o, "settled", c->offered);
    json_out_member_i64(o, "taken", c->taken);
    json_out_member_i64(o, "acked_total", c->acked_total);
    json_out_member_double(o, "oldest_s", q ? oldest_s(q, now->wall_ms) : 0);
    put_blocked(b, q, now, o);
    result_write_queue_warning(b, name, o);
}

void result_write_queue(const struct book *b, struct str name, const struct queue *q,
                        const struct waits_now *now, struct json_out *o)
{
    json_out_obj(o);
    result_write_queue_members(b, name, q, now, o);
    json_out_end_obj(o);
}
