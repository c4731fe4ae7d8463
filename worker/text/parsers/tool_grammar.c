/*
 * The root rule has two parts. The first is the thought, as far as the prompt leaves it open
 * (write_lead). The second is the body: calls (required), JSON or calls (json), or text in which no
 * call begins and then perhaps calls. Calls are made form by form (call_forms.c), tool by tool: a
 * tool's schema becomes the arguments in the form's notation, and name and arguments are put into
 * the form's text.
 *
 * Text without calls is text without the marks that begin one. For families that may call without a
 * mark, its first character is restricted as well.
 */
#include "worker/text/parsers/tool_grammar.h"

#include "common/base/attrs.h"
#include "common/base/lookup.h"
#include "worker/text/parsers/call_forms.h"
#include "worker/text/parsers/core.h"
#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/schema_grammar.h"

struct making {
    const struct tool_grammar *f;
    const struct call_form *form;
    struct gbnf g;
    struct schema_grammar *schemas; /* schemas of the present tool */
    struct buf *args;               /* arguments of the present tool */
    unsigned text;                  /* rule of a parameter's text; 0: not made yet */
    size_t n_params;
    struct arena arena;    /* memory of the fields below */
    struct lookup allowed; /* f->allowed, by name */
};

/* --- arguments --- */

/* Appends text as it is inside of quotes. */
static void inside_quotes(struct str text, bool json, struct buf *out)
{
    struct buf escaped = {0}, quoted = {0};

    if (json)
        value_escape(&escaped, text);
    else
        buf_add_str(&escaped, text);
    gbnf_lit(&quoted, buf_str(&escaped));
    /* without the `"` before and the `" ` after */
    buf_add_str(out, str_sub(buf_str(&quoted), 1, quoted.len - 3));
    buf_done(&escaped);
    buf_done(&quoted);
}

static unsigned param_text(struct making *m)
{
    if (!m->text)
        m->text = gbnf_text_without(&m->g, m->form->text_end, ARRAY_LEN(m->form->text_end));
    return m->text;
}

/* Appends the texts that a string's enum allows. Returns false if it has none, or values that are
 * not texts. */
static bool text_choices(const struct json *schema, struct buf *x)
{
    const struct json *one = json_get(schema, "const");
    const struct json *list = json_get(schema, "enum");

    if (json_is(one, JSON_STRING)) {
        gbnf_lit(x, json_string(one));
        return true;
    }
    for (size_t i = 0; json_at(list, i); i++)
        if (!json_is(json_at(list, i), JSON_STRING))
            return false;
    for (size_t i = 0; json_at(list, i); i++) {
        buf_puts(x, i ? "| " : "( ");
        gbnf_lit(x, json_string(json_at(list, i)));
    }
    if (json_at(list, 0))
        buf_puts(x, ") ");
    return json_at(list, 0) != NULL;
}

/* Appends a parameter in tags, typed as by the family's reader: text wherever the schema allows a
 * text. */
static void tag_param(void *ctx, struct str key, const struct json *schema, bool required)
{
    struct making *m = ctx;
    bool text = value_types(schema) & TYPE_STRING;
    bool as_text = text || !m->form->json_param;
    struct buf name = {0}, value = {0};

    if (!text)
        schema_value(m->schemas, schema, &value);
    else if (!text_choices(schema, &value))
        gbnf_ref(&value, param_text(m));
    inside_quotes(key, false, &name);
    buf_puts(m->args, required ? "" : "( ");
    gbnf_fill(m->args, as_text ? m->form->text_param : m->form->json_param, "kv",
              (const struct str[]){buf_str(&name), buf_str(&value)});
    buf_puts(m->args, required ? "" : ")? ");
    m->n_params++;
    buf_done(&name);
    buf_done(&value);
}

static void tag_args(struct making *m, const struct json *schema)
{
    struct buf value = {0};

    m->n_params = 0;
    schema_each_property(m->schemas, schema, tag_param, m);
    if (m->n_params > 0 || json_get(schema_deref(m->schemas, schema), "properties"))
        return;
    /* A tool that declares nothing accepts any parameters. */
    gbnf_ref(&value, param_text(m));
    buf_puts(m->args, "( ");
    gbnf_fill(m->args, m->form->text_param, "kv",
              (const struct str[]){STR("\" [a-zA-Z0-9_]{1,64} \""), buf_str(&value)});
    buf_puts(m->args, ")* ");
    buf_done(&value);
}

static void python_key(struct buf *x, struct str key)
{
    gbnf_lit(x, key);
    buf_puts(x, "ws \"=\" ws ");
}

static void bare_key(struct buf *x, struct str key)
{
    gbnf_lit(x, key);
    buf_puts(x, "\":\" ws ");
}

