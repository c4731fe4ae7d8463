/*
 * Finds what the template does by rendering small chats, not by reading its source. The order
 * matters, because each step needs the ones before:
 *
 *   wraps and roles      are texts shown as strings, as lists, or not at all?
 *   probe_turns          an answer and what may follow it: is the text before rewritten?
 *   generation prompt    what the template adds for the model to begin
 *   choose_pin           if it rewrites: does a variable prevent that?
 *   stops and openers    which ids end an answer, and which of them begin the next turn
 *   learn_needs          random conversations (rehearsal.c) show what single messages do not
 *
 * All findings are stored in m->boundaries and m->info, before the fork. Nothing is probed while
 * serving.
 */
#include "worker/text/model/rehearsal.h"
#include "worker/text/model/standin.h"

#include "common/base/vec.h"

const char *const boundary_roles[5] = {"tool", "user", "system", "developer", "assistant"};

struct probe {
    struct model *m;
    struct model_scratch *s;
    /* used if a probe has no tools of its own, because the template insists on tools */
    const struct json *tools;
};

static struct json plain_turn(struct arena *a)
{
    return make_text(a, "role", "assistant", "content", "x");
}

/* Makes an assistant turn with a thought. */
static struct json thought_turn(struct arena *a)
{
    struct json o = make_object(a, 3);

    object_put(&o, "role", json_make_string(STR("assistant")));
    object_put(&o, "content", json_make_string(STR("x")));
    object_put(&o, "reasoning_content", json_make_string(STR("y")));
    return o;
}

/* Makes an assistant turn with one call. `thought` is a member, or empty. */
static struct json call_turn(struct arena *a, const char *thought)
{
    const struct json *parsed;

    if (json_parse(
            a,
            arena_printf(a,
                         "{\"role\":\"assistant\",\"content\":\"\",%s\"tool_calls\":[{\"id\":"
                         "\"rgcall001\",\"type\":\"function\",\"function\":{\"name\":"
                         "\"rg_call\",\"arguments\":\"{}\"}}]}",
                         thought),
            &parsed, NULL) != 0)
        return plain_turn(a);
    return *parsed;
}

/* Makes a message that follows the turn; its text RGNEXT is searched. */
static struct json next_message(struct arena *a, const char *role)
{
    struct json o = make_object(a, 4);

    object_put(&o, "role", json_make_string(str_cstr(role)));
    object_put(&o, "content", json_make_string(STR("RGNEXT")));
    if (strcmp(role, "tool") == 0) {
        object_put(&o, "tool_call_id", json_make_string(STR("rgcall001")));
        object_put(&o, "name", json_make_string(STR("rg_call")));
    }
    return o;
}

/* Renders one covered turn and one new message. Returns false if the template refuses. */
static bool try_turn(const struct probe *p, struct json turn, const char *role,
                     const struct json *tools, struct standin *ret)
{
    struct json next = next_message(&p->s->arena, role);
    struct standin_in in = {
        .last = &turn, .messages = &next, .n = 1, .tools = tools ? tools : p->tools};

    return standin_render(p->m, p->s, &in, ret, NULL) == 0 &&
           str_find(ret->next, STR("RGNEXT"), 0) != SIZE_MAX;
}

/* Renders a chat. A template that insists on tools gets some. */
static bool accepts_chat(const struct probe *p, const struct rendering *r, struct buf *out)
{
    struct json small = standin_tools(&p->s->arena, "rg_call");
    struct rendering with = *r;

    buf_clear(out);
    if (model_text(p->m, &p->s->arena, r, out, NULL) == 0)
        return true;
    with.tools = &small;
    buf_clear(out);
    return !r->tools && model_text(p->m, &p->s->arena, &with, out, NULL) == 0;
}

/* Renders one message, after a system message if the template needs one. */
static bool render_probe(const struct probe *p, const struct json *message, bool generation,
                         struct buf *out)
{
    struct rendering r = {.n = 1, .tools = p->tools, .generation_prompt = generation};
    struct json msgs[2];

