/*
 * Stores the scores of a session (score.h). Wanted scores are options; known scores are a list in
 * the order of their records, which is searched from its end for the newest that fits. A score of a
 * path also counts for each path with which that path begins, as long as no checkpoint in between
 * dropped ids (covers_path), so that a session that continued is not scored again for its earlier
 * part.
 *
 * The record names the head by its number in the forest and repeats its length. Applying it copies
 * the arrays into the forest's arena. They are not payload, so they are not evicted separately.
 */
#include "worker/session/record/score.h"

#include <string.h>

#include "common/codec/json.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/recall.h"
#include "worker/session/store/store.h"
#include "worker/text/tokens/span.h"

static const char *const names[SCORE_KINDS] = {
    [SCORE_TEACHER] = "teacher", [SCORE_REFERENCE] = "reference", [SCORE_SELF] = "self"};

/* --- wanted scores --- */

static int bad_want(struct err *e, const char *why)
{
    return err_field(e, "score", "score: %s", why);
}

static int read_what(struct str given, enum score_what *ret, struct err *e)
{
    *ret = (enum score_what)str_index(given, names, SCORE_KINDS);
    return *ret < SCORE_KINDS ? 0 : bad_want(e, "\"what\" must be one of teacher, reference, self");
}

static int read_want(const struct json *v, struct score_want *ret, struct err *e)
{
    const struct json *top = json_get(v, "top_k"), *what = json_get(v, "what");
    int64_t n = 0;

    *ret = (struct score_want){.engine = json_string(json_get(v, "engine"))};
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++) {
        struct str name = json_string(&v->members[i].key);

        if (!str_eq_c(name, "engine") && !str_eq_c(name, "top_k") && !str_eq_c(name, "what"))
            return bad_want(e, "an entry holds engine, top_k and what alone");
    }
    if (ret->engine.len == 0)
        return bad_want(e, "each entry must be an object with \"engine\", the name of a scorer");
    if (!json_is_null(top) && (json_to_i64(top, &n) || n < 0 || n > SCORE_TOP_MAX))
        return bad_want(e, "\"top_k\" must be an integer of 0 to 128");
    ret->top_k = (uint32_t)n;
    return json_is_null(what) ? 0 : read_what(json_string(what), &ret->what, e);
}

int score_wants_read(const struct json *v, struct score_wants *ret, struct err *e)
{
    *ret = (struct score_wants){0};
    if (json_is_null(v))
        return 0;
    if (!json_is(v, JSON_ARRAY))
        return bad_want(e, "must be a list of objects");
    for (uint32_t i = 0; i < v->n; i++) {
        struct score_want w;

        if (read_want(&v->items[i], &w, e))
            return -1;
        for (size_t k = 0; k < ret->n; k++)
            if (ret->at[k].what == w.what)
                return bad_want(e, "two entries have the same \"what\"");
        ret->at[ret->n++] = w;
    }
    return 0;
}

struct score_wants session_score_wants(const struct session *s)
{
    struct score_wants w;
    struct err unused;

    if (score_wants_read(s->options.score, &w, &unused))
        return (struct score_wants){0};
    return w;
}

/* --- known scores --- */

/* Reports whether the path of the score begins with the path that ends in `head`, and no later
 * checkpoint dropped any of its ids. */
static bool covers_path(const struct score *x, const struct checkpoint *head)
{
    const struct checkpoint *t = x->head;

    while (t && t != head) {
        if (t->parent == head && t->trim > 0)
            return false;
        t = t->parent;
    }
    return t != NULL;
}

size_t session_scores(const struct session *s)
{
    return s->scores.n;
}

const struct score *session_score(const struct session *s, const struct checkpoint *head,
                                  enum score_what what, size_t n)
{
    for (size_t i = MIN_OF(n, s->scores.n); i-- > 0;) {
        const struct score *x = &s->scores.at[i];

        if (x->what == what && covers_path(x, head))
            return x;
    }
    return NULL;
}

