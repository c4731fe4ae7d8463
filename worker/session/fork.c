/*
 * Forks. A fork is made of the records that made the session, in their order, up to the call that
 * gave the answer: with another session id in front, and without the hashes of request bodies, for
 * a request that the fork gets is no retry of one that the other session had. Applied, they give
 * the same ids, messages and tokens. A last record (RECORD_FORK) then hides what is not on the path
 * to the answer.
 */
#include <string.h>

#include "common/base/err.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit.h"
#include "worker/session/policy.h"
#include "worker/session/record.h"
#include "worker/session/store.h"

void session_write_options(const struct session *s, struct buf *json)
{
    session_options_write(&s->options, json);
}

/* --- copying --- */

struct fork_copy {
    const struct session_fork *fork;
    struct arena arena;
    struct str *records; /* by number; absent: none to copy */
    uint64_t last_call;  /* the one that gave the answer */
};

/* Where the copy ends: at the record of the answer's call. */
static bool is_last(struct str record, uint64_t call)
{
    struct str id;
    uint64_t hash[2], number;

    return session_record_commits(record, &id, hash, &number) && number == call;
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

/* What made the content; rewards, ends and what sinks have are the other session's own. */
static int take_record(void *ctx, size_t i, struct str record, struct err *e)
{
    struct fork_copy *c = ctx;
    struct record_in r = record_in_of(record);
    struct record_head h;
    struct buf b = {0};

    if (!record_read_head(&r, &h))
        return err_set(e, ERR_IO, "session record: torn");
    if (h.type != RECORD_COMMIT && h.type != RECORD_DROP && h.type != RECORD_FORK &&
        h.type != RECORD_TEXTS && h.type != RECORD_ANSWERS && h.type != RECORD_BLOCKS)
        return 0;
    h.id = c->fork->id;
    record_put_head(&b, &h);
    copy_body(&b, h.type, r);
    c->records[i] = arena_str(&c->arena, buf_str(&b));
    buf_done(&b);
    return 0;
}

static void put_fork(const struct session *s, const struct session_fork *f,
                     const struct checkpoint *t, struct buf *b)
{
    record_begin(b, RECORD_FORK, f->id, f->now_ms);
    record_put_str(b, s->id);
    record_put_u(b, t->id);
    record_put_u(b, f->train_prefix);
}

static const struct checkpoint *find_answer(const struct session *s, const struct session_fork *f)
{
    const struct checkpoint *t = NULL;

    if (f->response_id.p)
        return map_get(&s->forest.by_response, response_key(f->response_id));
    for (size_t i = s->forest.checkpoints.n; i > 0 && !t; i--) {
        if (!s->forest.checkpoints.at[i - 1]->hidden &&
            !checkpoint_pool(s->forest.checkpoints.at[i - 1]).len)
            t = s->forest.checkpoints.at[i - 1];
    }
    return t;
}

static int check_fork(const struct session *s, const struct checkpoint *t, struct err *e)
{
    if (session_refuse_foreign(s, e))
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

int session_fork_records(struct session *s, const struct session_fork *f,
                         int (*each)(void *ctx, struct str record, struct err *e), void *ctx,
                         struct err *e)
{
    const struct checkpoint *t = find_answer(s, f);
    struct fork_copy c = {.fork = f};
    struct buf last = {0};
    int rc = check_fork(s, t, e);

    if (rc == 0) {
        c.last_call = s->forest.calls.at[t->call].number;
        c.records = arena_calloc(&c.arena, s->record, sizeof(*c.records));
        rc = session_read_records(s, &(struct session_reader){take_record, &c}, e);
    }
    for (uint32_t i = 0; rc == 0 && i < s->record; i++) {
        if (c.records[i].p)
            rc = each(ctx, c.records[i], e);
        if (c.records[i].p && is_last(c.records[i], c.last_call))
            break;
    }
    if (rc == 0) {
        put_fork(s, f, t, &last);
        rc = each(ctx, buf_str(&last), e);
    }
    buf_done(&last);
    arena_done(&c.arena);
    return rc;
}

bool session_copying(const struct session *s)
{
    return s->copying > 0;
}

/* --- applying --- */

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
    /* The newest first: of equal answers those stand in front. */
    for (size_t i = f->checkpoints.n; i > 0; i--) {
        struct checkpoint *one = f->checkpoints.at[i - 1];

        one->copied = one->copied || !trains;
        if (!kept[i - 1] && !one->hidden)
            checkpoint_hide(one);
    }
    if (s->options.policy == &policy_linear)
        linear_fork(s, t);
    s->forked_from = forest_text(f, from);
    s->copied_calls = f->calls.n;
    session_free_texts(s);
    session_free_answers(s);
    arena_done(&tmp);
    return 0;
}