    r.messages = msgs;
    if (p->m->boundaries.needs_system) {
        msgs[0] = make_text(&p->s->arena, "role", "system", "content", "RGSYSTEM");
        r.n = 2;
    }
    msgs[r.n - 1] = *message;
    return accepts_chat(p, &r, out);
}

/* Reports whether the template reads content as a list of parts: the text is shown and the part's
 * JSON is not. */
static bool reads_lists(const struct probe *p)
{
    struct json message, part, list = {.kind = JSON_ARRAY, .n = 1};
    struct str text;

    part = make_text(&p->s->arena, "type", "text", "text", "RGPART");
    list.items = &part;
    message = make_object(&p->s->arena, 2);
    object_put(&message, "role", json_make_string(STR("user")));
    object_put(&message, "content", list);
    if (!render_probe(p, &message, false, &p->s->a))
        return false;
    text = buf_str(&p->s->a);
    return str_find(text, STR("RGPART"), 0) != SIZE_MAX &&
           str_find(text, STR("'type'"), 0) == SIZE_MAX &&
           str_find(text, STR("\"type\""), 0) == SIZE_MAX;
}

/* Reports whether the template writes the name of a user's or a system's message. */
static bool shows_names(const struct probe *p)
{
    static const char *const roles[] = {"user", "system"};
    struct arena *a = &p->s->arena;
    bool ret = false;

    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        struct json msgs[2] = {make_object(a, 3), make_text(a, "role", "user", "content", "x")};
        struct rendering r = {.messages = msgs, .n = 2, .tools = p->tools};

        object_put(&msgs[0], "role", json_make_string(str_cstr(roles[i])));
        object_put(&msgs[0], "name", json_make_string(STR("RGNAME")));
        object_put(&msgs[0], "content", json_make_string(STR("x")));
        buf_clear(&p->s->a);
        ret = ret || (model_text(p->m, a, &r, &p->s->a, NULL) == 0 &&
                      str_find(buf_str(&p->s->a), STR("RGNAME"), 0) != SIZE_MAX);
    }
    return ret;
}

/* Reports whether a message of the role shows its text if that is a string, or a list of one
 * part. */
static bool shows_text(const struct probe *p, size_t role, bool as_list)
{
    struct arena *a = &p->s->arena;
    struct json msgs[4], small = standin_tools(a, "rg_call");
    struct rendering r = {.messages = msgs, .tools = p->tools};
    struct boundaries *b = &p->m->boundaries;
    bool first = role >= ROLE_USER && role <= ROLE_DEVELOPER, was = b->wraps[role];

    if (!first)
        msgs[r.n++] = make_text(a, "role", "user", "content", "x");
    if (role == ROLE_TOOL) {
        msgs[r.n++] = call_turn(a, "");
        r.tools = &small;
    }
    msgs[r.n++] = next_message(a, boundary_roles[role]);
    if (role > ROLE_USER)
        msgs[r.n++] = make_text(a, "role", "user", "content", "x");
    b->wraps[role] = as_list;
    as_list =
        accepts_chat(p, &r, &p->s->a) && str_find(buf_str(&p->s->a), STR("RGNEXT"), 0) != SIZE_MAX;
    b->wraps[role] = was;
    return as_list;
}

/* Finds the roles whose texts must be lists, and those that are never shown. User messages are in
 * the other roles' chats, so they come first. */
static void probe_wraps(const struct probe *p)
{
    static const size_t order[] = {ROLE_USER, ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_TOOL};
    struct boundaries *b = &p->m->boundaries;

    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        size_t role = order[i];

        if (shows_text(p, role, false))
            continue;
        b->wraps[role] = p->m->info.content_lists && shows_text(p, role, true);
        b->hides[role] = !b->wraps[role];
    }
    b->wraps[ROLE_DEVELOPER] = b->wraps[ROLE_SYSTEM];
}