static void json_args(struct making *m, const struct json *schema)
{
    const struct json *type = json_get(schema_deref(m->schemas, schema), "type");

    /* Arguments are an object, whatever a schema says. */
    if (json_is(schema, JSON_OBJECT) && (!type || str_eq_c(json_string(type), "object")))
        schema_value(m->schemas, schema, m->args);
    if (m->args->len == 0 || str_eq_c(buf_str(m->args), "value "))
        buf_clear(m->args), buf_puts(m->args, "object ");
}

static void write_args(struct making *m, const struct json *schema)
{
    struct schema_grammar schemas;

    schema_grammar_init(&schemas, &m->g, schema, m->form->args == ARGS_PYTHON);
    if (m->form->args == ARGS_BARE) {
        schemas.quote = m->form->text_end[0];
        schemas.text = param_text(m);
    }
    m->schemas = &schemas;
    if (m->form->args == ARGS_TAGS)
        tag_args(m, schema);
    else if (m->form->args == ARGS_PYTHON)
        schema_members(&schemas, schema, python_key, m->args);
    else if (m->form->args == ARGS_BARE)
        schema_members(&schemas, schema, bare_key, m->args);
    else
        json_args(m, schema);
    m->schemas = NULL;
    schema_grammar_done(&schemas);
}

/* --- calls --- */

static bool is_allowed_tool(const struct making *m, struct str name)
{
    return !m->f->allowed || (name.p && lookup_get(&m->allowed, name) != LOOKUP_NONE);
}

static void write_tool(struct making *m, const struct json *tool, struct buf *x)
{
    const struct json *function = json_get(tool, "function");
    struct buf args = {0}, name = {0}, call = {0};

    function = function ? function : tool;
    m->args = &args;
    write_args(m, json_get(function, "parameters"));
    m->args = NULL;
    inside_quotes(json_string(json_get(function, "name")), true, &name);
    gbnf_fill(&call, m->form->call, "na", (const struct str[]){buf_str(&name), buf_str(&args)});
    gbnf_ref(x, gbnf_rule(&m->g, &call));
    buf_done(&args);
    buf_done(&name);
    buf_done(&call);
}

/* Adds a rule for all calls of one form. Returns 0 if no tool may be called. */
static unsigned write_form(struct making *m)
{
    const struct call_form *form = m->form;
    bool single = form->single || m->f->single;
    struct buf x = {0};
    unsigned any;

    m->text = 0;
    for (size_t i = 0; json_at(m->f->tools, i); i++) {
        const struct json *tool = json_at(m->f->tools, i);
        const struct json *function = json_get(tool, "function");

        if (!is_allowed_tool(m, json_string(json_get(function ? function : tool, "name"))))
            continue;
        buf_puts(&x, x.len ? "| " : "");
        write_tool(m, tool, &x);
    }
    if (!x.len)
        return 0;
    any = gbnf_rule(&m->g, &x);
    buf_puts(&x, form->open ? form->open : "");
    gbnf_ref(&x, any);
    if (!single) {
        buf_printf(&x, "( %s", form->between ? form->between : "");
        gbnf_ref(&x, any);
        buf_puts(&x, ")* ");
    }
    buf_puts(&x, form->close ? form->close : "");
    any = gbnf_rule(&m->g, &x);
    buf_done(&x);
    return any;
}

/* Appends "a | b" for the forms of the kind. Returns false if it has none. */
static bool write_call_forms(struct making *m, struct buf *x)
{
    size_t was = x->len;

    for (size_t i = 0; i < n_call_forms; i++) {
        unsigned rule;

        m->form = &call_forms[i];
        if (m->form->kind != m->f->tool || (rule = write_form(m)) == 0)
            continue;
        buf_puts(x, x->len > was ? "| " : "");
        gbnf_ref(x, rule);
    }
    return x->len > was;
}

/* --- the whole answer --- */

static const char *const channel_marks[] = {"<|channel|>", "<|start|>", "<|message|>",
                                            "<|end|>",     "<|call|>",  "<|return|>"};

static bool is_harmony(const struct tool_grammar *f)
{
    return f->tool == TOOL_GPT_OSS || f->reasoning == REASONING_HARMONY;
}

bool tool_grammar_thinks(const struct tool_grammar *f)
{
    return is_harmony(f) || (think_tags_of(f->reasoning)->start[0] && f->thought != THOUGHT_CLOSED);
}

