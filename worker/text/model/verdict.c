/*
 * Describes the model's state (measure_standing: which continuations are kept, whether calls are
 * read back). Then tries remedies: each variable of the template alone, pairs if no single one
 * helps, other families, other parsers. A trial is a copy of the model with one change, probed
 * again (try_copy); the model itself is not changed. A remedy is reported only if nothing is worse
 * with it (is_better).
 */
#include "worker/text/model/verdict.h"

#include <stdio.h>
#include <string.h>

#include "common/base/vec.h"
#include "worker/text/model/rehearsal.h"
#include "worker/text/model/round_trip.h"
#include "worker/text/template/pystr.h"

/* The ways in which a conversation continues; indexes of the bits in standing.kept. */
static const char *const continuations[] = {"answer, then user", "call, then result",
                                            "thought and call, then result", "thought, then user",
                                            "answer, then system"};

/* State of a model with its present variables and parsers. */
struct standing {
    unsigned kept; /* one bit for each continuation that stays as written */
    unsigned lost; /* one bit for each continuation that is rewritten */
    bool append_only;
    enum round_trip trip[ROUND_TRIP_CALLS_MAX];
};

static enum round_trip trip_of(const struct model *m, struct model_scratch *s, enum tool_kind tool,
                               uint32_t calls)
{
    struct round_trip_plan plan = {tool, REASONING_NONE, calls};

    (void)reasoning_kind_named(str_cstr(m->info.reasoning_parser), &plan.reasoning);
    return round_trip(m, s, &plan, NULL);
}

static enum tool_kind tool_of(const struct model *m)
{
    enum tool_kind tool = TOOL_NONE;

    (void)tool_kind_named(str_cstr(m->info.tool_parser), &tool);
    return tool;
}

static struct standing measure_standing(const struct model *m, struct model_scratch *s)
{
    const struct boundaries *b = &m->boundaries;
    bool calls = b->tool_turns, late = b->roles[ROLE_SYSTEM], plain = !boundaries_think(b);
    const bool kept[] = {b->append_plain, b->append_tools, b->append_thought_call,
                         b->append_thought, late && b->append_late};
    const bool seen[] = {b->renders && plain, calls && plain, calls, b->renders, late};
    struct standing ret = {.append_only = m->info.append_only};

    for (size_t i = 0; i < ARRAY_LEN(continuations); i++) {
        ret.kept |= kept[i] ? 1U << i : 0;
        ret.lost |= seen[i] && !kept[i] ? 1U << i : 0;
    }
    for (uint32_t i = 0; i < ROUND_TRIP_CALLS_MAX; i++)
        ret.trip[i] = trip_of(m, s, tool_of(m), i + 1);
    return ret;
}

static bool is_lost(enum round_trip r)
{
    return r == ROUND_TRIP_LOST || r == ROUND_TRIP_DIFFERS;
}

static void list_continuations(struct buf *out, unsigned bits)
{
    const char *between = "";

    for (size_t i = 0; i < ARRAY_LEN(continuations); i++) {
        if (!(bits & 1U << i))
            continue;
        buf_printf(out, "%s%s", between, continuations[i]);
        between = "; ";
    }
}

/* --- remedies --- */

/* One remedy to try, and what is better with it. */
struct remedy {
    const struct model *m;
    const struct standing *now;
    struct buf *out;
    size_t told;
    bool made_append_only;
};

static bool is_better(const struct standing *now, const struct standing *with)
{
    bool some_lost = now->kept & ~with->kept, some_won = with->kept & ~now->kept;

    if (now->append_only && !with->append_only)
        return false;
    for (size_t i = 0; i < ROUND_TRIP_CALLS_MAX; i++)
        if (now->trip[i] == ROUND_TRIP_EXACT && with->trip[i] != ROUND_TRIP_EXACT)
            return false;
    if (with->append_only && !now->append_only)
        return true;
    for (size_t i = 0; i < ROUND_TRIP_CALLS_MAX; i++)
        if (is_lost(now->trip[i]) && with->trip[i] == ROUND_TRIP_EXACT)
            return !some_lost;
    return !now->append_only && some_won && !some_lost;
}

