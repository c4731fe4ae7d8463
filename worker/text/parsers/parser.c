/*
 * The loop and its phases. run_phase() runs the present phase until nothing more can be decided.
 * Undecided bytes stay in p->in for the next feed.
 *
 *   START -> REASONING -> CONTENT <-> OPENED, HEADER, UNIT: a call
 *                                                     '-> BROKEN: a call that was sent early has
 *                                                     failed
 *
 * Content is searched for all marks of the family at once; the mark that is found decides the
 * phase. The family's own reader runs in UNIT. If it refuses, only the mark becomes text and the
 * text after it is read again, so that a real call after a false one is found. If that takes too
 * long, the rest of the answer is text (count_reread).
 *
 * Every decision depends on the text, never on its split. If a search could have got further with a
 * longer piece, its position is put back (core_beyond, unit_step).
 */
#include "worker/text/parsers/parser.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/text/parsers/core.h"

struct parser *parser_new(const struct parser_options *o, struct parse_sink sink)
{
    struct parser *p = mem_zalloc(sizeof(*p));

    /* core_cut points into p->in even if it is empty; most texts fit into it as it is */
    buf_reserve(&p->in, 512);
    p->tool = o->tool;
    p->tools = o->tools ? tool_index_new(o->tools) : NULL;
    p->hold_bytes = o->hold_bytes;
    p->sink = sink;
    p->quiet = true;
    p->think = think_tags_of(o->reasoning);
    p->reasoning_open =
        o->thought == THOUGHT_OPEN || (o->thought == THOUGHT_MAYBE && p->think->forced);
    p->call_closes = o->call_closes || p->think->call_closes;
    p->phase = p->think->start[0] ? PHASE_START : PHASE_CONTENT;
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
    tool_index_free(p->tools);
    free(p);
}

/* --- the thought --- */

/* Matches the longest of the marks at pos. Returns MORE while a longer one is still possible. */
static enum step eat_any(struct parser *p, const char *const *marks, size_t n)
{
    size_t longest = 0;

    for (size_t i = 0; i < n && marks[i]; i++) {
        enum step r = core_lit(p, p->pos, marks[i]);

        if (r == STEP_MORE)
            return r;
        if (r == STEP_YES)
            longest = MAX_OF(longest, strlen(marks[i]));
    }
    p->pos += longest;
    return longest ? STEP_YES : STEP_NO;
}

/* Matches one of the tags, perhaps after white space. A tag may begin with white space itself. */
static enum step eat_tag(struct parser *p, const char *const *tags, size_t n, size_t blanks_end)
{
    enum step r;

    p->pos = p->done;
    r = eat_any(p, tags, n);
    if (r == STEP_NO && blanks_end > p->done) {
        p->pos = blanks_end;
        r = eat_any(p, tags, n);
    }
    return r;
}

/* Reads the start of the answer. All start tags before the thought are syntax. So is an end
 * tag that opens the answer, if the kind writes one for "no thought". */
static bool start_step(struct parser *p)
{
    const struct think_tags *t = p->think;
    size_t at;
    enum step opens, ends = STEP_NO;

    p->pos = p->done;
    if (core_blanks(p) != STEP_YES)
        return false;
    at = p->pos;
    opens = eat_tag(p, t->start, ARRAY_LEN(t->start), at);
    if (opens == STEP_NO && t->bare_end && !p->reasoning_open)
        ends = eat_tag(p, t->end, ARRAY_LEN(t->end), at);
    if (opens == STEP_MORE || ends == STEP_MORE)
        return false;
    if (opens == STEP_YES || ends == STEP_YES) {
        core_output(p, PARSE_SOURCE, p->pos);
        p->marked = true;
    }
    p->pos = p->done;
    if (opens == STEP_YES)
        p->reasoning_open = true;
    else
        p->phase = p->reasoning_open ? PHASE_REASONING : PHASE_CONTENT;
    return true;
}

/* Sends the thought so far. White space alone is not a thought. */
static void output_thought(struct parser *p, bool ends)
{
    if (p->quiet && core_blanks_end(p, p->done) >= p->pos) {
        if (ends)
            core_output(p, PARSE_SOURCE, p->pos);
        return;
    }
    p->quiet = false;
    core_output(p, PARSE_REASONING, p->pos);
}

/* --- marks to search --- */

enum mark_kind {
    MARK_THINK_END,
    MARK_OPEN,
    MARK_BEGIN,
    MARK_CLOSE,
    MARK_SKIP,
    MARK_PROSE,
    MARK_HEAD
};

