/*
 * A trial makes a conversation from a seed, chooses one of its answers as the covered one, and asks
 * for the suffix after it. The audit compares that with the rendering of the whole. Contents are
 * difficult on purpose: quotes, braces, line ends, numbers with zeros, non-ASCII. One trial in
 * eight has an answer that was cut, that is, without its stop id.
 *
 * A seed gives the same conversations everywhere, so a failure that `rollgate check` shows can be
 * repeated. Each trial starts without what the one before has learned (model_distrusts).
 */
#include "worker/text/model/rehearsal.h"

#include "worker/text/model/standin.h"
#include "worker/text/model/suffix_text.h"
#include "worker/text/request/chat.h"

enum { TURNS_MAX = 5, MESSAGES_MAX = TURNS_MAX * 5 + 3, TOOLS_MAX = 3, CALLS_MAX = 2 };

static uint32_t random_below(struct trial_random *r, uint32_t n)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return (uint32_t)((r->state >> 11) % n);
}

static bool draw_chance(struct trial_random *r, uint32_t n)
{
    return random_below(r, n) == 0;
}

static struct json make_words(struct trial_random *r, struct arena *a)
{
    static const char *const some[] = {"alpha", "\"b\"", "two\nlines", "na\xc3\xafve", "{}",
                                       "3.50",  "<b>",   "d'oh",       "[1, 2]",       "end."};
    struct buf b = {0};
    struct json ret;

    for (uint32_t n = 1 + random_below(r, 5); n > 0; n--)
        buf_printf(&b, "%s%u%s", some[random_below(r, ARRAY_LEN(some))], random_below(r, 10),
                   n > 1 ? " " : "");
    ret = json_make_string(arena_str(a, buf_str(&b)));
    buf_done(&b);
    return ret;
}

static struct json make_plain(struct trial_random *r, struct arena *a, const char *role)
{
    struct json o = make_object(a, 2);

    object_put(&o, "role", json_make_string(str_cstr(role)));
    object_put(&o, "content", make_words(r, a));
    return o;
}

/* --- tools and calls --- */

static const char *const tool_names[TOOLS_MAX] = {"list_files", "search", "run"};

static struct json make_tools(struct trial_random *r, struct arena *a)
{
    struct json list = {.kind = JSON_ARRAY, .n = 1 + random_below(r, TOOLS_MAX)};

    list.items = arena_alloc(a, list.n * sizeof(*list.items));
    for (uint32_t i = 0; i < list.n; i++) {
        struct json one = standin_tools(a, tool_names[i]);
        struct json *function = &one.items[0].members[1].value;
        struct json property = make_object(a, 2), properties = make_object(a, 1);

        object_put(&property, "type", json_make_string(STR("string")));
        object_put(&property, "description", make_words(r, a));
        object_put(&properties, "p", property);
        function->members[1].value = make_words(r, a);
        function->members[2].value.members[1].value = properties;
        list.items[i] = one.items[0];
    }
    return list;
}

static struct json make_call(struct trial_random *r, struct arena *a, const struct json *tools)
{
    struct json call = make_object(a, 3), function = make_object(a, 2);
    struct json arguments = make_object(a, 2);

    object_put(&arguments, "p", make_words(r, a));
    if (draw_chance(r, 2))
        object_put(&arguments, "n", json_make_bool(draw_chance(r, 2)));
    object_put(&function, "name",
               json_make_string(str_cstr(tool_names[random_below(r, tools->n)])));
    object_put(&function, "arguments", arguments);
    object_put(&call, "id", json_make_string(arena_printf(a, "call%05u", random_below(r, 99999))));
    object_put(&call, "type", json_make_string(STR("function")));
    object_put(&call, "function", function);
    return call;
}

/* Makes an answer. If it has calls, they are its last member. */
static struct json make_answer(struct trial_random *r, struct arena *a, const struct json *tools)
{
    struct json calls = {.kind = JSON_ARRAY}, o = make_object(a, 4);

