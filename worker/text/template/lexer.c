/* The lexer (lexer.h). Text outside of tags is cut at "{{", "{%" and "{#". The inside of a tag is
 * cut into tokens until its end. Positions are byte offsets into the normalised source: every line
 * end is LF, and one at the very end is dropped.
 *
 * White space around a tag is handled here, so the parser never sees it:
 *   "-" at a mark       strips all white space on that side
 *   "{%" and "{#"       alone on their line lose the blanks before them (lstrip_blocks)
 *   "%}" and "#}"       remove one line end after them (trim_blocks)
 *   "+" at a mark       switches the latter two off for this tag
 *
 * A tag only ends outside of brackets: the "}}" in {{ {"a": {}} }} closes dicts (open[] counts). */

#include "worker/text/template/lexer.h"

#include <ctype.h>
#include <stdio.h>

#include "worker/text/template/escape.h"
#include "worker/text/template/pystr.h"

enum { NESTING_MAX = 256 };

struct lexer {
    struct arena *a;
    struct str s;
    size_t at;
    uint32_t line;
    bool line_starting; /* the last token ended with a newline */
    struct token_list *out;
    struct template_error *error;
    char open[NESTING_MAX]; /* brackets not yet closed */
    unsigned n_open;
};

/* Keeps the first error: later ones are consequences of it. */
int compile_fail(struct template_error *error, uint32_t line, const char *kind, const char *fmt,
                 ...)
{
    va_list ap;

    if (error->kind)
        return -1;
    va_start(ap, fmt);
    (void)vsnprintf(error->text, sizeof(error->text), fmt, ap);
    va_end(ap);
    error->kind = kind;
    error->message = str_cstr(error->text);
    error->line = line;
    return -1;
}

static int fail_lexing(struct lexer *x, const char *message)
{
    return compile_fail(x->error, x->line, "TemplateSyntaxError", "%s", message);
}

static void push_token(struct lexer *x, enum token_kind kind, int op, struct str text)
{
    *vec_push(x->out) = (struct token){kind, op, x->line, text};
}

/* Moves to `end` and counts lines. */
static void advance_to(struct lexer *x, size_t end)
{
    if (end == x->at)
        return;
    for (const char *p = x->s.p + x->at; (p = memchr(p, '\n', (size_t)(x->s.p + end - p))); p++)
        x->line++;
    x->line_starting = x->s.p[end - 1] == '\n';
    x->at = end;
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    struct str rest = str_of(x->s.p + at, x->s.len - at);

    return x->s.len - pystr_strip(rest, 1).len;
}

static bool looking_at(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);

    return at + n <= x->s.len && memcmp(x->s.p + at, text, n) == 0;
}

/* Returns the end of "MARK%}" at `at`, including the white space that it removes; 0: there is no
 * such mark. Blocks and comments also remove one newline (trim_blocks) unless marked with +. */
static size_t tag_end(const struct lexer *x, size_t at, const char *close)
{
    bool variable = close[0] == '}';

    if (looking_at(x, at, "-") && looking_at(x, at + 1, close))
        return skip_space(x, at + 3);
    if (!variable && looking_at(x, at, "+") && looking_at(x, at + 1, close))
        return at + 3;
    if (!looking_at(x, at, close))
        return 0;
    return at + 2 + (!variable && looking_at(x, at + 2, "\n"));
}

/* Adds the text before a tag, stripped according to the tag's mark and lstrip_blocks. */
static void push_data(struct lexer *x, size_t end, char sign, bool variable)
{
    struct str text = str_of(x->s.p + x->at, end - x->at);

    if (sign == '-') {
        text = pystr_strip(text, 2);
    } else if (sign != '+' && !variable) {
        size_t line_at = text.len;

        while (line_at > 0 && text.p[line_at - 1] != '\n')
            line_at--;
        if ((line_at > 0 || x->line_starting) &&
            pystr_strip(str_sub(text, line_at, text.len), 3).len == 0)
            text.len = line_at;
    }
    if (text.len)
        push_token(x, T_DATA, 0, text);
    advance_to(x, end);
}

