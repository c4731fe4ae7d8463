/*
 * The tree of a compiled template. Nodes are in the template's arena and never change after
 * compilation, so forked processes share them. The comment at a kind lists the children that it
 * uses.
 */
#ifndef RG_TEMPLATE_NODE_H
#define RG_TEMPLATE_NODE_H

#include <stdint.h>

#include "worker/text/template/value.h"

enum node_kind {
    /* expressions */
    N_CONST,   /* val */
    N_NAME,    /* val: the name; up, slot */
    N_LIST,    /* kids */
    N_TUPLE,   /* kids */
    N_DICT,    /* kids: key, value, key, value ... */
    N_COND,    /* a ? b : c (c may be NULL) */
    N_AND,     /* a b */
    N_OR,      /* a b */
    N_NOT,     /* a */
    N_NEG,     /* a */
    N_POS,     /* a */
    N_BINARY,  /* a op b; op as in number_binary */
    N_CONCAT,  /* kids */
    N_COMPARE, /* a, then kids (N_OPERAND) */
    N_OPERAND, /* op b: one link of a comparison chain */
    N_GETATTR, /* a . val */
    N_GETITEM, /* a [ b ]; val: b, if it is a text */
    N_SLICE,   /* a : b : c, each may be NULL */
    N_CALL,    /* a ( args ) */
    N_FILTER,  /* a | fn ( args ); a NULL in filter blocks */
    N_TEST,    /* a is fn ( args ) */
    N_NSREF,   /* target: a (N_NAME) . val */
    /* statements */
    N_BODY,  /* kids */
    N_DATA,  /* val: text */
    N_PRINT, /* a; kids: its operands, if it is a sum */
    N_IF,    /* a: test, b: body, c: else (NULL, N_BODY or N_IF) */
    /* a: target, b: iterable, c: test; kids[0] body, kids[1] else or NULL, kids[2] the target
     * again, for the test */
    N_FOR,
    N_SET,         /* a: target, b: value */
    N_SETBLOCK,    /* a: target, b: body, c: filter or NULL */
    N_MACRO,       /* a: target name, b: body; macro */
    N_CALLBLOCK,   /* a: the call; macro: the caller */
    N_FILTERBLOCK, /* b: body, c: filter */
    N_WITH,        /* kids: target, value, ...; b: body */
    N_SCOPE,       /* b: body with its own variables */
    N_AUTOESCAPE,  /* a: whether to escape, b: body */
    N_BREAK,
    N_CONTINUE,
    N_RAISE, /* val: message of the error when it is reached (include, import, extends) */
};

enum { OP_EQ = 1, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN }; /* op of N_OPERAND */

enum {
    NF_RECURSIVE = 1,
    NF_STORE = 2,
    NF_PARAM = 4,
    NF_ELIF = 8,
    NF_TYPE_ATTR = 16, /* this and the next flags: see annotate.c */
    NF_REF = 32,
    NF_SIMPLE = 64,
    NF_ESCAPE = 128,      /* the value of the innermost autoescape is fixed, and true */
    NF_ESCAPE_LATE = 256, /* inside of an autoescape whose value is known only when it is reached */
};                        /* flags of nodes */

struct call_args {
    struct node **pos;
    uint32_t n_pos;
    struct str *names;
    struct node **named;
    uint32_t n_named;
    struct node *star, *star2; /* *list, **dict */
};

struct macro_def {
    struct str name;
    struct node **params;   /* of kind N_NAME */
    struct node **defaults; /* one for each of params; NULL: none */
    uint32_t n_params;
    uint32_t n_slots;                               /* number of slots of its frame */
    int32_t caller_slot, kwargs_slot, varargs_slot; /* -1: the body does not use it */
};

/* How a scope's variable gets its first value when the scope is entered. */
enum load_kind { LOAD_PARAM, LOAD_CONTEXT, LOAD_ALIAS, LOAD_NOTHING };

struct scope_load {
    enum load_kind kind;
    struct str name;
    uint32_t slot;
    uint32_t up, from; /* for LOAD_ALIAS */
};

struct scope {
    struct scope_load *loads; /* without LOAD_PARAM */
    uint32_t n_loads;
    int32_t loop_slot; /* slot of `loop`, if the body mentions it; else -1 */
};

struct node {
    uint8_t kind; /* an enum node_kind */
    uint8_t op;
    uint16_t flags;
    uint32_t line;
    struct node *a, *b, *c;
    struct node **kids;
    uint32_t n;
    uint32_t up, slot;
    uint32_t height; /* levels of nodes below an expression, limited by the parser */
    struct value val;
    struct scope *scope, *else_scope, *test_scope;

    union {
        struct macro_def *macro;
        struct call_args *args;
    };

    /* struct filter or struct test; NULL: the name is unknown, which is an error when it is
     * reached */
    const void *fn;
};

struct template
{
    struct arena arena;
    struct str source;
    const char *name;
    struct node *root;
    struct scope *scope;
    uint32_t n_slots;
};

#endif
