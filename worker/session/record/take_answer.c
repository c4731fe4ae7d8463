/* Makes the fields of a checkpoint from an answer of a record. apply.c sets what all answers of a
 * call have in common, and their links. */
#include "worker/session/record/take_answer.h"

#include "common/base/arena.h"
#include "common/base/err.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/commit_record.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/store.h"
#include "worker/text/request/odds.h"

static int fail_answer(struct err *e, const char *what)
{
    return err_set(e, ERR_IO, "session record: %s", what);
}

static bool is_same_text(struct str a, struct str b)
{
    return !a.p == !b.p && str_eq(a, b);
}

/* Returns the text in the forest's arena: `same`, which is there, if it equals, else a copy. Most
 * texts of an answer are those of the answer before. */
static struct str share_text(struct forest *f, struct str same, struct str text)
{
    return is_same_text(same, text) ? same : forest_text(f, text);
}

/* Like share_text, for the basis of the logprobs. `same` may be NULL. */
static const struct checkpoint_basis *share_basis(struct forest *f,
                                                  const struct checkpoint_basis *same,
                                                  const struct checkpoint_basis *basis)
{
    struct checkpoint_basis *ret;

    if (same && is_same_text(same->reported, basis->reported) &&
        is_same_text(same->asked, basis->asked))
        return same;
    ret = arena_alloc(&f->arena, sizeof(*ret));
    ret->reported = forest_text(f, basis->reported);
    ret->asked = forest_text(f, basis->asked);
    return ret;
}

/* Reads the spans of weight versions. An engine may name more versions than it sampled tokens: the
 * spans of these are empty. */
static int read_versions(struct checkpoint *t, const struct commit_answer *a, struct forest *f,
                         struct err *e)
{
    struct checkpoint_version *v =
        a->n_versions > 0 ? arena_calloc(&f->arena, a->n_versions, sizeof(*v)) : NULL;
    struct record_in r = a->versions;
    struct str same = {0};
    uint32_t at = 0;

    if (f->checkpoints.n > 0 && vec_last(&f->checkpoints)->n_versions > 0)
        same = vec_last(&f->checkpoints)->versions[0].version;
    for (uint32_t i = 0; i < a->n_versions; i++) {
        v[i].version = same = share_text(f, same, record_str(&r));
        v[i].start = record_u32(&r);
        v[i].end = record_u32(&r);
        if (v[i].start < at || v[i].end < v[i].start || v[i].end > t->n || !v[i].version.p)
            return fail_answer(e, "a version span outside the answer");
        at = v[i].end;
    }
    t->n_versions = a->n_versions;
    t->versions = v;
    return 0;
}

/* Returns the positions of the answer's rows of each kind. Returns NULL if its engine was asked for
 * none. */
static struct checkpoint_rows *make_rows(const struct commit_answer *a, struct arena *own)
{
    struct checkpoint_rows *ret = NULL;

    for (int k = 0; k < ROWS_KINDS; k++) {
        const struct token_rows *x = &a->rows[k];

        bool lost = !x->block.p && x->block.len > 0; /* left out of the second copy */

        if (!x->block.p && x->from == 0 && !lost)
            continue;
        if (!ret)
            ret = arena_calloc(own, ROWS_KINDS, sizeof(*ret));
        ret[k] = (struct checkpoint_rows){.has = x->block.p != NULL,
                                          .lost = lost,
                                          .len = lost ? 0 : (uint32_t)x->block.len,
                                          .from = x->from,
                                          .n = lost ? 0 : x->rows,
                                          .layers = x->layers,
                                          .topk = x->topk};
    }
    return ret;
}

int take_answer(struct checkpoint *t, const struct commit_answer *a, unsigned flags,
                struct forest *f, struct err *e)
{
    static const struct checkpoint first;
    const struct checkpoint *last = f->checkpoints.n > 0 ? vec_last(&f->checkpoints) : &first;
    struct checkpoint_basis basis = {.reported = a->basis};
    struct odds odds;
    bool text = flags & COMMIT_TEXT;

    t->n = a->n;
    t->has_logprobs = a->has_logprobs;
    if ((t->n == 0) != text)
        return fail_answer(e, text ? "a text with tokens" : "an answer without tokens");
    if (a->odds.p && odds_read(a->odds, a->n, &odds) != 0)
        return fail_answer(e, "odds of another answer");
    if (read_versions(t, a, f, e) != 0)
        return -1;
    t->cut = a->cut;
    t->finish_reason = share_text(f, last->finish_reason, a->finish_reason);
    t->response_id = forest_text(f, a->response_id);
    t->odds_len = (uint32_t)a->odds.len;
    t->rows = make_rows(a, &f->arena);
    t->queue_us = a->queue_us;
    t->engine_us = a->engine_us;
    t->gateway_us = a->gateway_us;
    if (flags & COMMIT_ASKED)
        basis.asked = a->asked;
    t->basis = share_basis(f, last->basis, &basis);
    t->scored_tokens = a->scored_tokens;
    t->drifted_tokens = a->drifted;
    t->cached_told = a->cached > 0;
    t->cached_tokens = a->cached > 0 ? (uint32_t)(a->cached - 1) : 0;
    return 0;
}

int take_message(struct checkpoint *t, struct session *s, uint64_t call, uint32_t i,
                 struct str text, struct err *e)
{
    struct new_messages *ready = session_ready_answer(s, call, i);

    if (ready) {
        arena_absorb(&s->forest.arena, &ready->copy);
        t->node = ready->nodes[0];
        t->message = t->node->msg.json;
        return 0;
    }
    if (!text.p)
        return fail_answer(e, "a value is missing");
    t->message = message_copy_text(&s->forest.arena, text);
    return t->message ? 0 : fail_answer(e, "a value is not JSON");
}

size_t take_bulk(struct checkpoint *t, struct payload *payload, size_t at)
{
    t->payload = payload;
    t->at = (uint32_t)at;
    return at + (size_t)t->n * (t->has_logprobs ? 8 : 4) + payload_padded(t->odds_len) +
           checkpoint_rows_here(t, ROWS_EXPERTS) + checkpoint_rows_here(t, ROWS_INDEXER);
}

uint32_t take_top(uint32_t top, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        top = MAX_OF(top, (uint32_t)ids[i]);
    return top;
}