static void report_remedy(struct remedy *r, const char *what, const struct standing *with)
{
    unsigned won = with->kept & ~r->now->kept;
    const char *between = ": ";

    buf_printf(r->out, "%-20s %s", "  better with", what);
    if (with->append_only && !r->now->append_only) {
        buf_puts(r->out, ": append-only");
        between = ", ";
    } else if (won && !r->now->append_only) {
        buf_puts(r->out, ": also kept: ");
        list_continuations(r->out, won);
        between = ", ";
    }
    for (size_t i = 0; i < ROUND_TRIP_CALLS_MAX; i++) {
        if (!is_lost(r->now->trip[i]) || with->trip[i] != ROUND_TRIP_EXACT)
            continue;
        buf_printf(r->out, "%s%s", between, i ? "two calls are read back" : "a call is read back");
        between = ", ";
    }
    buf_add_c(r->out, '\n');
    r->told++;
    r->made_append_only = r->made_append_only || with->append_only;
}

/* Reports a changed copy of the model if its state is better. Frees what probing the copy made. */
static void try_copy(struct remedy *r, struct model *copy, const char *what)
{
    struct model_scratch *s = model_scratch_new(copy);
    struct standing with;

    model_probe_again(copy, s);
    with = measure_standing(copy, s);
    if (is_better(r->now, &with))
        report_remedy(r, what, &with);
    model_scratch_free(s);
    arena_done(&copy->arena);
}

static struct model copy_of(const struct model *m)
{
    struct model copy = *m;

    copy.arena = (struct arena){0};
    copy.notes = (struct buf){0};
    return copy;
}

struct variable {
    const char *name;
    bool value;
};

/* Adds variables to the special tokens, because a template sees both in the same object. */
static void try_together(struct remedy *r, struct arena *a, const struct variable *set, uint32_t n)
{
    struct model copy = copy_of(r->m);
    const struct json *special = &r->m->special;
    char what[320] = "chat_template_kwargs {";
    size_t at = strlen(what);

    copy.special = make_object(a, special->n + n);
    for (uint32_t i = 0; i < special->n; i++)
        copy.special.members[copy.special.n++] = special->members[i];
    for (uint32_t i = 0; i < n; i++) {
        object_put(&copy.special, set[i].name, json_make_bool(set[i].value));
        at += (size_t)snprintf(what + at, sizeof(what) - at, "\"%.100s\": %s%s", set[i].name,
                               set[i].value ? "true" : "false", i + 1 < n ? ", " : "}");
    }
    try_copy(r, &copy, what);
}

static void try_family(struct remedy *r, const struct model_family *f)
{
    struct model copy = copy_of(r->m);
    enum reasoning_kind reasoning;
    enum tool_kind tool;
    char what[80];

    parser_detect(template_source(model_template(r->m, true)), &tool, &reasoning);
    copy.family = f;
    copy.pin = NULL;
    if (f->pin && template_mentions(r->m->template_default, f->pin)) {
        copy.pin = f->pin;
        copy.pin_value = f->pin_value;
    }
    if (r->m->family->tool_parser || f->tool_parser)
        copy.info.tool_parser = f->tool_parser ? f->tool_parser : tool_kind_name(tool);
    if (r->m->family->reasoning_parser || f->reasoning_parser)
        copy.info.reasoning_parser =
            f->reasoning_parser ? f->reasoning_parser : reasoning_kind_name(reasoning);
    (void)snprintf(what, sizeof(what), "--tito-family %s", f->name);
    try_copy(r, &copy, what);
}

static void try_families(struct remedy *r)
{
    const struct model_family *own = family_detect(r->m->template_default), *f;

    if (own != r->m->family)
        try_family(r, own);
    for (size_t i = 0; (f = model_family_at(i)) && !r->made_append_only; i++)
        if (f != r->m->family && f != own)
            try_family(r, f);
}

/* Tries other parsers if calls are not read back. Reports the first that reads most of them. */
static void try_parsers(struct remedy *r, struct model_scratch *s)
{
    const enum round_trip *now = r->now->trip;
    enum tool_kind best = TOOL_NONE;
    struct standing with = *r->now;

    if (!is_lost(now[0]) && !is_lost(now[1]))
        return;
    for (int k = TOOL_NONE + 1; k < TOOL_KIND_COUNT; k++) {
        enum round_trip one = trip_of(r->m, s, (enum tool_kind)k, 1);
        enum round_trip two = trip_of(r->m, s, (enum tool_kind)k, 2);

        if (one != ROUND_TRIP_EXACT || (best && (is_lost(two) || !is_lost(with.trip[1]))))
            continue;
        best = (enum tool_kind)k;
        with.trip[0] = one;
        with.trip[1] = two;
    }
    if (best && is_better(r->now, &with)) {
        char what[80];

        (void)snprintf(what, sizeof(what), "--tool-parser %s", tool_kind_name(best));
        report_remedy(r, what, &with);
    }
}