/* Reports whether the template shows a developer message. */
static bool has_developer(const struct probe *p)
{
    struct json msgs[2] = {next_message(&p->s->arena, "developer"),
                           make_text(&p->s->arena, "role", "user", "content", "x")};
    struct rendering r = {.messages = msgs, .n = 2};

    p->m->boundaries.developer = true; /* set while probing, so that the role is not replaced */
    buf_clear(&p->s->a);
    return model_text(p->m, &p->s->arena, &r, &p->s->a, NULL) == 0 &&
           str_find(buf_str(&p->s->a), STR("RGNEXT"), 0) != SIZE_MAX;
}

/* Finds out whether a template without stand-ins renders at least a user's message: alone, after a
 * system message, with tools, with both. */
static void probe_refusal(const struct probe *p)
{
    struct arena *a = &p->s->arena;
    struct json small = standin_tools(a, "rg_call");
    struct json msgs[2] = {make_text(a, "role", "system", "content", "RGSYSTEM"),
                           next_message(a, "user")};
    struct err first = {0}, e = {0};

    for (unsigned i = 0; i < 4; i++) {
        struct rendering r = {.messages = i & 1 ? msgs : msgs + 1,
                              .n = i & 1 ? 2 : 1,
                              .tools = i & 2 ? &small : NULL,
                              .generation_prompt = true};

        buf_clear(&p->s->a);
        if (model_text(p->m, a, &r, &p->s->a, &e) == 0)
            return;
        if (i == 0)
            first = e;
    }
    p->m->info.refusal = arena_str(&p->m->arena, str_cstr(first.text));
    buf_printf(&p->m->warnings, "the chat template does not render a user's message: %s\n",
               first.text);
}

static void probe_generation_prompt(const struct probe *p)
{
    struct boundaries *b = &p->m->boundaries;
    struct json user = next_message(&p->s->arena, "user");

    if (!render_probe(p, &user, false, &p->s->a) || !render_probe(p, &user, true, &p->s->b))
        return;
    if (str_starts(buf_str(&p->s->b), buf_str(&p->s->a)) &&
        str_find(buf_str(&p->s->b), STR("RGNEXT"), p->s->a.len) == SIZE_MAX)
        b->generation_prompt =
            arena_str(&p->m->arena, str_sub(buf_str(&p->s->b), p->s->a.len, p->s->b.len));
}

/* Reports whether a stand-in's text is written after the turn. */
static bool leaks_standin(const struct probe *p, const struct standin *x)
{
    return standin_marked(p->m, x->next) || standin_marked(p->m, x->closing);
}

/* Reports whether the text of a first system message is written after the stand-in turn. */
static bool system_behind(const struct probe *p, const struct json *tools)
{
    struct arena *a = &p->s->arena;
    struct json turn = plain_turn(a), next = next_message(a, "user");
    struct json head = make_text(a, "role", "system", "content", "RGSYSTEM");
    struct standin_in in = {.last = &turn,
                            .system = &head,
                            .n_system = 1,
                            .n_first = 1,
                            .messages = &next,
                            .n = 1,
                            .tools = tools,
                            .real_tools = true};
    struct standin x;

    return standin_render(p->m, p->s, &in, &x, NULL) == 0 && leaks_standin(p, &x);
}

/* Reports whether the same message is rendered differently after a longer chat ("[Round 3]"). */
static bool counts_turns(const struct probe *p)
{
    struct arena *a = &p->s->arena;
    struct json turn = plain_turn(a), next = next_message(a, "user");
    struct standin_in in = {.last = &turn, .messages = &next, .n = 1, .tools = p->tools};
    struct standin x;
    struct str once;

    if (standin_render(p->m, p->s, &in, &x, NULL) != 0)
        return false;
    once = arena_str(a, x.next);
    in.longer = true;
    return standin_render(p->m, p->s, &in, &x, NULL) == 0 && !str_eq(once, x.next);
}

/* Reports whether the template accepts a stand-in chat: alone, after a system message, with tools,
 * with both. Remembers what it insists on. */
