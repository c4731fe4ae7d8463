/* Writes and applies the records of a session's life: create, reward, end. For calls see prepare.c,
 * commit.c, apply.c; for the store store.c. */
#include "worker/session/store/session.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/codec/json_build.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/stop.h"
#include "worker/session/store/store.h"
#include "worker/text/model/model.h"

enum { ID_MAX = 256 };

/* Written in the end of a linear session that is not in memory: its head stays where its records
 * leave it. */
#define HEAD_AS_IT_WAS ((uint64_t)1 << 32)

/* --- records --- */

/* Options are written resolved, so that a later change of defaults changes no session. */
int session_create_record(struct session_store *st, struct str id, const struct json *options,
                          uint64_t now_ms, struct buf *record, struct err *e)
{
    struct session_options o;
    size_t from;

    if (session_options_read(st, options, &o, e) != 0)
        return -1;
    record_begin(record, RECORD_CREATE, id, now_ms);
    from = record_open_str(record);
    session_options_write(&o, record);
    record_close_str(record, from);
    origin_put(record, st);
    return 0;
}

static int check_open(const struct session *s, struct err *e)
{
    return session_has_ended(s) || s->unlinked
               ? err_set(e, ERR_SESSION_ENDED, "this session has ended")
               : 0;
}

/* response_id.p NULL: the session's own reward. */
int session_reward_record(struct session *s, const struct json *reward_info, struct str response_id,
                          uint64_t now_ms, struct buf *record, struct err *e)
{
    if (check_open(s, e) != 0)
        return -1;
    CHECK(s->filled);
    if (response_id.p && !map_get(&s->forest.by_response, response_key(response_id)))
        return err_field(e, "response_id", "this session has no response '%.*s'",
                         (int)MIN_OF(response_id.len, 80), response_id.p);
    if (reward_check(reward_info, e) != 0 ||
        reward_check_members(s, response_id, reward_info, e) != 0)
        return -1;
    record_begin(record, RECORD_REWARD, s->id, now_ms);
    record_put_str(record, response_id);
    record_put_json(record, reward_info);
    return 0;
}

/* `detail` is the request's body: reward_info, finished, reason. Ending an ended session is no
 * error, except for SESSION_END_COMPLETE. */
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
    if (!json_is_null(reward) &&
        (reward_check(reward, e) != 0 || reward_check_members(s, (struct str){0}, reward, e) != 0))
        return -1;
    flags |= (uint64_t)stop_named(json_string(json_get(detail, "stopped_by"))) << STOP_SHIFT;
    record_begin(record, RECORD_END, s->id, now_ms);
    record_put_u(record, how == SESSION_END_FINALIZE && s->options.hold ? SESSION_END_HOLD : how);
    record_put_u(record, flags);
    record_put_str(record, json_string(json_get(detail, "reason")));
    /* linear: the end of the history */
    record_put_u(record, s->residence != RESIDENT ? HEAD_AS_IT_WAS
                         : s->head                ? s->head->id + (uint64_t)1
                                                  : 0);
    record_put_json(record, json_is_null(reward) ? NULL : reward);
    return 0;
}

void session_last_word(struct str id, struct buf *record)
{
    record_begin(record, RECORD_END, id, 0);
    record_put_u(record, SESSION_END_DELETE);
    record_put_u(record, 0);
    record_put_str(record, (struct str){0});
    record_put_u(record, HEAD_AS_IT_WAS);
    record_put_str(record, (struct str){0});
}

void session_sink_record(const struct session *s, enum session_sink state, struct str options,
                         uint64_t now_ms, struct buf *record)
{
    record_begin(record, RECORD_SINK, s->id, now_ms);
    record_put_u(record, state);
    record_put_str(record, options);
}

bool session_is_rewarded(const struct session *s)
{
    double number;

    return reward_number(&s->reward, &number);
}

bool session_goes_to_sinks(const struct session *s)
{
    return !s->options.no_sinks;
}

enum session_sink session_sink(const struct session *s, struct str *ret_options)
{
    *ret_options = s->sink_options;
    return s->sink;
}

void session_exported_record(struct session *s, uint64_t now_ms, struct buf *record)
{
    record_begin(record, RECORD_EXPORTED, s->id, now_ms);
}

void session_delivered_record(struct str id, struct str briefs, uint64_t now_ms, struct buf *record)
{
    record_begin(record, RECORD_DELIVERED, id, now_ms);
    buf_add_str(record, briefs);
}

