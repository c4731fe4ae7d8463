/* A short chat that replaces a long one for rendering (standin.h). It consists of marks, words that
 * are drawn at random when the model is loaded, so that they occur in no prompt. It is rendered up
 * to the last covered turn, and again with the new messages. split_renderings() compares the texts
 * after that turn's mark:
 *
 *   whole   ... MARK closing
 *   more    ... MARK closing next          common part: closing, the rest: next
 *
 * A mark in closing or next would reach the engine, so standin_clean refuses such a result. */

#include "worker/text/model/standin.h"

#include <strings.h>
#include <sys/random.h>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "worker/text/model/standin_memo.h"

enum { LOOK_BACK_MAX = 64, CALLS_MAX = 8, HEAD_MAX = CALLS_MAX + 7, TOKEN_MAX = 64 };

/* --- the mark --- */

/* position of a digit, which is searched first because letter case cannot change it */
enum { MARK_DIGIT = 2 };

void standin_draw_mark(struct model *m)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char r[MODEL_MARK_LEN] = {0};

    /* if this fails, the mark is the same at each load, and still no word of a prompt */
    (void)!getrandom(r, sizeof(r), GRND_NONBLOCK);
    m->mark[0] = 'r';
    m->mark[1] = 'g';
    for (size_t i = MARK_DIGIT; i < MODEL_MARK_LEN; i++)
        m->mark[i] = letters[r[i] % (i == MARK_DIGIT ? 10 : sizeof(letters) - 1)];
    m->mark[MODEL_MARK_LEN] = 0;
}

bool standin_marked(const struct model *m, struct str text)
{
    size_t at = MARK_DIGIT;

    while (at + MODEL_MARK_LEN <= text.len + MARK_DIGIT) {
        const char *digit = memchr(text.p + at, m->mark[MARK_DIGIT], text.len - at);

        if (!digit)
            return false;
        at = (size_t)(digit - text.p);
        if (at - MARK_DIGIT + MODEL_MARK_LEN <= text.len &&
            strncasecmp(digit - MARK_DIGIT, m->mark, MODEL_MARK_LEN) == 0)
            return true;
        at++;
    }
    return false;
}

/* Makes the stand-in of a text: the mark and a letter that identifies the text, then `added`. */
static struct json make_marked_with(const struct model *m, struct arena *a, char which,
                                    struct str added)
{
    char *text = arena_alloc(a, MODEL_MARK_LEN + 1 + added.len);

    memcpy(text, m->mark, MODEL_MARK_LEN);
    text[MODEL_MARK_LEN] = which;
    if (added.len)
        memcpy(text + MODEL_MARK_LEN + 1, added.p, added.len);
    return json_make_string(str_of(text, MODEL_MARK_LEN + 1 + added.len));
}

static struct json make_marked(const struct model *m, struct arena *a, char which)
{
    return make_marked_with(m, a, which, (struct str){0});
}

enum { TURN = 'T', THOUGHT = 'H', EARLIER = 'E', USER = 'U', SYSTEM = 'S', RESULT = 'R' };

/* --- looking back --- */

static bool is_role(const struct json *msg, const char *role)
{
    return str_eq_c(json_string(json_get(msg, "role")), role);
}

static bool has_text(const struct json *msg, const char *key)
{
    return json_string(json_get(msg, key)).len > 0;
}

static bool has_calls(const struct json *msg)
{
    const struct json *calls = json_get(msg, "tool_calls");

    return json_is(calls, JSON_ARRAY) && calls->n > 0;
}

static bool is_system(const struct json *msg)
{
    return is_role(msg, "system") || is_role(msg, "developer");
}

/* Collects the system messages among the first n. n_first: number of those at the very
 * beginning. */
static void collect_system(struct arena *a, const struct json *messages, size_t n,
                           struct standin_in *ret)
{
    struct json *at = arena_alloc(a, n * sizeof(*at));

    for (size_t i = 0; i < n; i++) {
        if (!is_system(&messages->items[i]))
            continue;
        ret->n_first += ret->n_system == i;
        at[ret->n_system++] = messages->items[i];
    }
    ret->system = at;
}

/* Reports whether a message may have a thought or calls, by the lengths of its keys. Most messages
 * of a long chat need no further check. */
static bool may_say_more(const struct json *msg)
{
    for (uint32_t i = 0; json_is(msg, JSON_OBJECT) && i < msg->n; i++)
        if (msg->members[i].key.n == strlen("tool_calls") ||
            msg->members[i].key.n == strlen("reasoning_content"))
            return true;
    return false;
}

/* An earlier turn matters if it has a thought, or text next to calls, because templates drop these
 * later. */
