/*
 * Iteration over values like Python's iter(); generators that are read once and compute each item
 * on request; and the `loop` object of a for statement.
 */
#ifndef RG_TEMPLATE_ITER_H
#define RG_TEMPLATE_ITER_H

#include "worker/text/template/run.h"
#include "worker/text/template/value.h"

struct iter {
    struct value of;
    size_t at; /* index, or byte offset in a string */
};

/* Starts an iteration. Returns false with a TypeError if v cannot be iterated. */
bool iter_init(struct template_run *r, struct iter *it, struct value v);

/* Returns 1 and the next item; 0 at the end; -1 on an error. */
int iter_next(struct template_run *r, struct iter *it, struct value *ret);

/* Collects all remaining items as a list value (V_ERR on error). A list or tuple is returned
 * without a copy, because values are immutable. */
struct value iter_collect(struct template_run *r, struct value v);

/* A generator. next() returns 1 and an item, 0 at the end, or -1. `args` belong to the generator's
 * kind. */
struct gen {
    int (*next)(struct template_run *r, struct gen *g, struct value *ret);
    struct iter src;
    const void *fn; /* filter or test to apply */
    /* called before the first item; or NULL */
    bool (*prepare)(struct template_run *r, struct gen *g);
    struct value args[6];
    uint32_t n_args;
    bool flag, done;
    struct list_builder seen; /* for unique: the keys so far */
};
struct gen *gen_new(struct template_run *r,
                    int (*next)(struct template_run *, struct gen *, struct value *));

static inline struct value v_gen(struct gen *g)
{
    return (struct value){.t = V_GEN, .gen = g};
}

struct node;

/* One running for statement. */
struct for_loop {
    struct iter it;
    const struct node *node; /* V: the statement's test and target, if it has a test */
    struct value source;
    struct frame *frame;     /* frame in which the statement runs */
    const struct node *body; /* the statement itself, for recursive calls */
    struct value current, previous, ahead;
    struct value changed; /* tuple of loop.changed's last arguments, V_MISSING at first */
    int64_t index;        /* 1-based; 0 before the first item */
    int64_t length;       /* -1: unknown so far */
    uint32_t depth;
    struct list *rest; /* items that a generator still had when its length was requested */
    uint32_t rest_at;
};

/* Moves to the next item. Returns 1, 0 at the end, or -1. */
int loop_step(struct template_run *r, struct for_loop *l, struct value *ret);

/* Returns loop.length, as an int or V_ERR. */
struct value loop_length(struct template_run *r, struct for_loop *l);

/* Returns loop.NAME; V_MISSING if it has no such attribute. */
struct value loop_attr(struct template_run *r, struct for_loop *l, struct str name);

#endif
