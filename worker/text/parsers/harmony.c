/*
 * Harmony (gpt-oss): a completion is a list of messages
 *   [<|start|>ROLE][ to=RCPT][<|channel|>CH[ to=RCPT]][<|constrain|>FMT]<|message|>BODY END
 *
 * The first message follows the prompt's "<|start|>assistant". Channel analysis is thought. Channel
 * final, and commentary without a recipient, are text. A recipient functions.NAME makes a call, and
 * so does the bare NAME of a tool. END is <|end|>, <|call|> or <|return|>. The last two end the
 * turn, so they are usually not fed.
 */
#include <string.h>

#include "worker/text/parsers/core.h"

enum harmony_phase { H_OUTSIDE, H_HEADER, H_BODY, H_CALL, H_BROKEN };

enum { HEADER_MAX_BYTES = 1024 };

/* The first three begin a header, the others end a body. */
static const char *const marks[] = {"<|channel|>", "<|start|>", "<|message|>",
                                    "<|end|>",     "<|call|>",  "<|return|>"};

struct header {
    struct str channel;
    struct str recipient;
};

static struct str word_at(struct str s, size_t at)
{
    size_t to = at;

    while (to < s.len && !core_blank(s.p[to]) && s.p[to] != '<')
        to++;
    return str_sub(s, at, to - at);
}

static struct header read_header(struct str s)
{
    struct header h = {0};
    size_t channel = str_find(s, STR("<|channel|>"), 0);
    size_t to = str_find(s, STR("to="), 0);

    if (channel != SIZE_MAX)
        h.channel = word_at(s, channel + strlen("<|channel|>"));
    if (to != SIZE_MAX)
        h.recipient = word_at(s, to + strlen("to="));
    return h;
}

static void begin_channel_body(struct parser *p, enum parse_kind kind)
{
    p->body = kind;
    p->phase = H_BODY;
}

/* Returns the function to which a message is addressed; empty: none. */
static struct str called_function(const struct parser *p, struct str recipient)
{
    struct str functions = STR("functions.");

    if (str_starts(recipient, functions))
        return str_sub(recipient, functions.len, recipient.len);
    return p->tools && tool_index_find(p->tools, recipient) ? recipient : STR("");
}

/* Decides what the body is, after the header [done, pos) has ended. */
static void apply_header(struct parser *p)
{
    struct header h = read_header(core_cut(p, p->done, p->pos));

    p->marked = true;
    if (h.recipient.len) {
        tool_call_reset(p);
        p->mark_end = p->pos;
        buf_add_str(&p->call.name, called_function(p, h.recipient));
        p->phase = H_CALL;
        return;
    }
    core_output(p, PARSE_SOURCE, p->pos);
    begin_channel_body(p, str_eq_c(h.channel, "analysis") ? PARSE_REASONING : PARSE_TEXT);
}

/* Sends header, body and end as text, because they were not understood. */
static void stays_text(struct parser *p, size_t upto)
{
    core_warn(p, WARN_MESSAGE);
    core_output(p, PARSE_TEXT, upto);
    p->pos = p->done;
    p->verbatim = true; /* the end mark is text, too */
    begin_channel_body(p, PARSE_TEXT);
}

static bool outside_step(struct parser *p)
{
    size_t which;
    enum step to;

    p->pos = p->done;
    if (core_blanks(p) != STEP_YES)
        return false;
    to = p->quiet && !core_over(p) ? core_lit(p, p->pos, "to=") : STEP_NO;
    if (to == STEP_MORE)
        return false;
    if (to == STEP_YES) {
        p->phase = H_HEADER;
        return true;
    }
    enum step r = core_find(p, marks, ARRAY_LEN(marks), &which);

    if (!p->quiet || core_blanks_end(p, p->done) < p->pos) {
        core_output(p, PARSE_TEXT, p->pos);
        p->quiet = false;
    }
    if (r != STEP_YES)
        return false;
    if (which < 3) {
        p->phase = H_HEADER;
    } else {
        p->pos += strlen(marks[which]);
        core_output(p, PARSE_SOURCE, p->pos);
        p->marked = true;
    }
    return true;
}

