/* Patterns (pattern.h). A regular expression runs on the first of these that fits: a known
 * family by hand (split_family.c), a class run by hand (BY_RUN), else PCRE2. All of them report
 * the leftmost match at or after a position; pattern_next adds find_iter's rules about empty
 * matches. */

#include "worker/text/tokens/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/text/tokens/charset.h"
#include "worker/text/tokens/onig.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/split_family.h"
#include "worker/text/tokens/unicode.h"

enum pattern_kind { BY_LITERAL, BY_CHAR, BY_WORDS, BY_FAMILY, BY_RUN, BY_REGEX };

struct pattern {
    enum pattern_kind kind;
    char *literal;
    size_t literal_len;
    uint32_t flags;
    const struct split_family *family;
    struct charset set; /* for BY_RUN: set{min,max} */
    uint32_t min, max;
    bool ascii[128]; /* for ASCII: whether the set has the character */
    struct regex *regex;
};

static struct pattern *new_pattern(enum pattern_kind kind)
{
    struct pattern *p = mem_zalloc(sizeof(*p));

    p->kind = kind;
    return p;
}

struct pattern *pattern_literal(struct str text)
{
    struct pattern *p = new_pattern(BY_LITERAL);

    p->literal = mem_strndup(text.p, text.len);
    p->literal_len = text.len;
    return p;
}

struct pattern *pattern_char(uint32_t flags)
{
    struct pattern *p = new_pattern(BY_CHAR);

    p->flags = flags;
    return p;
}

struct pattern *pattern_gpt2(void)
{
    struct pattern *p = new_pattern(BY_FAMILY);

    p->family = family_gpt2();
    return p;
}

struct pattern *pattern_words(void)
{
    return new_pattern(BY_WORDS);
}

/* Takes ownership of the class in the translator's shape, and makes a table for ASCII. */
static void adopt_class_run(struct pattern *p, struct onig_shape *shape)
{
    p->kind = BY_RUN;
    p->set = shape->set;
    shape->set = (struct charset){0};
    p->min = shape->min;
    p->max = shape->max;
    for (uint32_t c = 0; c < 128; c++)
        p->ascii[c] = charset_has(&p->set, c);
}

/* On error nothing must be freed. */
int pattern_regex(struct str text, struct pattern **ret, struct err *e)
{
    struct pattern *p = new_pattern(BY_REGEX);
    struct onig_shape shape = {0};
    struct buf translated = {0};
    int rc = 0;

    p->family = family_of(text);
    if (p->family)
        p->kind = BY_FAMILY;
    else
        rc = onig_translate(text, &translated, &shape, e);
    if (!p->family && rc == 0) {
        charset_seal(&shape.set);
        if (shape.single && shape.min > 0)
            adopt_class_run(p, &shape);
        else
            rc = regex_new(buf_str(&translated), &p->regex, e);
    }
    charset_done(&shape.set);
    buf_done(&translated);
    if (rc < 0) {
        pattern_free(p);
        return -1;
    }
    *ret = p;
    return 0;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    free(p->literal);
    charset_done(&p->set);
    regex_free(p->regex);
    free(p);
}

const struct split_family *pattern_family(const struct pattern *p)
{
    return p->kind == BY_FAMILY ? p->family : NULL;
}

size_t pattern_least(const struct pattern *p)
{
    if (p->kind == BY_LITERAL)
        return p->literal_len;
    return p->kind == BY_RUN ? p->min : 0;
}

const char *pattern_engine(const struct pattern *p)
{
    if (p->kind != BY_REGEX)
        return NULL;
    return regex_jitted(p->regex) ? "PCRE2" : "PCRE2 without JIT";
}

/* Finds the next character with any of the flags. */
static bool find_char(uint32_t any, struct str text, size_t from, size_t *start, size_t *end)
{
    while (from < text.len) {
        uint32_t cp;
        size_t n = unicode_read(text.p + from, &cp);

        if (unicode_flags(cp) & any) {
            *start = from;
            *end = from + n;
            return true;
        }
        from += n;
    }
    return false;
}

