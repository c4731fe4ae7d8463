/* Names to slots (scope.h), in two alternating passes over each scope. `analyze_node` goes through
 * the statements of one scope and collects its names without entering inner scopes. Then
 * `bind_names` gives the names their slots; at each inner scope it opens a table, analyzes and
 * binds that scope.
 *
 *   struct function   one frame at run time: the root, a macro, a call block; counts slots
 *   struct table      the names of one scope: parent -> the scope around it
 *   struct symbol     one name in a table: its slot, and how it gets its first value
 *
 * The rules are those of jinja2's compiler, with all their peculiarities, because templates rely on
 * them. A name that is set anywhere in a scope belongs to that scope and starts as a copy of the
 * outer one. So does a name that only some branches of an `if` set. A name that is only read is the
 * outer variable, or comes from the context once, when the scope is entered.
 *
 * Tables are on the stack, their vectors on the heap. freeze_table() turns them into the immutable
 * struct scope that the evaluator uses. */

#include "worker/text/template/scope.h"

#include "common/base/check.h"
#include "common/base/vec.h"

struct symbol {
    struct str name;
    uint32_t slot;
    bool stored;
    enum load_kind load;
    uint32_t up, from;
};

typedef VEC(struct symbol) symbol_vec;

enum { NAMES_MAX = 4096 }; /* largest number of names in one scope */

struct function {
    struct arena *a;
    /* limits the work: names are searched one by one, and each `if` copies them all */
    struct budget *budget;
    uint32_t *line; /* present line of the passes */
    uint32_t n_slots;
};

/* The names of one scope. Branches of an `if` work on copies; `slots` gives a name the same slot in
 * all of them. */
struct table {
    struct table *parent;
    struct function *function;
    symbol_vec symbols;
    symbol_vec *slots;
};

static void analyze_node(struct table *t, struct node *n);
static void bind_names(struct table *t, struct node *n);

/* Returns the symbol of that name in one list, or NULL. */
static struct symbol *find_in(const symbol_vec *v, struct str name)
{
    for (size_t i = 0; i < v->n; i++) {
        if (str_eq(v->at[i].name, name))
            return &v->at[i];
    }
    return NULL;
}

/* Returns the variable that `name` means here; *up counts the functions between. NULL: none yet. */
static struct symbol *find_ref(struct table *t, struct str name, uint32_t *up)
{
    *up = 0;
    for (; t; t = t->parent) {
        struct symbol *s = find_in(&t->symbols, name);

        (void)budget_spend(t->function->budget, t->symbols.n / 4);
        if (s)
            return s;
        *up += t->parent && t->parent->function != t->function;
    }
    return NULL;
}

/* Adds the name to the scope, or changes how it is loaded. The slot comes from t->slots, which the
 * branches of an `if` share. */
static struct symbol *define_name(struct table *t, struct str name, enum load_kind load)
{
    struct symbol *s = find_in(&t->symbols, name);
    struct symbol *slot = find_in(t->slots, name);

    (void)budget_spend(t->function->budget, (t->symbols.n + t->slots->n) / 4);
    if (t->slots->n > NAMES_MAX)
        (void)budget_exhaust(t->function->budget, BUDGET_STEPS);
    if (!slot) {
        slot = vec_push(t->slots);
        *slot = (struct symbol){.name = name, .slot = t->function->n_slots++};
    }
    if (!s) {
        s = vec_push(&t->symbols);
        *s = (struct symbol){.name = name, .slot = slot->slot};
    }
    s->load = load;
    return s;
}

static void declare_name(struct table *t, struct str name)
{
    define_name(t, name, LOAD_PARAM)->stored = true;
}

/* Makes the first value a copy of the outer variable, if an outer scope has the name. */
static void set_alias(struct table *t, struct symbol *s)
{
    uint32_t up;
    struct symbol *outer = t->parent ? find_ref(t->parent, s->name, &up) : NULL;

    if (!outer)
        return;
    s->load = LOAD_ALIAS;
    s->up = up + (t->parent->function != t->function);
    s->from = outer->slot;
}