enum { MARKS_MAX = 24 };

struct mark_list {
    const char *at[MARKS_MAX];
    uint8_t kind[MARKS_MAX];
    size_t n;
};

static void add_marks(struct mark_list *m, const char *const *list, size_t n, enum mark_kind kind)
{
    for (size_t i = 0; i < n && list[i]; i++) {
        m->at[m->n] = list[i];
        m->kind[m->n++] = (uint8_t)kind;
    }
}

static void add_calls(struct mark_list *m, const struct grammar *g)
{
    add_marks(m, g->open, ARRAY_LEN(g->open), MARK_OPEN);
    add_marks(m, g->begin, ARRAY_LEN(g->begin), MARK_BEGIN);
}

/* Lists the marks that reasoning_step searches. */
static void thought_marks(const struct parser *p, struct mark_list *m)
{
    add_marks(m, p->think->end, ARRAY_LEN(p->think->end), MARK_THINK_END);
    if (p->grammar && p->call_closes)
        add_calls(m, p->grammar);
}

static bool reasoning_step(struct parser *p)
{
    struct mark_list m = {.n = 0};
    size_t which = 0;

    thought_marks(p, &m);
    if (core_find(p, m.at, m.n, &which) != STEP_YES) {
        output_thought(p, p->final);
        return false;
    }
    output_thought(p, true);
    if (m.kind[which] == MARK_THINK_END) {
        p->pos += strlen(m.at[which]);
        core_output(p, PARSE_SOURCE, p->pos);
    }
    p->marked = true;
    p->quiet = true;
    p->headless = false;
    p->drops_newlines = p->think->newlines && m.kind[which] == MARK_THINK_END;
    p->phase = PHASE_CONTENT;
    return true;
}

/* Drops newlines after a thought. Returns false if more of them may follow. */
static bool drop_newlines(struct parser *p)
{
    for (p->pos = p->done; p->pos < core_end(p) && core_at(p, p->pos) == '\n'; p->pos++)
        ;
    p->drops_newlines = p->pos == core_end(p);
    if (p->pos > p->done)
        core_output(p, PARSE_SOURCE, p->pos);
    p->pos = p->done;
    return !p->drops_newlines;
}

/* --- text and calls --- */

static void begin_call(struct parser *p)
{
    tool_call_reset(p);
    p->phase = PHASE_UNIT;
}

static void at_mark(struct parser *p, const char *mark, enum mark_kind kind)
{
    core_output_text(p);
    p->pos += strlen(mark);
    p->mark_end = p->pos;
    p->in_list = false;
    switch (kind) {
    case MARK_OPEN:
        p->phase = PHASE_OPENED;
        break;
    case MARK_HEAD:
        p->phase = PHASE_HEADER;
        break;
    case MARK_BEGIN:
        begin_call(p);
        break;
    case MARK_PROSE:
        begin_call(p);
        p->call.prose = true;
        p->pos -= strlen(mark);
        break;
    default:
        core_output(p, PARSE_SOURCE, p->pos);
        p->in_section = p->in_section && kind != MARK_CLOSE;
        p->marked = true;
        p->quiet = true;
    }
}

static bool header_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_.-:/", c));
}

/* Reads the rest of a header after its mark. Text or a call's body follows its end. */
static enum step read_header(struct parser *p)
{
    const struct message_head *h = p->grammar->header;
    size_t from, at;
    enum step r = core_blanks(p);

    if (r == STEP_YES && h->lead)
        r = core_eat(p, h->lead);
    if (r != STEP_YES)
        return r;
    for (from = p->pos; p->pos < core_end(p) && header_byte(core_at(p, p->pos)); p->pos++)
        if (p->pos - from > NAME_MAX_BYTES)
            return STEP_NO;
    if (p->pos == core_end(p))
        return p->final ? STEP_NO : STEP_MORE;
    at = p->pos;
    r = eat_any(p, p->grammar->begin, ARRAY_LEN(p->grammar->begin));
    if (r == STEP_YES) {
        p->mark_end = p->pos;
        begin_call(p);
        return r;
    }
    if (r == STEP_NO)
        r = eat_any(p, h->end, ARRAY_LEN(h->end));
    if (r != STEP_YES)
        return r;
    p->mark_end = at;
    core_output(p, PARSE_SOURCE, p->pos);
    p->quiet = p->headless = p->marked = true;
    p->phase = PHASE_CONTENT;
    return r;
}

