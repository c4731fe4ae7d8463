#include "worker/model/standin.h"

enum { LOOK_BACK_MAX = 64, HEAD_MAX = 5 };

static const char CALL_ID[] = "rgcall001"; /* nine alphanumerics: some templates insist */

static bool is_role(const struct json *msg, const char *role)
{
    return str_eq_c(json_string(json_get(msg, "role")), role);
}

static bool has_text(const struct json *msg, const char *key)
{
    return json_string(json_get(msg, key)).len > 0;
}

bool standin_thought_before(const struct json *messages, size_t covered)
{
    size_t n = 0;

    for (size_t i = covered > 0 ? covered - 1 : 0; i-- > 0 && n < LOOK_BACK_MAX; n++) {
        if (is_role(&messages->items[i], "user"))
            return false;
        if (has_text(&messages->items[i], "reasoning_content"))
            return true;
    }
    return false;
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

static struct json make_call(struct arena *a, struct json id, struct json name)
{
    struct json call = make_object(a, 3), function = make_object(a, 2);
    struct json arguments = make_object(a, 1);

    object_put(&arguments, "rg", json_make_string(STR(STANDIN_MARK)));
    object_put(&function, "name", name);
    object_put(&function, "arguments", arguments);
    object_put(&call, "id", id);
    object_put(&call, "type", json_make_string(STR("function")));
    object_put(&call, "function", function);
    return call;
}

static struct json one_call(struct arena *a)
{
    struct json list = {.kind = JSON_ARRAY, .n = 1};

    list.items = arena_alloc(a, sizeof(*list.items));
    list.items[0] =
        make_call(a, json_make_string(str_cstr(CALL_ID)), json_make_string(STR("rg_call")));
    return list;
}

/* The calls of the true turn: ids and names, other arguments. */
static struct json copy_calls(struct arena *a, const struct json *calls)
{
    struct json list = {.kind = JSON_ARRAY, .n = calls->n};

    list.items = arena_alloc(a, calls->n * sizeof(*list.items));
    for (uint32_t i = 0; i < calls->n; i++) {
        const struct json *id = json_get(&calls->items[i], "id");
        const struct json *name = json_get(json_get(&calls->items[i], "function"), "name");

        list.items[i] = make_call(a, id ? *id : json_make_string(str_cstr(CALL_ID)),
                                  name ? *name : json_make_string(STR("rg_call")));
    }
    return list;
}

static struct json copy_turn(struct arena *a, const struct json *last)
{
    const struct json *calls = json_get(last, "tool_calls");
    bool has_calls = json_is(calls, JSON_ARRAY) && calls->n > 0;
    struct json o = make_object(a, 4);

    object_put(&o, "role", json_make_string(STR("assistant")));
    object_put(
        &o, "content",
        json_make_string(has_text(last, "content") || !has_calls ? STR(STANDIN_MARK) : STR("")));
    if (has_text(last, "reasoning_content"))
        object_put(&o, "reasoning_content", json_make_string(STR("RGTHOUGHT")));
    if (has_calls)
        object_put(&o, "tool_calls", copy_calls(a, calls));
    return o;
}

/* A call with a thought, and its result: what a template may rewrite later. */
static uint32_t put_thought_before(struct arena *a, struct json *at)
{
    at[0] = make_object(a, 4);
    object_put(&at[0], "role", json_make_string(STR("assistant")));
    object_put(&at[0], "content", json_make_string(STR("")));
    object_put(&at[0], "reasoning_content", json_make_string(STR("RGTHOUGHT")));
    object_put(&at[0], "tool_calls", one_call(a));
    at[1] = make_object(a, 4);
    object_put(&at[1], "role", json_make_string(STR("tool")));
    object_put(&at[1], "content", json_make_string(STR("RGRESULT")));
    object_put(&at[1], "tool_call_id", json_make_string(str_cstr(CALL_ID)));
    object_put(&at[1], "name", json_make_string(STR("rg_call")));
    return 2;
}

static uint32_t count_marks(struct str text, size_t *end)
{
    struct str mark = STR(STANDIN_MARK);
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

/* Compares the stand-in alone (whole) with the stand-in and what follows (more). */
static int split(struct str whole, struct str more, struct str prompt, struct standin *ret,
                 struct err *e)
{
    size_t end_whole, end_more, common;
    uint32_t n = count_marks(whole, &end_whole);
    struct str tail, rest;

    if (n == 0)
        return err_set(e, ERR_UNSUPPORTED, "the chat template does not show assistant turns");
    end_more = nth_mark_end(more, n);
    if (end_more == SIZE_MAX)
        return err_set(e, ERR_UNSUPPORTED, "the chat template drops earlier assistant turns");
    tail = str_sub(whole, end_whole, whole.len);
    rest = str_sub(more, end_more, more.len);
    common = common_length(tail, rest);
    ret->closing = str_sub(rest, 0, common);
    ret->next = str_sub(rest, common, rest.len);
    ret->rewrites = !str_eq(str_sub(whole, 0, end_whole), str_sub(more, 0, end_more)) ||
                    common < tail.len || !str_starts(whole, prompt);
    return 0;
}

int standin_render(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                   struct standin *ret, struct err *e)
{
    struct json *msgs = arena_alloc(&s->arena, (HEAD_MAX + 1 + in->n) * sizeof(*msgs));
    struct json small = standin_tools(&s->arena, "rg_call");
    struct rendering r = {.messages = msgs, .kwargs = in->kwargs};
    size_t prompt_at;
    uint32_t n = 0;

    if (json_is(in->tools, JSON_ARRAY) && in->tools->n)
        r.tools = m->boundaries.tools_in_suffix ? in->tools : &small;
    if (m->boundaries.needs_system)
        msgs[n++] = make_text(&s->arena, "role", "system", "content", "RGSYSTEM");
    msgs[n++] = make_text(&s->arena, "role", "user", "content", "RGUSER");
    if (in->thought_before)
        n += put_thought_before(&s->arena, msgs + n);
    r.n = n;
    msgs[n++] = copy_turn(&s->arena, in->last);
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
    return split(str_sub(buf_str(&s->a), prompt_at, s->a.len), buf_str(&s->b),
                 str_sub(buf_str(&s->a), 0, prompt_at), ret, e);
}
