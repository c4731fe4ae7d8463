/*
 * Writing rules is simple except for gbnf_text_without, because engines' grammars have no "not this
 * text". Its rules follow the marks letter by letter. They allow any character that begins no mark,
 * or a mark's first character and then something that does not continue the mark (write_diverging,
 * one rule for each prefix that marks share).
 *
 *   without "</a>":   [^<]* ( "<" x1 )*        x1: ( [^/<] [^<]* | "/" x2 )?     x2: ...
 *
 * Classes of characters beyond ASCII are written as the remaining ranges, because one engine's
 * negated classes do not cover them.
 */
#include "worker/text/parsers/gbnf.h"

#include "common/base/check.h"
#include "common/base/utf8.h"

enum { TAILS_MAX = 10, CODE_POINT_MAX = 0x10ffff };

/* White space is limited: with unlimited white space a model could write nothing else. */
static const char lexical[] =
    "ws ::= [ \\t\\r\\n]{0,40}\n"
    "hex ::= [0-9a-fA-F]\n"
    "char ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" ( [\"\\\\/bfnrt] | \"u\" hex hex hex hex )\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "natural ::= \"0\" | [1-9] [0-9]{0,15}\n"
    "integer ::= \"-\"? natural\n"
    "number ::= integer ( \".\" [0-9]{1,16} )? ( [eE] ( \"+\" | \"-\" )? [0-9]{1,3} )?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= null | boolean | number | string | array | object\n"
    "member ::= string ws \":\" ws value\n"
    "object ::= \"{\" ws ( member ( ws \",\" ws member )* ws )? \"}\"\n"
    "array ::= \"[\" ws ( value ( ws \",\" ws value )* ws )? \"]\"\n";

static const char python[] =
    "pychar ::= [^\"\\\\\\x00-\\x1f] | \"\\\\\" ( [\"'\\\\nrt] | \"u\" hex hex hex hex )\n"
    "pysingle ::= [^'\\\\\\x00-\\x1f] | \"\\\\\" ( [\"'\\\\nrt] | \"u\" hex hex hex hex )\n"
    "pystring ::= \"\\\"\" pychar* \"\\\"\" | \"'\" pysingle* \"'\"\n"
    "pyboolean ::= \"True\" | \"False\"\n"
    "pynull ::= \"None\"\n"
    "pyvalue ::= pynull | pyboolean | number | pystring | pyarray | pyobject\n"
    "pymember ::= pystring ws \":\" ws pyvalue\n"
    "pyobject ::= \"{\" ws ( pymember ( ws \",\" ws pymember )* ws )? \"}\"\n"
    "pyarray ::= \"[\" ws ( pyvalue ( ws \",\" ws pyvalue )* ws )? \"]\"\n";

unsigned gbnf_reserve(struct gbnf *g)
{
    return ++g->n_rules;
}

void gbnf_define(struct gbnf *g, unsigned rule, const struct buf *expr)
{
    buf_printf(&g->text, "x%u ::= ", rule);
    buf_add_str(&g->text, buf_str(expr));
    buf_add_c(&g->text, '\n');
}

unsigned gbnf_rule(struct gbnf *g, struct buf *expr)
{
    unsigned rule = gbnf_reserve(g);

    gbnf_define(g, rule, expr);
    buf_clear(expr);
    return rule;
}

void gbnf_ref(struct buf *expr, unsigned rule)
{
    buf_printf(expr, "x%u ", rule);
}

void gbnf_lit(struct buf *expr, struct str text)
{
    buf_add_c(expr, '"');
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];

        if (c == '"' || c == '\\')
            buf_printf(expr, "\\%c", c);
        else if (c == '\n')
            buf_puts(expr, "\\n");
        else if (c < 0x20 || c == 0x7f)
            buf_printf(expr, "\\u%04x", c);
        else
            buf_add_c(expr, (char)c);
    }
    buf_puts(expr, "\" ");
}

/* --- text without marks --- */

static struct str first_char(struct str s)
{
    size_t n = 1;

