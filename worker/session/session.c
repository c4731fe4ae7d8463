/* The store of sessions and their life: create, reward, end, forget. Calls: prepare.c, commit.c,
 * apply.c. */
#include "worker/session/session.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/session/commit.h"
#include "worker/session/policy.h"
#include "worker/session/record.h"

enum { MAX_NODES_DEFAULT = 65536, HOUR_MS = 3600 * 1000, ID_MAX = 256 };

void session_defaults_init(struct session_defaults *d)
{
    *d = (struct session_defaults){
        .history = "tree",
        .message_matcher = "canonical",
        .timeline_compare_level = "text",
        .rollback_last_assistant = true,
        .idempotent_retry = true,
        .ignore_tools = true,
        .max_nodes = MAX_NODES_DEFAULT,
        .ttl_ms = (uint64_t)6 * HOUR_MS,
        .tombstone_ttl_ms = (uint64_t)24 * HOUR_MS,
        .export_retention_ms = (uint64_t)24 * HOUR_MS,
    };
}

/* --- the store --- */

struct session_store *session_store_new(const struct model *model, const struct session_defaults *d)
{
    struct session_store *st = mem_zalloc(sizeof(*st));

    st->model = model;
    st->defaults = *d;
    st->defaults.history = st->history = mem_strdup(d->history);
    st->defaults.message_matcher = st->matcher = mem_strdup(d->message_matcher);
    st->defaults.timeline_compare_level = st->compare_level =
        mem_strdup(d->timeline_compare_level ? d->timeline_compare_level : "text");
    return st;
}

static void free_rewards(struct session *s)
{
    vec_done(&s->reward.members);
    for (size_t i = 0; i < s->turn_rewards.n; i++)
        vec_done(&s->turn_rewards.at[i]->members);
    vec_done(&s->turn_rewards);
    map_done(&s->rewards_by_response);
}

static void session_free(struct session *s)
{
    CHECK(!s->plans);
    free_rewards(s);
    vec_done(&s->chains);
    forest_done(&s->forest);
    free(s);
}

/* Out of the store's list and map; nobody finds it any more. */
static void session_unlink(struct session *s)
{
    struct session_store *st = s->store;

    if (s->unlinked)
        return;
    st->n_finalized -= s->phase == SESSION_FINALIZED;
    s->unlinked = true;
    (void)map_take(&st->sessions, s->id);
    if (s->prev)
        s->prev->next = s->next;
    else
        st->first = s->next;
    if (s->next)
        s->next->prev = s->prev;
    else
        st->last = s->prev;
}

void session_maybe_free(struct session *s)
{
    if (s->unlinked && !s->plans && s->pins == 0)
        session_free(s);
}

void session_pin(struct session *s)
{
    s->pins++;
}

void session_unpin(struct session_store *st, struct session *s)
{
    (void)st;
    CHECK(s->pins > 0);
    s->pins--;
    session_maybe_free(s);
}

static void drop_oldest_tombstone(struct session_store *st)
{
    struct tombstone *t = st->oldest;

    st->oldest = t->next;
    if (!st->oldest)
        st->newest = NULL;
    if (map_get(&st->tombstones, t->id) == t)
        (void)map_take(&st->tombstones, t->id);
    free(t);
}

void session_store_free(struct session_store *st)
{
    if (!st)
        return;
    for (struct session *s = st->first, *next; s; s = next) {
        next = s->next;
        while (s->plans)
            plan_free(s->plans);
        session_free(s);
    }
    while (st->oldest)
        drop_oldest_tombstone(st);
    map_done(&st->sessions);
    map_done(&st->tombstones);
    free(st->history);
    free(st->matcher);
    free(st->compare_level);
    free(st);
}

static struct tombstone *bury(struct session_store *st, struct str id, uint64_t now_ms)
{
    struct tombstone *t = map_get(&st->tombstones, id);
    char *copy;

    if (t)
        return t;
    t = mem_zalloc(sizeof(*t) + id.len + 1);
    copy = (char *)(t + 1);
    memcpy(copy, id.p, id.len);
    t->id = str_of(copy, id.len);
    t->at_ms = now_ms;
    if (st->newest)
        st->newest->next = t;
    else
        st->oldest = t;
    st->newest = t;
    (void)map_set(&st->tombstones, t->id, t);
    return t;
}

