/* Answers ahead: the answers of a call with several large ones are recorded before its commit
 * (RECORD_ANSWERS, commit.h), as many in a record as one turn of the loop may write, so that no
 * step writes and reads them all. Each record becomes checkpoints here that stand nowhere yet, and
 * a payload of its own; the commit names how many there are (COMMIT_ANSWERS_AHEAD), and the forest
 * takes them over. A live call and one that is read back go the same way. Answers whose call failed
 * before its commit are dropped with its plan, or when the reading ends. */
#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit_record.h"
#include "worker/session/payload.h"
#include "worker/session/store.h"
#include "worker/session/take_answer.h"

/* A snapshot may have records of one word each, for as many calls. */
enum { FIRST_BYTES = 1024 };

struct answers_ahead {
    uint64_t call;  /* its number */
    unsigned flags; /* COMMIT_ANSWER_PARTS that its records have */
    uint32_t top_id;
    uint64_t tokens;                /* of all of them */
    VEC(struct checkpoint *) all;   /* in the arena, as what they point to */
    VEC(struct payload *) payloads; /* theirs, until the forest has them */
    struct arena arena;
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_IO, "session record: %s", what);
}

static struct str key_of(const uint64_t *call)
{
    return str_of((const char *)call, sizeof(*call));
}

static size_t bytes_of(const struct answers_ahead *a)
{
    return sizeof(*a) + a->arena.held_bytes + (a->all.cap + a->payloads.cap) * sizeof(void *);
}

/* The answers of one record, in the arena; payloads come later. NULL and e: some make no sense. */
static struct checkpoint *take_all(struct session *s, const struct commit_record *c,
                                   struct arena *own, struct err *e)
{
    struct checkpoint *all = arena_calloc(own, c->n_here, sizeof(*all));
    struct answer_cursor at = commit_record_answers(c);
    struct record_in told = c->told;

    for (uint32_t i = 0; i < c->n_here; i++) {
        struct block_owner of = {c->call, c->before + i};
        struct commit_answer a;

        commit_record_answer(c, &at, &a);
        if (a.mode != DUPLICATE_NONE) {
            (void)bad(e, "one of several answers is told to be another");
            return NULL;
        }
        if (c->flags & COMMIT_TOLD)
            all[i].told = forest_str_in(own, record_str(&told));
        if (take_answer(&all[i], &a, c->flags, own, e) != 0 ||
            session_name_blocks(s, of, &a, &all[i], own, e) != 0 ||
            session_take_message(s, of, &a, &all[i], own, e) != 0)
            return NULL;
    }
    return all;
}

static void free_one(struct answers_ahead *a)
{
    for (size_t i = 0; i < a->payloads.n; i++)
        payload_drop(a->payloads.at[i]);
    vec_done(&a->payloads);
    vec_done(&a->all);
    arena_done(&a->arena);
    free(a);
}

static void drop(struct session *s, uint64_t call)
{
    struct answers_ahead *a = map_take(&s->answers_ahead, key_of(&call));

    if (!a)
        return;
    s->answers_bytes -= bytes_of(a);
    free_one(a);
}

static struct answers_ahead *begin(struct session *s, const struct commit_record *c)
{
    struct answers_ahead *a = mem_zalloc(sizeof(*a));

    drop(s, c->call); /* a call that failed may have left some under its number */
    a->call = c->call;
    a->flags = c->flags & COMMIT_ANSWER_PARTS;
    a->arena.tight = true;
    (void)map_set(&s->answers_ahead, key_of(&a->call), a);
    s->answers_bytes += bytes_of(a);
    return a;
}

/* They stand behind those that there are; the arena becomes part of theirs. */
static void add(struct session *s, struct answers_ahead *a, const struct commit_record *c,
                struct checkpoint *answers, struct arena *own)
{
    size_t before = bytes_of(a), at = 0;
    struct payload *p;

    if (c->flags & COMMIT_BULK_AHEAD) {
        p = session_take_bulk(s, own, c->call);
    } else {
        p = payload_new(s, own, c->call, commit_record_bulk(c, NULL), false);
        (void)commit_record_bulk(c, p->bytes);
    }
    *vec_push(&a->payloads) = p;
    for (uint32_t i = 0; i < c->n_here; i++) {
        at = take_bulk(&answers[i], p, at);
        a->top_id = take_top(a->top_id, checkpoint_ids(&answers[i]), answers[i].n);
        *vec_push(&a->all) = &answers[i];
    }
    a->tokens += c->tokens;
    arena_take(&a->arena, own);
    s->answers_bytes += bytes_of(a) - before;
}

int session_apply_answers(struct session *s, struct record_in *r, struct err *e)
{
    struct arena own = {.tight = true, .first_bytes = FIRST_BYTES};
    struct checkpoint *answers;
    struct answers_ahead *a;
    struct commit_record c;

    if (commit_record_read_answers(r, &c, e) != 0)
        return -1;
    a = map_get(&s->answers_ahead, key_of(&c.call));
    if (c.before > 0 && (!a || a->all.n != c.before || a->flags != (c.flags & COMMIT_ANSWER_PARTS)))
        return bad(e, "answers without those before them");
    if (commit_record_bulk(&c, NULL) > UINT32_MAX)
        return bad(e, "too large");
    if (c.flags & COMMIT_BULK_AHEAD &&
        session_attach_bulk(s, (struct block_owner){c.call, c.before}, &c, e) != 0)
        return -1;
    answers = take_all(s, &c, &own, e);
    if (answers)
        add(s, c.before == 0 ? begin(s, &c) : a, &c, answers, &own);
    arena_done(&own);
    return answers ? 0 : -1;
}

int session_answers_ahead(const struct session *s, const struct commit_record *commit,
                          struct checkpoint ***ret, struct err *e)
{
    const struct answers_ahead *a = map_get(&s->answers_ahead, key_of(&commit->call));

    if (!a || a->all.n != commit->n_answers || a->tokens + commit->n_context != commit->tokens ||
        a->flags != (commit->flags & COMMIT_ANSWER_PARTS))
        return bad(e, "the answers before it are torn");
    *ret = a->all.at;
    return 0;
}

size_t session_answers_so_far(const struct session *s, uint64_t call)
{
    const struct answers_ahead *a = map_get(&s->answers_ahead, key_of(&call));

    return a ? a->all.n : 0;
}

void session_take_answers(struct session *s, uint64_t call)
{
    struct answers_ahead *a = map_get(&s->answers_ahead, key_of(&call));
    struct forest *f = &s->forest;
    size_t before = bytes_of(a);

    arena_take(&f->arena, &a->arena);
    f->top_id = MAX_OF(f->top_id, a->top_id);
    vec_done(&a->payloads);
    s->answers_bytes += bytes_of(a) - before;
}

void session_drop_answers(struct session *s, uint64_t call)
{
    drop(s, call);
    session_drop_blocks(s, call);
}

void session_free_answers(struct session *s)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&s->answers_ahead, &at)))
        free_one(slot->value);
    map_done(&s->answers_ahead);
    session_free_blocks(s);
    s->answers_bytes = 0;
}
