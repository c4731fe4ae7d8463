/* Prepares long texts of a commit that is read back or copied (session_texts.h). The thread reads
 * the record and its bulk, which do not change, and nothing of the session. */
#include "worker/session/record/session_texts.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/os/task.h"
#include "worker/session/record/call_bulk.h"
#include "worker/session/record/commit_record.h"
#include "worker/session/record/new_env.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/store/store.h"

/* Debug builds prepare the texts of every second call, however short. */
#ifdef NDEBUG
enum { TAKES_SHORT = 0 };
#else
enum { TAKES_SHORT = 1 };
#endif

enum { TEXTS_LONG = 4 << 20 }; /* a thread parses so many bytes in several milliseconds */

struct texts_job {
    struct commit_record record; /* with its bulk */
    struct matcher matcher;
    atomic_size_t *sum;
    struct commit_texts *ready;
};

static void make_answers(struct texts_job *t)
{
    const struct commit_record *c = &t->record;
    struct answer_cursor at = commit_record_answers(c);

    t->ready->answers = ready_answers_new(c->n_answers);
    for (uint32_t i = 0; i < c->n_answers; i++) {
        struct commit_answer a;

        commit_record_answer(c, &at, &a);
        if (a.message.p)
            t->ready->answers->at[i] = new_answer_read(a.message, &t->matcher, t->sum);
    }
}

static void make_env(struct texts_job *t)
{
    struct buf texts = {0};

    record_put_str(&texts, t->record.tools);
    record_put_str(&texts, t->record.kwargs);
    t->ready->env = new_env_read(buf_str(&texts), t->sum);
    buf_done(&texts);
}

/* Makes all texts. After a cancelled job, or for texts that cannot be read, they are made when the
 * record is applied. */
static int make_all(void *ctx, void *tool, struct err *e)
{
    struct texts_job *t = ctx;
    const struct commit_record *c = &t->record;

    (void)tool;
    (void)e;
    if (c->flags & COMMIT_NEW_ENV)
        make_env(t);
    if (c->n_messages > 0)
        t->ready->messages = new_messages_read(c->messages, c->n_messages, &t->matcher, t->sum);
    make_answers(t);
    return 0;
}

/* Counts the bytes of JSON. */
static size_t text_bytes(const struct commit_record *c)
{
    size_t bytes = c->tools.len + c->kwargs.len;
    struct record_in texts = c->messages;

    if (c->flags & COMMIT_BULK)
        bytes += bulk_bytes(c->bulk, BULK_TEXTS).len;
    for (uint32_t i = 0; i < c->n_messages && !(c->flags & COMMIT_TEXTS); i++)
        bytes += record_str(&texts).len;
    return bytes + (c->has_only ? c->only.message.len : 0);
}

/* Reports whether the record is a complete commit of a call with answers that may be long. */
static bool is_commit(struct session *s, struct str record, struct commit_record *ret)
{
    struct record_in r = record_in_of(record);
    struct record_head h;
    const struct call_bulk *b;
    struct err why;

    if (record.len < NEW_MESSAGES_MIN && s->bulks.n == 0 && !TAKES_SHORT)
        return false;
    if (!s->filled || !record_read_head(&r, &h) || h.type != RECORD_COMMIT ||
        !record_version_known(h.version) || commit_record_read(&r, ret, &why) != 0 ||
        ret->flags & COMMIT_EXHAUSTED)
        return false;
    if (!(ret->flags & COMMIT_BULK))
        return true;
    b = session_bulk(s, ret->call);
    return b && commit_record_attach(ret, b);
}

static void ready_free(struct commit_texts *t)
{
    new_messages_free(t->messages);
    new_env_free(t->env);
    ready_answers_free(t->answers);
    free(t);
}

int session_texts_make(struct session *s, struct str record, atomic_size_t *sum, struct err *e)
{
    struct texts_job t = {.matcher = s->forest.matcher, .sum = sum};
    struct task_work work = {.fn = make_all, .ctx = &t, .lane = s->id};
    size_t bytes;

    if (!is_commit(s, record, &t.record))
        return 0;
    bytes = text_bytes(&t.record);
    if (bytes < NEW_MESSAGES_MIN && !(TAKES_SHORT && t.record.call % 2))
        return 0;
    t.ready = mem_zalloc(sizeof(*t.ready));
    t.ready->call = t.record.call;
    work.is_long = bytes > TEXTS_LONG;
    if (task_offload(&work, e) == 0) {
        s->ready = t.ready;
        return 0;
    }
    ready_free(t.ready);
    /* if it took too long, applying the record makes them */
    return e->kind == ERR_CANCELLED ? -1 : 0;
}

void session_texts_end(struct session *s)
{
    if (s->ready)
        ready_free(s->ready);
    s->ready = NULL;
}

void session_texts_lost(struct session *s)
{
    s->bulks = (struct map){0};
    s->bulk_bytes = 0;
}
