/* The control plane's plain routes: create, look, reward, complete, abort, delete. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/api/handlers.h"
#include "worker/api/pending.h"
#include "worker/api/respond.h"
#include "worker/api/responses.h"
#include "worker/turn/ledger.h"
#include "worker/turn/resident.h"

enum { COUNT_MAX = 1024, REASON_MAX = 4096, RESPONSE_ID_MAX = 256 };

struct session *control_find(struct api_request *r, bool reading, struct err *e)
{
    bool ended = false;
    struct session_store *st = r->api->turns.store;
    struct session *s = NULL;

    if (r->id_valid)
        s = reading ? session_find_any(st, r->id, &ended) : session_find(st, r->id, &ended);
    if (!s)
        (void)err_set(e, ended ? ERR_SESSION_ENDED : ERR_UNKNOWN_SESSION,
                      ended ? "the session has ended" : "no such session");
    return s;
}

/* The body as an object, or NULL when there is none. */
static int read_body(struct api_request *r, struct arena *a, const struct json **ret, struct err *e)
{
    struct str body = str_trim(exchange_body(r->x));

    *ret = NULL;
    if (body.len == 0)
        return 0;
    if (json_parse(a, body, ret, e))
        return -1;
    if (json_is_null(*ret))
        *ret = NULL;
    else if (!json_is(*ret, JSON_OBJECT))
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    return 0;
}

/* A member that is text of at most `max` bytes, or absent. */
static int read_text(const struct json *body, const char *name, size_t max, struct str *ret,
                     struct err *e)
{
    const struct json *v = json_get(body, name);

    *ret = (struct str){0};
    if (json_is_null(v))
        return 0;
    *ret = json_string(v);
    if (!json_is(v, JSON_STRING) || ret->len > max)
        return err_field(e, name, "%s must be a string of at most %zu bytes", name, max);
    return 0;
}

/* --- create --- */

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
    if (resident_room(&a->turns, false, e))
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
    uint64_t now_ms = api_now_ms();
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

    if (read_body(r, &a, &options, &e) || create_count(options, &count, &e) ||
        check_sampling(&a, options, &e) || control_room(r->api, count, &e))
        respond_error(r, NULL, &e);
    else
        create_all(r, options, count);
    arena_done(&a);
}

/* --- look --- */

void control_state(struct api_request *r)
{
    struct arena a = {0};
    struct buf body = {0};
    struct err e = {0};
    struct session *s = control_find(r, true, &e);
    struct str records = query_get(&a, exchange_query(r->x), "records");

    if (s) {
        session_write_state(s, records.p && !str_eq_c(records, "0"), &body);
        respond_json(r, &body);
    } else {
        respond_error(r, NULL, &e);
    }
    buf_done(&body);
    arena_done(&a);
}

/* --- change --- */

int control_end(struct api *a, struct session *s, enum session_end how, const struct json *detail,
                struct ledger_done done, struct err *e)
{
    struct buf record = {0};
    char id[ID_TEXT_MAX] = "";
    struct str sid = session_id(s);
    int rc = session_end_record(s, how, detail, api_now_ms(), &record, e);

    memcpy(id, sid.p, MIN_OF(sid.len, sizeof(id) - 1)); /* s may be gone after apply */
    if (rc == 0)
        rc = ledger_write(&a->turns, str_cstr(id), buf_str(&record), done, e);
    if (rc == 0) {
        if (how != SESSION_END_COMPLETE)
            turn_end_session(&a->turns, str_cstr(id));
        api_wake(a, str_cstr(id));
    }
    buf_done(&record);
    return rc;
}

/* Ends the session and answers. */
static void end_and_reply(struct api_request *r, struct session *s, enum session_end how,
                          const struct json *detail, int status)
{
    struct pending *p = pending_new(r, status);
    struct err e = {0};

    if (status == 200)
        buf_puts(pending_body(p), "{\"status\":\"ok\"}");
    if (control_end(r->api, s, how, detail, (struct ledger_done){pending_durable, p}, &e))
        pending_fail(p, &e);
}

void control_delete(struct api_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, true, &e);

    if (s)
        end_and_reply(r, s, SESSION_END_DELETE, NULL, 204);
    else
        respond_error(r, NULL, &e);
}

void control_abort(struct api_request *r)
{
    struct err e = {0};
    struct session *s = control_find(r, false, &e);

    if (s)
        end_and_reply(r, s, SESSION_END_ABORT, NULL, 204);
    else if (e.kind == ERR_SESSION_ENDED)
        respond_empty(r, 204);
    else
        respond_error(r, NULL, &e);
}

static int reward_write(struct api_request *r, struct session *s, const struct json *reward,
                        struct str response_id, struct ledger_done done, struct err *e)
{
    struct buf record = {0};
    int rc = session_reward_record(s, reward, response_id, api_now_ms(), &record, e);

    if (rc == 0)
        rc = ledger_write(&r->api->turns, r->id, buf_str(&record), done, e);
    buf_done(&record);
    return rc;
}

void control_reward(struct api_request *r)
{
    struct arena a = {0};
    struct err e = {0};
    const struct json *body = NULL;
    struct session *s = control_find(r, false, &e);
    struct pending *p;
    struct str id;

    if (!s || read_body(r, &a, &body, &e))
        goto out;
    if (!json_is(json_get(body, "reward_info"), JSON_OBJECT)) {
        (void)err_field(&e, "reward_info", "reward_info must be an object");
        goto out;
    }
    if (read_text(body, "response_id", RESPONSE_ID_MAX, &id, &e))
        goto out;
    p = pending_new(r, 200);
    buf_puts(pending_body(p), "{\"status\":\"ok\"}");
    if (id.p) /* as a dialect spelled it, or bare */
        id = response_bare_id(id);
    if (reward_write(r, s, json_get(body, "reward_info"), id,
                     (struct ledger_done){pending_durable, p}, &e))
        pending_fail(p, &e);
    e.kind = ERR_NONE;
out:
    if (e.kind != ERR_NONE)
        respond_error(r, NULL, &e);
    arena_done(&a);
}

void control_complete(struct api_request *r)
{
    struct arena a = {0};
    struct err e = {0};
    const struct json *body = NULL;
    struct session *s = control_find(r, false, &e);
    struct str reason;

    if (s && read_body(r, &a, &body, &e) == 0 &&
        read_text(body, "reason", REASON_MAX, &reason, &e) == 0)
        end_and_reply(r, s, SESSION_END_COMPLETE, body, 200); /* the record holds the reward, too */
    else
        respond_error(r, NULL, &e);
    arena_done(&a);
}
