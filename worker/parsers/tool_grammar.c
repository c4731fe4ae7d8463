#include "worker/parsers/tool_grammar.h"

#include "common/base/attrs.h"
#include "common/base/lookup.h"
#include "worker/parsers/core.h"
#include "worker/parsers/param_value.h"
#include "worker/parsers/schema_grammar.h"

enum arguments { ARGS_JSON, ARGS_TAGS, ARGS_PYTHON };

/* Members of the object that several families write a call as. */
#define NAME_MEMBER "\"\\\"name\\\"\" ws \":\" ws \"\\\"%n\\\"\" ws \",\" ws "
#define ARGUMENTS_MEMBER "\"\\\"arguments\\\"\" ws \":\" ws %a "

/*
 * How a family writes calls: OPEN CALL (BETWEEN CALL)* CLOSE, all in gbnf notation. In `call` %n
 * stands for the name (inside quotes) and %a for the arguments; in the params of ARGS_TAGS %k for
 * the key (inside quotes) and %v for the value. A family with two ways has two rows.
 */
static const struct form {
    enum tool_kind kind;
    enum arguments args;
    const char *open, *call, *between, *close;
    const char *text_param;  /* a parameter whose value is its text */
    const char *json_param;  /* any other; NULL: the same */
    const char *text_end[3]; /* what such a text cannot hold */
    bool single;             /* the turn ends behind a call */
} forms[] = {
    {
        .kind = TOOL_HERMES,
        .call = "\"<tool_call>\" ws \"{\" ws " NAME_MEMBER ARGUMENTS_MEMBER
                "ws \"}\" ws \"</tool_call>\" ",
        .between = "ws ",
    },
    {
        .kind = TOOL_QWEN3_CODER,
        .args = ARGS_TAGS,
        .open = "\"<tool_call>\" ws ",
        .call = "\"<function=%n>\" ws %a \"</function>\" ws ",
        .between = "( \"</tool_call>\" ws \"<tool_call>\" ws )? ",
        .close = "\"</tool_call>\" ",
        .text_param = "\"<parameter=%k>\\n\" ( %v \"\\n\" )? \"</parameter>\" ws ",
        .json_param = "\"<parameter=%k>\\n\" %v \"\\n</parameter>\" ws ",
        .text_end = {"</parameter>", "<parameter=", "</function>"},
    },
    {
        .kind = TOOL_LLAMA3_JSON,
        .open = "\"<|python_tag|>\"? ",
        .call = "\"{\" ws " NAME_MEMBER
                "( \"\\\"parameters\\\"\" | \"\\\"arguments\\\"\" ) ws \":\" ws %a ws \"}\" ",
        .between = "ws \";\" ws ",
    },
    {
        .kind = TOOL_PYTHONIC,
        .args = ARGS_PYTHON,
        .open = "\"<|python_start|>\"? \"[\" ws ",
        .call = "\"%n(\" ws %a ws \")\" ",
        .between = "ws \",\" ws ",
        .close = "ws \"]\" \"<|python_end|>\"? ",
    },
    {
        .kind = TOOL_MISTRAL,
        .open = "\"[TOOL_CALLS]\" ws \"[\" ws ",
        .call = "\"{\" ws " NAME_MEMBER ARGUMENTS_MEMBER
                "( ws \",\" ws \"\\\"id\\\"\" ws \":\" ws string )? ws \"}\" ",
        .between = "ws \",\" ws ",
        .close = "ws \"]\" ",
    },
    {
        .kind = TOOL_MISTRAL,
        .call = "\"[TOOL_CALLS]\" ws \"%n\" ( \"[CALL_ID]\" [a-zA-Z0-9]{9} )? \"[ARGS]\"? %a ",
    },
    {
        .kind = TOOL_DEEPSEEK_V3,
        .open = "\"<｜tool▁calls▁begin｜>\" ",
        .call = "\"<｜tool▁call▁begin｜>function<｜tool▁sep｜>%n\\n```json\\n\" ws %a ws "
                "\"```<｜tool▁call▁end｜>\" ",
        .between = "ws ",
        .close = "ws \"<｜tool▁calls▁end｜>\" ",
    },
    {
        .kind = TOOL_DEEPSEEK_V31,
        .open = "\"<｜tool▁calls▁begin｜>\" ",
        .call = "\"<｜tool▁call▁begin｜>%n<｜tool▁sep｜>\" ws %a ws \"<｜tool▁call▁end｜>\" ",
        .between = "ws ",
        .close = "ws \"<｜tool▁calls▁end｜>\" ",
    },

#define DSML_FORM(section)                                                                     \
    {                                                                                          \
        .kind = TOOL_DEEPSEEK_V32, .args = ARGS_TAGS, .open = "\"<｜DSML｜" section ">\" ws ", \
        .call = "\"<｜DSML｜invoke name=\\\"%n\\\">\" ws %a \"</｜DSML｜invoke>\" ",           \
        .between = "ws ", .close = "ws \"</｜DSML｜" section ">\" ",                           \
        .text_param = "\"<｜DSML｜parameter name=\\\"%k\\\" string=\\\"true\\\">\" %v "      \
                      "\"</｜DSML｜parameter>\" ws ",                                          \
        .json_param = "\"<｜DSML｜parameter name=\\\"%k\\\" string=\\\"false\\\">\" %v "     \
                      "\"</｜DSML｜parameter>\" ws ",                                          \
        .text_end = {"</｜DSML｜parameter>"},                                                  \
    }
    DSML_FORM("function_calls"),
    DSML_FORM("tool_calls"),
#undef DSML_FORM
    {
        .kind = TOOL_GLM45,
        .args = ARGS_TAGS,
        .call = "\"<tool_call>%n\" \"\\n\" ws %a \"</tool_call>\" ",
        .between = "ws ",
        .text_param = "\"<arg_key>%k</arg_key>\" ws \"<arg_value>\" %v \"</arg_value>\" ws ",
        .text_end = {"</arg_value>"},
    },
    {
        .kind = TOOL_GLM47,
        .args = ARGS_TAGS,
        .call = "\"<tool_call>%n\" ws %a \"</tool_call>\" ",
        .between = "ws ",
        .text_param = "\"<arg_key>%k</arg_key>\" ws \"<arg_value>\" %v \"</arg_value>\" ws ",
        .text_end = {"</arg_value>"},
    },
    {
        .kind = TOOL_KIMI_K2,
        .open = "\"<|tool_calls_section_begin|>\" ws ",
        .call = "\"<|tool_call_begin|>\" ws \"functions.\"? \"%n:\" [0-9]{1,5} ws "
                "\"<|tool_call_argument_begin|>\" ws %a ws \"<|tool_call_end|>\" ",
        .between = "ws ",
        .close = "ws \"<|tool_calls_section_end|>\" ",
    },
    {
        .kind = TOOL_GPT_OSS,
        .call = "( \"<|channel|>commentary to=functions.%n\" | "
                "\" to=functions.%n<|channel|>commentary\" ) \" \"? "
                "( \"<|constrain|>\"? \"json\" )? \"<|message|>\" ws %a \"<|call|>\"? ",
        .single = true,
    },
    {
        .kind = TOOL_MINIMAX_M2,
        .args = ARGS_TAGS,
        .open = "\"<minimax:tool_call>\" ws ",
        .call = "\"<invoke name=\\\"%n\\\">\" ws %a \"</invoke>\" ",
        .between = "ws ",
        .close = "ws \"</minimax:tool_call>\" ",
        .text_param = "\"<parameter name=\\\"%k\\\">\" %v \"</parameter>\" ws ",
        .text_end = {"</parameter>"},
    },
};

