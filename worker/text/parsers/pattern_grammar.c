/*
 * Reads the pattern once, from left to right, and writes the expression at the same time. Anything
 * that cannot be a rule sets `bad`, and everything written is removed. A pattern matches anywhere
 * in a text, so without ^ or $ any characters may be at that end.
 *
 * Sets of characters are kept as ranges of code points, inverted if necessary. They are written as
 * a class of the characters that JSON permits, and escapes for the others. `weight` counts how many
 * characters repetitions produce: nested ones multiply, and an engine would unroll them all.
 */
#include "worker/text/parsers/pattern_grammar.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/base/utf8.h"
#include "worker/text/parsers/gbnf.h"

enum {
    RANGES_MAX = 64,
    DEPTH_MAX = 16,
    TIMES_MAX = 256,
    WEIGHT_MAX = 2048, /* largest number of characters that repetitions may produce */
    LAST = 0x10ffff,
    NONE = 0x110000, /* after the end of the pattern */
};

struct code_range {
    uint32_t from, to;
};

struct set {
    struct code_range at[RANGES_MAX];
    unsigned n;
};

struct regex_source {
    struct str in;
    size_t at;
    struct buf *x;
    bool bad; /* the pattern contains something that cannot be a rule */
};

/* A parsed piece: whether it may be empty, and how many characters it produces. */
struct regex_part {
    bool empty;
    unsigned weight;
};

static struct regex_part read_pattern_choice(struct regex_source *p, unsigned depth);

/* --- characters --- */

static uint32_t peek_character(const struct regex_source *p)
{
    uint32_t c;

    if (p->at >= p->in.len)
        return NONE;
    return utf8_decode(str_sub(p->in, p->at, p->in.len), &c) > 0 ? c : NONE;
}

static uint32_t next_character(struct regex_source *p)
{
    uint32_t c = NONE;
    int n = p->at < p->in.len ? utf8_decode(str_sub(p->in, p->at, p->in.len), &c) : 0;

    if (n <= 0) {
        p->bad = true;
        p->at = p->in.len;
        return NONE;
    }
    p->at += (size_t)n;
    return c;
}

static bool eat_character(struct regex_source *p, uint32_t c)
{
    if (peek_character(p) != c)
        return false;
    p->at++;
    return true;
}

static uint32_t read_pattern_hex(struct regex_source *p, int digits)
{
    uint32_t value = 0;

    for (int i = 0; i < digits; i++) {
        uint32_t c = next_character(p), low = c | 0x20;

        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if (low >= 'a' && low <= 'f')
            value = value * 16 + (low - 'a' + 10);
        else
            p->bad = true;
    }
    return value;
}

/* --- sets --- */

static void add_range(struct regex_source *p, struct set *s, uint32_t from, uint32_t to)
{
    p->bad = p->bad || s->n == RANGES_MAX || from > to;
    if (!p->bad)
        s->at[s->n++] = (struct code_range){from, to};
}

/* Replaces the set by its complement. */
static void invert_set(struct set *s)
{
    struct set out = {.n = 0};
    uint32_t at = 0;

    while (at <= LAST && out.n < RANGES_MAX) {
        uint32_t first = NONE, behind = at;

        for (unsigned i = 0; i < s->n; i++) {
            if (s->at[i].from <= at && s->at[i].to >= at)
                behind = MAX_OF(behind, s->at[i].to + 1);
            else if (s->at[i].from > at)
                first = MIN_OF(first, s->at[i].from);
        }
        if (behind == at) {
            out.at[out.n++] = (struct code_range){at, MIN_OF(first - 1, (uint32_t)LAST)};
            behind = first;
        }
        at = behind;
    }
    *s = out;
}

/* Adds the set of \d, \w, \s or its inverse. Returns false if c names none. */
static bool add_named(struct regex_source *p, struct set *s, uint32_t c)
{
    static const struct code_range digits[] = {{'0', '9'}};
    static const struct code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct code_range spaces[] = {
        {9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    uint32_t kind = c | 0x20;
    const struct code_range *from = kind == 'd' ? digits : kind == 'w' ? words : spaces;
    size_t n = kind == 'd' ? ARRAY_LEN(digits) : kind == 'w' ? ARRAY_LEN(words) : ARRAY_LEN(spaces);
    struct set named = {.n = 0};

    if (c > 0x7f || (kind != 'd' && kind != 'w' && kind != 's'))
        return false;
    for (size_t i = 0; i < n; i++)
        add_range(p, &named, from[i].from, from[i].to);
    if (c != kind)
        invert_set(&named);
    for (unsigned i = 0; i < named.n; i++)
        add_range(p, s, named.at[i].from, named.at[i].to);
    return true;
}

static bool holds_character(const struct set *s, uint32_t c)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (c >= s->at[i].from && c <= s->at[i].to)
            return true;
    }
    return false;
}

