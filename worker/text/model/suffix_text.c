/* The text between an answer and the position where the engine continues (suffix_text.h). The whole
 * chat is long, but the text after an answer depends on little of it. So three ways are tried, the
 * cheapest first:
 *
 *   from_standin   a short chat in which marks replace the covered messages
 *   from_history   the whole chat with and without the new messages; or real messages before a
 *                  marked turn
 *   from_bare      a turn without thought and texts, for templates that refuse the others
 *
 * decide_closing() then removes what the checkpoint has already, from the token with which the
 * answer ended. The audit compares the result with the rendering of the whole chat. If they differ,
 * the whole chat is used, also for later calls (model_distrusts). */

#include "worker/text/model/suffix_text.h"

#include "worker/text/model/standin.h"
#include "worker/text/request/chat.h"

enum { CLOSE_MAX = 128 };

/* Returns the end of the last stop token in the text; 0 if there is none. *begin: its start. */
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

struct str suffix_join(struct arena *a, struct str x, struct str y)
{
    char *p = arena_alloc(a, x.len + y.len + 1);

    if (x.len)
        memcpy(p, x.p, x.len);
    if (y.len)
        memcpy(p + x.len, y.p, y.len);
    return str_of(p, x.len + y.len);
}

/* Decides which part of the template's closing the checkpoint has already. It has none of the text
 * that the client added. */
static struct suffix_text decide_closing(const struct model *m, const struct standin *x,
                                         const struct suffix_turn *turn, bool has_calls)
{
    const struct stop *stop = turn->stop;
    struct suffix_text p = {
        .close = x->closing, .next = x->next, .rewrites = x->rewrites, .bare = x->bare};
    size_t begin = 0, end = last_stop(m, x->closing, &begin);

    if (turn->added.len)
        return p;
    if (x->replaced)
        end = x->closing.len;
    if (stop && stop->opener) {
        /* The token begins the next turn: the template writes it (or a different opener) again. */
        p.trim = true;
        p.close = STR("");
        return p;
    }
    if (end == 0 && stop && str_starts(x->next, stop->text)) {
        /* The template closes a turn only when a message follows. */
        p.anchor = stop;
        p.close = STR("");
        p.next = str_sub(x->next, stop->text.len, x->next.len);
        return p;
    }
    p.anchor = stop;
    if (end > 0)
        p.close = str_sub(x->closing, stop ? end : begin, x->closing.len);
    /* the text before the close is the rest of the call's syntax, which the model wrote */
    else if (has_calls)
        p.close = str_ends(x->closing, m->boundaries.close) ? m->boundaries.close : STR("");
    return p;
}

/* --- the whole chat --- */

/* Renders the first n messages, with the generation prompt if `prompt` is set. */
static int whole_chat(struct model_scratch *s, const struct chat *chat, size_t n, bool prompt,
                      struct buf *out, struct err *e)
{
    struct rendering r = {.messages = chat->messages->items,
                          .n = (uint32_t)n,
                          .tools = chat->tools,
                          .kwargs = chat->kwargs,
                          .generation_prompt = prompt,
                          .seconds = s->seconds};

    buf_clear(out);
    return model_text(s->model, &s->arena, &r, out, e);
}

/* Finds the last occurrence; SIZE_MAX if there is none. */
static size_t find_last(struct str text, struct str what)
{
    size_t at = 0, ret = SIZE_MAX;

    while (what.len && (at = str_find(text, what, at)) != SIZE_MAX)
        ret = at++;
    return ret;
}

/* Finds the closing of the last turn in its rendering: the text after its content, or from its last
 * stop token on, or the closing of a plain answer. */
static struct str close_of(const struct model *m, struct str answer, const struct json *last)
{
    struct str says = str_trim(json_string(json_get(last, "content")));
    size_t begin = 0, at = json_get(last, "tool_calls") ? SIZE_MAX : find_last(answer, says);