static bool has_ended(const struct session *s)
{
    return s->phase == SESSION_FINALIZED || s->phase == SESSION_ABORTED;
}

struct session *session_find(struct session_store *st, struct str id, bool *ret_ended)
{
    struct session *s = map_get(&st->sessions, id);

    *ret_ended = s ? has_ended(s) : map_get(&st->tombstones, id) != NULL;
    return *ret_ended ? NULL : s;
}

struct session *session_find_any(struct session_store *st, struct str id, bool *ret_ended)
{
    struct session *s = map_get(&st->sessions, id);

    *ret_ended = !s && map_get(&st->tombstones, id) != NULL;
    return s;
}

bool session_restorable(const struct session_store *st, struct str id, uint64_t now_ms)
{
    const struct tombstone *t = map_get(&st->tombstones, id);

    return t && t->exportable && !map_get(&st->sessions, id) &&
           t->at_ms + st->defaults.export_retention_ms > now_ms;
}

void session_restore_begin(struct session_store *st, uint64_t now_ms)
{
    st->restoring_ms = now_ms;
}

void session_restore_end(struct session_store *st)
{
    st->restoring_ms = 0;
}

/* Finalized sessions leave memory soon: whoever asks again gets them from the journal. */
static void evict(struct session_store *st, uint64_t now_ms)
{
    struct session *s = st->n_finalized ? st->first : NULL;

    while (s) {
        struct session *next = s->next;

        if (s->phase == SESSION_FINALIZED && s->pins == 0 &&
            s->read_ms + st->defaults.evict_after_ms <= now_ms) {
            session_unlink(s);
            session_maybe_free(s);
        }
        s = next;
    }
}

void session_sweep(struct session_store *st, uint64_t now_ms)
{
    if (st->defaults.evict_after_ms)
        evict(st, now_ms);
    /* Sessions end in the order of their tombstones, so the queue's front tells both. */
    for (const struct tombstone *t = st->oldest; t; t = t->next) {
        struct session *s = map_get(&st->sessions, t->id);

        if (t->at_ms + st->defaults.export_retention_ms > now_ms)
            break;
        if (s && has_ended(s)) {
            session_unlink(s);
            session_maybe_free(s);
        }
    }
    while (st->oldest && st->oldest->at_ms + st->defaults.tombstone_ttl_ms <= now_ms &&
           st->oldest->at_ms + st->defaults.export_retention_ms <= now_ms)
        drop_oldest_tombstone(st);
}

/* --- records --- */

int session_create_record(struct session_store *st, struct str id, const struct json *options,
                          uint64_t now_ms, struct buf *record, struct err *e)
{
    struct session_options o;
    struct buf text = {0};

    if (session_options_read(st, options, &o, e) != 0)
        return -1;
    session_options_write(&o, &text);
    record_head(record, RECORD_CREATE, id, now_ms);
    record_put_str(record, buf_str(&text));
    buf_done(&text);
    return 0;
}

static int put_reward(const struct json *reward_info, struct buf *record, struct err *e)
{
    struct buf text = {0};

    if (!json_is(reward_info, JSON_OBJECT))
        return err_field(e, "reward_info", "reward_info must be an object");
    json_write(&text, reward_info);
    record_put_str(record, buf_str(&text));
    buf_done(&text);
    return 0;
}

static int check_open(const struct session *s, struct err *e)
{
    return has_ended(s) || s->unlinked ? err_set(e, ERR_SESSION_ENDED, "this session has ended")
                                       : 0;
}

int session_reward_record(struct session *s, const struct json *reward_info, struct str response_id,
                          uint64_t now_ms, struct buf *record, struct err *e)
{
    if (check_open(s, e) != 0)
        return -1;
    if (response_id.p && !map_get(&s->forest.by_response, response_id))
        return err_field(e, "response_id", "this session has no response '%.*s'",
                         (int)MIN_OF(response_id.len, 80), response_id.p);
    record_head(record, RECORD_REWARD, s->id, now_ms);
    record_put_str(record, response_id);
    return put_reward(reward_info, record, e);
}

