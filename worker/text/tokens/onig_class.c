/* Character classes and escapes of Oniguruma as sets (onig_class.h). A class is read into operands
 * between "&&", each a union of members. Negation is applied at the end, after case folding. Syntax
 * that cannot be translated exactly is refused by name. */

#include "worker/text/tokens/onig_class.h"

#include <strings.h>

#include "common/base/attrs.h"
#include "common/codec/hex.h"
#include "worker/text/tokens/unicode.h"

enum { SETS_MAX = 1024 }; /* limit of named sets; the largest known pattern has some 30 */

enum { CLASS_DEPTH_MAX = 32, LONG_S = 0x17f, KELVIN = 0x212a };

#define NOT_SINGLE UINT32_MAX

int onig_refuse(struct onig_input *in, const char *what)
{
    return err_set(in->e, ERR_UNSUPPORTED, "regular expression: %s at byte %zu is not supported",
                   what, (size_t)(in->p - in->start));
}

/* Reads up to `most` hex digits. */
static size_t read_hex_digits(struct onig_input *in, size_t most, uint32_t *value)
{
    size_t n = 0;

    *value = 0;
    for (; n < most && in->p < in->end && hex_value(*in->p) >= 0; n++)
        *value = *value * 16 + (uint32_t)hex_value(*in->p++);
    return n;
}

/* Reads \xHH, \x{H...}, \uHHHH; p is at the letter. */
static int read_code_point(struct onig_input *in, uint32_t *cp)
{
    char kind = *in->p++;

    if (kind == 'u')
        return read_hex_digits(in, 4, cp) == 4 ? 0 : onig_refuse(in, "this \\u escape");
    if (in->p < in->end && *in->p == '{') {
        in->p++;
        if (read_hex_digits(in, 8, cp) == 0 || in->p == in->end || *in->p != '}' || *cp > 0x10ffff)
            return onig_refuse(in, "this \\x{} escape");
        in->p++;
        return 0;
    }
    if (read_hex_digits(in, 2, cp) == 0 || *cp > 0x7f)
        return onig_refuse(in, "a \\x escape of a raw byte");
    return 0;
}

/* Adds \w. Inside a class Oniguruma's \w lacks six numbers of Latin-1 that it has outside. */
static void add_word(struct charset *set, bool in_class)
{
    static const uint32_t lacks[] = {0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe};
    struct charset without = {0};

    charset_add_flags(set, UC_WORD);
    if (!in_class)
        return;
    for (size_t i = 0; i < ARRAY_LEN(lacks); i++)
        charset_add(&without, lacks[i], lacks[i]);
    charset_negate(&without);
    charset_intersect(set, &without);
    charset_done(&without);
}

/* Reads \p{Name}, \p{^Name}, \pL, \P...; p is at the letter. */
static int read_property(struct onig_input *in, struct charset *set, bool in_class)
{
    bool negate = *in->p++ == 'P';
    struct charset one = {0};
    const char *close;
    struct str name;

    if (++in->sets > SETS_MAX)
        return onig_refuse(in, "a pattern with so many character properties");
    if (in->p == in->end)
        return onig_refuse(in, "a property without a name");
    if (*in->p != '{')
        return onig_refuse(in, "a property without braces");
    close = memchr(in->p, '}', (size_t)(in->end - in->p));
    if (!close)
        return onig_refuse(in, "a property without its end");
    name = str_of(in->p + 1, (size_t)(close - in->p) - 1);
    if (name.len && name.p[0] == '^') {
        negate = !negate;
        name = str_sub(name, 1, name.len);
    }
    if (name.len == 4 && strncasecmp(name.p, "word", 4) == 0)
        add_word(&one, in_class);
    else if (!charset_add_property(&one, name))
        return onig_refuse(in, "this character property");
    in->p = close + 1;
    if (negate)
        charset_negate(&one);
    charset_add_set(set, &one);
    charset_done(&one);
    return 0;
}

/* Adds \d \s \w \h or their complements. Returns false for other letters. */
static bool add_shorthand(struct charset *set, char letter, bool in_class)
{
    struct charset one = {0};

    switch (letter | 0x20) {
    case 'd':
        charset_add_flags(&one, UC_ND);
        break;
    case 's':
        charset_add_flags(&one, UC_SPACE);
        break;
    case 'w':
        add_word(&one, in_class);
        break;
    case 'h':
        charset_add(&one, '0', '9');
        charset_add(&one, 'A', 'F');
        charset_add(&one, 'a', 'f');
        break;
    default:
        return false;
    }
    if (!(letter & 0x20))
        charset_negate(&one);
    charset_add_set(set, &one);
    charset_done(&one);
    return true;
}

