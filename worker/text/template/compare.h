/*
 * Python's ==, <, `in`, truth and hashability between values.
 */
#ifndef RG_TEMPLATE_COMPARE_H
#define RG_TEMPLATE_COMPARE_H

#include "worker/text/template/run.h"
#include "worker/text/template/value.h"

/* x == y. False as well, with the exception set, when the budget is spent. */
bool value_eq(struct template_run *r, struct value x, struct value y);

/* x < y; 1, 0, or -1 with the TypeError (or UndefinedError) set. */
int value_less(struct template_run *r, struct value x, struct value y);

/* needle in hay; 1, 0, -1. Undefined hays are empty. */
int value_contains(struct template_run *r, struct value hay, struct value needle);

/* Returns bool(v) of Python. */
bool value_truth(struct template_run *r, struct value v);

/* len(v), or -1 with the TypeError set. */
int64_t value_len(struct template_run *r, struct value v);

/* True when the value may be a dict's key; else the TypeError is set. */
bool value_hashable(struct template_run *r, struct value v);

/* Sorts in place, stable, by value_less of keys[i] (moved along with at[i]); false on error. */
bool value_sort(struct template_run *r, struct value *at, struct value *keys, uint32_t n,
                bool reverse);

#endif