/* Writes the thought, as far as the prompt has not closed it. */
static void write_lead(struct making *m, bool lenient, struct buf *x)
{
    const struct tool_grammar *f = m->f;
    const struct think_tags *t = think_tags_of(f->reasoning);
    const struct grammar *g = f->tools ? grammar_of(f->tool) : NULL;
    unsigned text;

    if (is_harmony(f)) {
        text = gbnf_text_without(&m->g, channel_marks, ARRAY_LEN(channel_marks));
        buf_printf(x, "( \"<|channel|>analysis<|message|>\" x%u \"<|end|><|start|>assistant\" )* ",
                   text);
        return;
    }
    if (!tool_grammar_thinks(f))
        return;
    const char *marks[] = {t->end[0],
                           t->end[1],
                           t->end[2],
                           g ? g->open[0] : NULL,
                           g ? g->open[1] : NULL,
                           g ? g->begin[0] : NULL,
                           g ? g->begin[1] : NULL,
                           g ? g->begin[2] : NULL};

    text = gbnf_text_without(&m->g, marks, ARRAY_LEN(marks));
    if (f->thought == THOUGHT_OPEN && !lenient) {
        gbnf_ref(x, text);
        gbnf_lit(x, str_cstr(t->end[0]));
        return;
    }
    buf_puts(x, "( ");
    if (f->thought != THOUGHT_OPEN) {
        buf_puts(x, "ws ");
        gbnf_lit(x, str_cstr(t->start[0]));
    }
    gbnf_ref(x, text);
    gbnf_lit(x, str_cstr(t->end[0]));
    buf_puts(x, ")? ");
}

/* Writes text in which no call begins. */
static void write_free(struct making *m, struct buf *x)
{
    const struct grammar *g = grammar_of(m->f->tool);

    if (is_harmony(m->f)) {
        unsigned text = gbnf_text_without(&m->g, channel_marks, ARRAY_LEN(channel_marks));

        buf_printf(x,
                   "( \"<|channel|>\" ( \"final\" | \"commentary\" ) \"<|message|>\" x%u "
                   "( \"<|end|><|start|>assistant\" )? )* ",
                   text);
        return;
    }
    const char *marks[] = {g->open[0],  g->open[1],  g->begin[0],
                           g->begin[1], g->begin[2], g->begin[3]};

    /* A call without a mark can only be at the very beginning. */
    if (g->bare)
        buf_puts(x, "( [^ \\t\\r\\n{\\u005b<] ");
    gbnf_ref(x, gbnf_text_without(&m->g, marks, ARRAY_LEN(marks)));
    if (g->bare)
        buf_puts(x, ")? ");
}

static void write_json(struct making *m, struct buf *x)
{
    struct schema_grammar schemas;

    buf_puts(x, is_harmony(m->f) ? "\"<|channel|>final\" ( \" \"? \"<|constrain|>\"? \"json\" )? "
                                   "\"<|message|>\" ws "
                                 : "ws ");
    if (!m->f->schema) {
        buf_puts(x, "object ");
        return;
    }
    schema_grammar_init(&schemas, &m->g, m->f->schema, false);
    schema_value(&schemas, m->f->schema, x);
    schema_grammar_done(&schemas);
}

static int write_body(struct making *m, struct buf *x, struct err *e)
{
    const struct tool_grammar *f = m->f;
    struct buf calls = {0}, json = {0}, text = {0};
    bool any = f->tools && write_call_forms(m, &calls);

    if (f->required && !any) {
        (void)err_set(
            e, ERR_INVALID,
            "tool_choice cannot be enforced: the format of this model's tool calls is unknown");
    } else if (f->required) {
        buf_printf(x, "ws ( %.*s)", (int)calls.len, calls.p);
    } else if (f->json) {
        write_json(m, &json);
        buf_printf(x, "( %.*s", (int)json.len, json.p);
        if (any)
            buf_printf(x, "| ws ( %.*s) ", (int)calls.len, calls.p);
        buf_puts(x, ")");
    } else if (any) {
        write_free(m, &text);
        buf_printf(x, "%.*s( ws ( %.*s) )?", (int)text.len, text.p, (int)calls.len, calls.p);
    }
    buf_done(&calls);
    buf_done(&json);
    buf_done(&text);
    return x->len ? 0 : -1;
}

int tool_grammar_write(const struct tool_grammar *f, bool lenient, struct buf *out, struct err *e)
{
    struct making m = {.f = f};
    struct buf root = {0}, body = {0};
    int rc = -1;

    m.allowed.arena = &m.arena;
    for (uint32_t i = 0; json_at(f->allowed, i); i++)
        (void)lookup_add(&m.allowed, json_string(json_at(f->allowed, i)), i);
    gbnf_init(&m.g);
    write_lead(&m, lenient, &root);
    if (write_body(&m, &body, e))
        goto out;
    buf_add_str(&root, buf_str(&body));
    gbnf_finish(&m.g, buf_str(&root));
    if (gbnf_too_big(&m.g)) {
        (void)err_set(e, ERR_INVALID, "the schemas are too large to be enforced");
        goto out;
    }
    buf_add_str(out, buf_str(&m.g.text));
    rc = 0;
out:
    gbnf_done(&m.g);
    arena_done(&m.arena);
    buf_done(&root);
    buf_done(&body);
    return rc;
}