struct making {
    const struct tool_grammar *f;
    const struct form *form;
    struct gbnf g;
    struct schema_grammar *schemas; /* of the tool at hand */
    struct buf *args;               /* of the tool at hand */
    unsigned text;                  /* a parameter's text; 0: not made yet */
    size_t n_params;
    struct arena arena;    /* of: */
    struct lookup allowed; /* f->allowed, by name */
};

/* --- arguments --- */

/* Text as it stands inside quotes. */
static void inside_quotes(struct str text, bool json, struct buf *out)
{
    struct buf escaped = {0}, quoted = {0};

    if (json)
        value_escape(&escaped, text);
    else
        buf_add_str(&escaped, text);
    gbnf_lit(&quoted, buf_str(&escaped));
    buf_add_str(out, str_sub(buf_str(&quoted), 1, quoted.len - 3)); /* between `"` and `" ` */
    buf_done(&escaped);
    buf_done(&quoted);
}

static unsigned param_text(struct making *m)
{
    if (!m->text)
        m->text = gbnf_text_without(&m->g, m->form->text_end, ARRAY_LEN(m->form->text_end));
    return m->text;
}

/* The texts that a string's enum allows; false when it has none, or others than texts. */
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

/* A parameter in tags, as the family's reader types it: text wherever the schema allows one. */
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
    /* A tool that declares nothing takes anything. */
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
    m->schemas = &schemas;
    if (m->form->args == ARGS_TAGS)
        tag_args(m, schema);
    else if (m->form->args == ARGS_PYTHON)
        schema_members(&schemas, schema, python_key, m->args);
    else
        json_args(m, schema);
    m->schemas = NULL;
    schema_grammar_done(&schemas);
}