    if (at != SIZE_MAX)
        return str_sub(answer, at + says.len, answer.len);
    if (last_stop(m, answer, &begin))
        return str_sub(answer, begin, answer.len);
    return str_ends(answer, m->boundaries.close) ? m->boundaries.close : STR("");
}

/* Uses no stand-in: renders the covered messages and all messages; the suffix is the difference. */
static int from_full(struct model_scratch *s, const struct chat *chat, size_t covered,
                     struct standin *ret, struct err *e)
{
    struct str whole, more;
    size_t begin = 0;

    if (s->model->boundaries.hides[ROLE_ASSISTANT])
        return err_set(e, ERR_UNSUPPORTED, "the chat template does not show assistant turns");
    if (whole_chat(s, chat, covered - 1, true, &s->b, e) != 0 ||
        whole_chat(s, chat, covered, false, &s->a, e) != 0)
        return -1;
    while (begin < s->a.len && begin < s->b.len && s->a.p[begin] == s->b.p[begin])
        begin++;
    if (whole_chat(s, chat, chat->messages->n, true, &s->b, e) != 0)
        return -1;
    whole = buf_str(&s->a);
    more = buf_str(&s->b);
    if (!str_starts(more, whole))
        return err_set(e, ERR_UNSUPPORTED,
                       "the chat template rewrites earlier turns and refuses a stand-in");
    *ret = (struct standin){.next = str_sub(more, whole.len, more.len),
                            .closing = close_of(s->model, str_sub(whole, begin, whole.len),
                                                json_at(chat->messages, covered - 1))};
    return 0;
}

/* --- how many messages are real --- */

/* Copies the turn without its thought, and without text next to calls. Every template accepts
 * that. */
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

bool model_is_slow(const struct model *m)
{
    return model_distrusts(m) || atomic_load_explicit(&m->learned->slow, memory_order_relaxed);
}

/* Uses stand-ins, then stand-ins with real tools and system messages. */
static int from_standin(struct model_scratch *s, const struct chat *chat, size_t covered,
                        const struct standin_in *in, struct standin *ret)
{
    const struct model *m = s->model;
    struct standin_in real = *in;

    if (model_distrusts(m) || model_renders_all(m))
        return -1;
    if (standin_clean(m, s, in, ret, NULL) == 0)
        return 0;
    if (in->real_tools && in->real_system)
        return -1;
    real.real_tools = real.real_system = true;
    real.n_system = real.n_first = 0;
    real.earlier = NULL;
    standin_find_earlier(&s->arena, chat->messages, covered, true, &real);
    return standin_clean(m, s, &real, ret, NULL);
}

/* Uses the whole chat unchanged. If the template rewrites, uses the real messages before the last
 * turn, with marks for that turn's texts. */
static int from_history(struct model_scratch *s, const struct chat *chat, size_t covered,
                        const struct standin_in *in, struct standin *ret, struct err *e)
{
    struct standin_in real = *in;

    real.history = chat->messages->items;
    real.n_history = (uint32_t)covered - 1;
    if (from_full(s, chat, covered, ret, e) == 0 ||
        standin_clean(s->model, s, &real, ret, NULL) == 0)
        return 0;
    return -1;
}

/* Uses stand-ins with less content. A template that accepted none of the others rewrites earlier
 * turns. */
static int from_bare(struct model_scratch *s, const struct standin_in *in, struct standin *ret,
                     struct err *e)
{
    struct json bare = bare_turn(&s->arena, in->last);
    struct standin_in simple = *in;
    struct err why;

    simple.last = &bare;
    simple.earlier = NULL;
    simple.real_tools = simple.real_system = true;
    if (standin_clean(s->model, s, &simple, ret, NULL) != 0) {
        bare = make_text(&s->arena, "role", "assistant", "content", "x");
        if (standin_clean(s->model, s, &simple, ret, &why) != 0) {
            if (why.kind == ERR_PROMPT_LEAK)
                *e = why;
            return -1;
        }
    }
    ret->rewrites = ret->bare = true;
    return 0;
}

/* --- the audit --- */

