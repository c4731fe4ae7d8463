/*
 * Unicode for the tokenizer: one set of flags per code point in a two-level table, and sorted
 * tables of mappings for the few that change. The build makes the data by
 * scripts/make_unicode.py. They equal those of the reference library, whose modules use different
 * versions of Unicode. All const: shared by all processes.
 */
#ifndef RG_TOKENS_UNICODE_H
#define RG_TOKENS_UNICODE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The order is that of RANGES in scripts/make_unicode.py. */
enum unicode_flag {
    UC_LU = 1 << 0,
    UC_LL = 1 << 1,
    UC_LT = 1 << 2,
    UC_LM = 1 << 3,
    UC_LO = 1 << 4,
    UC_M = 1 << 5,
    UC_ND = 1 << 6,
    UC_N = 1 << 7,
    UC_P = 1 << 8,
    UC_S = 1 << 9,
    UC_SPACE = 1 << 10, /* \s, White_Space */
    UC_WORD = 1 << 11,  /* \w of Oniguruma */
    UC_HAN = 1 << 12,
    UC_MARK = 1 << 13,        /* dropped by StripAccents */
    UC_PUNCTUATION = 1 << 14, /* Punctuation splits here */
    UC_NUMERIC = 1 << 15,     /* \w of Rust's regex: Whitespace, single_word */
    UC_RUST_WORD = 1 << 16,   /* \w of Rust's regex: Whitespace, single_word */
    UC_CCC = 1 << 17,         /* the combining class is not 0 */
    UC_NFC_UNSAFE = 1 << 18,  /* text without any of these is in NFC */
    UC_NFD = 1 << 19,         /* decomposes canonically (except Hangul syllables) */
    UC_NFKD = 1 << 20,        /* decomposes at all */
    UC_LOWER = 1 << 21,       /* has a different lower case */
    UC_L = UC_LU | UC_LL | UC_LT | UC_LM | UC_LO,
};

struct unicode_mapping {
    uint32_t cp;
    uint16_t at; /* offset in the pool */
    uint16_t n;
};

struct unicode_ccc {
    uint32_t cp;
    uint8_t class;
};

struct unicode_pair {
    uint32_t first, second, composed;
};

struct unicode_range {
    uint32_t first, last;
};

/* A property of Oniguruma that has no flag. */
struct unicode_property {
    const char *name; /* in lower case, without separators */
    uint32_t at, n;   /* ranges of the property in the pool */
};

/* Effect of a character on its cluster (Unicode's annex 29). */
enum grapheme_class {
    GRAPHEME_ANY,
    GRAPHEME_CR,
    GRAPHEME_LF,
    GRAPHEME_CONTROL,
    GRAPHEME_EXTEND,
    GRAPHEME_LINKER, /* extends a cluster, and joins two consonants */
    GRAPHEME_ZWJ,
    GRAPHEME_SPACINGMARK,
    GRAPHEME_PREPEND,
    GRAPHEME_INCB_CONSONANT,
    GRAPHEME_REGIONAL_INDICATOR,
    GRAPHEME_EXTENDED_PICTOGRAPHIC,
    GRAPHEME_L,
    GRAPHEME_V,
    GRAPHEME_T,
    GRAPHEME_LV,
    GRAPHEME_LVT,
};

struct unicode_grapheme {
    uint32_t first, last;
    enum grapheme_class class;
};

enum { UNICODE_BLOCK_BITS = 7 };

extern const uint32_t unicode_class_flags[], unicode_ascii_flags[];
extern const uint16_t unicode_block[];
extern const uint8_t unicode_cell[];
extern const struct unicode_mapping unicode_nfd[], unicode_nfkd[], unicode_lower[];
extern const size_t unicode_nfd_count, unicode_nfkd_count, unicode_lower_count;
extern const uint32_t unicode_nfd_pool[], unicode_nfkd_pool[], unicode_lower_pool[];
extern const struct unicode_ccc unicode_ccc[];
extern const size_t unicode_ccc_count;
extern const struct unicode_pair unicode_pairs[];
extern const size_t unicode_pairs_count;
extern const struct unicode_property unicode_properties[];
extern const size_t unicode_properties_count;
extern const struct unicode_range unicode_property_pool[];
extern const struct unicode_grapheme unicode_graphemes[];
extern const size_t unicode_graphemes_count;

/* Returns the flags of a code point below 0x110000. */
static inline uint32_t unicode_flags(uint32_t cp)
{
    size_t block = unicode_block[cp >> UNICODE_BLOCK_BITS];

    return unicode_class_flags[unicode_cell[(block << UNICODE_BLOCK_BITS) +
                                            (cp & ((1u << UNICODE_BLOCK_BITS) - 1))]];
}

/* Reads the character at p of valid UTF-8 (p must not be at the end). Returns its length. */
static inline size_t unicode_read(const char *p, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *)p;

    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    if (s[0] < 0xe0) {
        *cp = (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
        return 2;
    }
    if (s[0] < 0xf0) {
        *cp = (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
        return 3;
    }
    *cp = (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
          (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
    return 4;
}

/* Returns the length of the character that starts with this byte in valid UTF-8. */
static inline size_t unicode_len(char first)
{
    unsigned char c = (unsigned char)first;

    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Returns how many of the n bytes at p, from the first on, are ASCII. */
static inline size_t unicode_ascii_run(const char *p, size_t n)
{
    uint64_t eight;
    size_t i = 0;

    for (; n - i >= 8; i += 8) {
        memcpy(&eight, p + i, 8);
        if (eight & 0x8080808080808080u)
            break;
    }
    while (i < n && (unsigned char)p[i] < 0x80)
        i++;
    return i;
}

/* Reads the character that ends before p (p must not be at the start). Returns its length. */
static inline size_t unicode_read_back(const char *p, uint32_t *cp)
{
    size_t n = 1;

    while (((unsigned char)p[-(ptrdiff_t)n] & 0xc0) == 0x80)
        n++;
    return unicode_read(p - n, cp);
}

/* Returns the mapping of cp in a table of `count` entries, or NULL. */
const struct unicode_mapping *unicode_map(const struct unicode_mapping *table, size_t count,
                                          uint32_t cp);

/* Returns the canonical combining class. */
uint8_t unicode_combining_class(uint32_t cp);

/* Returns the primary composite of two characters (including Hangul), or 0. */
uint32_t unicode_compose(uint32_t first, uint32_t second);

#endif
