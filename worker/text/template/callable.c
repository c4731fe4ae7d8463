/* Calls (callable.h): how arguments are bound to parameters, which methods a type has, and what
 * happens when a macro, a bound method, a loop, a cycler or a joiner is called.
 *
 * A macro runs in these steps. A new frame is made with all slots missing. Positional and named
 * arguments go into the slots (macro_args). The scope's loads run (exec_enter). Defaults for
 * missing slots are evaluated inside the new frame, so that they can use earlier parameters
 * (macro_defaults). Then the body runs. The value of the call is the text that the body wrote,
 * which is removed from the output. */

#include "worker/text/template/callable.h"

#include "worker/text/template/eval.h"
#include "worker/text/template/iter.h"

enum { MACRO_DEPTH = 4 }; /* levels of depth that a macro counts for: its C frames are large */

/* Reads the next word of a parameter list. */
static bool next_param(const char **at, struct str *ret)
{
    const char *p = *at;
    size_t n;

    while (*p == ' ')
        p++;
    n = strcspn(p, " ");
    *ret = str_of(p, n);
    *at = p + n;
    return n > 0;
}

/* Binds the two last parameters, "*" and "**": a[0] becomes the tuple of the positional arguments
 * from number `from` on, a[1] the dict of the named arguments that no parameter has. */
static bool bind_variadic(struct template_run *r, const struct argv *argv, const bool *used,
                          uint32_t from, struct value *a)
{
    struct dict *named = dict_new(r->a, argv->n_named);
    struct list *rest;

    for (uint32_t i = 0; i < argv->n_named; i++) {
        if (!used[i])
            dict_set(r, named, v_str(argv->names[i]), argv->named[i]);
    }
    from = MIN_OF(from, argv->n_pos);
    rest = list_new(r->a, argv->n_pos - from);
    if (rest->n)
        memcpy(rest->at, argv->pos + from, rest->n * sizeof(struct value));
    a[0] = v_tuple(rest);
    a[1] = v_dict(named);
    return true;
}

/* Binds arguments in the common case, without names and stars. Returns whether that was all. */
static bool bind_plain(const char *params, const struct argv *argv, struct value *a)
{
    uint32_t n = 0, required = 0;

    if (argv->n_named > 0)
        return false;
    memset(a, 0, PARAMS_MAX * sizeof(*a)); /* all become V_MISSING */
    for (const char *p = params; *p; p++) {
        if (*p == '*')
            return false;
        n += p == params || p[-1] == ' ';
        required += *p == '!';
    }
    if (argv->n_pos < required || argv->n_pos > n)
        return false;
    for (uint32_t i = 0; i < argv->n_pos; i++)
        a[i] = argv->pos[i];
    return true;
}

/* Binds arguments in the general case. Walks the parameter list and gives each parameter its
 * positional or named argument. Sets a TypeError in Python's words for arguments that are missing,
 * given twice, too many or unknown. */
static bool bind_any(struct template_run *r, const char *what, const char *params,
                     const struct argv *argv, struct value *a)
{
    bool *used = arena_calloc(r->a, argv->n_named + 1, sizeof(bool));
    uint32_t k = 0, n_used = 0;
    struct str p;

    for (uint32_t i = 0; i < PARAMS_MAX; i++)
        a[i] = v_missing();
    while (next_param(&params, &p)) {
        bool required = p.p[p.len - 1] == '!';

        if (p.p[0] == '*')
            return bind_variadic(r, argv, used, k, &a[k]);
        p.len -= required;
        if (k < argv->n_pos)
            a[k] = argv->pos[k];
        for (uint32_t i = 0; i < argv->n_named; i++) {
            if (!str_eq(argv->names[i], p))
                continue;
            if (a[k].t != V_MISSING)
                return run_fail(r, "TypeError", "%s() got multiple values for argument '%.*s'",
                                what, (int)p.len, p.p)
                           .t != V_ERR;
            a[k] = argv->named[i];
            used[i] = true;
            n_used++;
        }
        if (required && a[k].t == V_MISSING)
            return run_fail(r, "TypeError", "%s() missing required argument '%.*s'", what,
                            (int)p.len, p.p)
                       .t != V_ERR;
        k++;
    }
    if (argv->n_pos > k)
        return run_fail(r, "TypeError", "%s() takes at most %u arguments (%u given)", what, k,
                        argv->n_pos)
                   .t != V_ERR;
    if (n_used < argv->n_named)
        return run_fail(r, "TypeError", "%s() got an unexpected keyword argument", what).t != V_ERR;
    return true;
}

