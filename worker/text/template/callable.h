/*
 * Calls: arguments as the template gave them, bound to a parameter list; macros, bound methods, the
 * global functions; the tables of methods per type.
 *
 * Parameter lists of built-ins are texts: "old! new! count" = two required, one optional. "*"
 * collects further positional arguments (as a tuple) and "**" further named ones (a dict); both
 * always are the last entries. Parameters that are not given are V_MISSING.
 */
#ifndef RG_TEMPLATE_CALLABLE_H
#define RG_TEMPLATE_CALLABLE_H

#include "worker/text/template/node.h"
#include "worker/text/template/run.h"

enum { PARAMS_MAX = 8 };

struct argv {
    struct value *pos;
    uint32_t n_pos;
    struct str *names;
    struct value *named;
    uint32_t n_named;
};

typedef struct value (*native_fn)(struct template_run *r, struct value self, struct value *a);

struct method {
    const char *name;
    const char *params;
    native_fn fn;
};

enum callable_kind { CALL_MACRO, CALL_METHOD, CALL_GLOBAL };

struct callable {
    enum callable_kind kind;
    struct value self;
    const struct method *method;
    const struct macro_def *macro;
    const struct node *node; /* node of the macro */
    struct frame *frame;     /* frame in which it was defined */
};

/* Fills a[0..PARAMS_MAX) from argv. Returns false with a TypeError that names `what`. */
bool call_bind(struct template_run *r, const char *what, const char *params,
               const struct argv *argv, struct value *a);

/* Calls callee(...): macros, methods, functions, loops, cyclers, joiners. */
struct value call_value(struct template_run *r, struct value callee, const struct argv *argv);

/* Returns a method of the value's type, or NULL. */
const struct method *method_find(struct value self, struct str name);

/* Reports whether Python has the method but the immutable sandbox forbids it (append, update,
 * ...). */
bool method_forbidden(struct value self, struct str name);

/* Reports whether any type has a method, a forbidden method, or a data attribute of this name.
 * Called once per attribute node. */
bool method_any(struct str name);

struct value method_call(struct template_run *r, const struct method *m, struct value self,
                         const struct argv *argv);

/* Returns a function or class of the environment (range, namespace, ...), or V_MISSING. */
struct value global_find(struct template_run *r, struct str name);

/* The tables, by type; each ends with a NULL name. */
extern const struct method str_methods[], str_search_methods[], dict_methods[], list_methods[],
    number_methods[], loop_methods[], cycler_methods[];

#endif
