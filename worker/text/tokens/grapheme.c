/* Cluster boundaries (grapheme.h) in one pass: `struct cluster` has what the rules need of the
 * characters so far, joins_cluster decides about the next one, add_to_cluster adds it. */

#include "worker/text/tokens/grapheme.h"

#include "worker/text/tokens/unicode.h"

enum { HANGUL_FIRST = 0xac00, HANGUL_LAST = 0xd7a3, HANGUL_TAILS = 28 };

/* Returns the class: computed for ASCII and Hangul syllables, otherwise from the generated
 * ranges. */
static enum grapheme_class class_of(uint32_t cp)
{
    size_t low = 0, high = unicode_graphemes_count;

    if (cp >= 0x20 && cp < 0x7f)
        return GRAPHEME_ANY;
    if (cp >= HANGUL_FIRST && cp <= HANGUL_LAST)
        return (cp - HANGUL_FIRST) % HANGUL_TAILS ? GRAPHEME_LVT : GRAPHEME_LV;
    while (low < high) {
        size_t mid = (low + high) / 2;

        if (unicode_graphemes[mid].last < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low < unicode_graphemes_count && unicode_graphemes[low].first <= cp
               ? unicode_graphemes[low].class
               : GRAPHEME_ANY;
}

/* Facts about the cluster so far on which later characters depend. */
struct cluster {
    enum grapheme_class last;
    unsigned flags; /* number of regional indicators */
    bool picture;   /* a pictograph, followed only by characters that extend it */
    bool consonant; /* a consonant, followed only by characters that extend it ... */
    bool linked;    /* ... of which one is a linker */
};

static bool is_control_class(enum grapheme_class c)
{
    return c == GRAPHEME_CONTROL || c == GRAPHEME_CR || c == GRAPHEME_LF;
}

static bool is_extending(enum grapheme_class c)
{
    return c == GRAPHEME_EXTEND || c == GRAPHEME_LINKER || c == GRAPHEME_ZWJ;
}

/* Rules GB6 to GB8: which jamo of a syllable follow each other. */
static bool joins_hangul(enum grapheme_class last, enum grapheme_class c)
{
    switch (last) {
    case GRAPHEME_L:
        return c == GRAPHEME_L || c == GRAPHEME_V || c == GRAPHEME_LV || c == GRAPHEME_LVT;
    case GRAPHEME_LV:
    case GRAPHEME_V:
        return c == GRAPHEME_V || c == GRAPHEME_T;
    case GRAPHEME_LVT:
    case GRAPHEME_T:
        return c == GRAPHEME_T;
    default:
        return false;
    }
}

/* Reports whether the character belongs to the cluster: the annex's rules GB3 to GB13 in their
 * order. */
static bool joins_cluster(const struct cluster *k, enum grapheme_class c)
{
    if (k->last == GRAPHEME_CR && c == GRAPHEME_LF)
        return true;
    if (is_control_class(k->last) || is_control_class(c))
        return false;
    if (joins_hangul(k->last, c) || is_extending(c) || c == GRAPHEME_SPACINGMARK ||
        k->last == GRAPHEME_PREPEND)
        return true;
    if (c == GRAPHEME_INCB_CONSONANT)
        return k->consonant && k->linked;
    if (c == GRAPHEME_EXTENDED_PICTOGRAPHIC)
        return k->picture && k->last == GRAPHEME_ZWJ;
    return c == GRAPHEME_REGIONAL_INDICATOR && k->last == GRAPHEME_REGIONAL_INDICATOR &&
           k->flags % 2 == 1;
}

/* Adds a character to the cluster. */
static void add_to_cluster(struct cluster *k, enum grapheme_class c)
{
    bool extending = is_extending(c);

    k->flags = c == GRAPHEME_REGIONAL_INDICATOR ? k->flags + 1 : 0;
    k->picture = c == GRAPHEME_EXTENDED_PICTOGRAPHIC || (k->picture && extending);
    k->linked = extending && (k->linked || c == GRAPHEME_LINKER);
    k->consonant = c == GRAPHEME_INCB_CONSONANT || (k->consonant && extending);
    k->last = c;
}

size_t grapheme_len(struct str text, size_t at)
{
    struct cluster k = {0};
    size_t end = at;

    while (end < text.len) {
        enum grapheme_class c;
        uint32_t cp;
        size_t n = unicode_read(text.p + end, &cp);

        /* the usual case: plain ASCII on both sides */
        if (end > at && cp >= 0x20 && cp < 0x7f && k.last == GRAPHEME_ANY)
            break;
        c = class_of(cp);
        if (end > at && !joins_cluster(&k, c))
            break;
        add_to_cluster(&k, c);
        end += n;
    }
    return end - at;
}