static bool header_step(struct parser *p)
{
    static const char *const stops[] = {"<|message|>", "<|end|>", "<|call|>", "<|return|>"};
    size_t which = 0;
    enum step r = core_find(p, stops, ARRAY_LEN(stops), &which);

    bool beyond = core_beyond(p, p->done, HEADER_MAX_BYTES);

    if (r != STEP_YES && !beyond && !p->final)
        return false;
    if (r == STEP_YES && !beyond && which == 0) {
        p->pos += strlen(stops[0]);
        apply_header(p);
    } else {
        stays_text(p, p->pos);
    }
    return true;
}

static bool body_step(struct parser *p)
{
    size_t which = 0;
    enum step r = core_find(p, marks, ARRAY_LEN(marks), &which);

    core_output(p, p->body, p->pos);
    if (r != STEP_YES)
        return false;
    if (which >= 3) {
        p->pos += strlen(marks[which]);
        core_output(p, p->verbatim ? PARSE_TEXT : PARSE_SOURCE, p->pos);
    }
    p->verbatim = false;
    p->quiet = true;
    p->phase = H_OUTSIDE;
    return true;
}

/* Reads the end of a call after its arguments: an end mark, the next header or the end of all text.
 */
static enum step call_closes(struct parser *p)
{
    size_t which = 0;
    size_t at;
    enum step r = core_blanks(p);

    if (r != STEP_YES || core_over(p))
        return r;
    at = p->pos;
    r = core_find(p, marks, ARRAY_LEN(marks), &which);
    if (p->pos != at) {
        p->pos = at;
        return STEP_NO;
    }
    if (r == STEP_YES && which >= 3)
        p->pos += strlen(marks[which]);
    return r == STEP_MORE && p->final ? STEP_NO : r;
}

/* Handles a body without a byte: a call without arguments. */
static enum step empty_body(struct parser *p)
{
    bool cut = core_over(p);
    enum step r = call_closes(p);

    if (r != STEP_YES)
        return r;
    if (cut)
        core_warn(p, WARN_CUT);
    p->call.args_made = true;
    buf_puts(&p->call.made, "{}");
    return r;
}

static enum step call_run(struct parser *p)
{
    struct tool_call *c = &p->call;
    enum step r;

    if (!c->args_from) {
        if (p->tool != TOOL_GPT_OSS || tool_call_ready(p) != STEP_YES)
            return STEP_NO;
        r = core_blanks(p);
        if (r != STEP_YES)
            return r;
        if (core_over(p) || core_at(p, p->pos) == '<')
            return empty_body(p);
    }
    r = c->args_to ? STEP_YES : tool_call_scan_args(p);
    return r == STEP_YES ? call_closes(p) : r;
}

static bool call_step(struct parser *p)
{
    enum step r = call_run(p);

    if (r == STEP_YES) {
        tool_call_accept(p);
        p->quiet = true;
        p->phase = H_OUTSIDE;
        return true;
    }
    tool_call_stream(p);
    if (r == STEP_MORE && !p->final)
        return false;
    if (p->call.committed) {
        tool_call_breaks(p);
        p->phase = H_BROKEN;
    } else {
        stays_text(p, p->mark_end);
    }
    return true;
}

static bool broken_step(struct parser *p)
{
    size_t which = 0;
    enum step r = core_find(p, marks, ARRAY_LEN(marks), &which);

    tool_call_pass_remainder(p);
    if (r != STEP_YES && !p->final)
        return false;
    tool_call_remainder_ends(p);
    p->phase = H_OUTSIDE;
    return true;
}

bool harmony_step(struct parser *p)
{
    switch ((enum harmony_phase)p->phase) {
    case H_OUTSIDE:
        return outside_step(p);
    case H_HEADER:
        return header_step(p);
    case H_BODY:
        return body_step(p);
    case H_CALL:
        return call_step(p);
    case H_BROKEN:
        return broken_step(p);
    }
    return false;
}

bool harmony_reads(struct str token)
{
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        if (str_find(str_cstr(marks[i]), token, 0) != SIZE_MAX)
            return true;
    }
    return str_eq_c(token, "<|constrain|>");
}
