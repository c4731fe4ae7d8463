/*
 * The last pass over a compiled template: leaves on every node what the evaluator would otherwise
 * find out again each time (which attributes are plain look-ups, which tests take no arguments,
 * what a printed sum consists of). It changes nothing that a template can observe.
 */
#ifndef RG_TEMPLATE_ANNOTATE_H
#define RG_TEMPLATE_ANNOTATE_H

#include "common/base/arena.h"
#include "worker/text/template/node.h"

/* After scope_resolve; once per tree. New parts of nodes come from the arena. */
void prepare_run(struct arena *a, struct node *root);

#endif
