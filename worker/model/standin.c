#include "worker/model/standin.h"

#define THOUGHT "RGTHOUGHT"

enum { LOOK_BACK_MAX = 64, CALLS_MAX = 8, HEAD_MAX = CALLS_MAX + 7, TOKEN_MAX = 64 };

static const char CALL_ID[] = "rgcall001"; /* nine alphanumerics: some templates insist */

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

static void collect_system(struct arena *a, const struct json *messages, size_t n,
                           struct standin_in *ret)
{
    struct json *at = arena_alloc(a, n * sizeof(*at));

    for (size_t i = 0; i < n; i++) {
        if (is_system(&messages->items[i]))
            at[ret->n_system++] = messages->items[i];
    }
    ret->system = at;
}

/* Thoughts, and text beside calls, are what templates drop later. */
void standin_look_back(const struct model *m, struct arena *a, const struct json *messages,
                       size_t covered, struct standin_in *ret)
{
    bool user = false;
    size_t n = 0;

    collect_system(a, messages, m->boundaries.system_in_suffix ? covered : MIN_OF(covered, 1U),
                   ret);
    for (size_t i = covered - 1; i-- > 0 && n < LOOK_BACK_MAX && !ret->earlier; n++) {
        const struct json *msg = &messages->items[i];

        user = user || is_role(msg, "user");
        if (is_role(msg, "assistant") &&
            (has_text(msg, "reasoning_content") || (has_text(msg, "content") && has_calls(msg)))) {
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

static struct json make_call(struct arena *a, struct json id, struct json name, const char *text)
{
    struct json call = make_object(a, 3), function = make_object(a, 2);
    struct json arguments = make_object(a, 1);

    object_put(&arguments, "rg", json_make_string(str_cstr(text)));
    object_put(&function, "name", name);
    object_put(&function, "arguments", arguments);
    object_put(&call, "id", id);
    object_put(&call, "type", json_make_string(STR("function")));
    object_put(&call, "function", function);
    return call;
}

/* The calls of the true turn: ids and names, other arguments. */
static struct json copy_calls(struct arena *a, const struct json *calls, const char *text)
{
    struct json list = {.kind = JSON_ARRAY, .n = calls->n};

    list.items = arena_alloc(a, calls->n * sizeof(*list.items));
    for (uint32_t i = 0; i < calls->n; i++) {
        const struct json *id = json_get(&calls->items[i], "id");
        const struct json *name = json_get(json_get(&calls->items[i], "function"), "name");

        list.items[i] = make_call(a, id ? *id : json_make_string(str_cstr(CALL_ID)),
                                  name ? *name : json_make_string(STR("rg_call")), text);
    }
    return list;
}

/* The turn with `text` for what it says; an answer without calls always says something. */
static struct json copy_turn(struct arena *a, const struct json *turn, const char *text)
{
    bool says = has_text(turn, "content") || !has_calls(turn);
    struct json o = make_object(a, 4);

    object_put(&o, "role", json_make_string(STR("assistant")));
    object_put(&o, "content", json_make_string(says ? str_cstr(text) : STR("")));
    if (has_text(turn, "reasoning_content"))
        object_put(&o, "reasoning_content", json_make_string(STR(THOUGHT)));
    if (has_calls(turn))
        object_put(&o, "tool_calls", copy_calls(a, json_get(turn, "tool_calls"), text));
    return o;
}

static struct json make_result(struct arena *a, const struct json *call)
{
    const struct json *id = json_get(call, "id");
    struct json o = make_object(a, 3);

    object_put(&o, "role", json_make_string(STR("tool")));
    object_put(&o, "content", json_make_string(STR("RGRESULT")));
    object_put(&o, "tool_call_id", id ? *id : json_make_string(str_cstr(CALL_ID)));
    return o;
}

/* The earlier turn, results of its calls, and the user message behind. */
static uint32_t put_earlier(struct arena *a, const struct standin_in *in, struct json *at)
{
    const struct json *calls = json_get(in->earlier, "tool_calls");
    uint32_t n = 0;

    at[n++] = copy_turn(a, in->earlier, "RGEARLIER");
    for (uint32_t i = 0; has_calls(in->earlier) && i < MIN_OF(calls->n, CALLS_MAX); i++)
        at[n++] = make_result(a, &calls->items[i]);
    if (in->user_between)
        at[n++] = make_text(a, "role", "user", "content", "RGUSER");
    return n;
}

/* The system messages, or one where the template insists on it. */
static uint32_t put_system(const struct model *m, struct arena *a, const struct standin_in *in,
                           struct json *at)
{
    for (uint32_t i = 0; i < in->n_system; i++) {
        const struct json *role = json_get(&in->system[i], "role");

        at[i] = in->system[i];
        if (m->boundaries.system_in_suffix)
            continue;
        at[i] = make_object(a, 2);
        object_put(&at[i], "role", *role);
        object_put(&at[i], "content", json_make_string(STR("RGSYSTEM")));
    }
    if (in->n_system || !m->boundaries.needs_system)
        return in->n_system;
    at[0] = make_text(a, "role", "system", "content", "RGSYSTEM");
    return 1;
}

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

static size_t nth_mark_end(struct str text, uint32_t n)
{
    struct str mark = STR(STANDIN_MARK);
    size_t at = 0;

    while (n-- > 0) {
        at = str_find(text, mark, at);
        if (at == SIZE_MAX)
            return SIZE_MAX;
        at += mark.len;
    }
    return at;
}

static size_t common_length(struct str x, struct str y)
{
    size_t n = 0;

    while (n < x.len && n < y.len && x.p[n] == y.p[n])
        n++;
    while (n > 0 && n < x.len && ((unsigned char)x.p[n] & 0xc0) == 0x80)
        n--;
    return n;
}

/* The added token that text begins with; absent when there is none. */
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

/* Where the first stop token in text ends; 0 when there is none. */
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

/* The turn's closing where it differs from how the template closes the last turn: the one token
 * that took the other's place (gpt-oss: <|end|> for <|return|>), or what both have in common. */
static void closed_differently(const struct model *m, struct str tail, struct str rest,
                               size_t common, struct standin *ret)
{
    struct str was = leading_token(m->tokenizer, tail), is = leading_token(m->tokenizer, rest);

    for (size_t at = common; at-- > 0 && common - at < TOKEN_MAX;) {
        if (leading_token(m->tokenizer, str_sub(tail, at, tail.len)).len > common - at)
            common = at; /* a cut inside a token is none */
    }
    if (common == 0 && was.len && is.len) {
        ret->replaced = true;
        common = is.len;
    }
    ret->closing = str_sub(rest, 0, common);
    ret->next = str_sub(rest, common, rest.len);
    /* the token at which the model stopped is not written any more */
    ret->rewrites = ret->replaced || first_stop(m, tail) > common;
}

/* Compares the stand-in alone (whole) with the stand-in and what follows (more). Earlier turns are
 * rewritten when the two differ up to the end of the turn's text, when the turn is closed with
 * another token, or when the turn never stood behind the prompt that the model saw. */
static int split(const struct model *m, struct str whole, struct str more, struct str prompt,
                 struct standin *ret, struct err *e)
{
    size_t end_whole, end_more, common;
    uint32_t n = count_marks(whole, STR(STANDIN_MARK), &end_whole);
    struct str tail, rest;

    if (n == 0)
        return err_set(e, ERR_UNSUPPORTED, "the chat template does not show assistant turns");
    end_more = nth_mark_end(more, n);
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

int standin_render(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                   struct standin *ret, struct err *e)
{
    struct json *msgs =
        arena_alloc(&s->arena, (in->n_system + HEAD_MAX + 1 + in->n) * sizeof(*msgs));
    struct json small = standin_tools(&s->arena, "rg_call");
    struct rendering r = {.messages = msgs, .kwargs = in->kwargs};
    size_t prompt_at;
    uint32_t n = 0;

    if (json_is(in->tools, JSON_ARRAY) && in->tools->n)
        r.tools = m->boundaries.tools_in_suffix ? in->tools : &small;
    n = put_system(m, &s->arena, in, msgs);
    if (in->longer) {
        msgs[n++] = make_text(&s->arena, "role", "user", "content", "RGUSER");
        msgs[n++] = make_text(&s->arena, "role", "assistant", "content", "RGEARLIER");
    }
    msgs[n++] = make_text(&s->arena, "role", "user", "content", "RGUSER");
    if (in->earlier)
        n += put_earlier(&s->arena, in, msgs + n);
    r.n = n;
    msgs[n++] = copy_turn(&s->arena, in->last, STANDIN_MARK);
    for (uint32_t i = 0; i < in->n; i++)
        msgs[n++] = in->messages[i];

    buf_clear(&s->a);
    buf_clear(&s->b);
    r.generation_prompt = true;
    if (model_text(m, &s->arena, &r, &s->a, e) != 0)
        return -1;
    prompt_at = s->a.len;
    r.n++;
    r.generation_prompt = false;
    if (model_text(m, &s->arena, &r, &s->a, e) != 0)
        return -1;
    r.n = n;
    r.generation_prompt = true;
    if (model_text(m, &s->arena, &r, &s->b, e) != 0)
        return -1;
    return split(m, str_sub(buf_str(&s->a), prompt_at, s->a.len), buf_str(&s->b),
                 str_sub(buf_str(&s->a), 0, prompt_at), ret, e);
}
