/*
 * The source bytes, and the life of a call. A grammar reads p->in, at absolute offsets. Bytes leave
 * it through core_output only, so their sum is the input. Literals and marks may be cut anywhere:
 * while the text ends with a prefix of one, the result is STEP_MORE. Only the end of all text
 * (final) makes it STEP_NO.
 *
 * A call's events are sent when it is accepted (tool_call_accept), or piece by piece when it has
 * grown longer than hold_bytes (tool_call_stream). If a call whose events were sent early turns out
 * wrong, tool_call_breaks and tool_call_pass_remainder pass on its remaining bytes.
 */
#include "worker/text/parsers/core.h"

#include <string.h>

bool core_all_blank(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!core_blank(s.p[i]))
            return false;
    return true;
}

size_t core_blanks_end(struct parser *p, size_t from)
{
    size_t at = from;

    if (from >= p->blank_from && from <= p->blank_to)
        at = p->blank_to;
    else
        p->blank_from = from;
    while (at < core_end(p) && core_blank(core_at(p, at)))
        at++;
    p->blank_to = at;
    return at;
}

static void core_emit(struct parser *p, enum parse_kind kind, struct str text)
{
    struct parse_event ev = {.kind = kind, .call = p->n_calls, .text = text};

    p->sink.on_event(p->sink.ctx, &ev);
}

void core_output(struct parser *p, enum parse_kind kind, size_t upto)
{
    if (upto <= p->done)
        return;
    core_emit(p, kind, core_cut(p, p->done, upto));
    p->done = upto;
}

void core_output_text(struct parser *p)
{
    if (p->quiet && core_blanks_end(p, p->done) >= p->pos)
        return;
    p->quiet = false;
    core_output(p, PARSE_TEXT, p->pos);
}

/* The text of each warning, and the text after a count. */
static const char *const warnings[WARNING_COUNT][2] = {
    [WARN_BLOCK] = {"a block that looks like a tool call is not a valid one; it stays in content",
                    "blocks in all look like tool calls and are not valid ones"},
    [WARN_MESSAGE] =
        {"a message that is neither text, thought nor a valid call; it stays in content",
         "messages in all are neither text, thought nor a valid call"},
    [WARN_UNCLOSED] = {"a tool call lacks its closing mark",
                       "tool calls in all lack their closing mark"},
    [WARN_CUT] = {"the last tool call lacks its closing mark", NULL},
    [WARN_STREAMED] = {"a tool call that was streamed already turned out not to be valid",
                       "tool calls in all turned out not to be valid when they were streamed"},
    [WARN_GIVEN_UP] =
        {"what follows is text: too much of what looked like tool calls had to be read again",
         NULL},
};

void core_warn(struct parser *p, enum parser_warning what)
{
    if (p->warned[what]++ == 0)
        core_emit(p, PARSE_WARNING, str_cstr(warnings[what][0]));
}

void core_warn_counts(struct parser *p)
{
    struct buf told = {0};

    for (size_t i = 0; i < WARNING_COUNT; i++) {
        if (p->warned[i] < 2 || !warnings[i][1])
            continue;
        buf_clear(&told);
        buf_printf(&told, "%u %s", p->warned[i], warnings[i][1]);
        core_emit(p, PARSE_WARNING, buf_str(&told));
    }
    buf_done(&told);
}

enum step core_lit(const struct parser *p, size_t off, const char *lit)
{
    size_t have = core_end(p) - off;
    size_t len = strlen(lit);
    size_t n = MIN_OF(have, len);

    if (n && memcmp(p->in.p + (off - p->base), lit, n) != 0)
        return STEP_NO;
    if (n == len)
        return STEP_YES;
    return p->final ? STEP_NO : STEP_MORE;
}

enum step core_eat(struct parser *p, const char *lit)
{
    enum step r = core_lit(p, p->pos, lit);

    if (r == STEP_YES)
        p->pos += strlen(lit);
    return r;
}

enum step core_eat_close(struct parser *p, const char *lit)
{
    size_t left;

    if (core_blanks(p) != STEP_YES)
        return STEP_MORE;
    left = core_end(p) - p->pos;
    if (p->final && left < strlen(lit) &&
        (!left || !memcmp(&p->in.p[p->pos - p->base], lit, left))) {
        core_warn(p, WARN_CUT);
        p->pos += left;
        return STEP_YES;
    }
    return core_eat(p, lit);
}

enum step core_end_item(struct parser *p)
{
    enum step r = core_blanks(p);

    if (r != STEP_YES)
        return r;
    p->in_list = !core_over(p) && core_at(p, p->pos) == ',';
    return p->in_list ? STEP_YES : core_eat_close(p, "]");
}

enum step core_blanks(struct parser *p)
{
    p->pos = core_blanks_end(p, p->pos);
    return p->pos < core_end(p) || p->final ? STEP_YES : STEP_MORE;
}

/* Finds the longest mark at pos. A longer mark that is still incomplete has priority over a shorter
 * one. */
static enum step find_here(const struct parser *p, const char *const *marks, size_t n,
                           size_t *which)
{
    enum step best = STEP_NO;
    char c = core_at(p, p->pos);
    size_t longest = 0;

    for (size_t i = 0; i < n; i++) {
        enum step r;

        if (!marks[i] || marks[i][0] != c)
            continue;
        r = core_lit(p, p->pos, marks[i]);
        if (r == STEP_MORE)
            return r;
        if (r == STEP_YES && strlen(marks[i]) > longest) {
            longest = strlen(marks[i]);
            *which = i;
            best = r;
        }
    }
    return best;
}