/* Reads a header that opens the answer without its mark. */
static enum step try_header(struct parser *p)
{
    enum step r;

    p->pos = p->done;
    r = read_header(p);
    if (r != STEP_YES)
        p->pos = p->done;
    return r;
}

/* Reads a call without a mark. No text may have come since the start or the last call. */
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
        p->pos = MAX_OF(at, p->done);
    }
    return r;
}

/* Lists the marks that are searched in text. */
static void content_marks(const struct parser *p, struct mark_list *m)
{
    const struct grammar *g = p->grammar;
    bool calls = g && !p->calls_given_up;

    if (calls && g->header) /* as a call, it precedes the same mark as syntax */
        add_marks(m, &g->header->mark, 1, MARK_HEAD);
    add_marks(m, p->think->wrap, ARRAY_LEN(p->think->wrap), MARK_SKIP);
    if (!g)
        return;
    if (calls)
        add_calls(m, g);
    if (p->in_section)
        add_marks(m, g->close, ARRAY_LEN(g->close), MARK_CLOSE);
    add_marks(m, g->skip, ARRAY_LEN(g->skip), MARK_SKIP);
    if (calls)
        add_marks(m, g->prose, ARRAY_LEN(g->prose), MARK_PROSE);
}

static bool content_step(struct parser *p)
{
    const struct grammar *g = p->calls_given_up ? NULL : p->grammar;
    struct mark_list m = {.n = 0};
    size_t which = 0;

    if (p->quiet && g && g->header && !p->headless) {
        enum step r = try_header(p);

        if (r != STEP_NO)
            return r == STEP_YES;
        p->headless = true;
    }
    if (p->quiet && g && g->bare) {
        enum step r = try_bare(p);

        if (r != STEP_NO)
            return r == STEP_YES;
        p->in_list = false;
    }
    content_marks(p, &m);
    if (core_find(p, m.at, m.n, &which) != STEP_YES) {
        core_output_text(p);
        return false;
    }
    at_mark(p, m.at[which], (enum mark_kind)m.kind[which]);
    return true;
}

/* Bytes that may be read again in any case, and in addition as a multiple of the text so far. */
enum { REREAD_FREE_BYTES = 16 << 10, REREAD_TIMES = 2 };

/* Counts the bytes of a failed unit, which ended at pos and is read again from `from` on. The limit
 * matters for K open units that all end at the same far position: their text is read K times. */
static void count_reread(struct parser *p, size_t from)
{
    p->reread += p->pos - MIN_OF(from, p->pos);
    if (p->reread <= REREAD_FREE_BYTES + REREAD_TIMES * p->pos)
        return;
    core_warn(p, WARN_GIVEN_UP);
    p->calls_given_up = true;
    p->starts_of = 0;
}

/* Handles a block that is not a valid call: its mark is text, and the bytes after it are read
 * again. A mark in the middle of text causes a warning only if the name of a call was known. */
static void unit_fails(struct parser *p)
{
    bool prose = p->phase == PHASE_UNIT && p->call.prose;

    if (!prose || p->call.ready)
        core_warn(p, WARN_BLOCK);
    core_output(p, PARSE_TEXT, prose ? MIN_OF(p->done + 1, core_end(p)) : p->mark_end);
    count_reread(p, p->done);
    p->pos = p->done;
    p->quiet = false;
    p->in_list = false;
    p->phase = PHASE_CONTENT;
}

static bool header_step(struct parser *p)
{
    enum step r;

    p->pos = p->mark_end;
    r = read_header(p);
    if (r == STEP_NO) {
        core_output(p, PARSE_TEXT, p->mark_end);
        p->pos = p->done;
        p->quiet = false;
        p->phase = PHASE_CONTENT;
    }
    return r != STEP_MORE;
}

/* Reads the name of a tool at pos and the call after it, which has the name once more. */
static enum step eat_named(struct parser *p)
{
    const struct grammar *g = p->grammar;
    size_t from = p->pos, to;
    enum step r;

    while (p->pos < core_end(p) && header_byte(core_at(p, p->pos)))
        p->pos++;
    if (p->pos == from || core_beyond(p, from, NAME_MAX_BYTES))
        return STEP_NO;
    to = p->pos;
    r = core_blanks(p);
    if (r == STEP_YES && p->tools && !tool_index_find(p->tools, core_cut(p, from, to)))
        return STEP_NO;
    if (r == STEP_YES)
        r = eat_any(p, g->begin, ARRAY_LEN(g->begin));
    if (r != STEP_YES)
        p->pos = from;
    return r;
}