/* Writes a character of the set in JSON's form: itself, or escaped if it must be. */
static void write_json_set(struct regex_source *p, const struct set *s)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    static const struct code_range plain[] = {{' ', '!'}, {'#', '['}, {']', LAST}};
    size_t start = p->x->len;
    const char *sep = "| ";
    bool any = false;

    buf_puts(p->x, "( [");
    for (unsigned i = 0; i < s->n; i++) {
        for (size_t k = 0; k < ARRAY_LEN(plain); k++) {
            uint32_t from = MAX_OF(s->at[i].from, plain[k].from);
            uint32_t to = MIN_OF(s->at[i].to, plain[k].to);

            if (from > to)
                continue;
            gbnf_class_char(p->x, from);
            buf_add_c(p->x, '-');
            gbnf_class_char(p->x, to);
            any = true;
        }
    }
    buf_puts(p->x, "] ");
    if (!any) {
        p->x->len = start;
        buf_puts(p->x, "( ");
        sep = "";
    }
    for (size_t i = 0; i < sizeof(names) - 1; i++) {
        if (!holds_character(s, (unsigned char)escaped[i]))
            continue;
        buf_puts(p->x, sep);
        gbnf_lit(p->x, str_of((const char[]){'\\', names[i]}, 2));
        sep = "| ";
        any = true;
    }
    buf_puts(p->x, ") ");
    p->bad = p->bad || !any;
}

/* --- pieces of a pattern --- */

/* Reads the character after a backslash, which was read already. */
static uint32_t escaped_char(struct regex_source *p, bool in_class)
{
    static const char names[] = "tnrf", values[] = "\t\n\r\f";
    uint32_t c = next_character(p);
    const char *name = c < 0x80 && c ? strchr(names, (int)c) : NULL;

    if (name)
        return (unsigned char)values[name - names];
    if (c == 'x' || c == 'u')
        return read_pattern_hex(p, c == 'x' ? 2 : 4);
    if (in_class && c == 'b')
        return '\b';
    /* Other characters may be escaped only if they have no meaning without the backslash. */
    if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c > 0x7f)
        p->bad = true;
    return c;
}

/* Reads one end of a range, or adds a named set and returns NONE. */
static uint32_t class_end(struct regex_source *p, struct set *s)
{
    if (!eat_character(p, '\\'))
        return next_character(p);
    if (add_named(p, s, peek_character(p))) {
        p->at++;
        return NONE;
    }
    return escaped_char(p, true);
}

/* Reads a class, after its '['. */
static void read_class(struct regex_source *p)
{
    struct set s = {.n = 0};
    bool inverse = eat_character(p, '^');

    p->bad = p->bad || peek_character(p) == ']';
    while (!p->bad && !eat_character(p, ']')) {
        uint32_t from = class_end(p, &s), to = from;

        if (from == NONE)
            continue;
        if (peek_character(p) == '-' && p->at + 1 < p->in.len && p->in.p[p->at + 1] != ']') {
            p->at++;
            to = class_end(p, &s);
            p->bad = p->bad || to == NONE;
        }
        add_range(p, &s, from, to);
    }
    if (p->bad)
        return;
    if (inverse)
        invert_set(&s);
    write_json_set(p, &s);
}

static void write_char(struct regex_source *p, uint32_t c)
{
    struct set one = {.n = 1, .at = {{c, c}}};
    char bytes[4];

    if (c < ' ' || c == '"' || c == '\\')
        write_json_set(p, &one);
    else if (c >= 0xd800 && c < 0xe000)
        p->bad = true;
    else
        gbnf_lit(p->x, str_of(bytes, utf8_encode(bytes, c)));
}

static struct regex_part read_pattern_group(struct regex_source *p, unsigned depth)
{
    struct regex_part inner = {0};

    if (eat_character(p, '?') && !eat_character(p, ':')) {
        (void)eat_character(p, 'P'); /* Python's syntax for a named group */
        p->bad = p->bad || !eat_character(p, '<') || peek_character(p) == '=' ||
                 peek_character(p) == '!';
        while (!p->bad && !eat_character(p, '>'))
            (void)next_character(p);
    }
    if (p->bad || depth == DEPTH_MAX) {
        p->bad = true;
        return inner;
    }
    buf_puts(p->x, "( ");
    inner = read_pattern_choice(p, depth + 1);
    buf_puts(p->x, ") ");
    p->bad = p->bad || !eat_character(p, ')');
    return inner;
}

static struct regex_part read_pattern_atom(struct regex_source *p, unsigned depth)
{
    struct regex_part one = {.weight = 1};
    struct set s = {.n = 0};
    uint32_t c = next_character(p);