void standin_find_earlier(struct arena *a, const struct json *messages, size_t covered,
                          bool all_system, struct standin_in *ret)
{
    bool user = false;
    size_t n = 0;

    collect_system(a, messages, all_system ? covered : MIN_OF(covered, 1U), ret);
    for (size_t i = covered - 1; i-- > 0 && n < LOOK_BACK_MAX && !ret->earlier; n++) {
        const struct json *msg = &messages->items[i];

        user = user || is_role(msg, "user");
        if (may_say_more(msg) && is_role(msg, "assistant") &&
            (has_text(msg, "reasoning_content") || (has_calls(msg) && has_text(msg, "content")))) {
            ret->earlier = msg;
            ret->user_between = user;
        }
    }
}

struct json standin_tools(struct arena *a, const char *name)
{
    struct json list = {.kind = JSON_ARRAY, .n = 1}, tool, function, parameters;

    parameters = make_object(a, 2);
    object_put(&parameters, "type", json_make_string(STR("object")));
    object_put(&parameters, "properties", make_object(a, 0));
    function = make_object(a, 3);
    object_put(&function, "name", json_make_string(str_cstr(name)));
    object_put(&function, "description", json_make_string(str_cstr(name)));
    object_put(&function, "parameters", parameters);
    tool = make_object(a, 2);
    object_put(&tool, "type", json_make_string(STR("function")));
    object_put(&tool, "function", function);
    list.items = arena_alloc(a, sizeof(*list.items));
    list.items[0] = tool;
    return list;
}

/* --- making the chat --- */

/* Makes one call whose argument is a mark. */
static struct json make_call(const struct model *m, struct arena *a, struct json id,
                             struct json name, char which)
{
    struct json call = make_object(a, 3), function = make_object(a, 2);
    struct json arguments = make_object(a, 1);

    object_put(&arguments, m->mark, make_marked(m, a, which));
    object_put(&function, "name", name);
    object_put(&function, "arguments", arguments);
    object_put(&call, "id", id);
    object_put(&call, "type", json_make_string(STR("function")));
    object_put(&call, "function", function);
    return call;
}

/* Copies the calls of the real turn: the same ids and names, other arguments. */
static struct json copy_calls(const struct model *m, struct arena *a, const struct json *calls,
                              char which)
{
    struct json list = {.kind = JSON_ARRAY, .n = calls->n};

    list.items = arena_alloc(a, calls->n * sizeof(*list.items));
    for (uint32_t i = 0; i < calls->n; i++) {
        const struct json *id = json_get(&calls->items[i], "id");
        const struct json *name = json_get(json_get(&calls->items[i], "function"), "name");

        list.items[i] = make_call(m, a, id ? *id : json_make_string(str_cstr(m->mark)),
                                  name ? *name : json_make_string(str_cstr(m->mark)), which);
    }
    return list;
}

/* Copies the turn with marks for its texts. An answer without calls always gets a text, with
 * `added` after it. */
static struct json copy_turn(const struct model *m, struct arena *a, const struct json *turn,
                             char which, struct str added)
{
    bool says = has_text(turn, "content") || !has_calls(turn);
    struct json o = make_object(a, 4);

    object_put(&o, "role", json_make_string(STR("assistant")));
    object_put(&o, "content",
               says ? make_marked_with(m, a, which, added) : json_make_string(STR("")));
    if (has_text(turn, "reasoning_content"))
        object_put(&o, "reasoning_content", make_marked(m, a, THOUGHT));
    if (has_calls(turn))
        object_put(&o, "tool_calls", copy_calls(m, a, json_get(turn, "tool_calls"), which));
    return o;
}

/* Makes the result of a call. */
static struct json make_result(const struct model *m, struct arena *a, const struct json *call)
{
    const struct json *id = json_get(call, "id");
    struct json o = make_object(a, 3);

    object_put(&o, "role", json_make_string(STR("tool")));
    object_put(&o, "content", make_marked(m, a, RESULT));
    object_put(&o, "tool_call_id", id ? *id : json_make_string(str_cstr(m->mark)));
    return o;
}

/* Makes a message of role and content. */
static struct json make_message(struct arena *a, const char *role, struct json content)
{
    struct json o = make_object(a, 2);

    object_put(&o, "role", json_make_string(str_cstr(role)));
    object_put(&o, "content", content);
    return o;
}

/* Writes the earlier turn, the results of its calls, and the user message after it. */
static uint32_t put_earlier(const struct model *m, struct arena *a, const struct standin_in *in,
                            struct json *at)
{
    const struct json *calls = json_get(in->earlier, "tool_calls");
    uint32_t n = 0;