/* Skips to the end of a comment. */
static int lex_comment(struct lexer *x)
{
    for (size_t at = x->at; at < x->s.len; at++) {
        size_t end = tag_end(x, at, "#}");

        if (end) {
            advance_to(x, end);
            return 0;
        }
    }
    return fail_lexing(x, "Missing end of comment tag");
}

/* Returns the length of "[-+]? raw -?%}" at `at` (after "{%"), or 0. */
static size_t raw_begin(const struct lexer *x, size_t at)
{
    size_t p = at;

    if (looking_at(x, p, "-") || looking_at(x, p, "+"))
        p++;
    p = skip_space(x, p);
    if (!looking_at(x, p, "raw"))
        return 0;
    p = skip_space(x, p + 3);
    if (looking_at(x, p, "-%}"))
        return skip_space(x, p + 3) - at;
    return looking_at(x, p, "%}") ? p + 2 - at : 0;
}

/* Reads {% raw %} ... {% endraw %}: everything up to the first endraw tag is text. */
static int lex_raw(struct lexer *x)
{
    for (size_t at = x->at; at < x->s.len; at++) {
        size_t p = at + 2;
        char sign = 0;
        size_t end;

        if (!looking_at(x, at, "{%"))
            continue;
        if (looking_at(x, p, "-") || looking_at(x, p, "+"))
            sign = x->s.p[p++];
        p = skip_space(x, p);
        if (!looking_at(x, p, "endraw"))
            continue;
        end = tag_end(x, skip_space(x, p + 6), "%}");
        if (!end)
            continue;
        push_data(x, at, sign, false);
        advance_to(x, end);
        return 0;
    }
    return fail_lexing(x, "Missing end of raw directive");
}

/* --- inside a tag --- */

/* Returns the end of a run of characters of `set`, which may be separated by single underscores. */
static size_t digits_end(const struct lexer *x, size_t at, const char *set)
{
    size_t end = at;

    while (end < x->s.len) {
        if (strchr(set, x->s.p[end]) && x->s.p[end])
            end++;
        else if (x->s.p[end] == '_' && end > at && end + 1 < x->s.len && x->s.p[end + 1] &&
                 strchr(set, x->s.p[end + 1]))
            end += 2;
        else
            break;
    }
    return end;
}

/* Copies the number's text without underscores, for strtod and the number parser. */
static struct str without_underscores(struct lexer *x, struct str s)
{
    char *p = arena_cstr(x->a, s);
    size_t n = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] != '_')
            p[n++] = s.p[i];
    }
    return str_of(p, n);
}

static const char decimal[] = "0123456789";

/* Returns the end of an integer of base 2, 8 or 16 at the current position, or `otherwise`. */
static size_t based_end(const struct lexer *x, size_t otherwise)
{
    static const struct {
        char mark;
        const char *set;
    } bases[] = {{'b', "01"}, {'o', "01234567"}, {'x', "0123456789abcdefABCDEF"}};

    for (size_t i = 0; i < ARRAY_LEN(bases); i++) {
        size_t from = x->at + 2;
        size_t to;

        if (x->s.p[x->at] != '0' || from > x->s.len || (x->s.p[x->at + 1] | 32) != bases[i].mark)
            continue;
        to = looking_at(x, from, "_") ? digits_end(x, from + 1, bases[i].set)
                                      : digits_end(x, from, bases[i].set);
        if (to > from && x->s.p[to - 1] != '_')
            return to;
    }
    return otherwise;
}

/* Returns the end of the fraction and exponent after the digits up to `end`; `end` if there are
 * none. */
static size_t float_end(const struct lexer *x, size_t end)
{
    size_t exponent;

    if (looking_at(x, end, ".") && digits_end(x, end + 1, decimal) > end + 1)
        end = digits_end(x, end + 1, decimal);
    if (end >= x->s.len || (x->s.p[end] | 32) != 'e')
        return end;
    exponent = end + 1;
    if (looking_at(x, exponent, "+") || looking_at(x, exponent, "-"))
        exponent++;
    return digits_end(x, exponent, decimal) > exponent ? digits_end(x, exponent, decimal) : end;
}