/* --- the variables of a template --- */

enum { PAIRED_NAMES_MAX = 6 };

struct name_list {
    VEC(const char *) of;
};

static bool is_variable_byte(char c)
{
    return (pystr_flags((unsigned char)c) & PYSTR_ID_CONTINUE) != 0;
}

static struct str skip_blanks(struct str s)
{
    while (s.len && (*s.p == ' ' || *s.p == '\n' || *s.p == '\t'))
        s = str_sub(s, 1, s.len);
    return s;
}

/* Reports whether the text after a name checks that it is given: "is defined", "is not defined", "|
 * default". */
static bool asks_if_given(struct str behind)
{
    behind = skip_blanks(behind);
    if (str_starts(behind, STR("|")))
        return str_starts(skip_blanks(str_sub(behind, 1, behind.len)), STR("default"));
    if (!str_starts(behind, STR("is ")))
        return false;
    behind = skip_blanks(str_sub(behind, 3, behind.len));
    if (str_starts(behind, STR("not ")))
        behind = skip_blanks(str_sub(behind, 4, behind.len));
    return str_starts(behind, STR("defined"));
}

static void add_variable(const struct model *m, struct arena *a, struct str name,
                         struct name_list *names)
{
    static const char *const taken[] = {"messages", "tools", "documents", "add_generation_prompt"};
    bool skip = json_get_str(&m->special, name) || (m->pin && str_eq_c(name, m->pin));

    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        skip = skip || str_eq_c(name, taken[i]);
    for (size_t i = 0; i < names->of.n; i++)
        skip = skip || str_eq_c(name, names->of.at[i]);
    if (!skip)
        *vec_push(&names->of) = arena_cstr(a, name);
}

/* Finds known switches that the template mentions, and all names that it checks with "is
 * defined". */
static void find_names(const struct model *m, struct arena *a, struct name_list *names)
{
    struct str s = template_source(model_template(m, true));

    for (size_t i = 0; i < ARRAY_LEN(trial_switches); i++)
        if (template_mentions(model_template(m, true), trial_switches[i]))
            add_variable(m, a, str_cstr(trial_switches[i]), names);
    for (size_t at = 0; at < s.len;) {
        size_t end = at;

        while (end < s.len && is_variable_byte(s.p[end]))
            end++;
        if (end > at && (at == 0 || s.p[at - 1] != '.') && asks_if_given(str_sub(s, end, s.len)))
            add_variable(m, a, str_sub(s, at, end - at), names);
        at = end + 1;
    }
}

static void report_tried(const struct name_list *names, struct buf *tried)
{
    buf_puts(tried, names->of.n ? "template variables " : "");
    for (size_t i = 0; i < names->of.n; i++)
        buf_printf(tried, "%s%s", names->of.at[i], i + 1 < names->of.n ? ", " : "; ");
    buf_puts(tried, "all families and tool parsers");
}

/* Tries two variables at a time until a remedy is found. Each pair needs a probe, so the names are
 * few. */
static void try_pairs(struct remedy *r, struct arena *a, const struct name_list *names)
{
    size_t n = MIN_OF(names->of.n, (size_t)PAIRED_NAMES_MAX);

    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            for (unsigned values = 0; values < 4 && r->told == 0; values++) {
                struct variable both[] = {{names->of.at[i], (values & 1) == 0},
                                          {names->of.at[k], (values & 2) == 0}};

                try_together(r, a, both, 2);
            }
        }
    }
}

/* Appends the names of tried variables to `tried`; callers append further remedies. */
static void try_variables(struct remedy *r, struct buf *tried)
{
    struct name_list names = {.of = {0}};
    struct arena a = {0};

    find_names(r->m, &a, &names);
    for (size_t i = 0; i < names.of.n; i++) {
        try_together(r, &a, &(struct variable){names.of.at[i], true}, 1);
        try_together(r, &a, &(struct variable){names.of.at[i], false}, 1);
    }
    if (r->told == 0)
        try_pairs(r, &a, &names);
    report_tried(&names, tried);
    vec_done(&names.of);
    arena_done(&a);
}

/* --- the report --- */

static const char *trip_name(enum round_trip r)
{
    static const char *const names[] = {"not written by the template", "exact", "DIFFERS",
                                        "NOT FOUND"};

    return names[r];
}

