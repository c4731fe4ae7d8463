/*
 * Decides which variable a name means, at compile time like Jinja: every for body, macro, with,
 * call, filter and set block has its own names. A name set in a scope belongs to it and starts as a
 * copy of the outer one, if any. A name that is only read is the outer one, or comes from the
 * context when the scope is entered. This pass gives every N_NAME its frame (up) and slot, and
 * every scope its list of loads.
 */
#ifndef RG_TEMPLATE_SCOPE_H
#define RG_TEMPLATE_SCOPE_H

#include "common/base/budget.h"
#include "worker/text/template/node.h"
#include "worker/text/template/template.h"

/* Resolves all names of the tree and sets t->scope and t->n_slots. If the budget is exhausted,
 * *line is the line of the statement at which that happened. */
void scope_resolve(struct template *t, struct budget *budget, uint32_t *line);

#endif
