/* The ids that follow an answer (model_suffix). suffix_text.c finds the text from the answer to the
 * position where the engine continues. Here it is encoded together with the token that ended the
 * answer (the anchor), because a tokenizer may merge across that border. */

#include "worker/text/model/suffix_text.h"

#include <string.h>

#include "common/base/vec.h"
#include "worker/text/model/pictures.h"
#include "worker/text/request/chat.h"

/* Returns the stop token that ended the turn; NULL if the turn was cut. */
static const struct stop *end_of(const struct model *m, const struct model_tail *tail)
{
    if (tail->cut || tail->last.n == 0)
        return NULL;
    for (size_t i = 0; i < m->n_stops; i++) {
        if (m->stops[i].id == tail->last.at[tail->last.n - 1])
            return &m->stops[i];
    }
    return NULL;
}

/* Appends the ids of a text as they are when it follows the anchor token. */
static int encode_behind(struct model_scratch *s, const struct stop *anchor, struct str text,
                         struct token_vec *out, struct err *e)
{
    struct str joined = text;
    size_t skip;

    vec_clear(&s->ids);
    if (anchor)
        joined = suffix_join(&s->arena, anchor->text, text);
    if (may_leave(s, joined, e) != 0 || pictures_encode(s, joined, &s->ids, e) != 0)
        return -1;
    if (anchor && (s->ids.n == 0 || s->ids.at[0] != anchor->id))
        return encode_behind(s, NULL, text, out, e);
    skip = anchor ? 1 : 0;
    vec_reserve(out, s->ids.n + 1);
    if (s->ids.n > skip)
        memcpy(out->at + out->n, s->ids.at + skip, (s->ids.n - skip) * sizeof(*out->at));
    out->n += s->ids.n - skip;
    return 0;
}

/* Returns the number of ids that belong to the close: those that it has when it is encoded
 * alone. */
static int count_close(struct model_scratch *s, const struct suffix_text *p,
                       const struct token_vec *ids, uint32_t *ret, struct err *e)
{
    struct token_vec close = {0};
    int rc = 0;

    *ret = 0;
    if (p->close.len) {
        rc = encode_behind(s, p->anchor, p->close, &close, e);
        while (*ret < close.n && *ret < ids->n && close.at[*ret] == ids->at[*ret])
            ++*ret;
    }
    vec_done(&close);
    return rc;
}

static int make_suffix(struct model_scratch *s, const struct chat *chat, size_t covered,
                       struct suffix_turn turn, struct model_suffix *ret, struct err *e)
{
    struct suffix_text x;
    int rc;

    if (suffix_text(s, chat, covered, turn, &x, e) != 0)
        return -1;
    ret->rewrites = x.rewrites;
    ret->trim = x.trim;
    ret->audit = x.audit;
    rc = encode_behind(s, x.anchor, suffix_join(&s->arena, x.close, x.next), &ret->ids, e);
    if (rc == 0)
        rc = count_close(s, &x, &ret->ids, &ret->close, e);
    if (rc != 0)
        vec_done(&ret->ids);
    return rc;
}

/* All seven parameters are needed by sessions. NOLINTNEXTLINE */
int model_suffix(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 size_t covered, const struct model_tail *tail, struct model_suffix *ret,
                 struct err *e)
{
    int rc;

    *ret = (struct model_suffix){0};
    if (covered == 0 || !json_at(chat->messages, covered - 1))
        return err_set(e, ERR_INTERNAL, "a suffix needs a covered assistant message");
    rc = make_suffix(s, chat, covered, (struct suffix_turn){end_of(m, tail), tail->added}, ret, e);
    scratch_release(s);
    return rc;
}

enum { ENDING_IDS = 64 }; /* last ids of an answer in which its stop string is searched */

bool model_ends_at(const struct model *m, struct token_span last, struct str stop, struct arena *a,
                   struct str *ret_after)
{
    size_t n = MIN_OF(last.n, (size_t)ENDING_IDS), before, at;
    struct buf text = {0}, shorter = {0};

    *ret_after = (struct str){0};
    if (n == 0 || !m->boundaries.joins_texts || end_of(m, &(struct model_tail){.last = last}))
        return false;
    tokenizer_decode(m->tokenizer, last.at + last.n - n, n, false, &text);
    tokenizer_decode(m->tokenizer, last.at + last.n - n, n - 1, false, &shorter);
    before = MIN_OF(shorter.len, text.len);
    at = str_find(buf_str(&text), stop, before + 1 > stop.len ? before + 1 - stop.len : 0);
    if (at != SIZE_MAX)
        *ret_after = arena_str(a, str_sub(buf_str(&text), at + stop.len, text.len));
    buf_done(&text);
    buf_done(&shorter);
    return at != SIZE_MAX;
}