/* Returns the control character of an escape letter, or -1. \b is a backspace only inside of
 * classes. */
static int control_escape(char c, bool in_class)
{
    static const struct {
        char letter, code;
    } table[] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'}, {'f', '\f'},
                 {'v', '\v'}, {'a', '\a'}, {'e', 0x1b}};

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].letter == c)
            return table[i].code;
    return c == 'b' && in_class ? '\b' : -1;
}

static int read_octal(struct onig_input *in, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < 3 && in->p < in->end && *in->p >= '0' && *in->p <= '7'; i++)
        *cp = *cp * 8 + (uint32_t)(*in->p++ - '0');
    return *cp > 0x7f ? onig_refuse(in, "an octal escape of a raw byte") : 0;
}

/* The order of the tests matters: \p, then shorthands, then characters by number or name. Any other
 * letter or digit is not a character escape (1). */
int onig_read_escape(struct onig_input *in, struct charset *set, uint32_t *single, bool in_class)
{
    char c;

    *single = NOT_SINGLE;
    if (in->p == in->end)
        return onig_refuse(in, "a backslash at the end");
    c = *in->p;
    if (c == 'p' || c == 'P')
        return read_property(in, set, in_class);
    if (in->sets >= SETS_MAX)
        return onig_refuse(in, "a pattern with so many character properties");
    if (add_shorthand(set, c, in_class)) {
        in->sets++;
        in->p++;
        return 0;
    }
    if (c == 'x' || c == 'u') {
        if (read_code_point(in, single) < 0)
            return -1;
    } else if (c == '0') {
        if (read_octal(in, single) < 0)
            return -1;
    } else if (control_escape(c, in_class) >= 0) {
        *single = (uint32_t)control_escape(c, in_class);
        in->p++;
    } else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return 1;
    } else {
        in->p += unicode_read(in->p, single);
    }
    charset_add(set, *single, *single);
    return 0;
}

/* Reads [:name:] and [:^name:]; p is at the inner '['. Returns 1 if there is none here. */
static int read_posix(struct onig_input *in, struct charset *set)
{
    struct str rest = str_of(in->p, (size_t)(in->end - in->p));
    size_t close = str_find(rest, STR(":]"), 2);
    struct charset one = {0};
    struct str name;
    bool negate;

    if (!str_starts(rest, STR("[:")) || close == SIZE_MAX)
        return 1;
    name = str_sub(rest, 2, close - 2);
    negate = name.len && name.p[0] == '^';
    if (negate)
        name = str_sub(name, 1, name.len);
    for (size_t i = 0; i < name.len; i++)
        if (name.p[i] < 'a' || name.p[i] > 'z')
            return 1;
    if (++in->sets > SETS_MAX)
        return onig_refuse(in, "a pattern with so many character properties");
    if (str_eq_c(name, "ascii"))
        charset_add(&one, 0, 0x7f);
    else if (str_eq_c(name, "xdigit"))
        add_shorthand(&one, 'h', true);
    else if (str_eq_c(name, "word"))
        add_shorthand(&one, 'w', true);
    else if (str_eq_c(name, "punct"))
        charset_add_flags(&one, UC_P | UC_S);
    else if (!charset_add_property(&one, name))
        return onig_refuse(in, "this POSIX bracket");
    if (negate)
        charset_negate(&one);
    charset_add_set(set, &one);
    charset_done(&one);
    in->p += close + 2;
    return 0;
}

static bool range_follows(const struct onig_input *in)
{
    return in->p + 1 < in->end && in->p[0] == '-' && in->p[1] != ']';
}

/* Reads one character or escape. *single as in onig_read_escape. */
static int read_class_member(struct onig_input *in, struct charset *set, uint32_t *single)
{
    int rc;

    if (*in->p != '\\') {
        in->p += unicode_read(in->p, single);
        charset_add(set, *single, *single);
        return 0;
    }
    in->p++;
    rc = onig_read_escape(in, set, single, true);
    return rc == 1 ? onig_refuse(in, "this escape in a class") : rc;
}