static bool can_render(struct probe *p, const struct json *tools, struct standin *ret)
{
    struct boundaries *b = &p->m->boundaries;

    for (unsigned i = 0; i < 4; i++) {
        b->needs_system = i & 1;
        b->needs_tools = i & 2;
        p->tools = b->needs_tools ? tools : NULL;
        if (try_turn(p, plain_turn(&p->s->arena), "user", NULL, ret))
            return true;
    }
    b->needs_system = b->needs_tools = false;
    p->tools = NULL;
    return false;
}

static void probe_turns(struct probe *p)
{
    struct boundaries *b = &p->m->boundaries;
    struct arena *a = &p->s->arena;
    /* not on the stack: the probe keeps a pointer to it */
    struct json *small = ARENA_NEW(a, struct json);
    struct standin x;

    *small = standin_tools(a, "rg_call");
    b->renders = can_render(p, small, &x);
    if (!b->renders)
        return;
    b->append_plain = !x.rewrites;
    b->close = arena_str(&p->m->arena, standin_marked(p->m, x.closing) ? STR("") : x.closing);
    b->append_thought = try_turn(p, thought_turn(a), "user", NULL, &x) && !x.rewrites;
    b->append_late = try_turn(p, plain_turn(a), "system", NULL, &x) && !x.rewrites;
    b->tools_in_suffix = false;
    b->tool_turns = try_turn(p, call_turn(a, ""), "tool", small, &x);
    b->append_tools = b->tool_turns && !x.rewrites;
    b->append_thought_call =
        try_turn(p, call_turn(a, "\"reasoning_content\":\"y\","), "tool", small, &x) && !x.rewrites;
    for (size_t i = 1; i < ARRAY_LEN(boundary_roles) && !b->tools_in_suffix; i++)
        b->tools_in_suffix =
            try_turn(p, plain_turn(a), boundary_roles[i], small, &x) && leaks_standin(p, &x);
    b->tools_in_suffix = b->tools_in_suffix ||
                         (try_turn(p, call_turn(a, ""), "tool", small, &x) && leaks_standin(p, &x));
    b->counts_turns = counts_turns(p);
    b->system_in_suffix = system_behind(p, NULL) || system_behind(p, small);
    for (size_t i = 0; i < ARRAY_LEN(boundary_roles); i++)
        b->roles[i] =
            (i == 0 && b->tool_turns) || try_turn(p, plain_turn(a), boundary_roles[i], NULL, &x);
}

/* Lists the roles that may follow an answer. If the template cannot be probed, any role is tried at
 * each call. */
static void list_roles(struct model *m)
{
    struct boundaries *b = &m->boundaries;
    size_t n = 0;

    if (!b->renders)
        return;
    for (size_t i = 0; i < ARRAY_LEN(boundary_roles); i++) {
        bool system = i == 2 || i == 3;

        b->roles[i] &= !(system && m->family->system_first);
        if (b->roles[i])
            b->role_names[n++] = boundary_roles[i];
    }
    m->info.append_roles = b->role_names;
}

/* --- stop ids --- */

/* Chooses a stop id if no known one is in the close: the first special token there, which the model
 * writes to end its turn. */
static void stop_from_close(struct model *m)
{
    struct str close = m->boundaries.close;
    size_t best = SIZE_MAX;
    int32_t id = -1;

    for (size_t i = 0; i < m->n_stops; i++) {
        if (m->stops[i].text.len && str_find(close, m->stops[i].text, 0) != SIZE_MAX)
            return;
    }
    for (size_t i = 0; i < tokenizer_added_count(m->tokenizer); i++) {
        const struct added_token *t = tokenizer_added(m->tokenizer, i);
        size_t at = t->special ? str_find(close, t->content, 0) : SIZE_MAX;

        if (at < best) {
            best = at;
            id = t->id;
        }
    }
    if (id >= 0)
        model_add_stop(m, id);
}

static bool stands_in(struct str text, struct str token)
{
    return token.len && str_find(text, token, 0) != SIZE_MAX;
}

/* Finds stop ids that begin the next turn. Such an id precedes a first user message, or is between
 * a call and its result without closing the call or a plain answer. It never closes a user
 * message. */
