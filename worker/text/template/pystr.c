/* Text with Python's semantics (pystr.h): a str is a sequence of code points, ours is UTF-8. Facts
 * about characters come from the tables of pystr_data.h; ASCII has short ways around them.
 *
 * The text is valid UTF-8 except for lone surrogates in three-byte form, which come from JSON. A
 * cut character at the end counts byte by byte, so no function here reads beyond the text. */

#include "worker/text/template/pystr.h"

#include "common/base/utf8.h"

/* Decodes without checks: the width is that of the first byte. */
uint32_t pystr_next(struct str s, size_t *at)
{
    const unsigned char *p = (const unsigned char *)s.p + *at;
    size_t n = pystr_width(p[0]);

    if (n > s.len - *at)
        n = 1;
    *at += n;
    switch (n) {
    case 2:
        return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
    case 3:
        return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    case 4:
        return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 |
               (uint32_t)(p[2] & 63) << 6 | (p[3] & 63);
    default:
        return p[0];
    }
}

size_t pystr_len(struct str s)
{
    return utf8_count(s);
}

size_t pystr_offset(struct str s, size_t from, size_t n)
{
    while (n-- > 0 && from < s.len)
        from += pystr_width((unsigned char)s.p[from]);
    return MIN_OF(from, s.len);
}

unsigned pystr_flags(uint32_t cp)
{
    uint32_t block = MIN_OF(cp / 128, pystr_index_n - 1);

    return pystr_classes[pystr_blocks[pystr_index[block]][cp % 128]];
}

/* Decimal digits come in runs of ten, zero first. */
int pystr_decimal(uint32_t cp)
{
    uint32_t start = cp;

    if (cp < 128)
        return cp >= '0' && cp <= '9' ? (int)(cp - '0') : -1;
    if (!(pystr_flags(cp) & PYSTR_DECIMAL))
        return -1;
    while (start > 0 && (pystr_flags(start - 1) & PYSTR_DECIMAL))
        start--;
    return (int)((cp - start) % 10);
}

static bool is_space(uint32_t cp)
{
    if (cp < 128)
        return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 31);
    return pystr_flags(cp) & PYSTR_SPACE;
}

/* Returns the last code point of s[from..end) and moves *end to its start. */
static uint32_t previous_point(struct str s, size_t from, size_t *end)
{
    size_t at = *end - 1;

    while (at > from && ((unsigned char)s.p[at] & 0xc0) == 0x80)
        at--;
    *end = at;
    return pystr_next(s, &at);
}

/* Reports whether cp is one of chars, or white space if chars is absent. */
static bool in_set(uint32_t cp, struct str chars)
{
    if (!chars.p)
        return is_space(cp);
    for (size_t at = 0; at < chars.len;) {
        if (pystr_next(chars, &at) == cp)
            return true;
    }
    return false;
}

/* Moves both ends inwards while their characters are in the set. */
struct str pystr_strip_chars(struct str s, struct str chars, int which)
{
    size_t from = 0, end = s.len;

    while ((which & 1) && from < end) {
        size_t at = from;

        if (!in_set(pystr_next(s, &at), chars))
            break;
        from = at;
    }
    while ((which & 2) && end > from) {
        size_t at = end;

        if (!in_set(previous_point(s, from, &at), chars))
            break;
        end = at;
    }
    return str_of(s.p + from, end - from);
}

struct str pystr_strip(struct str s, int which)
{
    return pystr_strip_chars(s, (struct str){0}, which);
}

/* --- case --- */

/* Returns the mapping of cp by a sorted table of runs, or cp itself if no run has it. */
static uint32_t run_map(const struct pystr_run *runs, uint32_t n, uint32_t cp)
{
    uint32_t low = 0, high = n;

    while (low < high) {
        uint32_t mid = (low + high) / 2;

        if (runs[mid].end < cp)
            low = mid + 1;
        else
            high = mid;
    }
    /* Runs with step 2 interleave, so the right one may be among the next few. */
    for (; low < n && low < high + 4; low++) {
        if (runs[low].start <= cp && cp <= runs[low].end &&
            (cp - runs[low].start) % (uint32_t)runs[low].step == 0)
            return (uint32_t)((int64_t)cp + runs[low].delta);
    }
    return cp;
}

