/* The new messages and the new environment of a commit that is read back, and its answers' long
 * messages, made ready beside the loop (session_texts.h). */
#include "worker/session/session_texts.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
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

/* The JSON of an answer's message; empty once it is made. */
struct answer_text {
    uint32_t answer;
    bool ahead; /* it is the session's, of records before */
    struct text_parts json;
};

struct session_texts {
    uint64_t call;
    uint32_t n; /* of new messages; 0: they are short */
    bool ahead; /* the bytes are the session's texts ahead */
    struct matcher matcher;
    struct text_parts texts; /* the last n in it; none any more once they are made */
    struct buf env;          /* tools and arguments of a new environment, or nothing */
    struct new_messages *made;
    struct new_env *made_env;
    VEC(struct answer_text) answers;
    struct ready_answers *made_answers; /* or NULL */
    atomic_size_t *sum;
};

static void count(const struct session_texts *t, size_t bytes)
{
    atomic_fetch_add_explicit(t->sum, bytes, memory_order_relaxed);
}

static void drop(const struct session_texts *t, struct text_parts *texts)
{
    count(t, 0 - texts->bytes);
    text_parts_done(texts);
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

    if (c->n_messages == 0)
        return false;
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

/* Whether it is a record of a call that may have such texts. */
static bool is_call(const struct session *s, struct str record, struct commit_record *ret)
{
    struct record_in r = record_in_of(record);
    struct record_head h;
    struct err e;

    if (!s->filled ||
        (record.len < NEW_MESSAGES_MIN && s->texts_bytes + s->answers_bytes == 0 && !TAKES_SHORT))
        return false;
    if (!record_read_head(&r, &h) || h.version > RECORD_VERSION)
        return false;
    if (h.type == RECORD_COMMIT)
        return commit_record_read(&r, ret, &e) == 0;
    return h.type == RECORD_ANSWERS && commit_record_read_answers(&r, ret, &e) == 0;
}

/* --- messages of answers --- */

/* Goes over the answers of a record with long messages, before it or (as older programs wrote
 * them) inside. */
struct long_answers {
    struct session *session;
    const struct commit_record *record;
    struct answer_cursor at;
    uint32_t n; /* of its answers, that were gone over */
    struct block_owner of;
    struct str inside; /* or absent */
};

static struct long_answers long_answers(struct session *s, const struct commit_record *c)
{
    return (struct long_answers){.session = s, .record = c, .at = commit_record_answers(c)};
}

/* False: there is no other. */
static bool next_answer(struct long_answers *l)
{
    const struct commit_record *c = l->record;

    while (l->n < c->n_here) {
        struct commit_answer a;
        size_t ahead;

        commit_record_answer(c, &l->at, &a);
        l->of = (struct block_owner){c->call, c->before + l->n++};
        l->inside = a.message;
        ahead = a.ahead[BLOCK_MESSAGE] > 0 ? session_message_bytes(l->session, l->of) : 0;
        if (l->inside.len >= NEW_MESSAGES_MIN || (ahead > 0 && is_long(ahead, c->call)))
            return true;
    }
    return false;
}

static bool has_long_answer(struct session *s, const struct commit_record *c)
{
    struct long_answers l = long_answers(s, c);

    return next_answer(&l);
}

static void take_answers(struct session *s, const struct commit_record *c, struct session_texts *t)
{
    struct long_answers l = long_answers(s, c);

    while (next_answer(&l)) {
        struct answer_text a = {.answer = l.of.answer, .ahead = !l.inside.p};

        if (a.ahead)
            a.json = session_lend_message(s, l.of);
        else
            text_parts_add(&a.json, l.inside);
        count(t, a.json.bytes);
        *vec_push(&t->answers) = a;
    }
}

/* They stand in their order. */
static void make_answers(struct session_texts *t)
{
    uint32_t first = t->answers.at[0].answer;

    t->made_answers = ready_answers_new(first, vec_last(&t->answers).answer - first + 1);
    for (size_t i = 0; i < t->answers.n; i++) {
        struct answer_text *a = &t->answers.at[i];
        size_t had = a->json.bytes;
        struct str json = text_parts_whole(&a->json);
        struct new_messages **made = &t->made_answers->at[a->answer - first];

        count(t, a->json.bytes - had);
        *made = new_answer_read(json, &t->matcher, t->sum);
        if (*made)
            drop(t, &a->json);
    }
}

static void give_answers(struct session *s, struct session_texts *t)
{
    s->read_answers = t->made_answers;
    t->made_answers = NULL;
    for (size_t i = 0; i < t->answers.n; i++) {
        struct answer_text *a = &t->answers.at[i];

        if (a->json.len == 0 || !a->ahead)
            continue;
        count(t, 0 - a->json.bytes);
        session_return_message(s, (struct block_owner){t->call, a->answer}, &a->json);
    }
}

/* --- all --- */

size_t session_texts_bytes(const struct session_texts *t)
{
    size_t bytes = t->texts.bytes + t->env.len;

    for (size_t i = 0; i < t->answers.n; i++)
        bytes += t->answers.at[i].json.bytes;
    return bytes;
}

bool session_texts_wait(struct session *s, struct str record)
{
    struct commit_record c;
    size_t bytes;

    if (!is_call(s, record, &c))
        return false;
    bytes = c.flags & COMMIT_AHEAD ? session_ahead_bytes(s, c.call)
                                   : span_of(c.messages, c.n_messages).len;
    return (c.n_messages > 0 && bytes > 0 && is_long(bytes, c.call)) || has_long_env(&c) ||
           has_long_answer(s, &c);
}

struct session_texts *session_texts_take(struct session *s, struct str record, atomic_size_t *sum)
{
    struct text_parts texts = {0};
    struct session_texts *t;
    struct commit_record c;
    bool taken, long_env;

    if (!is_call(s, record, &c))
        return NULL;
    taken = take(s, &c, &texts);
    long_env = has_long_env(&c);
    if (!taken && !long_env && !has_long_answer(s, &c))
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
    take_answers(s, &c, t);
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
    if (t->answers.n > 0)
        make_answers(t);
    if (t->n == 0)
        return;
    all = text_parts_whole(&t->texts);
    count(t, t->texts.bytes - had);
    t->made = new_messages_read(all, t->n, &t->matcher, t->sum);
    if (t->made)
        drop(t, &t->texts);
}

void session_texts_give(struct session *s, struct session_texts *t)
{
    s->ready_call = t->call;
    s->read_env = t->made_env;
    t->made_env = NULL;
    give_answers(s, t);
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
    ready_answers_free(s->read_answers);
    s->read_answers = NULL;
}

void session_texts_free(struct session_texts *t)
{
    new_messages_free(t->made);
    new_env_free(t->made_env);
    ready_answers_free(t->made_answers);
    for (size_t i = 0; i < t->answers.n; i++)
        drop(t, &t->answers.at[i].json);
    vec_done(&t->answers);
    drop(t, &t->texts);
    count(t, 0 - t->env.cap);
    buf_done(&t->env);
    free(t);
}