    if (tools->n && draw_chance(r, 2))
        calls.n = 1 + random_below(r, CALLS_MAX);
    object_put(&o, "role", json_make_string(STR("assistant")));
    object_put(&o, "content",
               calls.n && draw_chance(r, 2) ? json_make_string(STR("")) : make_words(r, a));
    if (draw_chance(r, 3))
        object_put(&o, "reasoning_content", make_words(r, a));
    calls.items = arena_alloc(a, CALLS_MAX * sizeof(*calls.items));
    for (uint32_t i = 0; i < calls.n; i++)
        calls.items[i] = make_call(r, a, tools);
    if (calls.n)
        object_put(&o, "tool_calls", calls);
    return o;
}

static struct json make_result(struct trial_random *r, struct arena *a, const struct json *call)
{
    struct json o = make_object(a, 4);

    object_put(&o, "role", json_make_string(STR("tool")));
    object_put(&o, "content", make_words(r, a));
    object_put(&o, "tool_call_id", *json_get(call, "id"));
    object_put(&o, "name", *json_get(json_get(call, "function"), "name"));
    return o;
}

/* --- template variables --- */

const char *const trial_switches[9] = {
    "enable_thinking", "thinking",           "preserve_thinking",
    "clear_thinking",  "drop_thinking",      "truncate_history_thinking",
    "add_vision_id",   "keep_past_thinking", "tools_in_user_message"};

static struct json make_kwargs(const struct model *m, struct trial_random *r, struct arena *a)
{
    static const char *const levels[] = {"low", "medium", "high"};
    struct json o = make_object(a, ARRAY_LEN(trial_switches) + 1);

    for (size_t i = 0; i < ARRAY_LEN(trial_switches); i++) {
        if (template_mentions(m->template_default, trial_switches[i]) && draw_chance(r, 3))
            object_put(&o, trial_switches[i], json_make_bool(draw_chance(r, 2)));
    }
    if (template_mentions(m->template_default, "reasoning_effort") && draw_chance(r, 3))
        object_put(&o, "reasoning_effort", json_make_string(str_cstr(levels[random_below(r, 3)])));
    return o;
}

/* --- conversations --- */

void trial_talk(const struct model *m, struct trial_random *r, struct arena *a,
                struct trial_talk *ret)
{
    struct json *at = arena_alloc(a, MESSAGES_MAX * sizeof(*at));
    uint32_t n = 0, turns = 1 + random_below(r, TURNS_MAX), last = random_below(r, turns),
             covered = 0;
    bool late = draw_chance(r, 3);

    *ret = (struct trial_talk){.tools = {.kind = JSON_ARRAY}};
    if (draw_chance(r, 2))
        ret->tools = make_tools(r, a);
    ret->kwargs = make_kwargs(m, r, a);
    if (draw_chance(r, 2))
        at[n++] = make_plain(r, a, "system");
    at[n++] = make_plain(r, a, "user");
    for (uint32_t i = 0; i < turns; i++) {
        struct json turn = make_answer(r, a, &ret->tools);
        const struct json *calls = json_get(&turn, "tool_calls");

        at[n++] = turn;
        covered = i == last ? n : covered;
        for (uint32_t k = 0; calls && k < calls->n; k++)
            at[n++] = make_result(r, a, &calls->items[k]);
        if (calls && draw_chance(r, 2))
            continue;
        if (late && draw_chance(r, 3))
            at[n++] = make_plain(r, a, "system");
        if (n == covered || draw_chance(r, 4) || json_get(&at[n - 1], "tool_calls") ||
            i < turns - 1)
            at[n++] = make_plain(r, a, "user");
    }
    ret->messages = (struct json){.kind = JSON_ARRAY, .n = n, .items = at};
    ret->covered = covered;
    ret->chat = (struct chat){.messages = &ret->messages,
                              .tools = ret->tools.n ? &ret->tools : NULL,
                              .kwargs = &ret->kwargs};
}

/* --- running trials --- */