static void add_cp(struct buf *out, uint32_t cp)
{
    out->len += utf8_encode(buf_reserve(out, 4), cp);
}

/* Appends cp mapped: 'u' upper, 'l' lower, 't' title, 'f' case-folded. Specials, whose mapping is
 * longer than one character, have priority over the runs. */
static void add_mapped(struct buf *out, uint32_t cp, char kind)
{
    if (cp < 128) {
        bool down = kind == 'l' || kind == 'f';

        if (down && cp >= 'A' && cp <= 'Z')
            cp |= 32;
        else if (!down && cp >= 'a' && cp <= 'z')
            cp &= ~32U;
        buf_add_c(out, (char)cp);
        return;
    }
    for (uint32_t i = 0; i < pystr_specials_n; i++) {
        if (pystr_specials[i].cp == cp && pystr_specials[i].kind == kind) {
            buf_puts(out, pystr_specials[i].text);
            return;
        }
    }
    if (kind == 'u')
        cp = run_map(pystr_upper, pystr_upper_n, cp);
    else if (kind == 'l')
        cp = run_map(pystr_lower, pystr_lower_n, cp);
    else if (kind == 'f')
        cp = run_map(pystr_fold, pystr_fold_n, cp);
    else
        cp = run_map(pystr_title, pystr_title_n, cp);
    add_cp(out, cp);
}

static bool is_cased(uint32_t cp)
{
    return pystr_flags(cp) & (PYSTR_UPPER | PYSTR_LOWER | PYSTR_TITLE);
}

/* Reports whether a capital sigma is final: it follows a cased letter and no cased letter follows
 * it. Ignorable characters between do not count (Unicode's Final_Sigma). */
static bool is_final_sigma(struct str s, size_t at, size_t next)
{
    bool cased = false;

    while (at > 0) {
        uint32_t cp = previous_point(s, 0, &at);

        if (pystr_flags(cp) & PYSTR_CASE_IGNORABLE)
            continue;
        cased = is_cased(cp);
        break;
    }
    while (cased && next < s.len) {
        uint32_t cp = pystr_next(s, &next);

        if (!(pystr_flags(cp) & PYSTR_CASE_IGNORABLE))
            return !is_cased(cp);
    }
    return cased;
}

/* Maps each character. Title case depends on whether the character before was a cased one. */
struct str pystr_case(struct arena *a, struct str s, enum pystr_case to)
{
    struct buf out = {0};
    struct str ret;
    bool previous_cased = false;

    (void)buf_reserve(&out, s.len + 1);
    for (size_t at = 0; at < s.len;) {
        size_t start = at;
        uint32_t cp = pystr_next(s, &at);
        char kind = 'l';

        if (to == PYSTR_TO_UPPER)
            kind = 'u';
        else if (to == PYSTR_TO_FOLDED)
            kind = 'f';
        else if (to == PYSTR_TO_SWAPPED)
            kind = (pystr_flags(cp) & PYSTR_UPPER)   ? 'l'
                   : (pystr_flags(cp) & PYSTR_LOWER) ? 'u'
                                                     : 0;
        else if ((to == PYSTR_TO_TITLE && !previous_cased) ||
                 (to == PYSTR_TO_CAPITAL && start == 0))
            kind = 't';
        if (kind == 'l' && cp == 0x3a3 && is_final_sigma(s, start, at))
            add_cp(&out, 0x3c2);
        else if (kind)
            add_mapped(&out, cp, kind);
        else
            add_cp(&out, cp);
        if (to == PYSTR_TO_TITLE)
            previous_cased = is_cased(cp);
    }
    ret = arena_str(a, buf_str(&out));
    buf_done(&out);
    return ret;
}

/* --- classes --- */

/* Computes isupper and islower: at least one character of `want` and none of `never`. */
static bool is_case_form(struct str s, unsigned want, unsigned never)
{
    bool cased = false;

    for (size_t at = 0; at < s.len;) {
        unsigned f = pystr_flags(pystr_next(s, &at));

        if (f & never)
            return false;
        cased = cased || (f & want);
    }
    return cased;
}

/* Checks for title case: upper case only after uncased characters, lower case only after cased
 * ones, and at least one cased character. */
