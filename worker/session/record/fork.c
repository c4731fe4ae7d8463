/*
 * Makes forks. A fork consists of the records that made the session, in their order, up to the call
 * of the answer. They get the new session id, and lose the hashes of request bodies, because a
 * request to the fork is not a retry of one to the original session. When they are applied they
 * give the same ids, messages and tokens. A last record (RECORD_FORK) then hides what is not on the
 * path to the answer.
 */
#include <stdlib.h>

#include "common/base/err.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/policy.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/record/session_fork.h"
#include "worker/session/store/store.h"

void session_write_options(const struct session *s, struct buf *json)
{
    struct session_options o = s->options;

    o.metadata = NULL;
    session_options_write(&o, json);
}

/* --- copying records --- */

/* Reports whether the record made content, or says that some may be missing. Rewards, ends and
 * deliveries belong to the original session only. */
static bool is_content(uint64_t type)
{
    return type == RECORD_COMMIT || type == RECORD_DROP || type == RECORD_FORK ||
           type == RECORD_DOUBT || record_is_fragment(type);
}

/* Notes the record at r->at. */
static void remember_record(struct fork_reader *r, uint64_t type, struct record_in body)
{
    struct fork_record f = {.number = r->at, .fragment = record_is_fragment(type)};

    f.rows = session_copied_type(r->session->store, type) == RECORD_ROWS;
    if (type == RECORD_COMMIT || f.fragment)
        f.call = record_u(&body);
    if (type == RECORD_COMMIT)
        *vec_push(&r->calls) = f.call;
    *vec_push(&r->records) = f;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Leaves out fragments of calls without a commit. */
static void drop_uncommitted(struct fork_reader *r)
{
    size_t n = 0;

    qsort(r->calls.at, r->calls.n, sizeof(*r->calls.at), by_number);
    for (size_t i = 0; i < r->records.n; i++) {
        const struct fork_record *f = &r->records.at[i];

        if (!f->fragment ||
            bsearch(&f->call, r->calls.at, r->calls.n, sizeof(*r->calls.at), by_number))
            r->records.at[n++] = *f;
    }
    r->records.n = n;
    r->known = true;
}

/* Reads one of the session's records from the journal. */
static int read_record(const struct fork_reader *r, uint32_t number, struct session_reader to,
                       struct err *e)
{
    const struct session_store *st = r->session->store;

    return st->source(st->source_ctx, r->session->id, &number, 1, &to, e);
}

/* Ends the copy with the record of the answer's call. */
static int check_record(void *ctx, size_t i, struct str record, struct err *e)
{
    struct fork_reader *r = ctx;
    struct record_in in = record_in_of(record);
    struct record_head h;

    (void)i;
    if (!record_read_head(&in, &h))
        return err_set(e, ERR_IO, "session record: torn");
    if (is_content(h.type))
        remember_record(r, h.type, in);
    if (h.type == RECORD_COMMIT && record_u(&in) == r->last_call)
        drop_uncommitted(r);
    return 0;
}

static void copy_body(struct buf *to, uint64_t type, struct record_in r)
{
    static const char none[2 * sizeof(uint64_t)];
    const char *body = r.p;

    if (type != RECORD_COMMIT) {
        buf_add(to, body, (size_t)(r.end - body));
        return;
    }
    (void)record_u(&r); /* the call's number; the hashes follow */
    buf_add(to, body, (size_t)(r.p - body));
    buf_add(to, none, sizeof(none));
    (void)record_u64(&r);
    (void)record_u64(&r);
    buf_add(to, r.p, (size_t)(r.end - r.p));
}

/* A copy in progress. */
struct fork_copy {
    const struct fork_reader *reader;
    struct buf *out;
};

static int copy_record(void *ctx, size_t i, struct str record, struct err *e)
{
    const struct fork_copy *c = ctx;
    struct record_in r = record_in_of(record);
    struct record_head h;

    (void)i;
    if (!record_read_head(&r, &h))
        return err_set(e, ERR_IO, "session record: torn");
    h.id = c->reader->fork->id;
    h.type = session_copied_type(c->reader->session->store, h.type);
    record_put_head(c->out, &h);
    copy_body(c->out, h.type, r);
    return 0;
}

static void put_fork(const struct fork_reader *r, struct buf *b)
{
    record_begin(b, RECORD_FORK, r->fork->id, r->fork->now_ms);
    record_put_str(b, r->session->id);
    record_put_u(b, r->checkpoint);
    record_put_u(b, r->fork->train_prefix);
}

/* Finds the answer. Of duplicate answers finds the one that represents both. */
static const struct checkpoint *find_answer(const struct session *s, const struct session_fork *f)
{
    struct checkpoint *t = NULL;

    if (f->response_id.p) {
        t = map_get(&s->forest.by_response, response_key(f->response_id));
        return t ? checkpoint_shown(t) : NULL;
    }
    for (size_t i = s->forest.checkpoints.n; i > 0 && !t; i--) {
        if (!s->forest.checkpoints.at[i - 1]->hidden &&
            !checkpoint_pool(s->forest.checkpoints.at[i - 1]).len)
            t = s->forest.checkpoints.at[i - 1];
    }
    return t;
}

static int check_fork(const struct session *s, const struct checkpoint *t, struct err *e)
{
    if (session_refuse_foreign(s, e) || session_refuse_lossy(s, e))
        return -1;
    if (!t || t->hidden)
        return err_field(e, "response_id", "the session has no answer with this response id");
    if (checkpoint_pool(t).len)
        return err_field(e, "response_id",
                         "this answer is another pool's than the policy's: what engines of pool "
                         "\"%.*s\" said cannot be forked",
                         (int)checkpoint_pool(t).len, checkpoint_pool(t).p);
    if (s->options.policy == &policy_chains)
        return err_set(e, ERR_INVALID, "sessions with history chains cannot be forked");
    if (!s->store->source)
        return err_set(e, ERR_INVALID,
                       "without a journal (--durability none) sessions cannot be forked");
    return 0;
}

int session_fork_begin(struct session *s, const struct session_fork *f, struct fork_reader *ret,
                       struct err *e)
{
    const struct checkpoint *t = find_answer(s, f);

    *ret = (struct fork_reader){0};
    if (check_fork(s, t, e) != 0)
        return -1;
    ret->session = s;
    ret->fork = f;
    ret->last_call = s->forest.calls.at[t->call]->number;
    ret->checkpoint = t->id;
    ret->end = s->record;
    return 0;
}

int session_fork_scan(struct fork_reader *r, struct err *e)
{
    if (read_record(r, r->at, (struct session_reader){check_record, r}, e) != 0)
        return -1;
    r->at++; /* an abandoned record has left nothing */
    if (!r->known && r->at == r->end)
        return err_set(e, ERR_IO, "the journal does not have the answer's record");
    return r->known;
}

size_t session_fork_records(const struct fork_reader *r)
{
    size_t n = 1;

    for (size_t i = 0; i < r->records.n; i++)
        n += !r->records.at[i].rows;
    return n;
}

int session_fork_next(struct fork_reader *r, struct buf *record, struct err *e)
{
    struct fork_copy c = {r, record};

    if (r->copied == r->records.n) {
        put_fork(r, record);
        return 1;
    }
    if (read_record(r, r->records.at[r->copied++].number, (struct session_reader){copy_record, &c},
                    e) != 0)
        return -1;
    return record->len > 0 ? 0 : err_set(e, ERR_IO, "a record of the session is gone");
}

void session_fork_done(struct fork_reader *r)
{
    vec_done(&r->records);
    vec_done(&r->calls);
}

bool session_copying(const struct session *s)
{
    return s->copying > 0;
}

/* --- applying RECORD_FORK --- */

int session_apply_fork(struct session *s, struct record_in *r, struct err *e)
{
    struct str from = record_str(r);
    uint64_t id = record_u(r), trains = record_u(r);
    struct forest *f = &s->forest;
    struct arena tmp = {0};
    struct checkpoint **path, *t;
    char *kept;

    if (r->bad || id >= f->checkpoints.n || f->checkpoints.at[id]->hidden)
        return err_set(e, ERR_IO, "session record: torn fork");
    t = f->checkpoints.at[id];
    path = checkpoint_path(t, &tmp);
    kept = arena_zalloc(&tmp, f->checkpoints.n);
    for (uint32_t i = 0; i < t->depth; i++)
        kept[path[i]->id] = 1;
    /* From the newest on, because of equal answers the newest is first in its list. */
    for (size_t i = f->checkpoints.n; i > 0; i--) {
        struct checkpoint *one = f->checkpoints.at[i - 1];

        one->copied = one->copied || !trains;
        if (!kept[i - 1] && !one->hidden)
            checkpoint_hide(s, one);
    }
    if (s->options.policy == &policy_linear)
        linear_fork(s, t);
    s->forked_from = forest_text(f, from);
    s->copied_calls = f->calls.n;
    session_free_bulks(s);
    arena_done(&tmp);
    return 0;
}
