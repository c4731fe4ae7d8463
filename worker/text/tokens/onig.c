/* The translator of regular expressions (onig.h): a recursive descent that writes PCRE2 while it
 * reads.
 *
 *   read_alternatives   a|b|c, and the end of a group
 *     read_atoms       atoms with their quantifiers
 *       read_atom           character, escape, [class], ., (group), anchor
 *       read_quantifiers    * + ? {n,m} followed by ? or +
 *
 * Every character is written as a class of explicit code points, so nothing in the output can be
 * read as an operator. Syntax that looks alike and means different things in the two (possessive
 * braces, {n}?, inline options that reach over alternatives) is spelled out. last_char remembers
 * the literal before, because Oniguruma folds some pairs of letters to one character, which is
 * refused. `atoms` counts the atoms of the pattern: a pattern of one atom is run by pattern.c
 * without PCRE2. */

#include "worker/text/tokens/onig.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "worker/text/tokens/onig_class.h"
#include "worker/text/tokens/unicode.h"

enum { GROUP_DEPTH_MAX = 100, REPEAT_MAX = 65535, PATTERN_MAX = 64 * 1024 };

#define UNBOUNDED UINT32_MAX
#define NO_CHAR UINT32_MAX

struct onig {
    struct onig_input in;
    struct buf *out;
    struct onig_shape *shape;
    bool dot_all, extended;
    unsigned depth;
    unsigned atoms; /* number of atoms in the whole pattern, for the shape */
    /* the literal before this atom, folded, for sequences that fold to one character */
    uint32_t last_char;
};

static int read_alternatives(struct onig *o);

static size_t bytes_left(const struct onig *o)
{
    return (size_t)(o->in.end - o->in.p);
}

static bool looking_at(const struct onig *o, const char *text)
{
    return str_starts(str_of(o->in.p, bytes_left(o)), str_cstr(text));
}

/* --- writing --- */

/* Writes a class as ranges without surrogates. An empty set becomes a pattern that never
 * matches. */
static void write_set_class(struct buf *out, const struct charset *set)
{
    size_t before = out->len;

    buf_add_c(out, '[');
    for (size_t i = 0; i < set->n; i++) {
        uint32_t parts[2][2] = {{set->at[i].first, MIN_OF(set->at[i].last, 0xd7ffu)},
                                {MAX_OF(set->at[i].first, 0xe000u), set->at[i].last}};

        for (int k = 0; k < 2; k++)
            if (parts[k][0] <= parts[k][1])
                buf_printf(out, "\\x{%x}-\\x{%x}", parts[k][0], parts[k][1]);
    }
    if (out->len == before + 1) {
        out->len = before;
        buf_puts(out, "(?!)");
        return;
    }
    buf_add_c(out, ']');
}

static void record_shape(struct onig *o, const struct charset *set)
{
    if (o->atoms == 1)
        charset_add_set(&o->shape->set, set);
}

/* Inserts text at offset `at` of the output. */
static void insert_text(struct buf *out, size_t at, const char *text)
{
    size_t n = strlen(text);

    buf_reserve(out, n);
    memmove(out->p + at + n, out->p + at, out->len - at);
    memcpy(out->p + at, text, n);
    out->len += n;
}

static void wrap_group(struct onig *o, size_t from)
{
    insert_text(o->out, from, "(?:");
    buf_add_c(o->out, ')');
}

/* --- atoms --- */

/* Reports whether Oniguruma folds the sequence to one character: ss, ff, fi, fl, st, and ASCII
 * letters with the marks of the few precomposed letters that have no upper case. */
