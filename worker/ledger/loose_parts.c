/* A call has its loose parts from the first one on until its commit or its end (loose_parts.h); a
 * session is here as long as some call of it is. */
#include "worker/ledger/loose_parts.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/journal.h"
#include "worker/session/record_parts.h"

struct record_numbers {
    uint32_t *at;
    size_t n, cap;
};

struct loose_call {
    uint64_t call; /* its number */
    struct record_numbers parts[PART_KINDS];
};

struct loose_parts {
    struct map sessions; /* by id */
};

struct loose_session {
    struct map calls; /* by number */
    size_t id_len;
    char id[];
};

static struct str key_of(const uint64_t *call)
{
    return str_of((const char *)call, sizeof(*call));
}

static struct str id_of(const struct loose_session *s)
{
    return str_of(s->id, s->id_len);
}

static struct loose_call *call_get(struct loose_parts *l, struct str session_id, uint64_t call)
{
    struct loose_session *s = map_get(&l->sessions, session_id);
    struct loose_call *c;

    if (!s) {
        s = mem_zalloc(sizeof(*s) + session_id.len + 1);
        s->id_len = session_id.len;
        memcpy(s->id, session_id.p, session_id.len);
        (void)map_set(&l->sessions, id_of(s), s);
    }
    c = map_get(&s->calls, key_of(&call));
    if (!c) {
        c = mem_zalloc(sizeof(*c));
        c->call = call;
        (void)map_set(&s->calls, key_of(&c->call), c);
    }
    return c;
}

/* Out of the tables, with its session if it was the last; NULL: it has none. */
static struct loose_call *call_take(struct loose_parts *l, struct str session_id, uint64_t call)
{
    struct loose_session *s = map_get(&l->sessions, session_id);
    struct loose_call *c = s ? map_take(&s->calls, key_of(&call)) : NULL;

    if (c && s->calls.n == 0) {
        (void)map_take(&l->sessions, session_id);
        map_done(&s->calls);
        free(s);
    }
    return c;
}

static void give_up(struct record_numbers *parts, struct journal *j, struct str session_id)
{
    for (size_t i = 0; i < parts->n; i++)
        journal_give_up(j, session_id, parts->at[i]);
    vec_clear(parts);
}

/* With a journal its parts are given up, with NULL they stay. */
static void call_end(struct loose_call *c, struct journal *j, struct str session_id)
{
    for (size_t i = 0; i < PART_KINDS; i++) {
        if (j)
            give_up(&c->parts[i], j, session_id);
        vec_done(&c->parts[i]);
    }
    free(c);
}

/* It must be out of the table. */
static void session_end(struct loose_session *s, struct journal *j)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&s->calls, &at)))
        call_end(slot->value, j, id_of(s));
    map_done(&s->calls);
    free(s);
}

static void end_all(struct loose_parts *l, struct journal *j)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&l->sessions, &at)))
        session_end(slot->value, j);
    map_done(&l->sessions);
}

struct loose_parts *loose_parts_new(void)
{
    return mem_zalloc(sizeof(struct loose_parts));
}

void loose_parts_free(struct loose_parts *l)
{
    if (l)
        end_all(l, NULL);
    free(l);
}

void loose_parts_give_up_all(struct loose_parts *l, struct journal *j)
{
    end_all(l, j);
}

void loose_parts_give_up(struct loose_parts *l, struct journal *j, struct str session_id,
                         uint64_t call)
{
    struct loose_call *c = call_take(l, session_id, call);

    if (c)
        call_end(c, j, session_id);
}

/* The same number again is that of a call which came behind a crash. */
static void add(struct loose_parts *l, struct journal *j, struct str session_id,
                const struct record_parts *p, uint32_t number)
{
    struct loose_call *c = call_get(l, session_id, p->call);

    if (p->first)
        give_up(&c->parts[p->kind], j, session_id);
    if (p->first && p->kind == PART_BLOCKS && !p->behind_answers) /* its answers come behind them */
        give_up(&c->parts[PART_ANSWERS], j, session_id);
    *vec_push(&c->parts[p->kind]) = number;
}

/* Of texts that other calls have stored meanwhile a commit names none. */
static void name(struct loose_parts *l, struct journal *j, struct str session_id,
                 const struct record_parts *p)
{
    struct loose_call *c = call_take(l, session_id, p->call);

    if (!c)
        return;
    for (size_t i = 0; i < PART_KINDS; i++) {
        if (!p->named[i])
            give_up(&c->parts[i], j, session_id);
    }
    call_end(c, NULL, session_id);
}

void loose_parts_note(struct loose_parts *l, struct journal *j, struct str session_id,
                      struct str record, uint32_t number)
{
    struct record_parts p;

    session_record_parts(record, &p);
    if (p.sense == PARTS_ONE) {
        add(l, j, session_id, &p, number);
    } else if (p.sense == PARTS_NAMED) {
        name(l, j, session_id, &p);
    } else if (p.sense == PARTS_OVER) {
        struct loose_session *s = map_take(&l->sessions, session_id);

        if (s)
            session_end(s, j);
    }
}