/* Reads a character, an escape, or a range of them. */
static int read_range(struct onig_input *in, struct charset *set)
{
    struct charset last_set = {0};
    uint32_t first, last;
    int rc = read_class_member(in, set, &first);

    if (rc < 0 || !range_follows(in))
        return rc;
    if (first == NOT_SINGLE || in->p[1] == '[')
        return onig_refuse(in, "'-' here in a class");
    if (in->p[1] == '&' && in->p + 2 < in->end && in->p[2] == '&')
        return 0;
    in->p++;
    rc = read_class_member(in, &last_set, &last);
    charset_done(&last_set);
    if (rc < 0)
        return -1;
    if (last == NOT_SINGLE || last < first)
        return onig_refuse(in, "this range");
    charset_add(set, first, last);
    return 0;
}

/* Reads members up to "&&" or "]". Returns 0 at either, -1 on error. */
static int read_operand(struct onig_input *in, struct charset *set)
{
    while (in->p < in->end && *in->p != ']') {
        struct str rest = str_of(in->p, (size_t)(in->end - in->p));
        struct charset inner = {0};
        int rc = 0;

        if (str_starts(rest, STR("&&")))
            return 0;
        if (*in->p == '[') {
            rc = read_posix(in, set);
            if (rc == 1) {
                in->p++;
                rc = onig_read_class(in, &inner);
                charset_add_set(set, &inner);
            }
            charset_done(&inner);
        } else if (*in->p == '-' && in->p[-1] != '[' && in->p[-1] != '^' && range_follows(in)) {
            rc = onig_refuse(in, "'-' here in a class");
        } else {
            rc = read_range(in, set);
        }
        if (rc < 0)
            return -1;
    }
    return in->p < in->end ? 0 : onig_refuse(in, "a class without its end");
}

/* Reads operands joined by "&&" and intersects them. */
static int read_operands(struct onig_input *in, struct charset *set)
{
    if (read_operand(in, set) < 0)
        return -1;
    while (*in->p == '&') {
        struct charset right = {0};
        int rc;

        in->p += 2;
        rc = read_operand(in, &right);
        charset_intersect(set, &right);
        charset_done(&right);
        if (rc < 0)
            return -1;
    }
    in->p++;
    charset_seal(set);
    return 0;
}

/* Classes may be nested; the depth is limited. */
int onig_read_class(struct onig_input *in, struct charset *set)
{
    bool negate = in->p < in->end && *in->p == '^';
    int rc;

    if (negate)
        in->p++;
    if (in->p < in->end && *in->p == ']')
        return onig_refuse(in, "']' at the front of a class");
    if (++in->depth > CLASS_DEPTH_MAX)
        return onig_refuse(in, "a class nested so deeply");
    rc = read_operands(in, set);
    in->depth--;
    if (rc == 0 && in->ignore_case)
        rc = onig_fold_case(in, set);
    if (rc == 0 && negate)
        charset_negate(set);
    return rc;
}

/* Reports whether case folding beyond ASCII could matter: the set has cased letters, or the few
 * other cased characters. */
static bool has_cased(const struct charset *set)
{
    for (size_t i = 0; i < set->n; i++) {
        uint32_t first = MAX_OF(set->at[i].first, 0x80u);

        for (uint32_t cp = first; cp <= set->at[i].last; cp++) {
            bool cased = (unicode_flags(cp) & (UC_LU | UC_LL | UC_LT | UC_LOWER)) || cp == 0x345 ||
                         (cp >= 0x2160 && cp <= 0x2188) || (cp >= 0x24b6 && cp <= 0x24e9);

            if (cased && cp != LONG_S && cp != KELVIN)
                return true;
        }
    }
    return false;
}

/* ASCII letters have two forms; s and k each have a third one outside of ASCII. */
int onig_fold_case(struct onig_input *in, struct charset *set)
{
    struct charset more = {0};

    if (has_cased(set))
        return onig_refuse(in, "matching non-ASCII letters without regard to case");
    for (uint32_t c = 'a'; c <= 'z'; c++)
        if (charset_has(set, c) || charset_has(set, c - 0x20)) {
            charset_add(&more, c, c);
            charset_add(&more, c - 0x20, c - 0x20);
        }
    if (charset_has(set, LONG_S)) {
        charset_add(&more, 's', 's');
        charset_add(&more, 'S', 'S');
    }
    if (charset_has(set, KELVIN)) {
        charset_add(&more, 'k', 'k');
        charset_add(&more, 'K', 'K');
    }
    charset_add_set(set, &more);
    charset_done(&more);
    charset_seal(set);
    if (charset_has(set, 's'))
        charset_add(set, LONG_S, LONG_S);
    if (charset_has(set, 'k'))
        charset_add(set, KELVIN, KELVIN);
    charset_seal(set);
    return 0;
}