/* Reports whether the path has a score of that engine with as many alternatives. */
static bool has_wanted(const struct session *s, const struct checkpoint *head,
                       const struct score_want *w)
{
    for (size_t i = 0; i < s->scores.n; i++) {
        const struct score *x = &s->scores.at[i];

        if (x->what == w->what && x->top_k == w->top_k && str_eq(x->engine, w->engine) &&
            covers_path(x, head))
            return true;
    }
    return false;
}

static bool lacks_score(const struct session *s, const struct branch_vec *b,
                        const struct score_want *w, struct score *ret)
{
    for (size_t i = 0; i < b->n; i++) {
        struct checkpoint *head = b->at[i].head;

        if (head->text || has_wanted(s, head, w))
            continue;
        *ret =
            (struct score){.what = w->what, .engine = w->engine, .top_k = w->top_k, .head = head};
        return true;
    }
    return false;
}

bool session_shows_images(const struct session *s)
{
    return s->forest.has_images;
}

bool session_unscored(struct session *s, const struct score_wants *wants, struct score *ret)
{
    struct branch_vec b = {0};
    bool found = false;

    session_branches(s, &b);
    for (size_t i = 0; i < wants->n && !found; i++)
        found = lacks_score(s, &b, &wants->at[i], ret);
    vec_done(&b);
    return found;
}

int session_score_ids(const struct score *of, struct session *s, struct arena *a,
                      struct token_span *ret_ids, struct err *e)
{
    struct recall r = {.session = s, .holds = true};
    int32_t *ids;
    int rc;

    recall_path(&r, of->head);
    rc = recall_read(&r, e);
    if (rc == 0) {
        ids = arena_alloc(a, of->head->total * sizeof(*ids));
        checkpoint_copy(of->head, ids);
        *ret_ids = (struct token_span){ids, of->head->total};
    }
    recall_done(&r);
    return rc;
}

/* --- records --- */

void session_score_record(const struct session *s, const struct score *score, uint64_t now_ms,
                          struct buf *record)
{
    size_t n = score->head->total, tops = n * score->top_k;

    record_begin(record, RECORD_SCORE, s->id, now_ms);
    record_put_u(record, score->what);
    record_put_str(record, score->engine);
    record_put_u(record, score->top_k);
    record_put_u(record, score->head->id);
    record_put_u(record, n);
    record_put_floats(record, score->logprobs, n);
    record_put_ids(record, (struct token_span){score->top_ids, tops});
    record_put_floats(record, score->top_logprobs, tops);
}

static const void *copy_cells(struct session *s, const char *p, size_t cells)
{
    void *to = arena_alloc(&s->forest.arena, cells * 4 + 1);

    if (cells > 0)
        memcpy(to, p, cells * 4);
    return to;
}

int session_apply_score(struct session *s, struct record_in *r, struct err *e)
{
    uint64_t what = record_u(r);
    struct str engine = record_str(r);
    uint32_t top_k = record_u32(r), id = record_u32(r), n = record_u32(r), tops = 0;
    const char *logprobs = record_floats(r, n), *ids = record_ids(r, &tops);
    const char *top_logprobs = record_floats(r, tops);
    struct checkpoint *head = NULL;

    if (id < s->forest.checkpoints.n)
        head = s->forest.checkpoints.at[id];
    if (r->bad || r->p != r->end || what >= SCORE_KINDS || !head || head->total != n ||
        (uint64_t)n * top_k != tops)
        return err_set(e, ERR_IO, "session record: a score of an unknown form");
    *vec_push(&s->scores) = (struct score){.what = (enum score_what)what,
                                           .engine = forest_text(&s->forest, engine),
                                           .top_k = top_k,
                                           .head = head,
                                           .logprobs = copy_cells(s, logprobs, n),
                                           .top_ids = copy_cells(s, ids, tops),
                                           .top_logprobs = copy_cells(s, top_logprobs, tops)};
    return 0;
}