    at[n++] = copy_turn(m, a, in->earlier, EARLIER, (struct str){0});
    for (uint32_t i = 0; has_calls(in->earlier) && i < MIN_OF(calls->n, CALLS_MAX); i++)
        at[n++] = make_result(m, a, &calls->items[i]);
    if (in->user_between)
        at[n++] = make_message(a, "user", make_marked(m, a, USER));
    return n;
}

/* Writes the system messages from `from` on that are below `to`. A message without text stays
 * without. */
static uint32_t put_system(const struct model *m, struct arena *a, const struct standin_in *in,
                           uint32_t from, uint32_t to, struct json *at)
{
    for (uint32_t i = from; i < to; i++) {
        const struct json *content = json_get(&in->system[i], "content");
        bool says = !json_is_null(content) && content->n > 0;

        *at = in->system[i];
        if (!in->real_system) {
            *at = make_object(a, 2);
            object_put(at, "role", *json_get(&in->system[i], "role"));
            object_put(at, "content", says ? make_marked(m, a, SYSTEM) : json_make_string(STR("")));
        }
        at++;
    }
    return to - from;
}

/* Writes the messages before the last turn; returns their number. */
static uint32_t put_head(const struct model *m, struct arena *a, const struct standin_in *in,
                         struct json *at)
{
    uint32_t n;

    if (in->history) {
        memcpy(at, in->history, in->n_history * sizeof(*at));
        return in->n_history;
    }
    n = put_system(m, a, in, 0, in->n_first, at);
    if (n == 0 && m->boundaries.needs_system)
        at[n++] = make_message(a, "system", make_marked(m, a, SYSTEM));
    if (in->longer) {
        at[n++] = make_message(a, "user", make_marked(m, a, USER));
        at[n++] = make_message(a, "assistant", make_marked(m, a, EARLIER));
    }
    at[n++] = make_message(a, "user", make_marked(m, a, USER));
    n += put_system(m, a, in, in->n_first, in->n_system, at + n);
    if (in->earlier)
        n += put_earlier(m, a, in, at + n);
    return n;
}

/* Counts the marks. *end: position after the last one. */
static uint32_t count_marks(struct str text, struct str mark, size_t *end)
{
    uint32_t n = 0;
    size_t at = 0;

    *end = 0;
    while ((at = str_find(text, mark, at)) != SIZE_MAX) {
        at += mark.len;
        *end = at;
        n++;
    }
    return n;
}

/* Returns the end of the nth mark; SIZE_MAX if there are fewer. */
static size_t nth_mark_end(struct str text, struct str mark, uint32_t n)
{
    size_t at = 0;

    while (n-- > 0) {
        at = str_find(text, mark, at);
        if (at == SIZE_MAX)
            return SIZE_MAX;
        at += mark.len;
    }
    return at;
}

/* Returns the length of the common beginning, in whole characters. */
static size_t common_length(struct str x, struct str y)
{
    size_t n = 0;

    while (n < x.len && n < y.len && x.p[n] == y.p[n])
        n++;
    return utf8_cut(x, n);
}

/* Returns the added token with which text begins; absent if there is none. */
static struct str leading_token(const struct tokenizer *t, struct str text)
{
    struct str best = {0};

    for (size_t i = 0; i < tokenizer_added_count(t); i++) {
        const struct added_token *a = tokenizer_added(t, i);

        if (a->special && a->content.len > best.len && str_starts(text, a->content))
            best = a->content;
    }
    return best;
}

/* Returns the end of the first stop token in the text; 0 if there is none. */
static size_t first_stop(const struct model *m, struct str text)
{
    size_t best = SIZE_MAX, end = 0;

    for (size_t i = 0; i < m->n_stops; i++) {
        size_t at = m->stops[i].text.len ? str_find(text, m->stops[i].text, 0) : SIZE_MAX;

        if (at < best) {
            best = at;
            end = at + m->stops[i].text.len;
        }
    }
    return end;
}

/* Finds the turn's closing if it differs from that of the last turn: the token that replaced the
 * other (gpt-oss: <|end|> for <|return|>), or the common text of both. */
static void closed_differently(const struct model *m, struct str tail, struct str rest,
                               size_t common, struct standin *ret)
{
    struct str was = leading_token(m->tokenizer, tail), is = leading_token(m->tokenizer, rest);

    for (size_t at = common; at-- > 0 && common - at < TOKEN_MAX;) {
        if (leading_token(m->tokenizer, str_sub(tail, at, tail.len)).len > common - at)
            common = at; /* a cut inside of a token does not count */
    }
    if (common == 0 && was.len && is.len) {
        ret->replaced = true;
        common = is.len;
    }
    ret->closing = str_sub(rest, 0, common);
    ret->next = str_sub(rest, common, rest.len);
    /* the template no longer writes the token at which the model stopped */
    ret->rewrites = ret->replaced || first_stop(m, tail) > common;
}