    if (c == '(')
        return read_pattern_group(p, depth);
    if (c == '[') {
        read_class(p);
    } else if (c == '.') {
        buf_puts(p->x, "char ");
    } else if (c == '\\') {
        if (add_named(p, &s, peek_character(p))) {
            p->at++;
            write_json_set(p, &s);
        } else {
            write_char(p, escaped_char(p, false));
        }
    } else if (c < 0x80 && c && strchr("^$*+?{}])|", (int)c)) {
        p->bad = true;
    } else if (!p->bad) {
        write_char(p, c);
    }
    return one;
}

/* Reads {m}, {m,} or {m,n} after its bracket. */
static void read_counts(struct regex_source *p, uint32_t *min, uint32_t *max)
{
    uint32_t n[2] = {0, 0};
    size_t digits[2] = {0, 0};
    bool comma = false;

    while (!p->bad && !eat_character(p, '}')) {
        uint32_t c = next_character(p);

        if (c == ',' && !comma) {
            comma = true;
        } else if (c >= '0' && c <= '9' && n[comma] <= TIMES_MAX) {
            n[comma] = n[comma] * 10 + (c - '0');
            digits[comma]++;
        } else {
            p->bad = true;
        }
    }
    *min = n[0];
    *max = !comma ? n[0] : digits[1] ? n[1] : UINT32_MAX;
    p->bad = p->bad || digits[0] == 0 || *min > *max || *min > TIMES_MAX ||
             (*max > TIMES_MAX && *max != UINT32_MAX);
}

static void read_times(struct regex_source *p, struct regex_part *one)
{
    uint32_t min = 1, max = 1;

    if (eat_character(p, '*')) {
        min = 0;
        max = UINT32_MAX;
    } else if (eat_character(p, '+')) {
        max = UINT32_MAX;
    } else if (eat_character(p, '?')) {
        min = 0;
    } else if (eat_character(p, '{')) {
        read_counts(p, &min, &max);
    } else {
        return;
    }
    (void)eat_character(p, '?'); /* lazy quantifiers match the same texts */
    /* A piece that may be empty must not be repeated: the rule would refer to itself without end.
     */
    p->bad = p->bad || one->empty || max == 0;
    one->empty = min == 0;
    one->weight *= max == UINT32_MAX ? MAX_OF(min, 1u) : max;
    p->bad = p->bad || one->weight > WEIGHT_MAX;
    p->x->len -= p->x->len > 0 && p->x->p[p->x->len - 1] == ' ';
    if (max == UINT32_MAX && min < 2)
        buf_puts(p->x, min == 0 ? "* " : "+ ");
    else if (max == UINT32_MAX)
        buf_printf(p->x, "{%u,} ", min);
    else
        buf_printf(p->x, "{%u,%u} ", min, max);
}

/* Reports whether an alternative ends here. '$' counts only outside of all groups. */
static bool ends_alternative(const struct regex_source *p, size_t at)
{
    return at == p->in.len || p->in.p[at] == '|' || p->in.p[at] == ')';
}

static struct regex_part read_pattern_sequence(struct regex_source *p, unsigned depth)
{
    struct regex_part all = {.empty = true};
    size_t start;

    if (depth == 0 && !eat_character(p, '^'))
        buf_puts(p->x, "char* ");
    start = p->x->len;
    while (!p->bad && !ends_alternative(p, p->at) &&
           !(depth == 0 && p->in.p[p->at] == '$' && ends_alternative(p, p->at + 1))) {
        struct regex_part one = read_pattern_atom(p, depth);

        read_times(p, &one);
        all.empty = all.empty && one.empty;
        all.weight += one.weight;
        p->bad = p->bad || all.weight > WEIGHT_MAX;
    }
    if (p->x->len == start)
        buf_puts(p->x, "\"\" ");
    if (depth == 0 && !eat_character(p, '$'))
        buf_puts(p->x, "char* ");
    return all;
}

static struct regex_part read_pattern_choice(struct regex_source *p, unsigned depth)
{
    struct regex_part any = read_pattern_sequence(p, depth);

    while (!p->bad && eat_character(p, '|')) {
        struct regex_part more;

        buf_puts(p->x, "| ");
        more = read_pattern_sequence(p, depth);
        any.empty = any.empty || more.empty;
        any.weight += more.weight;
        p->bad = p->bad || any.weight > WEIGHT_MAX;
    }
    return any;
}

bool pattern_grammar(struct str pattern, struct buf *expr)
{
    struct regex_source p = {.in = pattern, .x = expr};
    size_t start = expr->len;

    buf_puts(expr, "( ");
    (void)read_pattern_choice(&p, 0);
    buf_puts(expr, ") ");
    if (!p.bad && p.at == pattern.len)
        return true;
    expr->len = start;
    return false;
}