static void report_trips(const struct model *m, struct model_scratch *s, const struct standing *now,
                         struct buf *out)
{
    struct round_trip_plan plan = {tool_of(m), REASONING_NONE, is_lost(now->trip[0]) ? 1 : 2};
    struct buf text = {0};

    buf_printf(out, "%-20s one call: %s; two parallel calls: %s\n", "round trip",
               trip_name(now->trip[0]), trip_name(now->trip[1]));
    if (!is_lost(now->trip[plan.calls - 1]))
        return;
    (void)reasoning_kind_named(str_cstr(m->info.reasoning_parser), &plan.reasoning);
    (void)round_trip(m, s, &plan, &text);
    buf_printf(out, "%-20s ", "  the template writes");
    json_write_string(out, buf_str(&text));
    buf_add_c(out, '\n');
    buf_done(&text);
}

static void report_turns(const struct model *m, const struct standing *now, struct buf *out)
{
    if (!m->boundaries.renders) {
        buf_puts(out, "NOT append-only, every turn costs a full render");
        return;
    }
    buf_puts(out, now->append_only ? "append-only" : "NOT append-only, rewritten: ");
    if (!now->append_only)
        list_continuations(out, now->lost);
    if (m->boundaries.counts_turns)
        buf_puts(out, ", every turn costs a full render");
}

static void report_calls(const struct standing *now, struct buf *out)
{
    if (now->trip[0] == ROUND_TRIP_UNSEEN)
        buf_puts(out, "the template writes no tool calls");
    else if (is_lost(now->trip[0]))
        buf_puts(out, "tool calls are NOT read back");
    else if (is_lost(now->trip[1]))
        buf_puts(out, "one tool call is read back, two are NOT");
    else
        buf_puts(out, "tool calls are read back");
}

static void explain_turns(const struct model *m, const struct standing *now, struct buf *out)
{
    if (m->info.refusal.p)
        buf_printf(out,
                   "NOT usable as it is: the template does not render a user's message: %.*s\n",
                   (int)m->info.refusal.len, m->info.refusal.p);
    else if (!m->boundaries.renders)
        buf_puts(out, "usable, slowly: the whole chat is rendered anew for each turn, and a turn "
                      "that changes earlier text starts a new branch\n");
    else if (!now->append_only)
        buf_puts(out, "usable, with a choice: the template rewrites earlier turns. By default the "
                      "sampled tokens stay as they were\n                     "
                      "and later prompts differ from a full rendering; "
                      "--on-template-rewrite branch starts a new branch instead\n");
    else
        buf_puts(out, "ready: each turn is appended to the tokens of the turn before, so one "
                      "conversation gives one trajectory\n");
}

void verdict_explain(const struct model *m, struct buf *out)
{
    struct model_scratch *s = model_scratch_new(m);
    struct standing now = measure_standing(m, s);

    buf_printf(out, "%-20s ", "result");
    explain_turns(m, &now, out);
    if (!m->info.refusal.p && now.trip[0] == ROUND_TRIP_UNSEEN)
        buf_printf(out, "%-20s the template shows no tool calls: use it for agents without tools\n",
                   "");
    else if (is_lost(now.trip[0]))
        buf_printf(out,
                   "%-20s tool calls are not recognized: agents would get them as text; see "
                   "`better with`, or choose --tool-parser\n",
                   "");
    else if (is_lost(now.trip[1]))
        buf_printf(out,
                   "%-20s parallel tool calls are not recognized: agents must make one call "
                   "a turn\n",
                   "");
    model_scratch_free(s);
}

void verdict_report(const struct model *m, struct buf *out)
{
    struct model_scratch *s = model_scratch_new(m);
    struct standing now = measure_standing(m, s);
    struct remedy r = {.m = m, .now = &now, .out = out};
    struct buf tried = {0};

    report_trips(m, s, &now, out);
    buf_printf(out, "%-20s ", "verdict");
    report_turns(m, &now, out);
    buf_puts(out, "; ");
    report_calls(&now, out);
    buf_add_c(out, '\n');
    if (!now.append_only || is_lost(now.trip[0]) || is_lost(now.trip[1])) {
        try_variables(&r, &tried);
        try_families(&r);
        try_parsers(&r, s);
        if (r.told == 0)
            buf_printf(out, "%-20s %.*s\n", "  no better with", (int)tried.len, tried.p);
    }
    buf_done(&tried);
    model_scratch_free(s);
}