bool call_bind(struct template_run *r, const char *what, const char *params,
               const struct argv *argv, struct value *a)
{
    return bind_plain(params, argv, a) || bind_any(r, what, params, argv, a);
}

struct value method_call(struct template_run *r, const struct method *m, struct value self,
                         const struct argv *argv)
{
    struct value a[PARAMS_MAX];

    if (!call_bind(r, m->name, m->params, argv, a))
        return v_err();
    return m->fn(r, self, a);
}

/* --- methods by type --- */

/* Returns the method of that name in one table, or NULL. */
static const struct method *in_table(const struct method *m, struct str name)
{
    for (; m->name; m++) {
        if (strncmp(m->name, name.p, name.len) == 0 && m->name[name.len] == 0)
            return m;
    }
    return NULL;
}

const struct method *method_find(struct value self, struct str name)
{
    const struct method *m;

    switch (self.t) {
    case V_STR:
        m = in_table(str_methods, name);
        return m ? m : in_table(str_search_methods, name);
    case V_DICT:
        return in_table(dict_methods, name);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
        return in_table(list_methods, name);
    case V_BOOL:
    case V_INT:
    case V_BIG:
    case V_FLOAT:
        return in_table(number_methods, name);
    case V_LOOP:
        return in_table(loop_methods, name);
    case V_CYCLER:
        return in_table(cycler_methods, name);
    default:
        return NULL;
    }
}

static const char *const list_forbidden[] = {"append", "clear",   "extend", "insert", "pop",
                                             "remove", "reverse", "sort",   NULL};
static const char *const dict_forbidden[] = {"clear",      "pop",    "popitem",
                                             "setdefault", "update", NULL};

/* Reports whether the NULL-terminated list has the name. */
static bool in_names(const char *const *names, struct str name)
{
    for (; *names; names++) {
        if (str_eq_c(name, *names))
            return true;
    }
    return false;
}

bool method_forbidden(struct value self, struct str name)
{
    if (self.t == V_LIST)
        return in_names(list_forbidden, name);
    return self.t == V_DICT && in_names(dict_forbidden, name);
}

/* Also true for names with two leading underscores, which the sandbox treats specially on every
 * type. */
bool method_any(struct str name)
{
    const struct method *const tables[] = {str_methods,   str_search_methods, dict_methods,
                                           list_methods,  number_methods,     loop_methods,
                                           cycler_methods};

    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        if (in_table(tables[i], name))
            return true;
    }
    return in_names(list_forbidden, name) || in_names(dict_forbidden, name) ||
           str_starts(name, STR("__"));
}

/* --- macros --- */

static bool macro_too_many(struct template_run *r, const struct macro_def *m, const char *what)
{
    (void)run_fail(r, "TypeError", "macro '%.*s' %s", (int)m->name.len, m->name.p, what);
    return false;
}

/* Binds named arguments: parameters, then `caller`, then **kwargs. */
static bool macro_named(struct template_run *r, const struct macro_def *m, const struct argv *argv,
                        struct frame *f)
{
    struct dict *kwargs = m->kwargs_slot >= 0 ? dict_new(r->a, argv->n_named) : NULL;

    for (uint32_t i = 0; i < argv->n_named; i++) {
        uint32_t k = 0;

        while (k < m->n_params && !str_eq(v_bytes(m->params[k]->val), argv->names[i]))
            k++;
        if (k < m->n_params && k >= argv->n_pos)
            f->slots[m->params[k]->slot] = argv->named[i];
        else if (m->caller_slot >= 0 && str_eq_c(argv->names[i], "caller"))
            f->slots[m->caller_slot] = argv->named[i];
        else if (kwargs)
            dict_set(r, kwargs, v_str(argv->names[i]), argv->named[i]);
        else
            return macro_too_many(r, m, "takes no such keyword argument");
    }
    if (kwargs)
        f->slots[m->kwargs_slot] = v_dict(kwargs);
    return true;
}

/* Fills the macro's frame from the arguments. Arguments without a parameter go to varargs and
 * kwargs if the body mentions them; otherwise they are a TypeError. */
static bool macro_args(struct template_run *r, const struct macro_def *m, const struct argv *argv,
                       struct frame *f)
{
    for (uint32_t i = 0; i < m->n_params && i < argv->n_pos; i++)
        f->slots[m->params[i]->slot] = argv->pos[i];
    if (m->caller_slot >= 0)
        f->slots[m->caller_slot] = v_undef(UNDEF_NAME, STR("caller"));
    if (!macro_named(r, m, argv, f))
        return false;
    if (m->varargs_slot >= 0) {
        uint32_t from = MIN_OF(m->n_params, argv->n_pos);

        struct value rest = run_list(r, argv->pos + from, argv->n_pos - from);

        if (rest.t == V_ERR)
            return false;
        f->slots[m->varargs_slot] = v_tuple(rest.list);
    } else if (argv->n_pos > m->n_params) {
        return macro_too_many(r, m, "takes fewer positional arguments");
    }
    return true;
}