bool session_record_delivered(struct str record, struct str *ret_briefs)
{
    struct record_in r = record_in_of(record);
    struct record_head h;

    if (!record_read_head(&r, &h) || h.type != RECORD_DELIVERED)
        return false;
    *ret_briefs = str_of(r.p, (size_t)(r.end - r.p));
    return true;
}

/* --- applying --- */

/* The options are kept only while the session is in memory. */
int session_apply_sink(struct session *s, struct record_in *r, struct err *e)
{
    uint64_t state = record_u(r);
    struct str options = record_str(r);

    if (r->bad || (state != SESSION_SINK_DUE && state != SESSION_SINK_SPOOLED))
        return err_set(e, ERR_IO, "session record of a sink of an unknown form");
    s->sink = (enum session_sink)state;
    if (state == SESSION_SINK_DUE && !session_absorbs(s))
        s->sink_options = options.p ? forest_text(&s->forest, options) : options;
    return 0;
}

/* Fills in the content of a new session whose options are v. */
static void fill(struct session *s, const struct session_options *o, const struct json *v,
                 uint64_t now_ms)
{
    forest_init(&s->forest, o->matcher);
    v = json_copy(&s->forest.arena, v);
    CHECK(session_options_read(s->store, v, &s->options, &(struct err){0}) == 0);
    s->created_ms = s->updated_ms = now_ms;
    s->filled = true;
}

/* Also for a session that is read back: its entry exists already, without content. */
static int apply_create(struct session_store *st, const struct record_head *h, struct record_in *r,
                        struct err *e)
{
    struct model_fingerprint origin = {0};
    struct arena tmp = {0};
    struct session_options o;
    struct session *s = map_get(&st->sessions, h->id);
    const struct json *v;
    struct str text = record_str(r);

    if (r->bad || origin_read(r, &origin) != 0 ||
        json_parse(&tmp, text.p ? text : STR(""), &v, e) != 0 ||
        (s && (s->residence != LOADING || s->filled)) || session_options_read(st, v, &o, e) != 0) {
        arena_done(&tmp);
        return err_set(e, ERR_IO, "session record: cannot create");
    }
    if (!s) {
        s = session_new(st, h->id, h->at_ms);
        s->residence = st->lazy ? EVICTED : RESIDENT;
        s->options = o;
        session_forget_options(s);
    }
    session_note_labels(s, o.labels);
    session_set_origin(s, &origin);
    if (s->residence != EVICTED) {
        fill(s, &o, v, h->at_ms);
        s->record++;
    }
    if (s->residence != LOADING) /* the copy is complete if it is read back */
        session_set_copying(s, o.copies);
    s->copy_left = o.copies;
    s->options.copies = 0;
    session_account(s);
    session_touch(s);
    arena_done(&tmp);
    return 0;
}

/* Applies reward, reason, and the end of a linear history; then the phase. */
static int apply_end(struct session *s, const struct record_head *h, struct record_in *r,
                     struct err *e)
{
    uint64_t how = record_u(r), flags = record_u(r);
    struct str reason = record_str(r);
    uint64_t head = record_u(r);
    struct str reward = record_str(r);
    /* the session's data may be freed */
    bool drops = how == SESSION_END_DELETE || how == SESSION_END_ABORT;

    if (r->bad || r->p != r->end || how > SESSION_END_HOLD ||
        flags >> STOP_SHIFT > SESSION_STOP_INFRASTRUCTURE ||
        (head > s->forest.checkpoints.n && head != HEAD_AS_IT_WAS && !drops))
        return err_set(e, ERR_IO, "session record: torn end");
    if (reward.p && reward_apply(s, (struct str){0}, reward, e) != 0)
        return -1;
    if (s->options.policy == &policy_linear && head != HEAD_AS_IT_WAS && !drops)
        linear_move(s, head && s->forest.checkpoints.at[head - 1]->node
                           ? s->forest.checkpoints.at[head - 1]
                           : NULL);
    s->updated_ms = h->at_ms;
    if (flags & 1) {
        s->has_finished = true;
        s->finished = flags & 2;
    }
    if (flags >> STOP_SHIFT)
        s->stated = (enum session_stop)(flags >> STOP_SHIFT);
    if (reason.p)
        s->complete_reason = forest_text(&s->forest, reason);
    if (how == SESSION_END_COMPLETE) {
        if (!session_has_ended(s))
            session_complete(s, h->at_ms);
        s->completed_ms = h->at_ms; /* also for an ended session that is read back */
    } else {
        session_finish(s, (enum session_end)how, h->at_ms);
    }
    return 0;
}