/* Records that the name is set here, so that it belongs to this scope from now on. */
static void store_name(struct table *t, struct str name)
{
    struct symbol *s = find_in(&t->symbols, name);

    if (!s) {
        s = define_name(t, name, LOAD_NOTHING);
        set_alias(t, s);
    }
    s->stored = true;
}

static void load_name(struct table *t, struct str name)
{
    uint32_t up;

    if (!find_ref(t, name, &up))
        (void)define_name(t, name, LOAD_CONTEXT);
}

/* --- analysis of one scope, in Jinja's order --- */

static void copy_table(struct table *to, const struct table *from)
{
    *to = (struct table){.parent = from->parent, .function = from->function, .slots = from->slots};
    if (!budget_spend(from->function->budget, from->symbols.n / 4))
        return;
    vec_reserve(&to->symbols, from->symbols.n + 1);
    for (size_t i = 0; i < from->symbols.n; i++)
        *vec_push(&to->symbols) = from->symbols.at[i];
}

/* Counts the branches that set a name which was not set before the `if`. */
static int stores_of(const struct table *t, struct table *branches, struct str name)
{
    const struct symbol *before = find_in(&t->symbols, name);
    int n = 0;

    if (before && before->stored)
        return 0;
    for (int i = 0; i < 3; i++) {
        const struct symbol *s = find_in(&branches[i].symbols, name);

        n += s && s->stored;
    }
    return n;
}

/* Merges the names of the branches of an `if` into t. If only some branches set a name, it needs
 * its outer value (or the context's) at the scope's start, in case a different branch runs. */
static void merge_branches(struct table *t, struct table *branches)
{
    struct table before;

    copy_table(&before, t);
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < branches[i].symbols.n; k++) {
            const struct symbol *from = &branches[i].symbols.at[k];
            struct symbol *to = find_in(&t->symbols, from->name);
            bool stored = from->stored || (to && to->stored);

            if (!to)
                to = vec_push(&t->symbols);
            *to = *from;
            to->stored = stored;
            if (!budget_spend(t->function->budget, t->symbols.n / 4))
                break;
        }
    }
    for (size_t k = 0; k < t->symbols.n; k++) {
        struct symbol *s = &t->symbols.at[k];
        int n = budget_spend(t->function->budget, t->symbols.n)
                    ? stores_of(&before, branches, s->name)
                    : 0;

        if (n == 0 || n == 3)
            continue;
        s->load = LOAD_CONTEXT;
        set_alias(t, s);
    }
    vec_done(&before.symbols);
}

/* Analyzes three branches: the body, all elifs together, and the else body. Each begins with the
 * names known before the `if`. */
static void analyze_if(struct table *t, struct node *n)
{
    struct table branches[3];
    struct node *rest = n->c;

    analyze_node(t, n->a);
    for (int i = 0; i < 3; i++)
        copy_table(&branches[i], t);
    analyze_node(&branches[0], n->b);
    if (!(n->flags & NF_ELIF)) {
        for (; rest && (rest->flags & NF_ELIF); rest = rest->c)
            analyze_if(&branches[1], rest);
        if (rest)
            analyze_node(&branches[2], rest);
    }
    merge_branches(t, branches);
    for (int i = 0; i < 3; i++)
        vec_done(&branches[i].symbols);
}

/* Analyzes the arguments of a call. */
static void analyze_args(struct table *t, const struct call_args *args)
{
    for (uint32_t i = 0; i < args->n_pos; i++)
        analyze_node(t, args->pos[i]);
    for (uint32_t i = 0; i < args->n_named; i++)
        analyze_node(t, args->named[i]);
    analyze_node(t, args->star);
    analyze_node(t, args->star2);
}

static void analyze_kids(struct table *t, struct node *n)
{
    for (uint32_t i = 0; i < n->n; i++)
        analyze_node(t, n->kids[i]);
}