/* Handles the state after a section's tag: a call or an inner section must begin. */
static bool opened_step(struct parser *p)
{
    const struct grammar *g = p->grammar;
    enum step begun, opened = STEP_NO;

    if (core_blanks(p) != STEP_YES)
        return false;
    begun = eat_any(p, g->begin, ARRAY_LEN(g->begin));
    if (begun != STEP_YES)
        opened = eat_any(p, g->open, ARRAY_LEN(g->open));
    if (opened == STEP_YES) {
        p->mark_end = p->pos;
        return true;
    }
    if (begun == STEP_NO && opened == STEP_NO && g->named)
        begun = eat_named(p);
    if (begun == STEP_NO && opened == STEP_NO && g->opened && !core_over(p) &&
        core_at(p, p->pos) == g->opened)
        begun = STEP_YES;
    if (begun == STEP_YES) {
        p->mark_end = p->pos;
        begin_call(p);
        return true;
    }
    if (begun == STEP_MORE || opened == STEP_MORE)
        return false;
    unit_fails(p);
    return true;
}

static void skip_begins(struct parser *p)
{
    struct tool_call *c = &p->call;

    p->pos = c->item;
    c->depth = 0;
    c->field = 0; /* no quote is open */
    c->stage = 0; /* not after a backslash */
    p->phase = PHASE_SKIPPED;
}

/* Skips a byte of the element. Returns true if the byte ends the element. */
static bool skip_byte(struct tool_call *c, char byte)
{
    if (c->stage || (c->field && byte == '\\')) {
        c->stage = !c->stage;
    } else if (c->field) {
        c->field = byte == c->field ? 0 : c->field;
    } else if (byte == '"' || byte == '\'') {
        c->field = (unsigned char)byte;
    } else if (c->depth == 0 && (byte == ',' || byte == ']' || byte == ')' || byte == '}')) {
        return true;
    } else {
        c->depth += byte == '(' || byte == '[' || byte == '{';
        c->depth -= byte == ')' || byte == ']' || byte == '}';
    }
    return false;
}

/* Makes the element text. The calls after it in the list stay calls, as in vLLM and SGLang. */
static bool skipped_step(struct parser *p)
{
    struct tool_call *c = &p->call;

    while (p->pos < core_end(p) && !skip_byte(c, core_at(p, p->pos)))
        p->pos++;
    if (p->pos == core_end(p) && !p->final)
        return false;
    p->phase = PHASE_UNIT;
    if (core_over(p) || core_at(p, p->pos) != ',') {
        unit_fails(p);
        return true;
    }
    core_warn(p, WARN_BLOCK);
    count_reread(p, c->item);
    core_output(p, PARSE_TEXT, p->pos);
    p->quiet = true;
    p->in_list = true;
    p->phase = PHASE_CONTENT;
    return true;
}

static bool unit_step(struct parser *p)
{
    enum step r = p->grammar->run(p);

    if (r == STEP_YES) {
        tool_call_accept(p);
        p->in_section = true; /* the closing tag becomes syntax, even if the opening one was text */
        p->quiet = true;
        p->phase = PHASE_CONTENT;
        return true;
    }
    if (r == STEP_MORE && !p->final) {
        tool_call_stream(p);
        return false;
    }
    /* If a feed had ended just before this position, the call would have been committed by now. So
     * it is committed here, too, and events do not depend on the split. */
    tool_call_stream(p);
    if (p->call.committed) {
        tool_call_breaks(p);
        p->phase = PHASE_BROKEN;
        return true;
    }
    if (r == STEP_MORE)
        p->mark_end = core_end(p);
    if (r == STEP_NO && p->call.item && p->call.name.len)
        skip_begins(p);
    else
        unit_fails(p);
    return true;
}

/* Handles a committed call that is not valid, up to its end. */
static bool broken_step(struct parser *p)
{
    const struct grammar *g = p->grammar;
    const char *marks[] = {g->end, g->begin[0], g->begin[1], g->begin[2], g->begin[3]};
    size_t which = 0;
    enum step r = core_find(p, marks, ARRAY_LEN(marks), &which);

    tool_call_pass_remainder(p);
    if (r != STEP_YES && !p->final)
        return false;
    if (r == STEP_YES && which == 0)
        p->pos += strlen(g->end);
    tool_call_remainder_ends(p);
    p->in_section = true;
    p->phase = PHASE_CONTENT;
    return true;
}