/* Evaluates the defaults of the parameters that got no argument, in order. A parameter without a
 * default becomes undefined. Returns false on an error. */
static bool macro_defaults(struct template_run *r, const struct macro_def *m)
{
    for (uint32_t i = 0; i < m->n_params; i++) {
        struct value *slot = &r->frame->slots[m->params[i]->slot];

        if (slot->t != V_MISSING)
            continue;
        *slot = m->defaults[i] ? eval(r, m->defaults[i])
                               : v_undef(UNDEF_PARAM, v_bytes(m->params[i]->val));
        if (slot->t == V_ERR)
            return false;
    }
    return true;
}

/* Calls a macro in the steps described at the head of this file. */
static struct value macro_call(struct template_run *r, const struct callable *c,
                               const struct argv *argv)
{
    const struct macro_def *m = c->macro;
    struct frame *f = arena_zalloc(r->a, sizeof(*f) + m->n_slots * sizeof(f->slots[0]));
    struct frame *saved = r->frame;
    size_t from = r->out->len;
    bool html = r->autoescape;
    enum exec_result result = EXEC_ERROR;
    struct value v;

    if (!run_spend(r, m->n_slots / 8))
        return v_err();
    f->up = c->frame;
    f->n = m->n_slots;
    if (!macro_args(r, m, argv, f))
        return v_err();
    if (r->budget.depth < MACRO_DEPTH) {
        (void)budget_exhaust(&r->budget, BUDGET_DEPTH);
        (void)run_over(r);
        return v_err();
    }
    r->budget.depth -= MACRO_DEPTH;
    r->frame = f;
    exec_enter(r, c->node->scope);
    if (macro_defaults(r, m))
        result = exec(r, c->node->b);
    r->frame = saved;
    r->budget.depth += MACRO_DEPTH;
    if (result == EXEC_ERROR)
        return v_err();
    v = exec_cut_output(r, from);
    return html ? v_markup(v) : v;
}

/* Calls loop(items) inside a recursive loop: runs the body again, with its variables saved
 * meanwhile. */
static struct value loop_call(struct template_run *r, struct for_loop *l, const struct argv *argv)
{
    struct frame *saved = r->frame;
    size_t from = r->out->len;
    struct value *slots, a[PARAMS_MAX];
    enum exec_result result;

    if (!call_bind(r, "loop", "iterable!", argv, a))
        return v_err();
    if (!(l->body->flags & NF_RECURSIVE))
        return run_fail(r, "TypeError",
                        "The loop must have the 'recursive' marker to be called recursively.");
    if (!run_spend(r, l->frame->n / 8) || !run_room(r, l->frame->n * sizeof(*slots)))
        return v_err();
    slots = arena_alloc(r->a, l->frame->n * sizeof(*slots));
    memcpy(slots, l->frame->slots, l->frame->n * sizeof(*slots));
    r->frame = l->frame;
    result = exec_loop(r, l->body, a[0], l->depth + 1);
    memcpy(l->frame->slots, slots, l->frame->n * sizeof(*slots));
    r->frame = saved;
    if (result == EXEC_ERROR)
        return v_err();
    return eval_escapes(r, l->body) ? v_markup(exec_cut_output(r, from)) : exec_cut_output(r, from);
}

static struct value joiner_call(struct value v)
{
    if (v.cycler->used)
        return v.cycler->sep;
    v.cycler->used = true;
    return v_text("");
}

struct value call_value(struct template_run *r, struct value callee, const struct argv *argv)
{
    struct value a[PARAMS_MAX];

    switch (callee.t) {
    case V_UNDEF:
        return run_undefined(r, callee);
    case V_LOOP:
        return loop_call(r, callee.loop, argv);
    case V_JOINER:
        return call_bind(r, "joiner", "", argv, a) ? joiner_call(callee) : v_err();
    case V_CALL:
        if (callee.call->kind == CALL_MACRO)
            return macro_call(r, callee.call, argv);
        return method_call(r, callee.call->method, callee.call->self, argv);
    default:
        return run_fail(r, "TypeError", "'%s' object is not callable", v_type_name(callee));
    }
}
