/* Sets of code points (charset.h). Ranges are added in any order and may overlap; charset_seal
 * sorts and joins them. Only a sealed set can be searched, negated or intersected. */

#include "worker/text/tokens/charset.h"

#include <ctype.h>
#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/vec.h"
#include "worker/text/tokens/unicode.h"

enum { LAST = 0x10ffff };

void charset_done(struct charset *s)
{
    vec_done(s);
}

void charset_add(struct charset *s, uint32_t first, uint32_t last)
{
    if (s->n && first == vec_last(s).last + 1 && first != 0)
        vec_last(s).last = last;
    else
        *vec_push(s) = (struct charset_range){first, last};
}

void charset_add_set(struct charset *s, const struct charset *other)
{
    for (size_t i = 0; i < other->n; i++)
        charset_add(s, other->at[i].first, other->at[i].last);
}

/* Most blocks of code points are identical and have none of the flags, so they are skipped. */
void charset_add_flags(struct charset *s, uint32_t flags)
{
    uint32_t block = 1u << UNICODE_BLOCK_BITS;
    int empty = -1; /* a block that has none of the flags */

    for (uint32_t first = 0; first <= LAST; first += block) {
        size_t before = s->n;

        if (unicode_block[first / block] == empty)
            continue;
        for (uint32_t cp = first; cp < first + block; cp++)
            if (unicode_flags(cp) & flags)
                charset_add(s, cp, cp);
        if (s->n == before && (before == 0 || vec_last(s).last < first))
            empty = unicode_block[first / block];
    }
}

static const struct property {
    const char *name;
    uint32_t flags;
} properties[] = {
    {"l", UC_L},
    {"letter", UC_L},
    {"lu", UC_LU},
    {"uppercaseletter", UC_LU},
    {"ll", UC_LL},
    {"lowercaseletter", UC_LL},
    {"lt", UC_LT},
    {"titlecaseletter", UC_LT},
    {"lm", UC_LM},
    {"modifierletter", UC_LM},
    {"lo", UC_LO},
    {"otherletter", UC_LO},
    {"m", UC_M},
    {"mark", UC_M},
    {"n", UC_N},
    {"number", UC_N},
    {"nd", UC_ND},
    {"decimalnumber", UC_ND},
    {"p", UC_P},
    {"punctuation", UC_P},
    {"s", UC_S},
    {"symbol", UC_S},
    {"han", UC_HAN},
    {"space", UC_SPACE},
    {"whitespace", UC_SPACE},
    {"word", UC_WORD},
    {"digit", UC_ND},
};

/* Compares names without regard to case, blanks, underscores and hyphens. */
static bool is_same_property(struct str name, const char *normal)
{
    size_t j = 0;

    for (size_t i = 0; i < name.len; i++) {
        char c = name.p[i];

        if (c == ' ' || c == '_' || c == '-')
            continue;
        if (tolower((unsigned char)c) != normal[j] || !normal[j])
            return false;
        j++;
    }
    return normal[j] == '\0';
}

/* General categories and similar properties have flags; the other properties have generated
 * ranges. */
bool charset_add_property(struct charset *s, struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(properties); i++) {
        if (is_same_property(name, properties[i].name)) {
            charset_add_flags(s, properties[i].flags);
            return true;
        }
    }
    for (size_t i = 0; i < unicode_properties_count; i++) {
        const struct unicode_property *p = &unicode_properties[i];

        if (!is_same_property(name, p->name))
            continue;
        for (size_t k = 0; k < p->n; k++)
            charset_add(s, unicode_property_pool[p->at + k].first,
                        unicode_property_pool[p->at + k].last);
        return true;
    }
    return false;
}

static int by_first(const void *a, const void *b)
{
    const struct charset_range *x = a, *y = b;

    return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorts by the first code point and joins adjacent ranges. */
void charset_seal(struct charset *s)
{
    size_t out = 0;

    if (s->n == 0)
        return;
    qsort(s->at, s->n, sizeof(*s->at), by_first);
    for (size_t i = 1; i < s->n; i++) {
        if (s->at[i].first <= s->at[out].last + 1)
            s->at[out].last = MAX_OF(s->at[out].last, s->at[i].last);
        else
            s->at[++out] = s->at[i];
    }
    s->n = out + 1;
}

/* Replaces the set by the characters that it does not contain. */
void charset_negate(struct charset *s)
{
    struct charset out = {0};
    uint32_t from = 0;

    charset_seal(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].first > from)
            charset_add(&out, from, s->at[i].first - 1);
        from = s->at[i].last + 1;
    }
    if (from <= LAST)
        charset_add(&out, from, LAST);
    charset_done(s);
    *s = out;
}

/* Walks both lists in parallel and advances in the one whose range ends first. */
void charset_intersect(struct charset *s, struct charset *other)
{
    struct charset out = {0};
    size_t j = 0;

    charset_seal(s);
    charset_seal(other);
    for (size_t i = 0; i < s->n;) {
        uint32_t first, last;

        if (j == other->n)
            break;
        first = MAX_OF(s->at[i].first, other->at[j].first);
        last = MIN_OF(s->at[i].last, other->at[j].last);
        if (first <= last)
            charset_add(&out, first, last);
        if (s->at[i].last < other->at[j].last)
            i++;
        else
            j++;
    }
    charset_done(s);
    *s = out;
}

/* Searches the ends of the ranges by bisection. */
bool charset_has(const struct charset *s, uint32_t cp)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (s->at[mid].last < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n && s->at[low].first <= cp;
}
