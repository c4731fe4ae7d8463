/*
 * struct template_run: one rendering: arena, output, budgets, and the exception of V_ERR. Internal
 * to worker/text/template.
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
    struct frame *up; /* frame of the function around it */
    uint32_t n;
    struct value slots[];
};

struct template_run {
    struct arena *a;
    struct buf *out;
    struct dict *context;
    struct frame *frame;
    const struct template_options *o;
    size_t out_start; /* start of this render in out */
    size_t max_out;
    struct budget budget; /* its bytes are those of the arena */
    uint32_t line;        /* line of the node being evaluated */
    bool autoescape;      /* set by the innermost {% autoescape %} */
    char *tip;            /* end of the string that was concatenated last, and of its room */
    char *tip_end;
    struct str final_text; /* continue_final_message: what the final message says */
    struct value undef;    /* missing value that eval_ref found last */
    struct template_error error;
};

/* Records an exception and returns V_ERR. kind is static. */
struct value run_fail(struct template_run *r, const char *kind, const char *fmt, ...)
    RG_PRINTF(3, 4);

/* Raises an exception with a message of any length and any bytes. */
struct value run_raise(struct template_run *r, const char *kind, struct str message);

/* Use of an undefined value where it must not be used. */
struct value run_undefined(struct template_run *r, struct value undef);

/* Sets the exception of the limit that was reached. Always false. */
bool run_over(struct template_run *r) RG_COLD;

/* False, with the exception set, when `bytes` more would break the memory budget. Asked before
 * anything whose size is a product of inputs. */
static inline bool run_room(struct template_run *r, uint64_t bytes)
{
    return budget_fits(&r->budget, bytes) || run_over(r);
}

/* Counts steps; false with the exception set when the budget is spent. */
static inline bool run_spend(struct template_run *r, uint64_t steps)
{
    return budget_spend(&r->budget, steps) || run_over(r);
}

/* Counts the steps of a walk over text, and asks for the memory of what is made of it. */
static inline bool run_spend_text(struct template_run *r, uint64_t bytes, uint64_t makes)
{
    return run_room(r, makes) && run_spend(r, bytes / 64 + 1);
}

/* Counts the steps of a walk that looks each character up, of which those beyond ASCII take a
 * search. */
bool run_spend_chars(struct template_run *r, struct str s);

/* Counts the steps of escape_html, and asks for the memory of what it makes. */
bool run_spend_escapes(struct template_run *r, struct str s);

/* Enters one more level; false, with the exception set, if that is too deep. */
static inline bool run_enter(struct template_run *r)
{
    return budget_enter(&r->budget) || run_over(r);
}

static inline void run_leave(struct template_run *r)
{
    budget_leave(&r->budget);
}

/* A copy of the bytes as a value. */
struct value run_str(struct template_run *r, struct str s);

/* The buffer's bytes as a value; the buffer is done with. */
struct value run_take_text(struct template_run *r, struct buf *b);

/* x + y; appends in place when x is the newest such string, so that building up is linear. */
struct value run_concat(struct template_run *r, struct value x, struct value y);

/* A list value of the n values (copied). */
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