static bool folds_together(uint32_t a, uint32_t b)
{
    if (a >= 'a' && a <= 'z')
        if (b == 0x307 || b == 0x308 || b == 0x30a || b == 0x30c || b == 0x331 || b == 0x2be)
            return true;
    if (a == 0x2bc && b == 'n')
        return true;
    return (a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
}

/* Writes a literal, with its other cases if case is ignored. */
static int write_char(struct onig *o, uint32_t cp)
{
    struct charset set = {0};
    uint32_t lower = cp >= 'A' && cp <= 'Z' ? cp + 0x20 : cp;
    int rc = 0;

    charset_add(&set, cp, cp);
    if (o->in.ignore_case) {
        if (folds_together(o->last_char, lower))
            rc = onig_refuse(&o->in, "these letters in a row without regard to case");
        else
            rc = onig_fold_case(&o->in, &set);
    }
    o->last_char = lower;
    record_shape(o, &set);
    if (rc == 0)
        write_set_class(o->out, &set);
    charset_done(&set);
    return rc;
}

/* Writes a class atom. The set is sealed. */
static int write_class(struct onig *o, struct charset *set)
{
    charset_seal(set);
    record_shape(o, set);
    write_set_class(o->out, set);
    o->last_char = NO_CHAR;
    return 0;
}

/* Reads ".": everything except a line feed, or everything with the option m. */
static int read_dot(struct onig *o)
{
    struct charset set = {0};

    if (!o->dot_all)
        charset_add(&set, '\n', '\n');
    charset_negate(&set);
    write_class(o, &set);
    charset_done(&set);
    return 0;
}

/* Reads [...] as an atom. */
static int read_class_atom(struct onig *o)
{
    struct charset set = {0};
    int rc = onig_read_class(&o->in, &set);

    if (rc == 0)
        rc = write_class(o, &set);
    charset_done(&set);
    return rc;
}

/* Writes \b and \B with look-arounds, because PCRE2's \w is not Oniguruma's. */
static void write_word_boundary(struct onig *o, bool negate)
{
    struct buf word = {0};
    struct charset set = {0};

    charset_add_flags(&set, UC_WORD);
    charset_seal(&set);
    write_set_class(&word, &set);
    buf_printf(o->out, "(?:(?<=%.*s)%s%.*s)|(?<!%.*s)%s%.*s))", (int)word.len, word.p,
               negate ? "(?=" : "(?!", (int)word.len, word.p, (int)word.len, word.p,
               negate ? "(?!" : "(?=", (int)word.len, word.p);
    charset_done(&set);
    buf_done(&word);
}

/* Reads an anchor that is spelled as an escape. Returns false if there is none here. */
static bool read_anchor_escape(struct onig *o)
{
    switch (*o->in.p) {
    case 'A':
        buf_puts(o->out, "\\A");
        break;
    case 'z':
        buf_puts(o->out, "\\z");
        break;
    case 'Z':
        buf_puts(o->out, "(?=\\n?\\z)");
        break;
    case 'b':
        write_word_boundary(o, false);
        break;
    case 'B':
        write_word_boundary(o, true);
        break;
    default:
        return false;
    }
    o->in.p++;
    o->last_char = NO_CHAR;
    return true;
}

/* Returns 0 for an atom, 1 for an anchor (not repeatable), -1 on error. */
static int read_escape_atom(struct onig *o)
{
    struct charset set = {0};
    uint32_t single;
    int rc;

    o->in.p++;
    if (bytes_left(o) && read_anchor_escape(o))
        return 1;
    if (bytes_left(o) && (*o->in.p == 'N' || *o->in.p == 'O')) {
        bool dot_all = o->dot_all;

        o->dot_all = *o->in.p++ == 'O';
        rc = read_dot(o);
        o->dot_all = dot_all;
        return rc;
    }
    rc = onig_read_escape(&o->in, &set, &single, false);
    if (rc == 1)
        rc = onig_refuse(&o->in, "this escape");
    else if (rc == 0 && single != UINT32_MAX)
        rc = write_char(o, single);
    else if (rc == 0) {
        charset_seal(&set);
        if (o->in.ignore_case)
            rc = onig_fold_case(&o->in, &set);
        if (rc == 0)
            rc = write_class(o, &set);
    }
    charset_done(&set);
    return rc;
}

/* Reads i, m, x and their negations up to ':' or ')'. */
static int read_options(struct onig *o)
{
    bool on = true;

    for (; bytes_left(o) && *o->in.p != ':' && *o->in.p != ')'; o->in.p++) {
        switch (*o->in.p) {
        case '-':
            on = false;
            break;
        case 'i':
            o->in.ignore_case = on;
            break;
        case 'm':
            o->dot_all = on;
            break;
        case 'x':
            o->extended = on;
            break;
        default:
            return onig_refuse(&o->in, "this group option");
        }
    }
    return bytes_left(o) ? 0 : onig_refuse(&o->in, "a group without its end");
}

/* Reads the inside of a group and its ")". Options set inside end with the group. */
static int read_group_body(struct onig *o, const char *open)
{
    bool ignore_case = o->in.ignore_case, dot_all = o->dot_all, extended = o->extended;

    buf_puts(o->out, open);
    o->last_char = NO_CHAR;
    if (read_alternatives(o) < 0)
        return -1;
    if (!bytes_left(o) || *o->in.p != ')')
        return onig_refuse(&o->in, "a group without its end");
    o->in.p++;
    buf_add_c(o->out, ')');
    o->last_char = NO_CHAR;
    o->in.ignore_case = ignore_case;
    o->dot_all = dot_all;
    o->extended = extended;
    return 0;
}

/* Reads (?i) and the like, which apply to the rest of the enclosing group, including its other
 * alternatives: a(?i)b|c is a(?i:b|c). The closing ')' of that group is not consumed. */
static int read_option_group(struct onig *o)
{
    bool ignore_case = o->in.ignore_case, dot_all = o->dot_all, extended = o->extended;
    int rc;

    if (read_options(o) < 0)
        return -1;
    if (*o->in.p++ == ':') {
        rc = read_group_body(o, "(?:");
    } else {
        buf_puts(o->out, "(?:");
        rc = read_alternatives(o);
        buf_add_c(o->out, ')');
    }
    o->in.ignore_case = ignore_case;
    o->dot_all = dot_all;
    o->extended = extended;
    return rc;
}

/* Skips the name, because groups are never referred to. */
static int read_group_name(struct onig *o)
{
    const char *close = memchr(o->in.p, '>', bytes_left(o));

    if (!close)
        return onig_refuse(&o->in, "a group name without its end");
    o->in.p = close + 1;
    return 0;
}

/* Reads a group; p is after '('. Returns 1 for a lookaround (not repeatable). */
static int read_onig_group(struct onig *o)
{
    static const char *const lookaround[] = {"?=", "?!", "?<=", "?<!"};

    o->atoms += 2; /* a pattern with a group is never a single class */
    for (size_t i = 0; i < ARRAY_LEN(lookaround); i++) {
        char open[8];

        if (!looking_at(o, lookaround[i]))
            continue;
        o->in.p += strlen(lookaround[i]);
        snprintf(open, sizeof(open), "(%s", lookaround[i]);
        return read_group_body(o, open) < 0 ? -1 : 1;
    }
    if (looking_at(o, "?>")) {
        o->in.p += 2;
        return read_group_body(o, "(?>");
    }
    if (looking_at(o, "?<")) {
        o->in.p += 2;
        return read_group_name(o) < 0 ? -1 : read_group_body(o, "(?:");
    }
    if (looking_at(o, "?")) {
        o->in.p++;
        return read_option_group(o);
    }
    if (looking_at(o, "*"))
        return onig_refuse(&o->in, "a callout");
    return read_group_body(o, "(?:");
}

/* Skips (?#...) comments, and in extended mode white space and # comments. */
static bool skip_comment(struct onig *o)
{
    const char *end;

    if (looking_at(o, "(?#")) {
        end = memchr(o->in.p, ')', bytes_left(o));
        o->in.p = end ? end + 1 : o->in.end;
        return true;
    }
    if (!o->extended || !bytes_left(o))
        return false;
    if (memchr(" \t\n\r\f\v", *o->in.p, 6)) {
        o->in.p++;
        return true;
    }
    if (*o->in.p != '#')
        return false;
    end = memchr(o->in.p, '\n', bytes_left(o));
    o->in.p = end ? end + 1 : o->in.end;
    return true;
}

/* Returns 0 for an atom, 1 for an anchor, -1 on error. */
static int read_atom(struct onig *o)
{
    uint32_t cp;

    o->atoms++;
    switch (*o->in.p) {
    case '\\':
        return read_escape_atom(o);
    case '[':
        o->in.p++;
        return read_class_atom(o);
    case '.':
        o->in.p++;
        return read_dot(o);
    case '(':
        o->in.p++;
        return read_onig_group(o);
    case '^':
        o->in.p++;
        o->last_char = NO_CHAR;
        buf_puts(o->out, "(?m:^)");
        return 1;
    case '$':
        o->in.p++;
        o->last_char = NO_CHAR;
        buf_puts(o->out, "(?=\\n|\\z)");
        return 1;
    case '*':
    case '+':
    case '?':
        return onig_refuse(&o->in, "a quantifier without a target");
    default:
        o->in.p += unicode_read(o->in.p, &cp);
        return write_char(o, cp);
    }
}

/* --- quantifiers --- */

/* Reads a decimal number. Returns false if there is no digit. */
static bool read_decimal(struct onig *o, uint32_t *n)
{
    const char *from = o->in.p;

    for (*n = 0; bytes_left(o) && *o->in.p >= '0' && *o->in.p <= '9'; o->in.p++)
        if (*n <= REPEAT_MAX)
            *n = *n * 10 + (uint32_t)(*o->in.p - '0');
    return o->in.p > from;
}

/* Reads {n}, {n,}, {n,m}, {,m}. Returns 1 for anything else, which is literal text. */
static int read_braces(struct onig *o, uint32_t *min, uint32_t *max)
{
    const char *from = o->in.p;
    bool low, high;

    o->in.p++;
    low = read_decimal(o, min);
    *max = *min;
    if (bytes_left(o) && *o->in.p == ',') {
        o->in.p++;
        high = read_decimal(o, max);
        if (!high)
            *max = UNBOUNDED;
        if (!low && !high)
            low = false;
        else
            low = true;
    }
    if (!low || !bytes_left(o) || *o->in.p != '}') {
        o->in.p = from;
        return 1;
    }
    o->in.p++;
    if (*min > REPEAT_MAX || (*max != UNBOUNDED && *max > REPEAT_MAX) || *max < *min)
        return onig_refuse(&o->in, "this repeat");
    return 0;
}

static void write_repeat(struct buf *out, uint32_t min, uint32_t max)
{
    if (max == UNBOUNDED)
        buf_printf(out, "{%u,}", min);
    else
        buf_printf(out, "{%u,%u}", min, max);
}

/* Reads min and max of a quantifier. Returns 0 if there is one (*braces: spelled {}), 1 if there is
 * none, -1 on error. */
static int read_repeat(struct onig *o, uint32_t *min, uint32_t *max, bool *braces)
{
    char c = bytes_left(o) ? *o->in.p : '\0';

    *braces = c == '{';
    if (c == '{')
        return read_braces(o, min, max);
    if (c != '*' && c != '+' && c != '?')
        return 1;
    o->in.p++;
    *min = c == '+';
    *max = c == '?' ? 1 : UNBOUNDED;
    return 0;
}

/* Reads all quantifiers after the atom that was written from `from` on. */
static int read_quantifiers(struct onig *o, size_t from, int atom)
{
    unsigned count = 0;
    uint32_t min, max;
    bool braces;
    int rc;

    while ((rc = read_repeat(o, &min, &max, &braces)) == 0) {
        char suffix = bytes_left(o) ? *o->in.p : '\0';
        bool lazy = suffix == '?', possessive = suffix == '+' && !braces;

        if (atom == 1)
            return onig_refuse(&o->in, "repeating an anchor");
        o->last_char = NO_CHAR;
        if (count++ > 0 || lazy || possessive)
            o->atoms += 2;
        if (count > 1)
            wrap_group(o, from);
        o->shape->min = min;
        o->shape->max = max;
        write_repeat(o->out, min, max);
        if (lazy && braces && min == max) { /* {n}? is an optional {n} */
            wrap_group(o, from);
            buf_puts(o->out, "{0,1}");
            o->in.p++;
        } else if (lazy || possessive) {
            buf_add_c(o->out, suffix);
            o->in.p++;
        }
    }
    return rc < 0 ? -1 : 0;
}

/* Reads atoms up to "|", ")" or the end. */
static int read_atoms(struct onig *o)
{
    while (bytes_left(o) && *o->in.p != '|' && *o->in.p != ')') {
        size_t from = o->out->len;
        int atom;

        if (skip_comment(o))
            continue;
        atom = read_atom(o);
        if (atom < 0)
            return -1;
        while (skip_comment(o))
            ;
        if (read_quantifiers(o, from, atom) < 0)
            return -1;
        if (o->out->len > (size_t)PATTERN_MAX * 16)
            return onig_refuse(&o->in, "a pattern so large");
    }
    return 0;
}

/* Depth is limited, because each group recurses here. */
static int read_alternatives(struct onig *o)
{
    if (++o->depth > GROUP_DEPTH_MAX)
        return onig_refuse(&o->in, "groups nested so deeply");
    for (;;) {
        o->last_char = NO_CHAR;
        if (read_atoms(o) < 0)
            return -1;
        if (!bytes_left(o) || *o->in.p != '|')
            break;
        o->in.p++;
        o->atoms += 2;
        buf_add_c(o->out, '|');
    }
    o->depth--;
    return 0;
}

int onig_translate(struct str pattern, struct buf *out, struct onig_shape *shape, struct err *e)
{
    struct onig o = {
        .in = {.p = pattern.p, .end = pattern.p + pattern.len, .start = pattern.p, .e = e},
        .out = out,
        .shape = shape,
        .last_char = NO_CHAR};

    *shape = (struct onig_shape){.min = 1, .max = 1};
    if (pattern.len > PATTERN_MAX)
        return err_set(e, ERR_UNSUPPORTED, "regular expression: longer than %d bytes", PATTERN_MAX);
    if (read_alternatives(&o) < 0)
        return -1;
    if (o.in.p < o.in.end)
        return onig_refuse(&o.in, "an unmatched ')'");
    shape->single = o.atoms == 1 && shape->set.n > 0;
    return 0;
}