static void probe_openers(const struct probe *p)
{
    struct model *m = p->m;
    struct arena *a = &p->s->arena;
    struct json user = next_message(a, "user");
    struct str eos = json_string(json_get(&m->special, "eos_token")), head, after, plain, between,
               call;
    struct json small = standin_tools(a, "rg_call");
    struct standin x;
    size_t at;

    if (!render_probe(p, &user, false, &p->s->a))
        return;
    at = str_find(buf_str(&p->s->a), STR("RGNEXT"), 0);
    head = arena_str(a, str_sub(buf_str(&p->s->a), 0, at));
    after = arena_str(a, str_sub(buf_str(&p->s->a), at, p->s->a.len));
    plain = between = call = STR("");
    if (try_turn(p, plain_turn(a), "user", NULL, &x))
        plain =
            arena_printf(a, "%.*s%.*s", (int)x.closing.len, x.closing.p, (int)x.next.len, x.next.p);
    if (m->boundaries.tool_turns && try_turn(p, call_turn(a, ""), "tool", &small, &x)) {
        call = arena_str(a, x.closing);
        between = arena_str(a, str_sub(x.next, 0, str_find(x.next, STR("RGNEXT"), 0)));
    }
    for (size_t i = 0; i < m->n_stops; i++) {
        struct stop *s = &m->stops[i];

        if (!str_eq(s->text, eos) && !stands_in(after, s->text))
            s->opener = stands_in(head, s->text) ||
                        (stands_in(between, s->text) && !stands_in(call, s->text) &&
                         !stands_in(plain, s->text));
    }
}

/* Stores the generation prompt, after the text that the close has after its last stop token. */
static void store_lead(const struct probe *p)
{
    struct boundaries *b = &p->m->boundaries;
    struct model_info *info = &p->m->info;
    struct str rest = b->close;
    struct buf text = {0};
    int32_t *ids;

    for (size_t i = 0; i < p->m->n_stops; i++) {
        struct str stop = p->m->stops[i].text;
        size_t at = stop.len && !p->m->stops[i].opener ? str_find(rest, stop, 0) : SIZE_MAX;

        if (at != SIZE_MAX)
            rest = str_sub(rest, at + stop.len, rest.len);
    }
    buf_add(&text, rest.p, rest.len);
    buf_add(&text, b->generation_prompt.p, b->generation_prompt.len);
    vec_clear(&p->s->ids);
    if (text.len && encoder_encode(p->s->encoder, buf_str(&text), false, &p->s->ids, NULL) == 0) {
        ids = arena_alloc(&p->m->arena, p->s->ids.n * sizeof(*ids));
        memcpy(ids, p->s->ids.at, p->s->ids.n * sizeof(*ids));
        info->lead_ids = ids;
        info->n_lead_ids = p->s->ids.n;
    }
    buf_done(&text);
}

bool boundaries_think(const struct boundaries *b)
{
    struct str prompt = b->generation_prompt;

    return str_find(prompt, STR("<think>"), 0) != SIZE_MAX &&
           str_find(prompt, STR("</think>"), 0) == SIZE_MAX;
}

static bool is_append_only(const struct boundaries *b)
{
    bool plain = b->append_plain && (b->append_tools || !b->tool_turns);

    return b->append_thought && (b->append_thought_call || !b->tool_turns) &&
           (plain || boundaries_think(b));
}

/* --- variables that keep a template append-only --- */

static unsigned kept_continuations(const struct boundaries *b)
{
    return b->append_plain + b->append_tools + b->append_thought + b->append_thought_call +
           (is_append_only(b) ? 8U : 0U);
}

/* Tries the known variables that may keep a template append-only. Keeps the first of those that
 * keep most. */
