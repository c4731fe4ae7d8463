/* POST /sessions: whether there is room, and one session or a group. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "worker/api/handlers.h"
#include "worker/api/pending.h"
#include "worker/api/respond.h"
#include "worker/sink/sink.h"
#include "worker/turn/ledger.h"
#include "worker/turn/resident.h"

enum { COUNT_MAX = 1024 };

static void write_urls(struct api_request *r, struct str id, struct json_out *o)
{
    struct str host = exchange_authority(r->x);
    struct str proto = exchange_header(r->x, "x-forwarded-proto");
    const char *scheme = str_eq_c(proto, "https") ? "https" : "http";
    static const char *const names[][2] = {
        {"base_url", "/v1"},
        {"anthropic_base_url", ""},
        {"reward_info_url", "/reward_info"},
        {"complete_url", "/complete"},
    };
    struct buf url = {0};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        buf_clear(&url);
        buf_printf(&url, "%s://%.*s/sessions/%.*s%s", scheme, (int)host.len, host.p, (int)id.len,
                   id.p, names[i][1]);
        json_out_key(o, names[i][0]);
        json_out_str(o, buf_str(&url));
    }
    buf_done(&url);
}

static void write_created(struct api_request *r, struct str id, uint64_t now_ms, struct json_out *o)
{
    const struct keys *k = r->api->keys;
    char key[KEY_TEXT_MAX];

    json_out_obj(o);
    json_out_key(o, "session_id");
    json_out_str(o, id);
    write_urls(r, id, o);
    keys_make(k, KEY_AGENT, id, key);
    json_out_key(o, "api_key");
    json_out_cstr(o, key);
    keys_make(k, KEY_RUNNER, id, key);
    json_out_key(o, "runner_key");
    json_out_cstr(o, key);
    json_out_key(o, "worker_index");
    json_out_i64(o, r->api->heritage->index);
    json_out_key(o, "created_at");
    json_out_double(o, (double)now_ms / 1000.0);
    json_out_end_obj(o);
}

int control_room(struct api *a, int64_t count, struct err *e)
{
    const struct config *c = a->heritage->config;
    struct session_totals t;

    if (api_service_ends(a))
        return err_set(e, ERR_DRAINING, "the gateway is shutting down");
    if (a->disk_low) {
        metrics_count_at(a->turns.page, METRIC_refusals, METRIC_REFUSAL_DISK, 0, 1);
        return err_set(e, ERR_STORAGE_FULL, "the journal's disk is almost full");
    }
    if (sinks_full(a->sinks)) {
        metrics_count_at(a->turns.page, METRIC_refusals, METRIC_REFUSAL_DISK, 0, 1);
        return err_set(e, ERR_STORAGE_FULL,
                       "more trajectories wait for the sinks than --sink-max-waiting allows");
    }
    if (resident_room(&a->turns, NULL, e))
        return -1;
    session_store_totals(a->turns.store, &t);
    if (t.sessions + (uint64_t)count > (uint64_t)c->max_sessions ||
        t.tokens > (uint64_t)c->max_live_tokens) {
        bool sessions = t.tokens <= (uint64_t)c->max_live_tokens;

        metrics_count_at(a->turns.page, METRIC_refusals,
                         sessions ? METRIC_REFUSAL_SESSIONS : METRIC_REFUSAL_TOKENS, 0, 1);
        return err_set(e, ERR_OVERLOADED,
                       sessions ? "too many live sessions" : "too many live tokens");
    }
    return 0;
}

static int create_count(const struct json *options, int64_t *ret, struct err *e)
{
    const struct json *count = json_get(options, "count");

    *ret = 1;
    if (json_is_null(count))
        return 0;
    if (json_to_i64(count, ret) || *ret < 1 || *ret > COUNT_MAX)
        return err_field(e, "count", "count must be an integer from 1 to %d", COUNT_MAX);
    return 0;
}

/* A lock on a name that no call has would lock nothing, and say nothing. */
static int check_locks(const struct json *locks, struct err *e)
{
    for (uint32_t i = 0; json_is(locks, JSON_ARRAY) && i < locks->n; i++) {
        struct str name = json_string(json_at(locks, i));
        struct buf known = {0};
        int rc = 0;

        if (!name.p || !sampling_known(name)) {
            sampling_names(&known);
            rc = err_field(e, "lock_sampling",
                           "lock_sampling[%u] must be the name of a sampling parameter: %.*s", i,
                           (int)known.len, known.p);
        }
        buf_done(&known);
        if (rc)
            return rc;
    }
    return 0;
}

/* The trusted defaults hold what calls could use: better refused here than by every call. */
static int check_sampling(struct arena *a, const struct json *options, struct err *e)
{
    const struct json *given = json_get(options, "sampling_params");
    struct sampling unused = SAMPLING_DEFAULTS;

    for (size_t i = 0; json_is(given, JSON_OBJECT) && i < given->n; i++) {
        struct str name = json_string(&given->members[i].key);

        if (sampling_known(name) && sampling_set(a, &unused, name, &given->members[i].value, e))
            return -1;
    }
    return check_locks(json_get(options, "lock_sampling"), e);
}

/* Makes one session; `durable` comes for the record. */
static int create_one(struct api *a, struct str id, const struct json *options, uint64_t now_ms,
                      struct pending *p, struct err *e)
{
    struct buf record = {0};
    int rc = session_create_record(a->turns.store, id, options, now_ms, &record, e);

    if (rc == 0)
        rc = ledger_write(&a->turns, id, buf_str(&record),
                          (struct ledger_done){p ? pending_durable : NULL, p}, e);
    if (rc == 0)
        metrics_count(a->turns.page, METRIC_sessions_created, 1);
    buf_done(&record);
    return rc;
}

/* The answer to POST /sessions. */
static void write_all_created(struct api_request *r, char (*ids)[ID_TEXT_MAX], int64_t count,
                              bool group, uint64_t now_ms, struct buf *body)
{
    struct json_out o = json_out_to(body);

    if (group) {
        json_out_obj(&o);
        json_out_key(&o, "sessions");
        json_out_arr(&o);
    }
    for (int64_t i = 0; i < count; i++)
        write_created(r, str_cstr(ids[i]), now_ms, &o);
    if (group) {
        json_out_end_arr(&o);
        json_out_end_obj(&o);
    }
}

/* The answer is written before the last record, whose `durable` may come at once. */
static void create_all(struct api_request *r, const struct json *options, int64_t count)
{
    struct pending *p = pending_new(r, 200);
    uint64_t now_ms = clock_wall_ms();
    char(*ids)[ID_TEXT_MAX] = mem_calloc((size_t)count, sizeof(*ids));
    struct err e = {0};
    int rc = 0;

    for (int64_t i = 0; i < count; i++)
        (void)ids_session(r->api->turns.ids, r->api->heritage->index, ids[i]);
    write_all_created(r, ids, count, !json_is_null(json_get(options, "count")), now_ms,
                      pending_body(p));
    for (int64_t i = 0; i < count && rc == 0; i++)
        rc = create_one(r->api, str_cstr(ids[i]), options, now_ms, i == count - 1 ? p : NULL, &e);
    if (rc)
        pending_fail(p, &e);
    free(ids);
}

void control_create(struct api_request *r)
{
    struct arena a = {0};
    const struct json *options = NULL;
    struct err e = {0};
    int64_t count = 1;

    if (control_body(r, &a, &options, &e) || create_count(options, &count, &e) ||
        check_sampling(&a, options, &e) || control_room(r->api, count, &e))
        respond_error(r, NULL, &e);
    else
        create_all(r, options, count);
    arena_done(&a);
}