/* Analyzes a parameter, a target of an assignment, or a name that is read. */
static void analyze_name(struct table *t, const struct node *n)
{
    if (n->flags & NF_PARAM)
        declare_name(t, v_bytes(n->val));
    else if (n->flags & NF_STORE)
        store_name(t, v_bytes(n->val));
    else
        load_name(t, v_bytes(n->val));
}

/* Collects the names of one scope below n. For nodes with a scope of their own, only the operands
 * outside of it count: the iterable of a for, the targets of a set block. */
static void analyze_node(struct table *t, struct node *n)
{
    if (!n || !budget_spend(t->function->budget, 1))
        return;
    *t->function->line = n->line;
    switch (n->kind) {
    case N_NAME:
        analyze_name(t, n);
        break;
    case N_IF:
        analyze_if(t, n);
        break;
    case N_FOR:
        analyze_node(t, n->b);
        break;
    case N_SET:
        analyze_node(t, n->b);
        analyze_node(t, n->a);
        break;
    case N_MACRO:
    case N_CALLBLOCK:
    case N_SETBLOCK:
        analyze_node(t, n->a);
        break;
    case N_FILTERBLOCK:
        analyze_node(t, n->c);
        break;
    case N_WITH:
        for (uint32_t i = 1; i < n->n; i += 2)
            analyze_node(t, n->kids[i]);
        break;
    case N_SCOPE:
        break;
    case N_CALL:
    case N_FILTER:
    case N_TEST:
        analyze_node(t, n->a);
        analyze_args(t, n->args);
        break;
    default:
        analyze_node(t, n->a);
        analyze_node(t, n->b);
        analyze_node(t, n->c);
        analyze_kids(t, n);
    }
}

/* --- binding: names to slots --- */

static bool args_mention(struct budget *b, const struct call_args *args, const char *name);

/* Reports whether a name is read anywhere below n. */
static bool mentions_name(struct budget *b, const struct node *n, const char *name)
{
    bool has_args = n && (n->kind == N_CALL || n->kind == N_FILTER || n->kind == N_TEST);

    if (!n || !budget_spend(b, 1))
        return false;
    if (n->kind == N_NAME)
        return !(n->flags & (NF_STORE | NF_PARAM)) && str_eq_c(v_bytes(n->val), name);
    if (mentions_name(b, n->a, name) || mentions_name(b, n->b, name) ||
        mentions_name(b, n->c, name))
        return true;
    for (uint32_t i = 0; i < n->n; i++) {
        if (mentions_name(b, n->kids[i], name))
            return true;
    }
    for (uint32_t i = 0; (n->kind == N_MACRO || n->kind == N_CALLBLOCK) && i < n->macro->n_params;
         i++) {
        if (mentions_name(b, n->macro->defaults[i], name))
            return true;
    }
    return has_args && args_mention(b, n->args, name);
}

/* Reports whether an argument reads the name. */
static bool args_mention(struct budget *b, const struct call_args *args, const char *name)
{
    for (uint32_t i = 0; i < args->n_pos; i++) {
        if (mentions_name(b, args->pos[i], name))
            return true;
    }
    for (uint32_t i = 0; i < args->n_named; i++) {
        if (mentions_name(b, args->named[i], name))
            return true;
    }
    return mentions_name(b, args->star, name) || mentions_name(b, args->star2, name);
}

static struct table inner_table(struct table *parent, struct function *f, symbol_vec *slots)
{
    return (struct table){.parent = parent, .function = f, .slots = slots};
}

/* Makes the evaluator's scope and frees the table. */
static struct scope *freeze_table(struct table *t)
{
    struct scope *s = ARENA_NEW(t->function->a, struct scope);

    s->loop_slot = -1;
    s->loads = arena_alloc(t->function->a, t->symbols.n * sizeof(*s->loads));
    for (size_t i = 0; i < t->symbols.n; i++) {
        const struct symbol *y = &t->symbols.at[i];

        if (y->load != LOAD_PARAM)
            s->loads[s->n_loads++] = (struct scope_load){y->load, y->name, y->slot, y->up, y->from};
    }
    return s;
}

