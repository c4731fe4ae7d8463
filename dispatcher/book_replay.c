/* Order of records of several logs (book_replay.h): each record has a time that is never before
 * that of its predecessor in the log. One sort brings all into order. */
#include "dispatcher/book_replay.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "dispatcher/book_record.h"

/* A group's records from its submission to its removal. */
struct replay_log {
    uint64_t seq;      /* number of the submission; 0: the record does not say it */
    uint64_t at_ms;    /* time of the last record so far */
    uint64_t least_ms; /* least time of any record; 0: no limit */
    bool forgotten;
    struct replay_log *before; /* the group's previous log, or NULL */
    size_t id_len;
    char id[];
};

struct replay_record {
    struct replay_log *log;
    uint64_t at_ms;
    size_t n; /* number of the record among all */
    size_t len;
    char *bytes;
};

struct book_replay {
    struct map newest; /* the last log of each group */
    VEC(struct replay_log *) logs;
    VEC(struct replay_record) records;
};

struct book_replay *book_replay_new(void)
{
    return mem_zalloc(sizeof(struct book_replay));
}

static void forget_all(struct book_replay *r)
{
    for (size_t i = 0; i < r->records.n; i++)
        free(r->records.at[i].bytes);
    vec_done(&r->records);
    map_done(&r->newest);
    r->newest = (struct map){0};
    for (size_t i = 0; i < r->logs.n; i++)
        free(r->logs.at[i]);
    vec_done(&r->logs);
}

void book_replay_free(struct book_replay *r)
{
    if (!r)
        return;
    forget_all(r);
    free(r);
}

/* Begins a log, whose records are not before those of the group's previous log. */
static struct replay_log *begin_log(struct book_replay *r, struct str group, uint64_t seq)
{
    struct replay_log *before = map_get(&r->newest, group);
    struct replay_log *l = mem_zalloc(sizeof(*l) + group.len);

    l->seq = seq;
    l->before = before;
    l->at_ms = before ? before->at_ms : 0;
    l->id_len = group.len;
    memcpy(l->id, group.p, group.len);
    *vec_push(&r->logs) = l;
    (void)map_set(&r->newest, str_of(l->id, l->id_len), l);
    return l;
}

void book_replay_forget(struct book_replay *r, struct str group)
{
    for (struct replay_log *l = map_get(&r->newest, group); l && !l->forgotten; l = l->before)
        l->forgotten = true;
}

bool book_replay_add(struct book_replay *r, struct str group, struct str record)
{
    struct replay_log *l = map_get(&r->newest, group);
    const struct json *v = NULL;
    size_t n = r->records.n;
    struct arena a = {0};
    struct err e;
    bool begins, again;

    (void)json_parse(&a, record, &v, &e); /* a payload that is not JSON has no time */
    begins = record_kind(v) == RECORD_GROUP;
    again = begins && l && !record_continues(v);
    if (again)
        book_replay_forget(r, group);
    if (begins || !l)
        l = begin_log(r, group, record_seq(v));
    l->at_ms = MAX_OF(l->at_ms, record_at(v));
    *vec_push(&r->records) = (struct replay_record){.log = l,
                                                    .at_ms = l->at_ms,
                                                    .n = n,
                                                    .len = record.len,
                                                    .bytes = mem_strndup(record.p, record.len)};
    arena_done(&a);
    return again;
}

static int compare_logs(const void *a, const void *b)
{
    const struct replay_log *const *x = a, *const *y = b;

    return (*x)->seq < (*y)->seq ? -1 : (*x)->seq > (*y)->seq;
}

static int compare_records(const void *a, const void *b)
{
    const struct replay_record *x = a, *y = b;

    if (x->at_ms != y->at_ms)
        return x->at_ms < y->at_ms ? -1 : 1;
    if (x->log->seq != y->log->seq)
        return x->log->seq < y->log->seq ? -1 : 1;
    return x->n < y->n ? -1 : x->n > y->n;
}

/* Sets the times of first records, whose groups are in the order of submission. */
static void order_logs(struct book_replay *r)
{
    uint64_t at_ms = 0;

    /* the first record of each log, whose time limits the log */
    for (size_t i = r->records.n; i-- > 0;)
        r->records.at[i].log->least_ms = r->records.at[i].at_ms;
    if (r->logs.n > 0)
        qsort(r->logs.at, r->logs.n, sizeof(struct replay_log *), compare_logs);
    for (size_t i = 0; i < r->logs.n; i++) {
        struct replay_log *l = r->logs.at[i];

        if (l->seq == 0)
            continue;
        at_ms = MAX_OF(at_ms, l->least_ms);
        l->least_ms = at_ms;
    }
}

int book_replay_run(struct book_replay *r,
                    int (*fn)(void *ctx, struct str group, struct str record, struct err *e),
                    void *ctx, struct err *e)
{
    int rc = 0;

    order_logs(r);
    for (size_t i = 0; i < r->records.n; i++)
        r->records.at[i].at_ms = MAX_OF(r->records.at[i].at_ms, r->records.at[i].log->least_ms);
    if (r->records.n > 0)
        qsort(r->records.at, r->records.n, sizeof(*r->records.at), compare_records);
    for (size_t i = 0; i < r->records.n && rc == 0; i++) {
        struct replay_record *q = &r->records.at[i];

        if (!q->log->forgotten)
            rc = fn(ctx, str_of(q->log->id, q->log->id_len), str_of(q->bytes, q->len), e);
        free(q->bytes); /* the book may have a copy by now */
        q->bytes = NULL;
    }
    forget_all(r);
    return rc;
}