static void choose_pin(struct probe *p)
{
    static const struct {
        const char *name;
        bool value;
    } pins[] = {{"preserve_thinking", true},  {"clear_thinking", false},
                {"drop_thinking", false},     {"truncate_history_thinking", false},
                {"keep_past_thinking", true}, {"keep_thinking", true},
                {"preserve_reasoning", true}};
    struct model *m = p->m;
    struct boundaries best = m->boundaries;
    const char *pin = m->pin;
    bool value = m->pin_value;

    for (size_t i = 0; i < ARRAY_LEN(pins) && !is_append_only(&best); i++) {
        m->pin = pins[i].name;
        m->pin_value = pins[i].value;
        if ((pin && strcmp(pin, pins[i].name) == 0) ||
            !template_mentions(model_template(m, true), pins[i].name))
            continue;
        probe_turns(p);
        if (kept_continuations(&m->boundaries) > kept_continuations(&best)) {
            best = m->boundaries;
            pin = pins[i].name;
            value = pins[i].value;
        }
    }
    m->boundaries = best;
    m->pin = pin;
    m->pin_value = value;
}

/* --- messages that a suffix needs --- */

enum { LEARN_TRIALS = 160, LEARN_SEED = 1000003 };

/* Learns from random conversations what a template writes after a turn that single messages do not
 * show. */
static void learn_needs(const struct probe *p)
{
    struct boundaries *b = &p->m->boundaries;
    const struct trial_plan plan = {LEARN_SEED, LEARN_TRIALS, true};
    bool all = false;

    while (b->renders && !b->counts_turns) {
        struct model_trials t = {0};

        trial_run(p->m, p->s, &plan, &t, NULL);
        if (t.differ + t.leaked == 0)
            return;
        b->counts_turns = all;
        b->tools_in_suffix = b->system_in_suffix = all = true;
    }
}

static void apply_family_pin(struct model *m)
{
    const char *pin = m->family->pin;

    if (pin && template_mentions(m->template_default, pin)) {
        m->pin = pin;
        m->pin_value = m->family->pin_value;
    }
}

void model_probe_again(struct model *m, struct model_scratch *s)
{
    struct probe p = {.m = m, .s = s};
    struct boundaries *b = &m->boundaries;

    b->append_plain = b->append_tools = b->append_thought = b->append_thought_call = false;
    b->append_late = b->tool_turns = false;
    memset(b->roles, 0, sizeof(b->roles));
    memset(b->role_names, 0, sizeof(b->role_names));
    b->generation_prompt = STR("");
    probe_turns(&p);
    probe_generation_prompt(&p);
    list_roles(m);
    m->info.append_only = is_append_only(b);
    arena_reset(&s->arena);
}

/* Encodes a letter twice. */
static bool joins_texts(const struct probe *p)
{
    struct buf text = {0};
    bool ret;

    vec_clear(&p->s->ids);
    ret = encoder_encode(p->s->encoder, STR("a"), false, &p->s->ids, NULL) == 0 &&
          encoder_encode(p->s->encoder, STR("a"), false, &p->s->ids, NULL) == 0;
    tokenizer_decode(p->m->tokenizer, p->s->ids.at, p->s->ids.n, false, &text);
    ret = ret && str_eq_c(buf_str(&text), "aa");
    buf_done(&text);
    return ret;
}

void model_probe(struct model *m, struct model_scratch *s)
{
    struct probe p = {.m = m, .s = s};
    int32_t *ids;

    apply_family_pin(m);
    m->info.content_lists = true; /* makes normalising pass lists to the template */
    m->info.content_lists = reads_lists(&p);
    m->info.names = shows_names(&p);
    probe_wraps(&p);
    m->boundaries.developer = has_developer(&p);
    probe_turns(&p);
    if (!m->boundaries.renders)
        probe_refusal(&p);
    probe_generation_prompt(&p);
    choose_pin(&p);
    list_roles(m);
    stop_from_close(m);
    probe_openers(&p);
    m->info.append_only = is_append_only(&m->boundaries);
    ids = arena_alloc(&m->arena, m->n_stops * sizeof(*ids));
    for (size_t i = 0; i < m->n_stops; i++)
        ids[i] = m->stops[i].id;
    m->info.stop_ids = ids;
    m->info.n_stop_ids = m->n_stops;
    m->boundaries.joins_texts = joins_texts(&p);
    store_lead(&p);
    learn_needs(&p);
    arena_reset(&s->arena);
}
