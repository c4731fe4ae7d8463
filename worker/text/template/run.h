/*
 * struct template_run: state of one rendering: arena, output, budgets, and the exception of V_ERR.
 * Internal to worker/text/template.
 */
#ifndef RG_TEMPLATE_RUN_H
#define RG_TEMPLATE_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/budget.h"
#include "common/base/buf.h"
#include "worker/text/template/template.h"
#include "worker/text/template/value.h"

/* The variables of one template function (the root, a macro, a caller block). */
struct frame {
    struct frame *up; /* frame of the enclosing function */
    uint32_t n;
    struct value slots[];
};

struct template_run {
    struct arena *a;
    struct buf *out;
    struct dict *context;
    struct frame *frame;
    const struct template_options *o;
    size_t out_start; /* start of this rendering in `out` */
    size_t max_out;
    struct budget budget; /* memory limit: about the arena */
    uint32_t line;        /* line of the node that is being evaluated */
    bool autoescape;      /* set by the innermost {% autoescape %} */
    /* end of the string that was concatenated last, and end of the memory after it */
    char *tip;
    char *tip_end;
    struct str final_text; /* content of the final message, for continue_final_message */
    struct value undef;    /* missing value that eval_ref found last */
    struct template_error error;
};

/* Records an exception and returns V_ERR. kind is static. */
struct value run_fail(struct template_run *r, const char *kind, const char *fmt, ...)
    RG_PRINTF(3, 4);

/* Raises an exception with a message of any length and any bytes. */
struct value run_raise(struct template_run *r, const char *kind, struct str message);

/* Fails with the error for an undefined value that must not be used. */
struct value run_undefined(struct template_run *r, struct value undef);

/* Sets the exception of the exhausted limit. Always returns false. */
bool run_over(struct template_run *r) RG_COLD;

/* Returns false, with the exception set, if `bytes` more would exceed the memory budget. Called
 * before anything whose size is a product of inputs. */
static inline bool run_room(struct template_run *r, uint64_t bytes)
{
    return budget_fits(&r->budget, bytes) || run_over(r);
}

/* Counts steps. Returns false with the exception set if the budget is spent. */
static inline bool run_spend(struct template_run *r, uint64_t steps)
{
    return budget_spend(&r->budget, steps) || run_over(r);
}

/* Counts the steps of reading a text, and reserves the memory of the result. */
static inline bool run_spend_text(struct template_run *r, uint64_t bytes, uint64_t makes)
{
    return run_room(r, makes) && run_spend(r, bytes / 64 + 1);
}

/* Counts the steps of a walk that looks up each character; those beyond ASCII need a search. */
bool run_spend_chars(struct template_run *r, struct str s);

/* Counts the steps of escape_html, and reserves the memory of its result. */
bool run_spend_escapes(struct template_run *r, struct str s);

/* Enters one more level. Returns false, with the exception set, if that is too deep. */
static inline bool run_enter(struct template_run *r)
{
    return budget_enter(&r->budget) || run_over(r);
}

static inline void run_leave(struct template_run *r)
{
    budget_leave(&r->budget);
}

/* Makes a string value with a copy of the bytes. */
struct value run_str(struct template_run *r, struct str s);

/* Makes a string value of the buffer's bytes and frees the buffer. */
struct value run_take_text(struct template_run *r, struct buf *b);

/* Returns x + y. If x is the newest such string, y is appended in place, so that building a text is
 * linear. */
struct value run_concat(struct template_run *r, struct value x, struct value y);

/* Makes a list value of the n values (copied). */
struct value run_list(struct template_run *r, const struct value *at, uint32_t n);
struct value run_pair(struct template_run *r, struct value a, struct value b); /* a tuple */

/* A growing list in the arena. */
struct list_builder {
    struct value *at;
    uint32_t n, cap;
};

bool builder_add(struct template_run *r, struct list_builder *b, struct value v);
struct value builder_list(struct template_run *r, struct list_builder *b);

#endif