/* Compares the stand-in alone (whole) with the stand-in and the new messages (more). Earlier turns
 * are rewritten in three cases: the two differ before the end of the turn's text, the turn is
 * closed with a different token, or it does not follow the prompt that the model saw. */
static int split_renderings(const struct model *m, struct str whole, struct str more,
                            struct str prompt, struct standin *ret, struct err *e)
{
    char turn[MODEL_MARK_LEN + 1];
    struct str mark = str_of(turn, sizeof(turn)), tail, rest;
    size_t end_whole, end_more, common;
    uint32_t n;

    CHECK(m);
    memcpy(turn, m->mark, MODEL_MARK_LEN);
    turn[MODEL_MARK_LEN] = TURN;
    n = count_marks(whole, mark, &end_whole);
    if (n == 0)
        return err_set(e, ERR_UNSUPPORTED, "the chat template does not show assistant turns");
    end_more = nth_mark_end(more, mark, n);
    if (end_more == SIZE_MAX)
        return err_set(e, ERR_UNSUPPORTED, "the chat template drops earlier assistant turns");
    tail = str_sub(whole, end_whole, whole.len);
    rest = str_sub(more, end_more, more.len);
    common = common_length(tail, rest);
    *ret = (struct standin){.closing = str_sub(rest, 0, common),
                            .next = str_sub(rest, common, rest.len)};
    if (common < tail.len)
        closed_differently(m, tail, rest, common, ret);
    ret->rewrites = ret->rewrites || !str_starts(whole, prompt) ||
                    !str_eq(str_sub(whole, 0, end_whole), str_sub(more, 0, end_more));
    return 0;
}

/* Renders the texts without new messages into s->a: the prompt before the last turn, and the chat
 * up to that turn, which is the last of these messages. *prompt_ends: the start of the second
 * text. */
static int render_known(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                        const struct rendering *upto, size_t *prompt_ends, struct err *e)
{
    struct rendering r = *upto;

    if (standin_memo_find(s, in, upto, prompt_ends))
        return 0;
    buf_clear(&s->a);
    r.n--;
    r.generation_prompt = true;
    if (model_text(m, &s->arena, &r, &s->a, e) != 0)
        return -1;
    *prompt_ends = s->a.len;
    r.n++;
    r.generation_prompt = false;
    if (model_text(m, &s->arena, &r, &s->a, e) != 0)
        return -1;
    standin_memo_keep(s, *prompt_ends);
    return 0;
}

int standin_render(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                   struct standin *ret, struct err *e)
{
    struct json *msgs = arena_alloc(
        &s->arena, (in->n_history + in->n_system + HEAD_MAX + 1 + in->n) * sizeof(*msgs));
    struct json small;
    struct rendering r = {.messages = msgs, .kwargs = in->kwargs, .seconds = s->seconds};
    size_t prompt_ends;
    uint32_t n;

    if (json_is(in->tools, JSON_ARRAY) && in->tools->n) {
        r.tools = in->tools;
        if (!in->real_tools && !in->history) {
            small = standin_tools(&s->arena, m->mark);
            r.tools = &small;
        }
    }
    n = put_head(m, &s->arena, in, msgs);
    msgs[n++] = copy_turn(m, &s->arena, in->last, TURN, in->added);
    r.n = n;
    if (render_known(m, s, in, &r, &prompt_ends, e) != 0)
        return -1;
    for (uint32_t i = 0; i < in->n; i++)
        msgs[n++] = in->messages[i];
    buf_clear(&s->b);
    r.n = n;
    r.generation_prompt = true;
    if (model_text(m, &s->arena, &r, &s->b, e) != 0)
        return -1;
    return split_renderings(m, str_sub(buf_str(&s->a), prompt_ends, s->a.len), buf_str(&s->b),
                            str_sub(buf_str(&s->a), 0, prompt_ends), ret, e);
}

int standin_clean(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                  struct standin *ret, struct err *e)
{
    if (standin_render(m, s, in, ret, e) != 0)
        return -1;
    if (standin_marked(m, ret->closing) || standin_marked(m, ret->next))
        return err_set(e, ERR_PROMPT_LEAK,
                       "the chat template writes what only stands in for earlier messages or "
                       "tools, and takes no others");
    return 0;
}