/* Returns the byte with which all marks begin; 0: they differ. */
static char common_start(const char *const *marks, size_t n)
{
    char c = 0;

    for (size_t i = 0; i < n; i++) {
        if (!marks[i])
            continue;
        if (c && marks[i][0] != c)
            return 0;
        c = marks[i][0];
    }
    return c;
}

enum step core_find(struct parser *p, const char *const *marks, size_t n, size_t *which)
{
    char first = common_start(marks, n);
    size_t end = core_end(p);

    for (; n > 0 && p->pos < end; p->pos++) {
        enum step r;

        if (first) {
            const char *from = p->in.p + (p->pos - p->base);
            const char *at = memchr(from, first, end - p->pos);

            if (!at)
                break;
            p->pos += (size_t)(at - from);
        }
        r = find_here(p, marks, n, which);
        if (r != STEP_NO)
            return r;
    }
    p->pos = end;
    return STEP_MORE;
}

bool core_beyond(struct parser *p, size_t from, size_t max_bytes)
{
    if (p->pos - from <= max_bytes)
        return false;
    p->pos = from + max_bytes;
    return true;
}

const struct json *tool_call_schema(const struct parser *p, bool *known)
{
    struct str name = buf_str(&p->call.name);
    const struct indexed_tool *tool = NULL;

    if (name.len && p->tools)
        tool = tool_index_find(p->tools, name);
    *known = tool || (name.len > 0 && !p->tools);
    return tool ? tool->parameters : NULL;
}

unsigned tool_call_types(const struct parser *p, struct str key)
{
    bool known;
    const struct json *schema = tool_call_schema(p, &known);

    schema = schema ? tool_index_property(p->tools, schema, key, 0) : NULL;
    return schema ? tool_index_types(p->tools, schema) : 0;
}

enum step tool_call_ready(struct parser *p)
{
    bool known;

    tool_call_schema(p, &known);
    p->call.ready = known;
    return known ? STEP_YES : STEP_NO;
}

void tool_call_reset(struct parser *p)
{
    struct tool_call *c = &p->call;
    struct tool_call fresh = {
        .name = c->name, .id = c->id, .key = c->key, .made = c->made, .python = c->python};

    buf_clear(&fresh.name);
    buf_clear(&fresh.id);
    buf_clear(&fresh.key);
    buf_clear(&fresh.made);
    python_scan_reset(&fresh.python);
    *c = fresh;
}

void tool_call_begin(struct parser *p)
{
    struct parse_event ev = {
        .kind = PARSE_CALL_BEGIN, .call = p->n_calls, .text = buf_str(&p->call.name)};

    if (p->call.id.len)
        ev.id = buf_str(&p->call.id);
    p->sink.on_event(p->sink.ctx, &ev);
    p->call.committed = true;
}

static void send_args(struct parser *p)
{
    struct tool_call *c = &p->call;
    size_t to = c->args_to ? c->args_to : p->pos;

    if (c->args_made) {
        if (c->made.len)
            core_emit(p, PARSE_CALL_ARGS, buf_str(&c->made));
        buf_clear(&c->made);
    } else if (c->args_from && to > c->args_sent) {
        core_emit(p, PARSE_CALL_ARGS, core_cut(p, c->args_sent, to));
        c->args_sent = to;
    }
}

void tool_call_stream(struct parser *p)
{
    struct tool_call *c = &p->call;

    if (!c->committed && (!c->ready || p->pos - p->done < p->hold_bytes))
        return;
    if (!c->committed)
        tool_call_begin(p);
    send_args(p);
    core_output(p, PARSE_SOURCE, c->args_made && c->unsaid ? c->unsaid : p->pos);
}

void tool_call_end(struct parser *p, bool broken)
{
    struct parse_event ev = {.kind = PARSE_CALL_END, .call = p->n_calls, .broken = broken};

    p->sink.on_event(p->sink.ctx, &ev);
    p->call.ended = true;
    p->n_calls++;
    p->marked = true;
}

void tool_call_breaks(struct parser *p)
{
    const struct tool_call *c = &p->call;

    core_warn(p, WARN_STREAMED);
    p->quiet = true;
    if (c->args_made || c->args_to)
        tool_call_end(p, c->args_made);
}

void tool_call_pass_remainder(struct parser *p)
{
    if (p->call.ended)
        core_output_text(p);
    else
        tool_call_stream(p);
}

void tool_call_remainder_ends(struct parser *p)
{
    if (!p->call.ended)
        tool_call_end(p, true);
    core_output(p, PARSE_SOURCE, p->pos);
    p->quiet = true;
}

void tool_call_accept(struct parser *p)
{
    if (!p->call.committed)
        tool_call_begin(p);
    send_args(p);
    core_output(p, PARSE_SOURCE, p->pos);
    tool_call_end(p, false);
    if (p->call.unclosed)
        core_warn(p, WARN_UNCLOSED);
}

enum step tool_call_scan_args(struct parser *p)
{
    struct tool_call *c = &p->call;

    if (!c->args_from) {
        if (p->pos == core_end(p))
            return p->final ? STEP_NO : STEP_MORE;
        if (core_at(p, p->pos) != '{')
            return STEP_NO;
        c->args_from = c->args_sent = p->pos;
        object_scan_init(&c->scan);
    }
    for (; p->pos < core_end(p); p->pos++) {
        object_scan_byte(&c->scan, core_at(p, p->pos));
        if (c->scan.state == SCAN_BAD)
            return STEP_NO;
        if (c->scan.state == SCAN_DONE) {
            c->args_to = ++p->pos;
            return STEP_YES;
        }
    }
    return STEP_MORE;
}
