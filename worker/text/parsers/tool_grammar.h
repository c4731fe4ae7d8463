/*
 * What an answer may contain, as grammar text (gbnf.h) for an engine, in the model's own formats:
 * which tool calls it may or must have, in the family's syntax and with arguments that follow the
 * tool's schema, and what JSON its text must be. One table describes how each family writes a call;
 * everything else is made from it.
 *
 * The constraint begins after the thought. If the prompt has opened a thought, the model must
 * finish it first. If it may open one, the model may open it or not.
 */
#ifndef RG_PARSERS_TOOL_GRAMMAR_H
#define RG_PARSERS_TOOL_GRAMMAR_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/codec/json.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/parsers/parser.h"

struct tool_grammar {
    enum tool_kind tool;
    enum reasoning_kind reasoning;
    enum thought_state thought;
    const struct json *tools;   /* in OpenAI form, or NULL: no calls */
    const struct json *allowed; /* array of names that may be called; NULL: all */
    bool required;              /* at least one call, and no text */
    bool single;                /* at most one call */
    bool json;                  /* the text must be JSON ... */
    const struct json *schema;  /* ... of this schema; NULL: any object */
};

/* Reports whether anything must be enforced. */
static inline bool tool_grammar_needed(const struct tool_grammar *f)
{
    return f->required || f->json || (f->tools && (f->single || f->allowed));
}

/* Reports whether a thought (or a channel's header) may precede the answer's text. */
bool tool_grammar_thinks(const struct tool_grammar *f);

/* Appends the grammar. `lenient`: for engines that apply a grammar after the thought only if they
 * detect the thought themselves; an open thought may then be over already. Returns -1 with
 * ERR_INVALID if the format of calls is unknown or the grammar would be too large. */
int tool_grammar_write(const struct tool_grammar *f, bool lenient, struct buf *out, struct err *e);

#endif
