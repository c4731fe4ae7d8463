#include "worker/parsers/parser.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/parsers/core.h"

struct think_tags {
    const char *start;
    const char *end;
    bool forced;      /* the model starts inside its thought even if the prompt does not say so */
    bool call_closes; /* a tool call ends an open thought */
};

static const struct think_tags think_tags[REASONING_KIND_COUNT] = {
    [REASONING_QWEN3] = {"<think>", "</think>", false, true},
    [REASONING_DEEPSEEK_R1] = {"<think>", "</think>", true, false},
    [REASONING_GLM45] = {"<think>", "</think>", false, true},
    [REASONING_MINIMAX] = {"<think>", "</think>", true, false},
    [REASONING_KIMI] = {"◁think▷", "◁/think▷", false, true},
    [REASONING_KIMI_K2] = {"<think>", "</think>", false, true},
    [REASONING_MISTRAL] = {"[THINK]", "[/THINK]", false, true},
};

const struct grammar *grammar_of(enum tool_kind kind)
{
    const struct grammar *g = grammar_json(kind);

    if (!g)
        g = grammar_raw(kind);
    if (!g)
        g = grammar_tags(kind);
    return g ? g : grammar_python(kind);
}

struct parser *parser_new(const struct parser_options *o, struct parse_sink sink)
{
    struct parser *p = mem_zalloc(sizeof(*p));

    buf_reserve(&p->in, 1); /* core_cut points into it even when it is empty */
    p->tool = o->tool;
    p->reasoning = o->reasoning;
    p->tools = o->tools;
    p->hold_bytes = o->hold_bytes;
    p->sink = sink;
    p->quiet = true;
    p->reasoning_open = o->thought == THOUGHT_OPEN ||
                        (o->thought == THOUGHT_MAYBE && think_tags[o->reasoning].forced);
    p->call_closes = o->call_closes || think_tags[o->reasoning].call_closes;
    p->phase = think_tags[o->reasoning].start ? PHASE_START : PHASE_CONTENT;
    p->harmony = o->tool == TOOL_GPT_OSS || o->reasoning == REASONING_HARMONY;
    if (p->harmony)
        p->phase = 0;
    else
        p->grammar = grammar_of(o->tool);
    return p;
}

void parser_free(struct parser *p)
{
    if (!p)
        return;
    buf_done(&p->in);
    buf_done(&p->call.name);
    buf_done(&p->call.id);
    buf_done(&p->call.key);
    buf_done(&p->call.made);
    python_scan_done(&p->call.python);
    free(p);
}

/* --- the thought --- */

static bool start_step(struct parser *p)
{
    enum step r;

    p->pos = p->done;
    if (core_blanks(p) != STEP_YES)
        return false;
    r = core_eat(p, think_tags[p->reasoning].start);
    if (r == STEP_MORE)
        return false;
    if (r == STEP_YES) {
        core_take(p, PARSE_SOURCE, p->pos);
        p->marked = true;
    }
    p->pos = p->done;
    p->phase = r == STEP_YES || p->reasoning_open ? PHASE_REASONING : PHASE_CONTENT;
    return true;
}

/* The thought so far goes out; one of white space only is none. */
static void take_thought(struct parser *p, bool ends)
{
    if (p->quiet && core_all_blank(core_cut(p, p->done, p->pos))) {
        if (ends)
            core_take(p, PARSE_SOURCE, p->pos);
        return;
    }
    p->quiet = false;
    core_take(p, PARSE_REASONING, p->pos);
}

static bool reasoning_step(struct parser *p)
{
    const struct think_tags *t = &think_tags[p->reasoning];
    const struct grammar *g = p->call_closes ? p->grammar : NULL;
    const char *marks[] = {t->end, g ? g->open[0] : NULL, g ? g->open[1] : NULL,
                           g ? g->begin[0] : NULL, g ? g->begin[1] : NULL};
    size_t which = 0;

    if (core_find(p, marks, ARRAY_LEN(marks), &which) != STEP_YES) {
        take_thought(p, p->final);
        return false;
    }
    take_thought(p, true);
    if (which == 0) {
        p->pos += strlen(t->end);
        core_take(p, PARSE_SOURCE, p->pos);
    }
    p->marked = true;
    p->quiet = true;
    p->phase = PHASE_CONTENT;
    return true;
}

/* --- text and calls --- */

static void begin_call(struct parser *p)
{
    tool_call_reset(p);
    p->phase = PHASE_UNIT;
}

static void at_mark(struct parser *p, const char *mark, size_t which)
{
    core_take_text(p);
    p->pos += strlen(mark);
    p->mark_end = p->pos;
    p->in_list = false;
    if (which >= 4) {
        core_take(p, PARSE_SOURCE, p->pos);
        p->in_section = false;
        p->quiet = true;
    } else if (which < 2) {
        p->phase = PHASE_OPENED;
    } else {
        begin_call(p);
    }
}

/* A call without a mark: only where no text was spoken since the start or the last call. */
static enum step try_bare(struct parser *p)
{
    enum step r;
    size_t at;

    p->pos = p->done;
    if (core_blanks(p) != STEP_YES)
        return STEP_MORE;
    at = p->pos;
    if (core_over(p))
        return STEP_NO;
    r = p->grammar->bare(p);
    if (r == STEP_YES) {
        p->mark_end = p->pos > at ? p->pos : at + 1;
        begin_call(p);
    } else {
        p->pos = at;
    }
    return r;
}