/* Reports whether the rendering of the whole chat ends with the text, right after the token that
 * ended the checkpoint, if the template writes that token. */
static bool ends_so(struct str full, const struct suffix_text *x, const struct stop *stop)
{
    struct str before;
    size_t begin;

    if (!str_ends(full, x->next))
        return false;
    if (x->bare)
        return true;
    full.len -= x->next.len;
    if (!str_ends(full, x->close))
        return false;
    full.len -= x->close.len;
    if (!stop || x->trim || !stop->text.len || str_ends(full, stop->text))
        return true;
    before = str_sub(full, full.len > CLOSE_MAX ? full.len - CLOSE_MAX : 0, full.len);
    begin = find_last(before, stop->text);
    /* more than the white space of a close follows: the template does not write the token here */
    return begin == SIZE_MAX ||
           str_trim(str_sub(before, begin + stop->text.len, before.len)).len > 0;
}

struct suffix_job {
    struct model_scratch *s;
    const struct chat *chat;
    size_t covered;
    struct suffix_turn turn;
    bool has_calls;
};

/* Copies the texts, which must outlive the buffers of the renderings. */
static void copy_texts(const struct suffix_job *j, const struct standin *x, struct suffix_text *ret)
{
    struct arena *a = &j->s->arena;

    *ret = decide_closing(j->s->model, x, &j->turn, j->has_calls);
    ret->close = arena_str(a, ret->close);
    ret->next = arena_str(a, ret->next);
}

/* Compares the text with the rendering of the whole chat, and finds a better text if they
 * differ. */
static void audit_suffix(const struct suffix_job *j, const struct standin_in *in,
                         struct suffix_text *ret)
{
    struct model_scratch *s = j->s;
    struct suffix_text better;
    struct standin x = {0};

    if (whole_chat(s, j->chat, j->chat->messages->n, true, &s->full, NULL) != 0)
        return;
    ret->audit = MODEL_AUDIT_SAME;
    if (ends_so(buf_str(&s->full), ret, j->turn.stop))
        return;
    ret->audit = MODEL_AUDIT_DIFFERS;
    if (!in->added.len && from_history(s, j->chat, j->covered, in, &x, NULL) == 0) {
        copy_texts(j, &x, &better);
        better.audit = MODEL_AUDIT_DIFFERS;
        if (ends_so(buf_str(&s->full), &better, j->turn.stop)) {
            model_distrust(s->model, true);
            *ret = better;
        }
    }
}

/* Returns -1 and e if the template accepts no way. */
int suffix_text(struct model_scratch *s, const struct chat *chat, size_t covered,
                struct suffix_turn turn, struct suffix_text *ret, struct err *e)
{
    const struct boundaries *b = &s->model->boundaries;
    const struct json *last = json_at(chat->messages, covered - 1);
    const struct json *calls = json_get(last, "tool_calls");
    struct suffix_job j = {s, chat, covered, turn, json_is(calls, JSON_ARRAY) && calls->n > 0};
    struct standin_in in = {.last = last,
                            .added = turn.added,
                            .tools = chat->tools,
                            .kwargs = chat->kwargs,
                            .real_tools = b->tools_in_suffix,
                            .real_system = b->system_in_suffix,
                            .messages = chat->messages->items + covered,
                            .n = chat->messages->n - (uint32_t)covered};
    struct standin x = {0};

    arena_reset(&s->arena);
    s->seconds = time(NULL);
    standin_find_earlier(&s->arena, chat->messages, covered, in.real_system, &in);
    if (from_standin(s, chat, covered, &in, &x) != 0) {
        if (turn.added.len)
            return err_set(e, ERR_UNSUPPORTED, "the chat template refuses a stand-in");
        if (from_history(s, chat, covered, &in, &x, e) != 0 && from_bare(s, &in, &x, e) != 0)
            return -1;
    }
    copy_texts(&j, &x, ret);
    if (s->audits)
        audit_suffix(&j, &in, ret);
    return 0;
}