static void end_table(struct table *t)
{
    vec_done(&t->symbols);
    vec_done(t->slots);
}

/* Returns -1 if the budget is spent; then the compilation fails. */
static int32_t slot_of(const struct table *t, const char *name)
{
    const struct symbol *s = find_in(&t->symbols, str_cstr(name));

    if (!s && t->function->budget->over)
        return -1;
    CHECK(s != NULL);
    return (int32_t)s->slot;
}

/* Copies a loop's target: the loop's test has a scope of its own, where the same names have other
 * slots. */
static struct node *clone_target(struct arena *a, const struct node *n)
{
    struct node *c = ARENA_NEW(a, struct node);

    *c = *n;
    c->kids = arena_alloc(a, n->n * sizeof(*c->kids));
    for (uint32_t i = 0; i < n->n; i++)
        c->kids[i] = clone_target(a, n->kids[i]);
    return c;
}

static void declare_target(struct table *t, const struct node *n)
{
    if (n->kind == N_NAME)
        declare_name(t, v_bytes(n->val));
    for (uint32_t i = 0; i < n->n; i++)
        declare_target(t, n->kids[i]);
}

/* Binds a for statement, which has three scopes: the body, the else body, and the test. The
 * iterable belongs to the outer scope. */
static void bind_for(struct table *t, struct node *n)
{
    symbol_vec slots[3] = {0};
    struct table body = inner_table(t, t->function, &slots[0]);
    struct table other = inner_table(t, t->function, &slots[1]);
    struct table test = inner_table(t, t->function, &slots[2]);
    bool loop = (n->flags & NF_RECURSIVE) || mentions_name(t->function->budget, n->kids[0], "loop");

    bind_names(t, n->b);
    if (loop)
        declare_name(&body, STR("loop"));
    declare_target(&body, n->a);
    analyze_node(&body, n->kids[0]);
    n->scope = freeze_table(&body);
    if (loop)
        n->scope->loop_slot = slot_of(&body, "loop");
    bind_names(&body, n->a);
    bind_names(&body, n->kids[0]);
    end_table(&body);

    analyze_node(&other, n->kids[1]);
    n->else_scope = freeze_table(&other);
    bind_names(&other, n->kids[1]);
    end_table(&other);

    if (n->c) {
        n->kids[2] = clone_target(t->function->a, n->a);
        declare_target(&test, n->a);
        analyze_node(&test, n->c);
        n->test_scope = freeze_table(&test);
        bind_names(&test, n->kids[2]);
        bind_names(&test, n->c);
    }
    end_table(&test);
}

/* Binds a macro or the body of a call block, which is a function of its own. */
static void bind_macro(struct table *t, struct node *n)
{
    struct macro_def *m = n->macro;
    struct function f = {
        .a = t->function->a, .budget = t->function->budget, .line = t->function->line};
    symbol_vec slots = {0};
    struct table body = inner_table(t, &f, &slots);
    static const char *const special[] = {"caller", "kwargs", "varargs"};
    int32_t *const special_slot[] = {&m->caller_slot, &m->kwargs_slot, &m->varargs_slot};

    bind_names(t, n->a);
    for (uint32_t i = 0; i < m->n_params; i++)
        analyze_node(&body, m->params[i]);
    for (uint32_t i = 0; i < m->n_params; i++)
        analyze_node(&body, m->defaults[i]);
    analyze_node(&body, n->b);
    for (size_t i = 0; i < ARRAY_LEN(special); i++) {
        bool param = false;

        for (uint32_t k = 0; k < m->n_params; k++)
            param = param || str_eq_c(v_bytes(m->params[k]->val), special[i]);
        *special_slot[i] = -1;
        if (!param && mentions_name(f.budget, n->b, special[i])) {
            declare_name(&body, str_cstr(special[i]));
            *special_slot[i] = slot_of(&body, special[i]);
        }
    }
    n->scope = freeze_table(&body);
    for (uint32_t i = 0; i < m->n_params; i++) {
        bind_names(&body, m->params[i]);
        bind_names(&body, m->defaults[i]);
    }
    bind_names(&body, n->b);
    m->n_slots = f.n_slots;
    end_table(&body);
}

