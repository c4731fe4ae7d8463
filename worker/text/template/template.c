/* Compiling and rendering (template.h). Compiling: lexer -> parser -> scope_resolve -> prepare_run
 * (annotate.c). The tree is in the template's own arena and never changes afterwards. Rendering: a
 * struct template_run with its budgets, a frame for the root, then the root node is executed. On
 * failure the output is cut back to its beginning.
 *
 * continue_final_message works as in transformers: a mark is added to the content of the last
 * message, the template renders, and everything from the mark on is cut off. */

#include "worker/text/template/template.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/text/template/annotate.h"
#include "worker/text/template/eval.h"
#include "worker/text/template/pystr.h"
#include "worker/text/template/scope.h"
#include "worker/text/template/template_parser.h"

/* The largest templates in use have some 50 KB. */
enum { MAX_DEPTH = 1600, SOURCE_MAX = 1 << 20 };

/* Runs the steps in order. The first that fails sets the error. */
static int compile_source(struct template *t, struct template_error *error)
{
    struct token_list tokens = {0};
    struct budget budget;
    uint32_t line = 0;
    struct template_parser p = {.a = &t->arena, .error = error, .budget = &budget};
    int rc = -1;

    budget_init(&budget, BUDGET_DEFAULT_STEPS, BUDGET_DEFAULT_BYTES, 0, &t->arena.used_bytes);
    p.dummy.kind = N_CONST;
    p.dummy.val = v_none();
    if (t->source.len > SOURCE_MAX)
        rc = compile_fail(error, 0, "TemplateSyntaxError", "the template is longer than 1 MiB");
    else
        rc = lexer_run(&t->arena, t->source, &tokens, error);
    if (rc == 0) {
        p.t = tokens.at;
        p.end = &tokens.at[tokens.n - 1];
        t->root = parser_run(&p);
        rc = t->root ? 0 : -1;
    }
    vec_done(&tokens);
    if (rc != 0)
        return -1;
    scope_resolve(t, &budget, &line);
    if (budget.over == BUDGET_CANCELLED)
        return compile_fail(error, line, "Cancelled", "the work was given up");
    if (budget.over)
        return compile_fail(error, line, "BudgetError",
                            "the template has too many names and statements to compile");
    prepare_run(&t->arena, t->root);
    return 0;
}

/* The arena is inside the struct, so both are freed together, even if compiling fails. */
int template_compile(struct str source, const char *name, struct template **ret,
                     struct template_error *detail, struct err *e)
{
    struct template_error own = {0};
    struct template *t = mem_zalloc(sizeof(*t));

    *ret = NULL;
    t->source = arena_str(&t->arena, source);
    t->name = arena_cstr(&t->arena, str_cstr(name));
    if (compile_source(t, &own) == 0) {
        *ret = t;
        return 0;
    }
    if (detail) {
        *detail = own;
        detail->message = str_cstr(detail->text);
    }
    (void)err_set(e, ERR_INVALID, "%s, line %u: %s: %s", name, own.line, own.kind, own.text);
    template_free(t);
    return -1;
}

/* The arena is inside the struct, so it is moved out before the struct is freed. */
void template_free(struct template *t)
{
    struct arena a;

    if (!t)
        return;
    a = t->arena;
    free(t);
    arena_done(&a);
}

struct str template_source(const struct template *t)
{
    return t->source;
}

/* Searches the source for the name as a whole word, even in a comment or text. Callers only ask
 * whether a variable can matter at all. */
bool template_mentions(const struct template *t, const char *name)
{
    struct str s = t->source, word = str_cstr(name);

    for (size_t at = 0; (at = str_find(s, word, at)) != SIZE_MAX; at++) {
        size_t end = at + word.len;
        size_t next = end;
        unsigned f = end < s.len ? pystr_flags(pystr_next(s, &next)) : 0;
        unsigned before = at > 0 ? pystr_flags((unsigned char)s.p[at - 1]) : 0;

        if (!(f & PYSTR_ID_CONTINUE) && !(before & PYSTR_ID_CONTINUE))
            return true;
    }
    return false;
}

/* --- continue_final_message: a mark after the content that must be continued --- */

