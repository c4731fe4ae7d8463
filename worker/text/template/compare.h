/*
 * Python's ==, <, `in`, truth and hashability between values.
 */
#ifndef RG_TEMPLATE_COMPARE_H
#define RG_TEMPLATE_COMPARE_H

#include "worker/text/template/run.h"
#include "worker/text/template/value.h"

/* Returns x == y. If the budget is spent, returns false with the exception set. */
bool value_eq(struct template_run *r, struct value x, struct value y);

/* Returns x < y: 1, 0, or -1 with the TypeError (or UndefinedError) set. */
int value_less(struct template_run *r, struct value x, struct value y);

/* Returns needle in hay: 1, 0, or -1 with an error. An undefined hay is empty. */
int value_contains(struct template_run *r, struct value hay, struct value needle);

/* Returns bool(v) of Python. */
bool value_truth(struct template_run *r, struct value v);

/* Returns len(v), or -1 with the TypeError set. */
int64_t value_len(struct template_run *r, struct value v);

/* Reports whether the value may be a dict's key. If not, the TypeError is set. */
bool value_hashable(struct template_run *r, struct value v);

/* Sorts in place, stable, by value_less of keys[i], which move along with at[i]. Returns false on
 * error. */
bool value_sort(struct template_run *r, struct value *at, struct value *keys, uint32_t n,
                bool reverse);

#endif