    while (n < s.len && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n++;
    return str_sub(s, 0, n);
}

void gbnf_class_char(struct buf *class, uint32_t c)
{
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 (c > ' ' && c < 0x7f && strchr("<>/|_:=", (int)c));

    if (plain)
        buf_add_c(class, (char)c);
    else
        buf_printf(class, c > 0xffff ? "\\U%08x" : "\\u%04x", c);
}

static uint32_t code_point(struct str c)
{
    uint32_t cp = 0;

    (void)utf8_decode(c, &cp);
    return cp;
}

/* Writes a class of any character except these. Beyond ASCII it lists the remaining ranges, because
 * XGrammar's negated classes do not cover them. */
static void write_except(struct buf *x, const struct str *set, size_t n)
{
    uint32_t at = 1;
    bool ascii = true;

    for (size_t i = 0; i < n; i++)
        ascii = ascii && set[i].len == 1;
    buf_puts(x, ascii ? "[^" : "[");
    for (size_t i = 0; ascii && i < n; i++)
        gbnf_class_char(x, code_point(set[i]));
    while (!ascii && at <= CODE_POINT_MAX) {
        uint32_t next = CODE_POINT_MAX + 1;

        for (size_t i = 0; i < n; i++)
            if (code_point(set[i]) >= at)
                next = MIN_OF(next, code_point(set[i]));
        if (next > at) {
            gbnf_class_char(x, at);
            buf_add_c(x, '-');
            gbnf_class_char(x, next - 1);
        }
        at = next + 1;
    }
    buf_puts(x, "]");
}

static void add_once(struct str *set, size_t *n, struct str c)
{
    for (size_t i = 0; i < *n; i++)
        if (str_eq(set[i], c))
            return;
    set[(*n)++] = c;
}

/* Sets ret to the tails (after `first`) of those texts that begin with `first`. Returns their
 * number. */
static size_t tails_of(const struct str *texts, size_t n, struct str first, struct str *ret)
{
    size_t n_ret = 0;

    for (size_t i = 0; i < n; i++)
        if (str_starts(texts[i], first))
            ret[n_ret++] = str_sub(texts[i], first.len, texts[i].len);
    return n_ret;
}

/* Writes what may follow the common beginning of these tails: any text that does not continue one
 * of them. `opening` are the characters that begin a mark. */
static unsigned write_diverging(struct gbnf *g, const struct str *tails, size_t n,
                                const struct str *opening, size_t n_opening)
{
    struct buf x = {0};
    /* forbidden characters: those that continue a mark, then those that open one */
    struct str next[2 * TAILS_MAX];
    size_t n_next = 0, n_all;
    unsigned rule;

    for (size_t i = 0; i < n; i++)
        add_once(next, &n_next, first_char(tails[i]));
    n_all = n_next;
    for (size_t i = 0; i < n_opening; i++)
        add_once(next, &n_all, opening[i]);
    buf_puts(&x, "( ");
    write_except(&x, next, n_all);
    buf_add_c(&x, ' ');
    write_except(&x, opening, n_opening);
    buf_puts(&x, "* ");
    for (size_t i = 0; i < n_next; i++) {
        struct str rest[TAILS_MAX];
        size_t n_rest = tails_of(tails, n, next[i], rest);
        bool whole = false;

        for (size_t k = 0; k < n_rest; k++)
            whole = whole || rest[k].len == 0;
        if (whole)
            continue; /* this character would complete the mark */
        buf_puts(&x, "| ");
        gbnf_lit(&x, next[i]);
        gbnf_ref(&x, write_diverging(g, rest, n_rest, opening, n_opening));
    }
    buf_puts(&x, ")?");
    rule = gbnf_rule(g, &x);
    buf_done(&x);
    return rule;
}

unsigned gbnf_text_without(struct gbnf *g, const char *const *marks, size_t n)
{
    struct buf x = {0};
    struct str opening[TAILS_MAX], all[TAILS_MAX];
    size_t n_opening = 0, n_all = 0;
    unsigned rule;

    CHECK(n <= TAILS_MAX);
    for (size_t i = 0; i < n; i++)
        if (marks[i])
            all[n_all++] = str_cstr(marks[i]);
    CHECK(n_all > 0);
    for (size_t i = 0; i < n_all; i++)
        add_once(opening, &n_opening, first_char(all[i]));
    write_except(&x, opening, n_opening);
    buf_puts(&x, "* ( ");
    for (size_t i = 0; i < n_opening; i++) {
        struct str rest[TAILS_MAX];
        size_t n_rest = tails_of(all, n_all, opening[i], rest);

        buf_puts(&x, i ? "| " : "");
        gbnf_lit(&x, opening[i]);
        gbnf_ref(&x, write_diverging(g, rest, n_rest, opening, n_opening));
    }
    buf_puts(&x, ")*");
    rule = gbnf_rule(g, &x);
    buf_done(&x);
    return rule;
}

/* --- the whole grammar --- */

void gbnf_fill(struct buf *expr, const char *template, const char *keys, const struct str *values)
{
    for (const char *p = template; *p; p++) {
        const char *key = p[0] == '%' && p[1] ? strchr(keys, p[1]) : NULL;

        if (!key) {
            buf_add_c(expr, *p);
            continue;
        }
        buf_add_str(expr, values[key - keys]);
        p++;
    }
}

void gbnf_finish(struct gbnf *g, struct str root)
{
    struct buf whole = {0};

    buf_puts(&whole, "root ::= ");
    buf_add_str(&whole, root);
    buf_add_c(&whole, '\n');
    buf_add_str(&whole, buf_str(&g->text));
    buf_puts(&whole, lexical);
    if (g->python)
        buf_puts(&whole, python);
    buf_done(&g->text);
    g->text = whole;
}