static bool is_title(struct str s)
{
    bool cased = false, before = false;

    for (size_t at = 0; at < s.len;) {
        unsigned f = pystr_flags(pystr_next(s, &at));

        if (f & (PYSTR_UPPER | PYSTR_TITLE)) {
            if (before)
                return false;
            before = cased = true;
        } else if (f & PYSTR_LOWER) {
            if (!before)
                return false;
            cased = true;
        } else {
            before = false;
        }
    }
    return cased;
}

/* Checks for a Python identifier, which is not empty. */
static bool is_identifier(struct str s)
{
    for (size_t at = 0; at < s.len;) {
        unsigned want = at == 0 ? PYSTR_ID_START : PYSTR_ID_CONTINUE;

        if (!(pystr_flags(pystr_next(s, &at)) & want))
            return false;
    }
    return s.len > 0;
}

/* Classes whose name is a flag of the tables need that flag at every character. An empty text is in
 * none of them, but it is ASCII and printable. */
bool pystr_is(struct str s, const char *what)
{
    static const struct {
        const char *name;
        unsigned flags;
    } classes[] = {{"alpha", PYSTR_ALPHA},
                   {"decimal", PYSTR_DECIMAL},
                   {"digit", PYSTR_DIGIT},
                   {"numeric", PYSTR_NUMERIC},
                   {"space", PYSTR_SPACE},
                   {"printable", PYSTR_PRINTABLE},
                   {"alnum", PYSTR_ALPHA | PYSTR_DECIMAL | PYSTR_DIGIT | PYSTR_NUMERIC}};

    bool ascii = strcmp(what, "ascii") == 0;

    if (strcmp(what, "upper") == 0)
        return is_case_form(s, PYSTR_UPPER, PYSTR_LOWER | PYSTR_TITLE);
    if (strcmp(what, "lower") == 0)
        return is_case_form(s, PYSTR_LOWER, PYSTR_UPPER | PYSTR_TITLE);
    if (strcmp(what, "title") == 0)
        return is_title(s);
    if (strcmp(what, "identifier") == 0)
        return is_identifier(s);
    for (size_t i = 0; ascii && i < s.len; i++) {
        if ((unsigned char)s.p[i] >= 0x80)
            return false;
    }
    for (size_t k = 0; k < ARRAY_LEN(classes); k++) {
        if (strcmp(what, classes[k].name) != 0)
            continue;
        for (size_t at = 0; at < s.len;) {
            if (!(pystr_flags(pystr_next(s, &at)) & classes[k].flags))
                return false;
        }
        return s.len > 0 || classes[k].flags == PYSTR_PRINTABLE;
    }
    return ascii;
}

/* --- repr, lines --- */

/* Writes one character of a repr. It is escaped if it is not printable, the quote itself or a
 * backslash. */
static void repr_cp(struct buf *out, uint32_t cp, char quote)
{
    if (cp == (unsigned char)quote || cp == '\\') {
        buf_add_c(out, '\\');
        buf_add_c(out, (char)cp);
    } else if (cp == '\n' || cp == '\r' || cp == '\t') {
        buf_add_c(out, '\\');
        buf_add_c(out, cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    } else if (cp < 0x80 ? cp >= 32 && cp < 127 : (pystr_flags(cp) & PYSTR_PRINTABLE) != 0) {
        add_cp(out, cp);
    } else {
        buf_printf(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
}

/* The quotes are single, unless the text has single ones and no double ones. */
char pystr_quote(struct str s)
{
    bool single = s.len && memchr(s.p, '\'', s.len);
    bool both = single && memchr(s.p, '"', s.len);

    return single && !both ? '"' : '\'';
}

void pystr_repr_inside(struct buf *out, struct str s, char quote)
{
    for (size_t at = 0; at < s.len;)
        repr_cp(out, pystr_next(s, &at), quote);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

/* "\r\n" counts as one line end. */
bool pystr_line(struct str s, size_t *at, struct str *ret, size_t *end_len)
{
    size_t from = *at;

    if (from >= s.len)
        return false;
    while (*at < s.len) {
        size_t start = *at;
        uint32_t cp = pystr_next(s, at);

        if (!is_line_end(cp))
            continue;
        if (cp == '\r' && *at < s.len && s.p[*at] == '\n')
            ++*at;
        *ret = str_of(s.p + from, start - from);
        *end_len = *at - start;
        return true;
    }
    *ret = str_of(s.p + from, s.len - from);
    *end_len = 0;
    return true;
}