/* Binds with, call-less blocks, filter and set blocks: a scope within the function. */
static void bind_scope(struct table *t, struct node *n)
{
    symbol_vec slots = {0};
    struct table body = inner_table(t, t->function, &slots);

    if (n->kind == N_WITH) {
        for (uint32_t i = 0; i < n->n; i += 2) {
            bind_names(t, n->kids[i + 1]);
            declare_target(&body, n->kids[i]);
        }
    }
    if (n->kind == N_SETBLOCK) {
        bind_names(t, n->a);
        analyze_node(&body, n->c);
    } else {
        bind_names(t, n->c);
    }
    analyze_node(&body, n->b);
    n->scope = freeze_table(&body);
    for (uint32_t i = 0; n->kind == N_WITH && i < n->n; i += 2)
        bind_names(&body, n->kids[i]);
    if (n->kind == N_SETBLOCK)
        bind_names(&body, n->c);
    bind_names(&body, n->b);
    end_table(&body);
}

/* Binds the names in the arguments of a call. */
static void bind_args(struct table *t, const struct call_args *args)
{
    for (uint32_t i = 0; i < args->n_pos; i++)
        bind_names(t, args->pos[i]);
    for (uint32_t i = 0; i < args->n_named; i++)
        bind_names(t, args->named[i]);
    bind_names(t, args->star);
    bind_names(t, args->star2);
}

/* Writes frame and slot into the node. */
static void bind_name(struct table *t, struct node *n)
{
    uint32_t up;
    const struct symbol *s;

    /* A name that analysis did not find (a set target inside a block that it enters later) belongs
     * to this scope. */
    if (!find_ref(t, v_bytes(n->val), &up))
        analyze_name(t, n);
    s = find_ref(t, v_bytes(n->val), &up);
    if (!s && t->function->budget->over)
        return;
    CHECK(s != NULL);
    n->up = up;
    n->slot = s->slot;
}

/* Gives every name below n its slot. Opens the scopes of inner statements on the way. */
static void bind_names(struct table *t, struct node *n)
{
    if (!n || !budget_spend(t->function->budget, 1))
        return;
    *t->function->line = n->line;
    switch (n->kind) {
    case N_NAME:
        bind_name(t, n);
        return;
    case N_FOR:
        bind_for(t, n);
        return;
    case N_MACRO:
    case N_CALLBLOCK:
        bind_macro(t, n);
        return;
    case N_WITH:
    case N_SCOPE:
    case N_FILTERBLOCK:
    case N_SETBLOCK:
        bind_scope(t, n);
        return;
    case N_CALL:
    case N_FILTER:
    case N_TEST:
        bind_names(t, n->a);
        bind_args(t, n->args);
        return;
    case N_IF:
        for (; n && n->kind == N_IF; n = n->c) {
            bind_names(t, n->a);
            bind_names(t, n->b);
        }
        bind_names(t, n);
        return;
    default:
        bind_names(t, n->a);
        bind_names(t, n->b);
        bind_names(t, n->c);
        for (uint32_t i = 0; i < n->n; i++)
            bind_names(t, n->kids[i]);
    }
}

/* The root scope is a function without an outer scope. */
void scope_resolve(struct template *t, struct budget *budget, uint32_t *line)
{
    struct function f = {.a = &t->arena, .budget = budget, .line = line};
    symbol_vec slots = {0};
    struct table root = inner_table(NULL, &f, &slots);

    analyze_node(&root, t->root);
    t->scope = freeze_table(&root);
    bind_names(&root, t->root);
    t->n_slots = f.n_slots;
    end_table(&root);
}