/* Applies the end of a session whose earlier records are gone, which is possible if it was deleted
 * or aborted. */
static int apply_lone_end(struct session_store *st, struct str id, struct record_in *r,
                          uint64_t now_ms, struct err *e)
{
    uint64_t how = record_u(r);

    if (r->bad || (how != SESSION_END_DELETE && how != SESSION_END_ABORT))
        return err_set(e, ERR_IO, "session record for a session that does not exist");
    session_bury(st, id, now_ms);
    return 0;
}

/* Applies one record to an existing session. Of a session that is not in memory only the entry is
 * updated. */
static int apply_to(struct session *s, const struct record_head *h, struct record_in *r,
                    struct err *e)
{
    uint64_t now_ms = h->at_ms;
    struct str response_id;

    if (session_absorbs(s))
        return session_absorb(s, h->type, r, now_ms, e);
    if (!s->filled)
        return err_set(e, ERR_IO, "session record before the session's beginning");
    switch (h->type) {
    case RECORD_COMMIT:
        return session_apply_commit(s, r, now_ms, e);
    case RECORD_REWARD:
        response_id = record_str(r);
        s->updated_ms = now_ms;
        return reward_apply(s, response_id, record_str(r), e);
    case RECORD_END:
        return apply_end(s, h, r, e);
    case RECORD_DROP:
        s->updated_ms = now_ms;
        return linear_apply_drop(s, r, e);
    case RECORD_SINK:
        return session_apply_sink(s, r, e);
    case RECORD_EXPORTED:
        s->exported_ms = now_ms;
        return 0;
    case RECORD_SCORE:
        s->updated_ms = now_ms;
        return session_apply_score(s, r, e);
    case RECORD_LOGPROBS:
        if (!session_has_ended(s)) /* an ended session keeps its place in lists */
            s->updated_ms = now_ms;
        return session_apply_report(s, r, e);
    case RECORD_FORK:
        s->updated_ms = now_ms;
        session_sums_reset(s);
        return session_apply_fork(s, r, e);
    case RECORD_IMPORT:
        session_sums_reset(s);
        s->copied_calls = s->forest.calls.n;
        session_free_bulks(s);
        return 0;
    case RECORD_BULK:
    case RECORD_ROWS:
        return session_apply_bulk(s, r, e);
    case RECORD_BUDGET:
        return session_apply_budget(s, r, e);
    case RECORD_DOUBT:
        s->updated_ms = now_ms;
        return session_apply_doubt(s, r, e);
    case RECORD_DELIVERED: /* changes nothing of the session */
        return 0;
    default:
        return err_set(e, ERR_IO, "session record of an unknown type");
    }
}

/* Versions and types of other programs are below these; larger ones mean damage. */
enum { VERSIONS_MAX = 100, TYPES_MAX = 64 };

/* Counts a refused record. A refused fragment is not counted, because the commit that names it will
 * be refused. */
static void count_refused(struct session *s, uint64_t type)
{
    if (!session_absorbs(s) && !record_is_fragment(type))
        s->lost_records++;
}

/* Counts the records of a copy, whose last one is RECORD_FORK or RECORD_IMPORT. If a different
 * record has its number, the last one was lost. Rows do not count, because the second copy in a
 * fleet's store lacks them. */
static void count_copied(struct session *s, uint64_t type)
{
    if (type == RECORD_ROWS)
        return;
    if (s->copying > 0 && s->residence != LOADING)
        session_set_copying(s, s->copying - 1);
    if (session_absorbs(s) || s->copy_left == 0 || --s->copy_left > 0)
        return;
    if (type != RECORD_FORK && type != RECORD_IMPORT)
        s->lost_records++;
}

/* The only function that changes a session. Returns -1 with e if the record is incomplete or
 * invalid: the session then only counts it. */