/* Reads an integer of base 10, 2, 8 or 16, or a float. A number after a "." (items by attribute,
 * x.1) is an integer and never a float. */
static void lex_number(struct lexer *x)
{
    size_t end = based_end(x, digits_end(x, x->at, decimal));
    bool is_item = x->at > 0 && x->s.p[x->at - 1] == '.';
    size_t fraction = is_item ? end : float_end(x, end);
    enum token_kind kind = fraction > end ? T_FLOAT : T_INT;

    end = fraction;
    /* In Jinja "012" is the integers 0 and 12, which no grammar accepts, so the parser reports it.
     */
    if (kind == T_INT && x->s.p[x->at] == '0' && end > x->at + 1 && isdigit(x->s.p[x->at + 1]))
        end = digits_end(x, x->at, "0");
    push_token(x, kind, 0, without_underscores(x, str_of(x->s.p + x->at, end - x->at)));
    advance_to(x, end);
}

/* Reads a quoted literal and decodes its escapes. Both kinds of quotes work alike. */
static int lex_string(struct lexer *x)
{
    char quote = x->s.p[x->at];
    size_t end = x->at + 1;
    const char *why = NULL;
    struct str text;

    while (end < x->s.len && x->s.p[end] != quote)
        end += x->s.p[end] == '\\' ? 2 : 1;
    if (end >= x->s.len)
        return fail_lexing(x, "unexpected char: unterminated string");
    if (escape_decode(x->a, str_of(x->s.p + x->at + 1, end - x->at - 1), &text, &why) != 0)
        return fail_lexing(x, why);
    push_token(x, T_STRING, 0, text);
    advance_to(x, end + 1);
    return 0;
}

/* Returns the end of the run of word characters at x->at, which may be empty. */
static size_t name_end(const struct lexer *x)
{
    size_t end = x->at;

    while (end < x->s.len) {
        size_t next = end;
        uint32_t cp = pystr_next(x->s, &next);
        unsigned word = PYSTR_ALPHA | PYSTR_DECIMAL | PYSTR_DIGIT | PYSTR_NUMERIC;

        if (cp != '_' && !(pystr_flags(cp) & word))
            break;
        end = next;
    }
    return end;
}

/* Maintains the stack of open brackets. A closing one must match the last that was opened. */
static int lex_bracket(struct lexer *x, char c)
{
    static const char pairs[] = "()[]{}";
    const char *p = strchr(pairs, c);
    bool closes = (p - pairs) % 2;

    if (!closes && x->n_open == NESTING_MAX)
        return fail_lexing(x, "too many open brackets");
    if (!closes)
        x->open[x->n_open++] = p[1];
    else if (x->n_open == 0 || x->open[x->n_open - 1] != c)
        return fail_lexing(x, "unexpected closing bracket");
    else
        x->n_open--;
    return 0;
}

/* Reads an operator. Those of two characters are tried first. */
static int lex_operator(struct lexer *x)
{
    static const struct {
        char text[3];
        int op;
    } doubles[] = {{"==", TOP_EQ}, {"!=", TOP_NE},       {"<=", TOP_LE},
                   {">=", TOP_GE}, {"//", TOP_FLOORDIV}, {"**", TOP_POW}};

    char c = x->s.p[x->at];

    for (size_t i = 0; i < ARRAY_LEN(doubles); i++) {
        if (looking_at(x, x->at, doubles[i].text)) {
            push_token(x, T_OP, doubles[i].op, str_sub(x->s, x->at, 2));
            advance_to(x, x->at + 2);
            return 0;
        }
    }
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c))
        return fail_lexing(x, "unexpected character in an expression");
    if (strchr("[](){}", c) && lex_bracket(x, c) != 0)
        return -1;
    push_token(x, T_OP, (unsigned char)c, str_sub(x->s, x->at, 1));
    advance_to(x, x->at + 1);
    return 0;
}