int session_end_record(struct session *s, enum session_end how, const struct json *detail,
                       uint64_t now_ms, struct buf *record, struct err *e)
{
    const struct json *reward = json_get(detail, "reward_info");
    const struct json *finished = json_get(detail, "finished");
    uint64_t flags = 0;

    if (how == SESSION_END_COMPLETE && check_open(s, e) != 0)
        return -1;
    if (!json_is_null(finished) && finished->kind != JSON_BOOL)
        return err_field(e, "finished", "finished must be a boolean");
    if (!json_is_null(finished))
        flags = json_is_true(finished) ? 3 : 1;
    record_head(record, RECORD_END, s->id, now_ms);
    record_put_u(record, how);
    record_put_u(record, flags);
    record_put_str(record, json_string(json_get(detail, "reason")));
    /* linear: where the history ends. */
    record_put_u(record, s->head ? s->head->id + (uint64_t)1 : 0);
    if (json_is_null(reward)) {
        record_put_str(record, (struct str){0});
        return 0;
    }
    return put_reward(reward, record, e);
}

/* --- applying --- */

struct reward *session_reward(struct session *s, struct str response_id)
{
    struct reward *r;

    if (!response_id.p)
        return &s->reward;
    r = map_get(&s->rewards_by_response, response_id);
    if (!r) {
        r = ARENA_NEW(&s->forest.arena, struct reward);
        r->response_id = forest_text(&s->forest, response_id);
        *vec_push(&s->turn_rewards) = r;
        (void)map_set(&s->rewards_by_response, r->response_id, r);
    }
    return r;
}

static void set_member(struct session *s, struct reward *r, struct str key, struct str json)
{
    if (!key.p)
        return;
    for (size_t i = 0; i < r->members.n; i++)
        if (str_eq(r->members.at[i].key, key)) {
            r->members.at[i].json = forest_str(&s->forest, json);
            return;
        }
    *vec_push(&r->members) =
        (struct reward_member){forest_str(&s->forest, key), forest_str(&s->forest, json)};
}

static int apply_reward(struct session *s, struct str response_id, struct str text, struct err *e)
{
    struct arena tmp = {0};
    struct buf b = {0};
    const struct json *v;
    int rc = json_parse(&tmp, text.p ? text : STR(""), &v, e);

    if (rc == 0 && v->kind == JSON_OBJECT) {
        struct reward *r = session_reward(s, response_id);

        for (uint32_t i = 0; i < v->n; i++) {
            buf_clear(&b);
            json_write(&b, &v->members[i].value);
            set_member(s, r, json_string(&v->members[i].key), buf_str(&b));
        }
    } else {
        rc = err_set(e, ERR_IO, "session record: reward_info is no object");
    }
    buf_done(&b);
    arena_done(&tmp);
    return rc;
}

static int apply_create(struct session_store *st, struct str id, struct record_in *r,
                        uint64_t now_ms, struct err *e)
{
    struct arena tmp = {0};
    struct session_options o;
    struct session *s;
    const struct json *v;
    struct str text = record_str(r);

    if (r->bad || r->p != r->end || json_parse(&tmp, text.p ? text : STR(""), &v, e) != 0 ||
        map_get(&st->sessions, id) || session_options_read(st, v, &o, e) != 0) {
        arena_done(&tmp);
        return err_set(e, ERR_IO, "session record: cannot create");
    }
    s = mem_zalloc(sizeof(*s));
    s->store = st;
    forest_init(&s->forest, o.matcher);
    s->id = forest_text(&s->forest, id);
    s->created_ms = s->updated_ms = now_ms;
    s->options = o;
    v = message_copy(&s->forest.arena, v);
    CHECK(session_options_read(st, v, &s->options, e) == 0);
    arena_done(&tmp);
    s->prev = st->last;
    if (st->last)
        st->last->next = s;
    else
        st->first = s;
    st->last = s;
    (void)map_set(&st->sessions, s->id, s);
    return 0;
}

static void finish(struct session *s, enum session_end how, uint64_t now_ms)
{
    bool drop = how == SESSION_END_ABORT || how == SESSION_END_DELETE;

    struct session_store *st = s->store;

    bury(st, s->id, now_ms)->exportable = !drop;
    st->n_finalized += !drop;
    st->n_finalized -= s->phase == SESSION_FINALIZED;
    s->phase = drop ? SESSION_ABORTED : SESSION_FINALIZED;
    s->read_ms = st->restoring_ms ? st->restoring_ms : now_ms;
    s->expired = how == SESSION_END_EXPIRE;
    s->ended_ms = now_ms;
    if (drop || st->defaults.export_retention_ms == 0) {
        session_unlink(s);
        session_maybe_free(s);
    }
}

