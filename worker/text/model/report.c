/* The report of `rollgate check` about a model. */
#include "worker/text/model/verdict.h"

enum { LABEL_BYTES = 20 }; /* width of the labels of a report */

static void report_quoted(struct buf *out, const char *label, struct str text)
{
    buf_printf(out, "%-20s ", label);
    if (text.p)
        json_write_string(out, text);
    else
        buf_puts(out, "none");
    buf_add_c(out, '\n');
}

static void report_line(struct buf *out, const char *label, const char *text)
{
    buf_printf(out, "%-20s %s\n", label, text);
}

/* Writes a parser and why it was chosen. */
static void report_parser(struct buf *out, const char *label, const char *name, struct str why)
{
    buf_printf(out, "%-20s %s (%.*s)\n", label, name, (int)why.len, why.p);
}

static void report_number(struct buf *out, const char *label, uint64_t n)
{
    if (n)
        buf_printf(out, "%-20s %llu\n", label, (unsigned long long)n);
    else
        report_line(out, label, "unknown");
}

static const char *yes_no(bool yes)
{
    return yes ? "yes" : "no";
}

/* Describes `kept`, which was probed without thoughts. If every turn has a thought, the probed case
 * never occurs. */
static const char *kept_plain(const struct boundaries *b, bool kept)
{
    return !kept && boundaries_think(b) ? "never without a thought" : yes_no(kept);
}

static void report_stops(const struct model *m, struct buf *out)
{
    bool closes = false;

    buf_printf(out, "%-20s", "stop ids");
    for (size_t i = 0; i < m->n_stops; i++) {
        const struct stop *stop = &m->stops[i];

        buf_printf(out, "%s %d ", i ? "," : "", stop->id);
        json_write_string(out, stop->text);
        if (stop->opener)
            buf_puts(out, " (begins the next turn)");
        closes = closes || stop->opener ||
                 (stop->text.len && str_find(m->boundaries.close, stop->text, 0) != SIZE_MAX);
    }
    buf_puts(out, m->n_stops ? "\n" : " none\n");
    if (m->boundaries.renders && !closes)
        report_line(out, "",
                    "none of them stands where the template closes a turn: answers may run on to "
                    "max_tokens");
}

/* Writes the roles whose texts become lists of parts, or are not shown. */
static void report_texts(const struct boundaries *b, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(boundary_roles); i++) {
        if (b->wraps[i])
            buf_printf(
                out,
                "%-20s of %s messages becomes a list of one part: the template shows no other\n",
                "text", boundary_roles[i]);
        if (b->hides[i])
            buf_printf(out, "%-20s of %s messages is NOT SHOWN by the template\n", "text",
                       boundary_roles[i]);
    }
}

static void report_boundaries(const struct model *m, struct buf *out)
{
    const struct boundaries *b = &m->boundaries;
    bool any = false;

    if (!b->renders)
        report_line(out, "turn boundaries",
                    "the template refuses stand-in turns: every turn costs a full render");
    report_line(out, "append-only", m->info.append_only ? "yes" : "no, see --on-template-rewrite");
    buf_printf(out,
               "%-20s answer, then user: %s; call, then result: %s; "
               "thought and call, then result: %s; thought, then user: %s; "
               "answer, then system: %s\n",
               "  kept as written", kept_plain(b, b->append_plain),
               b->tool_turns ? kept_plain(b, b->append_tools) : "not supported",
               b->tool_turns ? yes_no(b->append_thought_call) : "not supported",
               yes_no(b->append_thought),
               b->roles[ROLE_SYSTEM] ? yes_no(b->append_late) : "not supported");
    report_quoted(out, "generation prompt", b->generation_prompt);
    report_quoted(out, "turn close", b->close);
    buf_printf(out, "%-20s", "roles to append");
    for (size_t i = 0; i < ARRAY_LEN(boundary_roles); i++) {
        if (b->roles[i])
            buf_printf(out, "%s%s", any ? ", " : " ", boundary_roles[i]);
        any = any || b->roles[i];
    }
    buf_puts(out, any ? "\n" : " none\n");
    report_texts(b, out);
    if (b->counts_turns)
        report_line(out, "turn numbers",
                    "are written by the template: every turn costs a full render");
    if (b->system_in_suffix)
        report_line(out, "system message", "is written behind earlier turns");
    if (b->tools_in_suffix)
        report_line(out, "tools", "are written behind earlier turns as well");
}

void model_report(const struct model *m, struct buf *out)
{
    const struct model_info *i = &m->info;

    verdict_explain(m, out);
    report_line(out, "model", i->name);
    report_number(out, "vocabulary", i->vocab_size);
    report_number(out, "context length", i->context_length);
    if (i->moe_topk)
        buf_printf(out, "%-20s %u layers, %u experts a token\n", "routed experts", i->moe_layers,
                   i->moe_topk);
    if (i->indexer_topk)
        buf_printf(out, "%-20s %u positions\n", "indexer top-k", i->indexer_topk);
    report_boundaries(m, out);
    report_stops(m, out);
    report_line(out, "content lists",
                i->content_lists ? "read by the template" : "joined to one text");
    report_parser(out, "tool parser", i->tool_parser, m->tool_why);
    report_parser(out, "reasoning parser", i->reasoning_parser, m->reasoning_why);
    buf_printf(out, "%-20s %s%s\n", "family", i->family, m->family_forced ? " (as told)" : "");
    if (m->pin)
        buf_printf(out, "%-20s %s=%s unless the request says otherwise\n", "pinned", m->pin,
                   m->pin_value ? "true" : "false");
    buf_add_str(out, buf_str(&m->notes));
    buf_add_str(out, buf_str(&m->warnings));
    buf_puts(out, tokenizer_remarks(m->tokenizer));
    verdict_report(m, out);
}

bool model_judge(const struct model *m, struct buf *out)
{
    struct buf lines = {0};
    struct str rest;
    bool first = true, ready;

    verdict_explain(m, &lines);
    rest = buf_str(&lines);
    ready = str_find(rest, STR(" ready: "), 0) != SIZE_MAX;
    while (rest.len) {
        struct str text = str_trim(str_sub(str_cut(&rest, '\n'), LABEL_BYTES, SIZE_MAX));

        buf_printf(out, "%s%.*s", first ? "" : "; ", (int)text.len, text.p);
        ready = ready && first;
        first = false;
    }
    buf_done(&lines);
    return ready;
}
