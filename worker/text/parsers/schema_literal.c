#include "worker/text/parsers/schema_literal.h"

#include <string.h>

#include "common/base/attrs.h"
#include "worker/text/parsers/param_value.h"
#include "worker/text/parsers/pattern_grammar.h"
#include "worker/text/parsers/schema_grammar.h"

void schema_word(const struct schema_grammar *s, const char *name, struct buf *x)
{
    static const char *const both[] = {"integer", "number", "ws", "natural"};
    bool plain = !s->python;

    for (size_t i = 0; i < ARRAY_LEN(both); i++)
        plain = plain || strcmp(name, both[i]) == 0;
    buf_printf(x, "%s%s ", plain ? "" : "py", name);
}

void schema_text(const struct schema_grammar *s, struct str text, struct buf *x)
{
    struct buf quoted = {0};

    if (s->quote) {
        gbnf_lit(x, str_cstr(s->quote));
        gbnf_lit(x, text);
        gbnf_lit(x, str_cstr(s->quote));
        return;
    }
    buf_add_c(&quoted, '"');
    value_escape(&quoted, text);
    buf_add_c(&quoted, '"');
    gbnf_lit(x, buf_str(&quoted));
    /* the other kind of quotes needs no escapes */
    if (s->python && str_find(text, STR("'"), 0) == SIZE_MAX) {
        quoted.p[0] = quoted.p[quoted.len - 1] = '\'';
        buf_puts(x, "| ");
        gbnf_lit(x, buf_str(&quoted));
    }
    buf_done(&quoted);
}

/* Appends an array or object with exactly this content, with blanks where JSON allows them. */
static void write_const_list(const struct schema_grammar *s, const struct json *v, struct buf *x)
{
    bool object = v->kind == JSON_OBJECT;

    gbnf_lit(x, object ? STR("{") : STR("["));
    for (uint32_t i = 0; i < v->n; i++) {
        buf_puts(x, i ? "ws \",\" ws " : "ws ");
        if (object) {
            schema_const(s, &v->members[i].key, x);
            buf_puts(x, "ws \":\" ws ");
        }
        schema_const(s, object ? &v->members[i].value : &v->items[i], x);
    }
    buf_puts(x, "ws ");
    gbnf_lit(x, object ? STR("}") : STR("]"));
}

void schema_const(const struct schema_grammar *s, const struct json *v, struct buf *x)
{
    switch ((enum json_kind)v->kind) {
    case JSON_NULL:
        gbnf_lit(x, s->python ? STR("None") : STR("null"));
        break;
    case JSON_BOOL:
        if (s->python)
            gbnf_lit(x, json_is_true(v) ? STR("True") : STR("False"));
        else
            gbnf_lit(x, json_is_true(v) ? STR("true") : STR("false"));
        break;
    case JSON_NUMBER:
        gbnf_lit(x, json_text(v));
        break;
    case JSON_STRING:
        buf_puts(x, "( ");
        schema_text(s, json_string(v), x);
        buf_puts(x, ") ");
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        write_const_list(s, v, x);
    }
}

void schema_enum(const struct schema_grammar *s, const struct json *list, struct buf *x)
{
    buf_puts(x, "( ");
    for (uint32_t i = 0; i < list->n; i++) {
        buf_puts(x, i ? "| " : "");
        schema_const(s, &list->items[i], x);
    }
    buf_puts(x, ") ");
}

uint64_t schema_bound(const struct json *schema, const char *name, uint64_t otherwise)
{
    int64_t n;

    if (json_to_i64(json_get(schema, name), &n) || n < 0 || n > SCHEMA_REPEAT_MAX)
        return otherwise;
    return (uint64_t)n;
}

void schema_times(uint64_t min, uint64_t max, struct buf *x)
{
    if (min == 0 && max == UINT64_MAX)
        buf_puts(x, "* ");
    else if (max == UINT64_MAX)
        buf_printf(x, "{%llu,} ", (unsigned long long)min);
    else
        buf_printf(x, "{%llu,%llu} ", (unsigned long long)min, (unsigned long long)max);
}

static bool write_pattern(struct str pattern, struct buf *x)
{
    size_t start = x->len;

    buf_puts(x, "\"\\\"\" ");
    if (!pattern_grammar(pattern, x)) {
        x->len = start;
        return false;
    }
    buf_puts(x, "\"\\\"\" ");
    return true;
}

void schema_string(const struct schema_grammar *s, const struct json *schema, struct buf *x)
{
#define DATE "[0-9]{4} \"-\" [0-1] [0-9] \"-\" [0-3] [0-9] "
#define CLOCK                                                                        \
    "[0-2] [0-9] \":\" [0-5] [0-9] \":\" [0-6] [0-9] ( \".\" [0-9]{1,9} )? ( \"Z\" " \
    "| ( \"+\" | \"-\" ) [0-2] [0-9] \":\" [0-5] [0-9] )? "
    static const char *const formats[][2] = {
        {"date", DATE},
        {"time", CLOCK},
        {"date-time", DATE "\"T\" " CLOCK},
        {"ipv4", "[0-9]{1,3} ( \".\" [0-9]{1,3} ){3,3} "},
        {"ipv6", "[0-9a-fA-F:.]{2,45} "},
        {"uuid", "hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12} "},
    };
    struct str format = json_string(json_get(schema, "format"));
    struct str pattern = json_string(json_get(schema, "pattern"));
    uint64_t min = schema_bound(schema, "minLength", 0);
    uint64_t max = schema_bound(schema, "maxLength", UINT64_MAX);

    if (s->quote) {
        gbnf_lit(x, str_cstr(s->quote));
        gbnf_ref(x, s->text);
        gbnf_lit(x, str_cstr(s->quote));
        return;
    }
    /* A pattern is ignored for Python, whose literals may be written in too many ways. */
    if (pattern.p && !s->python && write_pattern(pattern, x))
        return;
    for (size_t i = 0; format.p && i < ARRAY_LEN(formats); i++) {
        if (str_eq_c(format, formats[i][0])) {
            buf_printf(x, "\"\\\"\" %s\"\\\"\" ", formats[i][1]);
            return;
        }
    }
    if ((min == 0 && max == UINT64_MAX) || min > max) {
        schema_word(s, "string", x);
        return;
    }
    buf_printf(x, "\"\\\"\" %s", s->python ? "pychar" : "char");
    schema_times(min, max, x);
    buf_puts(x, "\"\\\"\" ");
#undef DATE
#undef CLOCK
}