static bool content_step(struct parser *p)
{
    const struct grammar *g = p->grammar;
    size_t which = 0;

    if (!g) {
        p->pos = core_end(p);
        core_take_text(p);
        return false;
    }
    if (p->quiet && g->bare) {
        enum step r = try_bare(p);

        if (r != STEP_NO)
            return r == STEP_YES;
        p->in_list = false;
    }
    const char *marks[] = {g->open[0],
                           g->open[1],
                           g->begin[0],
                           g->begin[1],
                           p->in_section ? g->close[0] : NULL,
                           p->in_section ? g->close[1] : NULL};

    if (core_find(p, marks, ARRAY_LEN(marks), &which) != STEP_YES) {
        core_take_text(p);
        return false;
    }
    at_mark(p, marks[which], which);
    return true;
}

/* The block is no valid call: its mark is text, and what follows is read anew. */
static void unit_fails(struct parser *p)
{
    core_warn(p, "a block that looks like a tool call is not a valid one; it stays in content");
    core_take(p, PARSE_TEXT, p->mark_end);
    p->pos = p->done;
    p->quiet = false;
    p->in_list = false;
    p->phase = PHASE_CONTENT;
}

/* Behind a section's tag: a call must begin. */
static bool opened_step(struct parser *p)
{
    const struct grammar *g = p->grammar;
    enum step best = STEP_NO;

    if (core_blanks(p) != STEP_YES)
        return false;
    for (size_t i = 0; i < 2; i++) {
        enum step r = g->begin[i] ? core_eat(p, g->begin[i]) : STEP_NO;

        if (r == STEP_YES) {
            p->mark_end = p->pos;
            begin_call(p);
            return true;
        }
        if (r == STEP_MORE)
            best = r;
    }
    if (best == STEP_MORE)
        return false;
    unit_fails(p);
    return true;
}

static bool unit_step(struct parser *p)
{
    enum step r = p->grammar->run(p);

    if (r == STEP_YES) {
        tool_call_accept(p);
        p->in_section = true; /* its closing tag is syntax, even if the opening one was not */
        p->quiet = true;
        p->phase = PHASE_CONTENT;
        return true;
    }
    if (r == STEP_MORE && !p->final) {
        tool_call_stream(p);
        return false;
    }
    /* The same commitment that a cut just before this place would have made. */
    tool_call_stream(p);
    if (p->call.committed) {
        tool_call_breaks(p);
        p->phase = PHASE_BROKEN;
        return true;
    }
    if (r == STEP_MORE)
        p->mark_end = core_end(p);
    unit_fails(p);
    return true;
}

/* A committed call that is not valid, up to its end. */
static bool broken_step(struct parser *p)
{
    const struct grammar *g = p->grammar;
    const char *marks[] = {g->end, g->begin[0], g->begin[1]};
    size_t which = 0;
    enum step r = core_find(p, marks, ARRAY_LEN(marks), &which);

    tool_call_rest(p);
    if (r != STEP_YES && !p->final)
        return false;
    if (r == STEP_YES && which == 0)
        p->pos += strlen(g->end);
    tool_call_rest_ends(p);
    p->in_section = true;
    p->phase = PHASE_CONTENT;
    return true;
}

static bool step(struct parser *p)
{
    if (p->harmony)
        return harmony_step(p);
    switch ((enum parser_phase)p->phase) {
    case PHASE_START:
        return start_step(p);
    case PHASE_REASONING:
        return reasoning_step(p);
    case PHASE_CONTENT:
        return content_step(p);
    case PHASE_OPENED:
        return opened_step(p);
    case PHASE_UNIT:
        return unit_step(p);
    case PHASE_BROKEN:
        return broken_step(p);
    }
    return false;
}

void parser_feed(struct parser *p, struct str text)
{
    size_t keep;

    buf_add_str(&p->in, text);
    while (step(p))
        ;
    /* A committed call may still need the start of what it is reading. */
    keep = p->done;
    if (p->phase == PHASE_UNIT && p->call.from && p->call.from < keep && !p->harmony)
        keep = p->call.from;
    buf_consume(&p->in, keep - p->base);
    p->base = keep;
}

void parser_finish(struct parser *p)
{
    p->final = true;
    while (step(p))
        ;
    /* White space that waited for something: part of the syntax only if there was any. */
    core_take(p, p->marked ? PARSE_SOURCE : PARSE_TEXT, core_end(p));
}

bool reasoning_tags(enum reasoning_kind kind, const char **start, const char **end)
{
    *start = think_tags[kind].start;
    *end = think_tags[kind].end;
    return *start != NULL;
}

enum thought_state parser_thought(enum reasoning_kind kind, struct str tail)
{
    const struct think_tags *t = &think_tags[kind];

    tail = str_trim(tail);
    if (t->start && str_ends(tail, str_cstr(t->end)))
        return THOUGHT_CLOSED;
    if (t->start && (t->forced || str_ends(tail, str_cstr(t->start))))
        return THOUGHT_OPEN;
    return THOUGHT_MAYBE;
}

static bool is_among(const char *const *marks, size_t n, struct str token)
{
    for (size_t i = 0; i < n; i++) {
        if (marks[i] && str_find(str_cstr(marks[i]), token, 0) != SIZE_MAX)
            return true;
    }
    return false;
}

bool parser_reads(const struct parser_options *o, struct str token)
{
    const struct think_tags *t = &think_tags[o->reasoning];
    const struct grammar *g = grammar_of(o->tool);
    const char *tags[] = {t->start, t->end, g ? g->end : NULL};

    if (o->tool == TOOL_GPT_OSS || o->reasoning == REASONING_HARMONY)
        return harmony_reads(token);
    return is_among(tags, ARRAY_LEN(tags), token) ||
           (g && (is_among(g->open, ARRAY_LEN(g->open), token) ||
                  is_among(g->begin, ARRAY_LEN(g->begin), token) ||
                  is_among(g->close, ARRAY_LEN(g->close), token) ||
                  is_among(g->within, ARRAY_LEN(g->within), token)));
}