static int apply_end(struct session *s, struct record_in *r, uint64_t now_ms, struct err *e)
{
    uint64_t how = record_u(r), flags = record_u(r);
    struct str reason = record_str(r);
    uint64_t head = record_u(r);
    struct str reward = record_str(r);

    if (r->bad || r->p != r->end || how > SESSION_END_EXPIRE || head > s->forest.turns.n)
        return err_set(e, ERR_IO, "session record: torn end");
    if (reward.p && apply_reward(s, (struct str){0}, reward, e) != 0)
        return -1;
    if (s->options.policy == &policy_linear)
        linear_move(s, head && s->forest.turns.at[head - 1]->node ? s->forest.turns.at[head - 1]
                                                                  : NULL);
    s->updated_ms = now_ms;
    if (flags) {
        s->has_finished = true;
        s->finished = flags & 2;
    }
    if (reason.p)
        s->complete_reason = forest_text(&s->forest, reason);
    if (how == SESSION_END_COMPLETE) {
        if (!has_ended(s))
            s->phase = SESSION_COMPLETED;
    } else {
        finish(s, (enum session_end)how, now_ms);
    }
    return 0;
}

int session_apply(struct session_store *st, struct str record, struct err *e)
{
    struct record_in r = record_in_of(record);
    uint64_t type = record_u(&r), version = record_u(&r);
    struct str id = record_str(&r), response_id;
    uint64_t now_ms = record_u64(&r);
    struct session *s;

    if (r.bad || version != RECORD_VERSION || id.len == 0 || id.len > ID_MAX)
        return err_set(e, ERR_IO, "session record of an unknown form");
    if (type == RECORD_CREATE)
        return apply_create(st, id, &r, now_ms, e);
    s = map_get(&st->sessions, id);
    if (!s)
        return err_set(e, ERR_IO, "session record for a session that does not exist");
    switch (type) {
    case RECORD_COMMIT:
        return session_apply_commit(s, &r, now_ms, e);
    case RECORD_REWARD:
        response_id = record_str(&r);
        s->updated_ms = now_ms;
        return apply_reward(s, response_id, record_str(&r), e);
    case RECORD_END:
        return apply_end(s, &r, now_ms, e);
    case RECORD_DROP:
        s->updated_ms = now_ms;
        return linear_apply_drop(s, &r, e);
    default:
        return err_set(e, ERR_IO, "session record of an unknown type");
    }
}

bool session_record_commits(struct str record, struct str *ret_id, uint64_t ret_body_hash[2])
{
    struct record_in r = record_in_of(record);
    uint64_t type = record_u(&r);

    (void)record_u(&r);
    *ret_id = record_str(&r);
    (void)record_u64(&r);
    (void)record_u(&r);
    ret_body_hash[0] = record_u64(&r);
    ret_body_hash[1] = record_u64(&r);
    return type == RECORD_COMMIT && !r.bad;
}

/* --- looking --- */

struct str session_id(const struct session *s)
{
    return s->id;
}

enum session_phase session_phase(const struct session *s)
{
    return s->phase;
}

const char *session_history(const struct session *s)
{
    return s->options.policy->name;
}

const struct json *session_sampling(const struct session *s)
{
    return s->options.sampling;
}

const struct json *session_lock_sampling(const struct session *s)
{
    return s->options.lock_sampling;
}

uint32_t session_inflight(const struct session *s)
{
    return s->inflight;
}

struct session *session_next(struct session_store *st, const struct session *at)
{
    return at ? at->next : st->first;
}

struct session *session_expired(struct session_store *st, uint64_t now_ms)
{
    for (struct session *s = st->first; s; s = s->next)
        if (!has_ended(s) && !s->plans && s->options.ttl_ms &&
            s->updated_ms + s->options.ttl_ms <= now_ms)
            return s;
    return NULL;
}

void session_store_totals(const struct session_store *st, struct session_totals *ret)
{
    *ret = (struct session_totals){0};
    memcpy(ret->forks, st->forks, sizeof(ret->forks));
    for (const struct session *s = st->first; s; s = s->next) {
        ret->sessions += !has_ended(s);
        ret->nodes += s->forest.nodes.n;
        ret->tokens += s->forest.tokens;
        ret->bytes += s->forest.arena.used_bytes + sizeof(*s);
    }
}