static bool run_phase(struct parser *p)
{
    if (p->harmony)
        return harmony_step(p);
    switch ((enum parser_phase)p->phase) {
    case PHASE_START:
        return start_step(p);
    case PHASE_REASONING:
        return reasoning_step(p);
    case PHASE_CONTENT:
        return (!p->drops_newlines || drop_newlines(p)) && content_step(p);
    case PHASE_OPENED:
        return opened_step(p);
    case PHASE_HEADER:
        return header_step(p);
    case PHASE_UNIT:
        return unit_step(p);
    case PHASE_SKIPPED:
        return skipped_step(p);
    case PHASE_BROKEN:
        return broken_step(p);
    }
    return false;
}

void parser_feed(struct parser *p, struct str text)
{
    size_t keep;

    buf_add_str(&p->in, text);
    while (run_phase(p))
        ;
    /* A committed call may still need the start of the value that it is reading. */
    keep = p->done;
    if (p->phase == PHASE_UNIT && p->call.from && p->call.from < keep && !p->harmony)
        keep = p->call.from;
    buf_consume(&p->in, keep - p->base);
    p->base = keep;
}

const struct parser_bytes *parser_steady(struct parser *p)
{
    int of = 1 + 2 * p->phase + p->in_section;
    struct mark_list m = {.n = 0};

    if (p->harmony || p->quiet || p->done != core_end(p) ||
        (p->phase != PHASE_CONTENT && p->phase != PHASE_REASONING))
        return NULL;
    if (p->starts_of == of)
        return &p->starts;
    if (p->phase == PHASE_CONTENT)
        content_marks(p, &m);
    else
        thought_marks(p, &m);
    p->starts = (struct parser_bytes){{0}};
    for (size_t i = 0; i < m.n; i++) {
        unsigned char c = (unsigned char)m.at[i][0];

        p->starts.words[c / 64] |= (uint64_t)1 << (c % 64);
    }
    p->starts_of = of;
    return &p->starts;
}

void parser_finish(struct parser *p)
{
    p->final = true;
    while (run_phase(p))
        ;
    /* Sends white space that has waited: as syntax only if a mark was found. */
    core_output(p, p->marked ? PARSE_SOURCE : PARSE_TEXT, core_end(p));
    core_warn_counts(p);
}

static bool ends_with_any(struct str s, const char *const *tags, size_t n)
{
    for (size_t i = 0; i < n && tags[i]; i++)
        if (str_ends(s, str_trim(str_cstr(tags[i]))))
            return true;
    return false;
}

enum thought_state parser_thought(enum reasoning_kind kind, struct str tail)
{
    const struct think_tags *t = think_tags_of(kind);

    tail = str_trim(tail);
    if (ends_with_any(tail, t->end, ARRAY_LEN(t->end)))
        return THOUGHT_CLOSED;
    if (t->start[0] && (t->forced || ends_with_any(tail, t->start, ARRAY_LEN(t->start))))
        return THOUGHT_OPEN;
    return THOUGHT_MAYBE;
}

static bool is_mark_in(const char *const *marks, size_t n, struct str token)
{
    for (size_t i = 0; i < n; i++) {
        if (marks[i] && str_find(str_cstr(marks[i]), token, 0) != SIZE_MAX)
            return true;
    }
    return false;
}

static bool grammar_reads(const struct grammar *g, struct str token)
{
    return is_mark_in(g->open, ARRAY_LEN(g->open), token) ||
           is_mark_in(g->begin, ARRAY_LEN(g->begin), token) ||
           is_mark_in(g->close, ARRAY_LEN(g->close), token) ||
           is_mark_in(g->skip, ARRAY_LEN(g->skip), token) ||
           is_mark_in(g->within, ARRAY_LEN(g->within), token) || is_mark_in(&g->end, 1, token) ||
           (g->header && (is_mark_in(&g->header->mark, 1, token) ||
                          is_mark_in(g->header->end, ARRAY_LEN(g->header->end), token)));
}

bool parser_reads(const struct parser_options *o, struct str token)
{
    const struct think_tags *t = think_tags_of(o->reasoning);
    const struct grammar *g = grammar_of(o->tool);

    if (o->tool == TOOL_GPT_OSS || o->reasoning == REASONING_HARMONY)
        return harmony_reads(token);
    return is_mark_in(t->start, ARRAY_LEN(t->start), token) ||
           is_mark_in(t->end, ARRAY_LEN(t->end), token) ||
           is_mark_in(t->wrap, ARRAY_LEN(t->wrap), token) || (g && grammar_reads(g, token));
}