/* Reads one token of an expression. */
static int lex_token(struct lexer *x)
{
    unsigned char c = (unsigned char)x->s.p[x->at];
    size_t end = name_end(x);

    if (isdigit(c)) {
        lex_number(x);
        return 0;
    }
    if (c == '"' || c == '\'')
        return lex_string(x);
    if (end > x->at) {
        struct str name = str_of(x->s.p + x->at, end - x->at);

        if (!pystr_is(name, "identifier"))
            return fail_lexing(x, "Invalid character in identifier");
        push_token(x, T_NAME, 0, name);
        advance_to(x, end);
        return 0;
    }
    return lex_operator(x);
}

/* Reads the inside of {{ }} or {% %}, including its end. */
static int lex_tag(struct lexer *x, bool variable)
{
    x->n_open = 0;
    while (x->at < x->s.len) {
        size_t end = x->n_open ? 0 : tag_end(x, x->at, variable ? "}}" : "%}");

        if (end) {
            push_token(x, variable ? T_VAR_END : T_BLOCK_END, 0, (struct str){0});
            advance_to(x, end);
            return 0;
        }
        if (skip_space(x, x->at) > x->at)
            advance_to(x, skip_space(x, x->at));
        else if (lex_token(x) != 0)
            return -1;
    }
    return 0; /* the parser reports the end of the template in place of the tag's end */
}

/* Copies the source with CR LF and CR as LF, without the last line end. */
static struct str normalise_newlines(struct arena *a, struct str s)
{
    char *p = arena_cstr(a, s);
    size_t n = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] == '\r') {
            p[n++] = '\n';
            i += i + 1 < s.len && s.p[i + 1] == '\n';
        } else {
            p[n++] = s.p[i];
        }
    }
    if (n && p[n - 1] == '\n') /* keep_trailing_newline is off */
        n--;
    p[n] = 0;
    return str_of(p, n);
}

/* Returns the position of the next "{{", "{%" or "{#", or the end. */
static size_t next_tag(const struct lexer *x)
{
    size_t at = x->at;

    for (; at + 1 < x->s.len; at++) {
        const char *p = memchr(x->s.p + at, '{', x->s.len - at - 1);

        if (!p)
            break;
        at = (size_t)(p - x->s.p);
        if (p[1] == '{' || p[1] == '%' || p[1] == '#')
            return at;
    }
    return x->s.len;
}

/* Reads the text up to the next tag, and then that tag. */
static int lex_next(struct lexer *x)
{
    size_t at = next_tag(x);
    char sign = 0, mark;
    size_t raw;

    if (at >= x->s.len) {
        push_token(x, T_DATA, 0, str_of(x->s.p + x->at, x->s.len - x->at));
        x->at = x->s.len;
        return 0;
    }
    mark = x->s.p[at + 1];
    if (at + 2 < x->s.len && (x->s.p[at + 2] == '-' || x->s.p[at + 2] == '+'))
        sign = x->s.p[at + 2];
    raw = mark == '%' ? raw_begin(x, at + 2) : 0;
    push_data(x, at, sign, mark == '{');
    if (raw) {
        advance_to(x, at + 2 + raw);
        return lex_raw(x);
    }
    if (mark != '#')
        push_token(x, mark == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, 0, (struct str){0});
    advance_to(x, at + 2 + (sign != 0));
    return mark == '#' ? lex_comment(x) : lex_tag(x, mark == '{');
}

int lexer_run(struct arena *a, struct str source, struct token_list *ret,
              struct template_error *error)
{
    struct lexer x = {.a = a, .line = 1, .line_starting = true, .out = ret, .error = error};

    x.s = normalise_newlines(a, source);
    while (x.at < x.s.len) {
        if (lex_next(&x) != 0)
            return -1;
    }
    push_token(&x, T_EOF, 0, (struct str){0});
    return 0;
}
