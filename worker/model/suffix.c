#include "worker/model/standin.h"

#include "common/base/vec.h"

/* Where the last stop token ends in text; 0 when there is none. *begin: where it starts. */
static size_t last_stop(const struct model *m, struct str text, size_t *begin)
{
    size_t end = 0;

    for (size_t i = 0; i < m->n_stops; i++) {
        struct str token = m->stops[i].text;
        size_t at = 0;

        while (token.len && (at = str_find(text, token, at)) != SIZE_MAX) {
            if (at + token.len > end) {
                *begin = at;
                end = at + token.len;
            }
            at += token.len;
        }
    }
    return end;
}

/* The stop token that the turn ended with; NULL when it was cut. */
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

static struct str join(struct arena *a, struct str x, struct str y)
{
    char *p = arena_alloc(a, x.len + y.len + 1);

    if (x.len)
        memcpy(p, x.p, x.len);
    if (y.len)
        memcpy(p + x.len, y.p, y.len);
    return str_of(p, x.len + y.len);
}

struct suffix_plan {
    const struct stop *anchor; /* the token right before the suffix, if it is a stop token */
    struct str close, next;
    bool trim;
};

/* Decides what of the template's closing the checkpoint has already. */
static struct suffix_plan decide(const struct model *m, const struct standin *x,
                                 const struct stop *stop, bool has_calls)
{
    struct suffix_plan p = {.close = x->closing, .next = x->next};
    size_t begin = 0, end = last_stop(m, x->closing, &begin);

    if (x->replaced)
        end = x->closing.len;
    if (stop && stop->opener) {
        /* It begins what follows: the template writes it (or another opener) again. */
        p.trim = true;
        p.close = STR("");
        return p;
    }
    if (end == 0 && stop && str_starts(x->next, stop->text)) {
        /* The template closes a turn only when something follows. */
        p.anchor = stop;
        p.close = STR("");
        p.next = str_sub(x->next, stop->text.len, x->next.len);
        return p;
    }
    p.anchor = stop;
    if (end > 0)
        p.close = str_sub(x->closing, stop ? end : begin, x->closing.len);
    else if (has_calls) /* before the close: the rest of the call's syntax, the model's own */
        p.close = str_ends(x->closing, m->boundaries.close) ? m->boundaries.close : STR("");
    return p;
}

/* Appends the ids of text as they come out behind the anchor token. */
static int encode_behind(struct model_scratch *s, const struct stop *anchor, struct str text,
                         struct token_vec *out, struct err *e)
{
    struct str joined = text;

    vec_clear(&s->ids);
    if (anchor)
        joined = join(&s->arena, anchor->text, text);
    if (may_fit(s, joined, e) != 0 || encoder_encode(s->encoder, joined, false, &s->ids, e) != 0)
        return -1;
    if (anchor && (s->ids.n == 0 || s->ids.at[0] != anchor->id))
        return encode_behind(s, NULL, text, out, e);
    vec_reserve(out, s->ids.n + 1);
    for (size_t i = anchor ? 1 : 0; i < s->ids.n; i++)
        *vec_push(out) = s->ids.at[i];
    return 0;
}

/* How many of ids are the close: those that it gives when it stands alone. */
static int count_close(struct model_scratch *s, const struct suffix_plan *p,
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

/* The template refused the stand-in: render what is covered and all, and take the difference.
 * Exact as well, but it costs the history. */
static int from_full(const struct model *m, struct model_scratch *s, const struct chat *chat,
                     size_t covered, struct standin *ret, struct err *e)
{
    struct rendering r = {.messages = chat->messages->items,
                          .n = (uint32_t)covered,
                          .tools = chat->tools,
                          .kwargs = chat->kwargs};
    struct str whole, more;
    size_t n = 0;

    buf_clear(&s->a);
    buf_clear(&s->b);
    if (model_text(m, &s->arena, &r, &s->a, e) != 0)
        return -1;
    r.n = chat->messages->n;
    r.generation_prompt = true;
    if (model_text(m, &s->arena, &r, &s->b, e) != 0)
        return -1;
    whole = buf_str(&s->a);
    more = buf_str(&s->b);
    while (n < whole.len && n < more.len && whole.p[n] == more.p[n])
        n++;
    *ret = (struct standin){.next = str_sub(more, n, more.len), .rewrites = n < whole.len};
    if (n == whole.len) { /* what closes the turn is known from its end */
        struct str close = m->boundaries.close;

        if (close.len && str_ends(whole, close))
            ret->closing = str_sub(whole, whole.len - close.len, close.len);
        return 0;
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "the chat template rewrites earlier turns and refuses a stand-in");
}

/* The turn without its thought, and without text beside calls: what every template takes. */
static struct json bare_turn(struct arena *a, const struct json *last)
{
    const struct json *calls = json_get(last, "tool_calls");
    struct json o = make_object(a, 3);

    object_put(&o, "role", json_make_string(STR("assistant")));
    object_put(&o, "content", json_make_string(calls ? STR("") : STR("x")));
    if (calls)
        object_put(&o, "tool_calls", *calls);
    return o;
}

bool model_renders_all(const struct model *m)
{
    return !m->boundaries.renders || m->boundaries.counts_turns;
}

/* The stand-in's way, then the long way, then barer stand-ins: a template that takes neither of
 * the first two does rewrite. */
static int split_texts(struct model_scratch *s, const struct chat *chat, size_t covered,
                       const struct standin_in *in, struct standin *ret, struct err *e)
{
    struct json bare = bare_turn(&s->arena, in->last);
    const struct model *m = s->model;
    struct standin_in simple = *in;

    if ((!model_renders_all(m) && standin_render(m, s, in, ret, NULL) == 0) ||
        from_full(m, s, chat, covered, ret, e) == 0)
        return 0;
    simple.last = &bare;
    simple.earlier = NULL;
    if (standin_render(m, s, &simple, ret, NULL) != 0) {
        bare = make_text(&s->arena, "role", "assistant", "content", "x");
        if (standin_render(m, s, &simple, ret, NULL) != 0)
            return -1;
    }
    ret->rewrites = true;
    return 0;
}

/* Seven parameters: the seam to sessions names them all. NOLINTNEXTLINE */
int model_suffix(const struct model *m, struct model_scratch *s, const struct chat *chat,
                 size_t covered, const struct model_tail *tail, struct model_suffix *ret,
                 struct err *e)
{
    const struct json *last = json_at(chat->messages, covered - 1);
    const struct json *calls = json_get(last, "tool_calls");
    struct standin_in in = {.last = last, .tools = chat->tools, .kwargs = chat->kwargs};
    struct standin x;
    struct suffix_plan p;
    int rc;

    *ret = (struct model_suffix){0};
    if (!last || covered > chat->messages->n)
        return err_set(e, ERR_INTERNAL, "a suffix needs a covered assistant message");
    arena_reset(&s->arena);
    in.messages = chat->messages->items + covered;
    in.n = chat->messages->n - (uint32_t)covered;
    standin_look_back(m, &s->arena, chat->messages, covered, &in);
    if (split_texts(s, chat, covered, &in, &x, e) != 0)
        return -1;
    p = decide(m, &x, end_of(m, tail), json_is(calls, JSON_ARRAY) && calls->n > 0);
    ret->rewrites = x.rewrites;
    ret->trim = p.trim;
    rc = encode_behind(s, p.anchor, join(&s->arena, p.close, p.next), &ret->ids, e);
    if (rc == 0)
        rc = count_close(s, &p, &ret->ids, &ret->close, e);
    if (rc != 0)
        vec_done(&ret->ids);
    return rc;
}