static void show_trial(const struct trial_talk *t, const struct suffix_text *x,
                       const struct buf *full, struct buf *out)
{
    size_t n = x ? x->close.len + x->next.len : 0;

    buf_printf(out, "of these messages the first %zu are covered: ", t->covered);
    json_write(out, &t->messages);
    buf_puts(out, "\nwith tools: ");
    json_write(out, &t->tools);
    buf_puts(out, "\nand kwargs: ");
    json_write(out, &t->kwargs);
    if (!x) {
        buf_puts(out, "\nno suffix can be made\n");
        return;
    }
    buf_puts(out, "\nthe suffix is ");
    json_write_string(out, x->close);
    json_write_string(out, x->next);
    buf_puts(out, "\nthe whole ends with ");
    json_write_string(out,
                      str_sub(buf_str(full), full->len - MIN_OF(full->len, n + 40), full->len));
    buf_add_c(out, '\n');
}

/* Returns the stop id that closes an answer; NULL if there is none, or if it opens the next
 * turn. */
static const struct stop *closing_stop(const struct model *m)
{
    for (size_t i = 0; i < m->n_stops; i++) {
        const struct stop *s = &m->stops[i];

        if (!s->opener && s->text.len && str_find(m->boundaries.close, s->text, 0) != SIZE_MAX)
            return s;
    }
    return NULL;
}

static bool is_bad(const struct model_trials *t)
{
    return t->differ + t->leaked + t->failed > 0;
}

/* Reports whether a call without a suffix has a prompt. */
static bool renders_whole(struct model_scratch *s, const struct chat *chat)
{
    struct rendering r = {.messages = chat->messages->items,
                          .n = chat->messages->n,
                          .tools = chat->tools,
                          .kwargs = chat->kwargs,
                          .generation_prompt = true,
                          .seconds = s->seconds};

    buf_clear(&s->b);
    return model_text(s->model, &s->arena, &r, &s->b, NULL) == 0;
}

/* Runs one trial. If the template refuses the whole conversation, it counts only as refused. */
static void run_trial(const struct model *m, struct model_scratch *s, const struct trial_talk *t,
                      bool cut, struct model_trials *ret, struct buf *first)
{
    const struct stop *stop = cut ? NULL : closing_stop(m);
    bool was_bad = is_bad(ret);
    struct suffix_text x;
    struct err e;
    int rc = suffix_text(s, &t->chat, t->covered, (struct suffix_turn){.stop = stop}, &x, &e);

    ret->made++;
    if (rc == 0 && x.audit == MODEL_AUDIT_NONE) {
        ret->refused++;
        return;
    }
    if (rc != 0 && e.kind == ERR_PROMPT_LEAK)
        ret->leaked++;
    else if (rc != 0 && e.kind == ERR_UNSUPPORTED && renders_whole(s, &t->chat))
        ret->failed++;
    else if (rc != 0)
        ret->refused++;
    else if (x.audit == MODEL_AUDIT_SAME)
        ret->same++;
    else
        ret->differ++;
    if (!first || was_bad || !is_bad(ret))
        return;
    s->audits = false; /* the audit has replaced the wrong text by the right one */
    model_distrust(s->model, false);
    rc = suffix_text(s, &t->chat, t->covered, (struct suffix_turn){.stop = stop}, &x, NULL);
    s->audits = true;
    show_trial(t, rc == 0 ? &x : NULL, &s->full, first);
}

void trial_run(const struct model *m, struct model_scratch *s, const struct trial_plan *plan,
               struct model_trials *ret, struct buf *first)
{
    struct trial_random r = {plan->seed ? plan->seed : 1};
    struct arena a = {0};
    bool audits = s->audits;

    s->audits = true;
    for (size_t i = 0; i < plan->n; i++) {
        struct trial_talk t;

        arena_reset(&a);
        trial_talk(m, &r, &a, &t);
        model_distrust(m, false); /* so that each trial shows its first suffix */
        run_trial(m, s, &t, i % 8 == 7, ret, first);
        if (plan->until_first && is_bad(ret))
            break;
    }
    model_distrust(m, false);
    s->audits = audits;
    arena_done(&a);
}

void model_try(const struct model *m, uint64_t seed, size_t n, struct model_trials *ret,
               struct buf *first)
{
    const struct trial_plan plan = {seed, n, false};
    struct model_scratch *s = model_scratch_new(m);

    *ret = (struct model_trials){0};
    trial_run(m, s, &plan, ret, first);
    model_scratch_free(s);
}