/* Finds \w+ or [^\w\s]+, whichever starts first. */
static bool find_word(struct str text, size_t from, size_t *start, size_t *end)
{
    uint32_t cp, flags;
    bool word;
    size_t n = 0;

    for (;; from += n) {
        if (from == text.len)
            return false;
        n = unicode_read(text.p + from, &cp);
        flags = unicode_flags(cp);
        if (!(flags & UC_SPACE) || (flags & UC_RUST_WORD))
            break;
    }
    word = flags & UC_RUST_WORD;
    *start = from;
    for (from += n; from < text.len; from += n) {
        n = unicode_read(text.p + from, &cp);
        flags = unicode_flags(cp);
        if (word ? !(flags & UC_RUST_WORD) : (flags & (UC_RUST_WORD | UC_SPACE)) != 0)
            break;
    }
    *end = from;
    return true;
}

/* Reports whether the character at `at` is in the class; *n is its length in bytes. */
static inline bool in_set(const struct pattern *p, const char *at, size_t *n)
{
    uint32_t cp;

    if ((unsigned char)*at < 0x80) {
        *n = 1;
        return p->ascii[(unsigned char)*at];
    }
    *n = unicode_read(at, &cp);
    return charset_has(&p->set, cp);
}

/* Finds the first run of at least min and at most max characters. A run that is too short cannot
 * match from a later position inside of it either. */
static bool find_run(const struct pattern *p, struct str text, size_t from, size_t *start,
                     size_t *end)
{
    while (from < text.len) {
        size_t n, at = from;
        uint32_t count = 0;

        while (at < text.len && count < p->max && in_set(p, text.p + at, &n)) {
            at += n;
            count++;
        }
        if (count >= p->min) {
            *start = from;
            *end = at;
            return true;
        }
        from = at;
        if (from < text.len)
            from += unicode_len(text.p[from]);
    }
    return false;
}

/* Tries each character as a start. */
static bool find_family(const struct split_family *f, struct str text, size_t from, size_t *start,
                        size_t *end)
{
    while (from < text.len) {
        size_t match = family_match(f, text, from);

        if (match != SIZE_MAX) {
            *start = from;
            *end = match;
            return true;
        }
        from += unicode_len(text.p[from]);
    }
    return false;
}

/* Most literals have one byte, which memchr finds. */
static size_t find_literal(const struct pattern *p, struct str text, size_t from)
{
    const char *hit;

    if (p->literal_len != 1)
        return str_find(text, str_of(p->literal, p->literal_len), from);
    hit = from < text.len ? memchr(text.p + from, p->literal[0], text.len - from) : NULL;
    return hit ? (size_t)(hit - text.p) : SIZE_MAX;
}

/* Finds one match at or after w->from, depending on the pattern's kind: 1, 0 or -1. */
static int find_match(const struct pattern *p, struct regex_scratch *scratch,
                      struct pattern_walk *w)
{
    size_t at;

    switch (p->kind) {
    case BY_LITERAL:
        at = find_literal(p, w->text, w->from);
        w->start = at;
        w->end = at + p->literal_len;
        return at != SIZE_MAX;
    case BY_CHAR:
        return find_char(p->flags, w->text, w->from, &w->start, &w->end);
    case BY_WORDS:
        return find_word(w->text, w->from, &w->start, &w->end);
    case BY_FAMILY:
        return find_family(p->family, w->text, w->from, &w->start, &w->end);
    case BY_RUN:
        return find_run(p, w->text, w->from, &w->start, &w->end);
    default:
        return regex_find(p->regex, scratch, w->text, w->from, &w->start, &w->end);
    }
}

/* An empty match at the end of the last match is not reported. The search then continues after the
 * next character. */
int pattern_next(const struct pattern *p, struct regex_scratch *scratch, struct pattern_walk *w)
{
    while (w->from <= w->text.len && w->text.len > 0) {
        int rc = find_match(p, scratch, w);

        if (rc <= 0)
            return rc;
        if (w->start != w->end || !w->matched || w->last_end != w->end) {
            w->from = w->last_end = w->end;
            w->matched = true;
            return 1;
        }
        w->from += w->from < w->text.len ? unicode_len(w->text.p[w->from]) : 1;
    }
    return 0;
}
