/* Look-ups in the generated Unicode tables (unicode.h), all by binary search,
 * and the composition of Hangul, which is arithmetic. */

#include "worker/text/tokens/unicode.h"

enum {
    HANGUL_S = 0xac00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11a7,
    HANGUL_L_COUNT = 19,
    HANGUL_V_COUNT = 21,
    HANGUL_T_COUNT = 28,
    HANGUL_S_COUNT = HANGUL_L_COUNT * HANGUL_V_COUNT * HANGUL_T_COUNT,
};

const struct unicode_mapping *unicode_map(const struct unicode_mapping *table, size_t count,
                                          uint32_t cp)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (table[mid].cp < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && table[low].cp == cp ? &table[low] : NULL;
}

/* The class is 0 for almost all characters, which a flag shows without a search. */
uint8_t unicode_combining_class(uint32_t cp)
{
    size_t low = 0, high = unicode_ccc_count;

    if (!(unicode_flags(cp) & UC_CCC))
        return 0;
    while (low < high) {
        size_t mid = (low + high) / 2;

        if (unicode_ccc[mid].cp < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return unicode_ccc[low].class;
}

/* Composes leading consonant + vowel, or syllable + tail; 0 if they do not compose. */
static uint32_t compose_hangul(uint32_t first, uint32_t second)
{
    uint32_t s = first - HANGUL_S, t = second - HANGUL_T;

    if (first - HANGUL_L < HANGUL_L_COUNT && second - HANGUL_V < HANGUL_V_COUNT)
        return HANGUL_S +
               ((first - HANGUL_L) * HANGUL_V_COUNT + (second - HANGUL_V)) * HANGUL_T_COUNT;
    if (first >= HANGUL_S && s < HANGUL_S_COUNT && s % HANGUL_T_COUNT == 0 && second > HANGUL_T &&
        t < HANGUL_T_COUNT)
        return first + t;
    return 0;
}

uint32_t unicode_compose(uint32_t first, uint32_t second)
{
    size_t low = 0, high = unicode_pairs_count;

    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct unicode_pair *p = &unicode_pairs[mid];

        if (p->first < first || (p->first == first && p->second < second))
            low = mid + 1;
        else
            high = mid;
    }
    if (low < unicode_pairs_count && unicode_pairs[low].first == first &&
        unicode_pairs[low].second == second)
        return unicode_pairs[low].composed;
    return compose_hangul(first, second);
}
