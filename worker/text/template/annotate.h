/*
 * The last pass over a compiled template. It stores on every node facts that the evaluator would
 * otherwise compute each time: attributes that are plain look-ups, tests without arguments, the
 * operands of a printed sum. It does not change the results of a template.
 */
#ifndef RG_TEMPLATE_ANNOTATE_H
#define RG_TEMPLATE_ANNOTATE_H

#include "common/base/arena.h"
#include "worker/text/template/node.h"

/* Call it after scope_resolve, once per tree. New parts of nodes come from the arena. */
void prepare_run(struct arena *a, struct node *root);

#endif