int session_apply(struct session_store *st, struct str record, struct err *e)
{
    struct record_in r = record_in_of(record);
    struct record_head h;
    bool whole = record_read_head(&r, &h);
    struct session *s;
    int rc;

    if (whole && h.version > 0 && !record_version_known(h.version) && h.version < VERSIONS_MAX &&
        h.type >= RECORD_CREATE && h.type <= TYPES_MAX)
        return err_set(
            e, ERR_UNSUPPORTED,
            "a session's record is of version %u, this program reads %d to %d: export its "
            "sessions with the rollgate that wrote them (rollgate export), then start "
            "with an empty --state-dir",
            (unsigned)h.version, RECORD_VERSION_OLDEST, RECORD_VERSION);
    if (!whole || !record_version_known(h.version) || h.id.len == 0 || h.id.len > ID_MAX ||
        !utf8_valid(h.id))
        return err_set(e, ERR_IO, "session record of an unknown form");
    if (h.type == RECORD_CREATE)
        return apply_create(st, &h, &r, e);
    s = map_get(&st->sessions, h.id);
    if (!s && h.type == RECORD_END)
        return apply_lone_end(st, h.id, &r, h.at_ms, e);
    if (!s)
        return err_set(e, ERR_IO, "session record for a session that does not exist");
    session_pin(s);
    rc = apply_to(s, &h, &r, e);
    if (rc != 0)
        count_refused(s, h.type);
    else
        count_copied(s, h.type);
    if (session_absorbs(s))
        s->share.evicted_bytes += record.len;
    else
        s->record++;
    if (!s->unlinked) {
        session_account(s);
        session_touch(s);
    }
    session_unpin(st, s);
    return rc;
}

bool session_record_is_awaited(struct str record)
{
    struct record_in r = record_in_of(record);
    struct record_head h;

    if (!record_read_head(&r, &h))
        return false;
    switch (h.type) {
    case RECORD_DELIVERED:
    case RECORD_EXPORTED:
    case RECORD_BUDGET:
    case RECORD_DOUBT:
        return false;
    case RECORD_SINK:
        return record_u(&r) != SESSION_SINK_SPOOLED;
    default:
        return true;
    }
}

const char *session_record_kind(struct str record)
{
    static const char *const kinds[] = {
        [RECORD_CREATE] = "create",     [RECORD_COMMIT] = "commit",
        [RECORD_REWARD] = "reward",     [RECORD_END] = "end",
        [RECORD_DROP] = "drop",         [RECORD_SINK] = "sink",
        [RECORD_EXPORTED] = "exported", [RECORD_SCORE] = "score",
        [RECORD_LOGPROBS] = "logprobs", [RECORD_BUDGET] = "budget",
        [RECORD_FORK] = "fork",         [RECORD_IMPORT] = "import",
        [RECORD_BULK] = "bulk",         [RECORD_DELIVERED] = "delivered",
        [RECORD_ROWS] = "rows",         [RECORD_DOUBT] = "doubt"};
    struct record_in r = record_in_of(record);
    struct record_head h;

    if (!record_read_head(&r, &h) || h.type < RECORD_CREATE || h.type >= ARRAY_LEN(kinds))
        return NULL;
    return kinds[h.type];
}

/* --- records that could not be applied --- */

int session_refuse_lossy(const struct session *s, struct err *e)
{
    return s->lost_records == 0
               ? 0
               : err_set(e, ERR_UNASSEMBLABLE,
                         "this session lost %u or more records of its journal: it can be exported "
                         "and ended, but not copied",
                         s->lost_records);
}

bool session_has_losses(const struct session *s)
{
    return s->lost_records > 0 || s->doubt_since_ms > 0;
}

void session_put_loss(const struct session *s, struct json_out *o)
{
    char text[128];

    session_put_doubt(s, o);
    if (s->lost_records == 0)
        return;
    (void)snprintf(text, sizeof(text),
                   "this session lost %u or more records of its journal: turns are missing",
                   s->lost_records);
    json_out_cstr(o, text);
}

void session_put_loss_list(const struct session *s, struct json_out *o)
{
    if (!session_has_losses(s))
        return;
    json_out_member_arr(o, "warnings");
    session_put_loss(s, o);
    json_out_end_arr(o);
}

/* --- reading --- */

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

const struct json *session_metadata(const struct session *s)
{
    return s->options.metadata;
}

uint32_t session_inflight(const struct session *s)
{
    return s->inflight;
}

bool session_tells(struct session *s, enum session_lack what)
{
    bool first = !(s->told_lacks & 1u << what);

    s->told_lacks |= 1u << what;
    return first;
}

bool session_exhausts(const struct session *s)
{
    return s->options.prompt_length && s->options.response_length;
}

struct session_wants session_wants(const struct session *s)
{
    return s->options.wants;
}

struct str session_pool(const struct session *s)
{
    return s->options.pool;
}

bool session_may_ask(const struct session *s, struct str pool)
{
    const struct json *pools = s->options.pools;
    struct str name = pool.len ? pool : STR("policy");

    if (!pools || str_eq(pool, s->options.pool))
        return true;
    for (uint32_t i = 0; i < pools->n; i++)
        if (str_eq(json_string(&pools->items[i]), name))
            return true;
    return false;
}

struct str session_adapter(const struct session *s)
{
    return s->options.adapter;
}