/* --- calls --- */

static bool is_allowed(const struct making *m, struct str name)
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

/* All calls of one form; 0 when no tool may be called. */
static unsigned write_form(struct making *m)
{
    const struct form *form = m->form;
    bool single = form->single || m->f->single;
    struct buf x = {0};
    unsigned any;

    m->text = 0;
    for (size_t i = 0; json_at(m->f->tools, i); i++) {
        const struct json *tool = json_at(m->f->tools, i);
        const struct json *function = json_get(tool, "function");

        if (!is_allowed(m, json_string(json_get(function ? function : tool, "name"))))
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

/* Appends "a | b" for the forms of the kind; false when it has none. */
static bool write_calls(struct making *m, struct buf *x)
{
    size_t was = x->len;

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        unsigned rule;

        m->form = &forms[i];
        if (forms[i].kind != m->f->tool || (rule = write_form(m)) == 0)
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
    const char *start, *end;

    return is_harmony(f) ||
           (reasoning_tags(f->reasoning, &start, &end) && f->thought != THOUGHT_CLOSED);
}

/* What stands before: the thought, as far as the prompt has not closed it. */
static void write_lead(struct making *m, bool lenient, struct buf *x)
{
    const struct tool_grammar *f = m->f;
    const char *start, *end;
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
    (void)reasoning_tags(f->reasoning, &start, &end);
    const char *marks[] = {end, g ? g->open[0] : NULL, g ? g->open[1] : NULL,
                           g ? g->begin[0] : NULL, g ? g->begin[1] : NULL};

    text = gbnf_text_without(&m->g, marks, ARRAY_LEN(marks));
    if (f->thought == THOUGHT_OPEN && !lenient) {
        gbnf_ref(x, text);
        gbnf_lit(x, str_cstr(end));
        return;
    }
    buf_puts(x, "( ");
    if (f->thought != THOUGHT_OPEN) {
        buf_puts(x, "ws ");
        gbnf_lit(x, str_cstr(start));
    }
    gbnf_ref(x, text);
    gbnf_lit(x, str_cstr(end));
    buf_puts(x, ")? ");
}

/* Text in which no call begins. */
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
    const char *marks[] = {g->open[0], g->open[1], g->begin[0], g->begin[1]};

    /* A call without a mark can only stand at the very beginning. */
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
    bool any = f->tools && write_calls(m, &calls);

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
