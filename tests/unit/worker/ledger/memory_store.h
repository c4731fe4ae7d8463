/* A fleet's store in memory, for one place. Its answers can be held, lost or refused. */
#ifndef RG_UNIT_MEMORY_STORE_H
#define RG_UNIT_MEMORY_STORE_H

#include <stdio.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/vec.h"
#include "common/fleet/fleet_store.h"
#include "common/os/loop.h"
#include "testing.h"

enum { PLACE = 7, LOGS = 8 };

struct memory_log {
    char id[16];
    uint64_t first;
    VEC(struct buf) records;
};

struct memory_answer {
    struct store_answer a;
    struct store_call call;
};

struct memory_store {
    struct store store;
    struct loop *loop;
    uint64_t epoch, base, server;
    struct memory_log logs[LOGS];
    VEC(struct memory_answer) answers;
    struct loop_task work;
    struct arena arena;
    bool holds; /* answers are held */
    bool is_full;
    bool is_away;            /* calls are lost before they are executed */
    bool loses;              /* calls are executed, but their answers are lost */
    unsigned appends, drops; /* the latter of whole logs */
};

static struct memory_store *store_of(struct store *s)
{
    return CONTAINER_OF(s, struct memory_store, store);
}

static void answer_first(struct memory_store *s)
{
    struct memory_answer first = s->answers.at[0];

    s->answers.n--;
    memmove(s->answers.at, s->answers.at + 1, s->answers.n * sizeof(first));
    if (s->loses || s->is_away)
        first.a = (struct store_answer){.verdict = STORE_LOST, .why = "the cable"};
    first.call.fn(first.call.ctx, &first.a);
}

static void on_work(struct loop_task *t)
{
    struct memory_store *s = CONTAINER_OF(t, struct memory_store, work);

    while (s->answers.n > 0 && !s->holds)
        answer_first(s);
}

static void answer(struct memory_store *s, struct store_call call, struct store_answer a)
{
    *vec_push(&s->answers) = (struct memory_answer){a, call};
    loop_task_post(s->loop, &s->work, on_work);
}

static struct memory_log *find_log(struct memory_store *s, struct str id)
{
    struct memory_log *unused = NULL;

    for (size_t i = 0; i < LOGS; i++) {
        if (str_eq_c(id, s->logs[i].id))
            return &s->logs[i];
        if (!s->logs[i].id[0])
            unused = &s->logs[i];
    }
    cr_assert(unused);
    (void)snprintf(unused->id, sizeof(unused->id), "%.*s", (int)id.len, id.p);
    return unused;
}

static void cut_log(struct memory_log *log, size_t n)
{
    while (log->records.n > n)
        buf_done(&vec_pop(&log->records));
}

static enum store_verdict append_one(struct memory_log *log, const struct store_record *r)
{
    if (log->records.n == 0)
        log->first = r->first;
    if (r->n > log->first + log->records.n)
        return STORE_SHORT;
    if (r->n < log->first)
        return STORE_CONFLICT;
    if (r->n < log->first + log->records.n)
        return str_eq(buf_str(&log->records.at[r->n - log->first]), r->bytes) ? STORE_DONE
                                                                              : STORE_CONFLICT;
    *vec_push(&log->records) = (struct buf){0};
    buf_add_str(&vec_last(&log->records), r->bytes);
    return STORE_DONE;
}

static void memory_append(struct store *store, uint32_t place, uint64_t epoch,
                          const struct store_record *at, size_t n, struct store_call call)
{
    struct memory_store *s = store_of(store);
    struct store_refusal *refused = arena_calloc(&s->arena, n, sizeof(*refused));
    struct store_answer a = {.verdict = STORE_DONE, .refused = refused};
    size_t bytes = 0;

    cr_assert_eq(place, PLACE);
    s->appends++;
    if (s->is_full)
        a = (struct store_answer){.verdict = STORE_FULL, .why = "OOM"};
    else if (epoch != s->epoch)
        a = (struct store_answer){.verdict = STORE_FENCED, .base = s->base};
    for (size_t i = 0; i < n && a.verdict == STORE_DONE && !s->is_away; i++) {
        struct memory_log *log = find_log(s, at[i].session);
        enum store_verdict v = STORE_DONE;

        bytes += at[i].bytes.len;
        for (size_t k = 0; k < a.n_refused; k++)
            if (str_eq(at[refused[k].i].session, at[i].session))
                v = refused[k].verdict;
        v = v == STORE_DONE ? append_one(log, &at[i]) : v;
        if (v != STORE_DONE)
            refused[a.n_refused++] =
                (struct store_refusal){.i = i, .verdict = v, .next = log->first + log->records.n};
    }
    cr_assert(n == 1 || bytes <= STORE_APPEND_MAX);
    answer(s, call, a);
}

static void memory_drop(struct store *store, uint32_t place, uint64_t epoch,
                        const struct store_cut *cut, struct store_call call)
{
    struct memory_store *s = store_of(store);
    struct memory_log *log = find_log(s, cut->session);

    (void)place;
    if (epoch != s->epoch) {
        answer(s, call, (struct store_answer){.verdict = STORE_FENCED, .base = s->base});
        return;
    }
    if (!cut->keep && cut->from > log->first) {
        cut_log(log, s->is_away ? log->records.n : (size_t)(cut->from - log->first));
        answer(s, call, (struct store_answer){.verdict = STORE_DONE});
        return;
    }
    s->drops += !cut->keep;
    while (!s->is_away && log->records.n > cut->keep) {
        buf_done(&log->records.at[0]);
        log->records.n--;
        memmove(log->records.at, log->records.at + 1, log->records.n * sizeof(struct buf));
        log->first++;
    }
    answer(s, call, (struct store_answer){.verdict = STORE_DONE});
}

static void memory_read(struct store *store, uint32_t place, struct str session, uint64_t from,
                        struct store_call call)
{
    struct memory_store *s = store_of(store);
    struct store_answer a = {.verdict = STORE_DONE};
    struct str *texts = arena_calloc(&s->arena, 64, sizeof(*texts));
    struct store_log *logs = arena_calloc(&s->arena, LOGS, sizeof(*logs));

    (void)place;
    a.texts = texts;
    a.logs = logs;
    a.server = s->server;
    for (size_t i = 0; i < LOGS && !session.p; i++) {
        const struct memory_log *log = &s->logs[i];

        if (log->records.n == 0)
            continue;
        logs[a.n_texts] =
            (struct store_log){.first = log->first, .next = log->first + log->records.n};
        texts[a.n_texts++] = str_cstr(log->id);
    }
    if (session.p) { /* at most two records in an answer */
        const struct memory_log *log = find_log(s, session);

        a.first = MAX_OF(from, log->first);
        a.next = log->first + log->records.n;
        for (uint64_t n = a.first; n < a.next && a.n_texts < 2; n++)
            texts[a.n_texts++] = arena_str(&s->arena, buf_str(&log->records.at[n - log->first]));
    }
    answer(s, call, a);
}

static void memory_free(struct store *store)
{
    struct memory_store *s = store_of(store);

    s->holds = false;
    s->loses = true;
    on_work(&s->work);
    loop_task_cancel(s->loop, &s->work);
    s->loses = false;
}

static const struct store_kind memory_kind = {
    .append = memory_append, .drop = memory_drop, .read = memory_read, .free = memory_free};

#endif
