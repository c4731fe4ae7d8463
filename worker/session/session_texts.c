/* The new messages and the new environment of a commit that is read back, made ready beside the
 * loop (session_texts.h). */
#include "worker/session/session_texts.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "worker/session/commit_record.h"
#include "worker/session/new_env.h"
#include "worker/session/new_messages.h"
#include "worker/session/store.h"
#include "worker/session/text_parts.h"

/* Debug builds make those of every second call ready, however short. */
#ifdef NDEBUG
enum { TAKES_SHORT = 0 };
#else
enum { TAKES_SHORT = 1 };
#endif

struct session_texts {
    uint64_t call;
    uint32_t n; /* of new messages; 0: they are short */
    bool ahead; /* the bytes are the session's texts ahead */
    struct matcher matcher;
    struct text_parts texts; /* the last n in it; none any more once they are made */
    struct buf env;          /* tools and arguments of a new environment, or nothing */
    struct new_messages *made;
    struct new_env *made_env;
    atomic_size_t *sum;
};

static void count(const struct session_texts *t, size_t bytes)
{
    atomic_fetch_add_explicit(t->sum, bytes, memory_order_relaxed);
}

static void drop_texts(struct session_texts *t)
{
    count(t, 0 - t->texts.bytes);
    text_parts_done(&t->texts);
}

/* The bytes of n texts in a row. */
static struct str span_of(struct record_in at, uint32_t n)
{
    const char *from = at.p;

    for (uint32_t i = 0; i < n; i++)
        (void)record_str(&at);
    return str_of(from, (size_t)(at.p - from));
}

/* Whether so many bytes of that call's are worth another thread. */
static bool is_long(size_t bytes, uint64_t call)
{
    return bytes >= NEW_MESSAGES_MIN || (TAKES_SHORT && call % 2);
}

/* Its texts: out of the session those ahead, a copy of those inside the record, which stays the
 * reader's. False: they are short. */
static bool take(struct session *s, const struct commit_record *c, struct text_parts *ret)
{
    struct str inside;

    if (c->flags & COMMIT_AHEAD) {
        *ret = session_lend_texts(s, c->call);
        if (ret->len > 0 && is_long(ret->len, c->call))
            return true;
        if (ret->blocks.n > 0)
            session_return_texts(s, c->call, ret);
        return false;
    }
    inside = span_of(c->messages, c->n_messages);
    if (is_long(inside.len, c->call))
        text_parts_add(ret, inside);
    return ret->len > 0;
}

static bool has_long_env(const struct commit_record *c)
{
    size_t bytes = c->tools.len + c->kwargs.len;

    return c->flags & COMMIT_NEW_ENV && bytes > 0 && is_long(bytes, c->call);
}

/* Whether it is a commit with new messages. */
static bool is_commit(const struct session *s, struct str record, struct commit_record *ret)
{
    struct record_in r = record_in_of(record);
    struct record_head h;
    struct err e;

    if (!s->filled || (record.len < NEW_MESSAGES_MIN && s->texts_bytes == 0 && !TAKES_SHORT))
        return false;
    return record_read_head(&r, &h) && h.type == RECORD_COMMIT && h.version <= RECORD_VERSION &&
           commit_record_read(&r, ret, &e) == 0 && ret->n_messages > 0;
}

size_t session_texts_bytes(const struct session_texts *t)
{
    return t->texts.bytes + t->env.len;
}

bool session_texts_wait(const struct session *s, struct str record)
{
    struct commit_record c;
    size_t bytes;

    if (!is_commit(s, record, &c))
        return false;
    bytes = c.flags & COMMIT_AHEAD ? session_ahead_bytes(s, c.call)
                                   : span_of(c.messages, c.n_messages).len;
    return (bytes > 0 && is_long(bytes, c.call)) || has_long_env(&c);
}

struct session_texts *session_texts_take(struct session *s, struct str record, atomic_size_t *sum)
{
    struct text_parts texts = {0};
    struct session_texts *t;
    struct commit_record c;
    bool taken, long_env;

    if (!is_commit(s, record, &c))
        return NULL;
    taken = take(s, &c, &texts);
    long_env = has_long_env(&c);
    if (!taken && !long_env)
        return NULL;
    t = mem_zalloc(sizeof(*t));
    t->call = c.call;
    t->n = taken ? c.n_messages : 0;
    t->ahead = taken && c.flags & COMMIT_AHEAD;
    t->matcher = s->forest.matcher;
    t->texts = texts;
    t->sum = sum;
    if (long_env) {
        record_put_str(&t->env, c.tools);
        record_put_str(&t->env, c.kwargs);
    }
    count(t, texts.bytes + t->env.cap);
    if (!s->unlinked)
        session_account(s);
    return t;
}

void session_texts_make(struct session_texts *t)
{
    size_t had = t->texts.bytes;
    struct str all;

    if (t->env.len > 0)
        t->made_env = new_env_read(buf_str(&t->env), t->sum);
    if (t->n == 0)
        return;
    all = text_parts_whole(&t->texts);
    count(t, t->texts.bytes - had);
    t->made = new_messages_read(all, t->n, &t->matcher, t->sum);
    if (t->made)
        drop_texts(t);
}

void session_texts_give(struct session *s, struct session_texts *t)
{
    s->ready_call = t->call;
    s->read_env = t->made_env;
    t->made_env = NULL;
    if (t->made) {
        s->read_ready = t->made;
        t->made = NULL;
    } else if (t->ahead) {
        count(t, 0 - t->texts.bytes);
        session_return_texts(s, t->call, &t->texts);
    }
    session_texts_free(t);
}

void session_texts_end(struct session *s)
{
    new_messages_free(s->read_ready);
    s->read_ready = NULL;
    new_env_free(s->read_env);
    s->read_env = NULL;
}

void session_texts_free(struct session_texts *t)
{
    new_messages_free(t->made);
    new_env_free(t->made_env);
    drop_texts(t);
    count(t, 0 - t->env.cap);
    buf_done(&t->env);
    free(t);
}
