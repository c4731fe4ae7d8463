/*
 * Forcing a tool call (tool_choice required or a function): the constraint that an engine's
 * grammar must enforce, as an XGrammar structural tag in the model's own call format. Free text
 * and thoughts may come first; then at least one call whose arguments follow the tool's schema.
 */
#ifndef RG_PARSERS_FORCE_H
#define RG_PARSERS_FORCE_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/codec/json.h"
#include "worker/parsers/kinds.h"

/* Appends the structural tag's JSON text. tools in OpenAI form; `only` is the one function that may
 * be called, or absent; without `parallel` one call ends it. False, with nothing appended, for
 * formats whose calls hold no JSON arguments. */
bool parser_force(enum tool_kind kind, const struct json *tools, struct str only, bool parallel,
                  struct buf *out);

#endif