static const char MARK[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static struct value mark_text(struct template_run *r, struct value text)
{
    if (text.t != V_STR)
        return run_fail(r, "TypeError", "the final message has no text content to continue");
    r->final_text = v_bytes(text);
    return run_concat(r, text, v_text(MARK));
}

/* Copies a content list and marks its last text part. */
static struct value mark_list(struct template_run *r, struct value parts)
{
    struct value copy = run_list(r, list_need(r->a, parts.list)->at, parts.list->n);

    if (copy.t == V_ERR)
        return copy;
    for (uint32_t i = copy.list->n; i-- > 0;) {
        struct value part = copy.list->at[i], text;
        struct dict_entry *e =
            part.t == V_DICT ? dict_find_str(r->a, part.dict, STR("text")) : NULL;
        struct dict *d;

        if (!e)
            continue;
        text = mark_text(r, e->value);
        d = dict_new(r->a, part.dict->n);
        for (uint32_t k = 0; k < part.dict->n; k++)
            dict_set(r, d, part.dict->at[k].key, part.dict->at[k].value);
        dict_set(r, d, v_text("text"), text);
        copy.list->at[i] = v_dict(d);
        return text.t == V_ERR ? text : copy;
    }
    return run_fail(r, "ValueError",
                    "continue_final_message is set but we could not find any text"
                    " to continue in the final message!");
}

/* Replaces context.messages by a copy whose last message is marked in its field. */
static bool mark_final(struct template_run *r)
{
    struct str field = r->o->continue_field.p ? r->o->continue_field : STR("content");
    struct dict_entry *messages = dict_find_str(r->a, r->context, STR("messages")), *content;
    struct value copy, last;
    struct dict *d;

    if (!messages || messages->value.t != V_LIST || messages->value.list->n == 0)
        return run_fail(r, "IndexError", "list index out of range").t != V_ERR;
    list_need(r->a, messages->value.list);
    copy = run_list(r, messages->value.list->at, messages->value.list->n);
    if (copy.t == V_ERR)
        return false;
    last = copy.list->at[copy.list->n - 1];
    content = last.t == V_DICT ? dict_find_str(r->a, last.dict, field) : NULL;
    if (!content || content->value.t == V_NONE)
        return run_fail(r, "ValueError",
                        "continue_final_message is set but the final message has no \"%.*s\" to "
                        "continue!",
                        (int)MIN_OF(field.len, (size_t)100), field.p)
                   .t != V_ERR;
    d = dict_new(r->a, last.dict->n);
    for (uint32_t i = 0; i < last.dict->n; i++)
        dict_set(r, d, last.dict->at[i].key, last.dict->at[i].value);
    last = v_is_seq(content->value) ? mark_list(r, content->value) : mark_text(r, content->value);
    dict_set(r, d, v_str(field), last);
    copy.list->at[copy.list->n - 1] = v_dict(d);
    messages->value = copy;
    return last.t != V_ERR;
}

/* Cuts the output at the last mark. A template that changes the text is refused. If the template
 * removed the space in the mark, the text before it was trimmed as well. */
static bool cut_final(struct template_run *r)
{
    struct str out = str_sub(buf_str(r->out), r->out_start, r->out->len);
    struct str mark = STR("CONTINUE_FINAL_MESSAGE_TAG"), says = pystr_strip(r->final_text, 3);
    size_t at = SIZE_MAX, next = 0;

    while ((next = str_find(out, mark, next)) != SIZE_MAX)
        at = next++;
    if (at == SIZE_MAX || (says.len && str_find(out, says, 0) == SIZE_MAX))
        return run_fail(r, "ValueError",
                        "continue_final_message is set but the final message does not appear in "
                        "the chat after applying the chat template! This can happen if the chat "
                        "template deletes portions of the final message. Please verify the chat "
                        "template and final message in your chat to ensure they are compatible.")
                   .t != V_ERR;
    if (at + mark.len >= out.len || out.p[at + mark.len] != ' ')
        at = pystr_strip(str_sub(out, 0, at), 2).len;
    r->out->len = r->out_start + at;
    return true;
}

/* --- rendering --- */

/* Renders once, from the first frame to the cut of a continued message. */
static bool run_template(struct template_run *r, const struct template *t)
{
    struct frame *f = arena_zalloc(r->a, sizeof(*f) + t->n_slots * sizeof(f->slots[0]));

    f->n = t->n_slots;
    r->frame = f;
    if (r->o->continue_final_message && !mark_final(r))
        return false;
    exec_enter(r, t->scope);
    if (exec(r, t->root) == EXEC_ERROR)
        return false;
    return !r->o->continue_final_message || cut_final(r);
}

/* A limit of 0 in the options means the default. */
int template_render(const struct template *t, struct arena *a, const struct json *context,
                    const struct template_options *o, struct buf *out, struct err *e)
{
    static const struct template_options none = {0};
    struct template_run r = {.a = a, .out = out, .o = o ? o : &none, .out_start = out->len};
    uint64_t steps = r.o->max_steps ? r.o->max_steps : BUDGET_DEFAULT_STEPS;
    struct value c;
    bool done;

    r.max_out = r.o->max_output_bytes ? r.o->max_output_bytes : (size_t)256 << 20;
    budget_init(&r.budget, steps,
                r.o->max_memory_bytes ? r.o->max_memory_bytes : BUDGET_DEFAULT_BYTES,
                r.o->max_depth ? r.o->max_depth : MAX_DEPTH, &a->used_bytes);
    c = json_is(context, JSON_OBJECT) ? v_from_json(a, context) : v_dict(dict_new(a, 0));
    r.context = dict_need(a, c.dict);
    done = run_template(&r, t) && !r.error.kind && (!r.budget.over || run_over(&r));
    if (r.o->ret_steps)
        *r.o->ret_steps = steps - r.budget.steps - r.budget.fuel;
    if (done)
        return 0;
    out->len = r.out_start;
    if (r.o->error)
        *r.o->error = r.error;
    return err_set(e, ERR_INVALID, "%s, line %u: %s: %.*s", t->name, r.error.line, r.error.kind,
                   (int)MIN_OF(r.error.message.len, (size_t)300), r.error.message.p);
}
