/* The split patterns of the large model families by hand (split_family.h). Each row of `families`
 * has the exact text of a pattern and the numbers with which one of three matchers gives the same
 * result:
 *
 * - match_gpt2: GPT-2's own;
 * - match_plain: words are runs of letters, with one other character in front;
 * - match_cased_words: words are cut where the case changes (UPPER*LOWER+).
 *
 * A matcher tries the alternatives of the pattern in their order at one position and returns the
 * end of the first that matches. Greedy runs that would have to backtrack are written so that the
 * position to return to is known. */

#include "worker/text/tokens/split_family.h"

#include <stdbool.h>
#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/base/attrs.h"
#include "worker/text/tokens/unicode.h"

#define NONE SIZE_MAX
/* for rare cases, so that the usual case needs no stack frame */
#define APART __attribute__((noinline))
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PUNCT "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define PUNCT_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER_NO_HAN "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER_NO_HAN "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define OTHER "[^\\r\\n\\p{L}\\p{N}]?"

struct split_family {
    struct str pattern;
    size_t (*match)(const struct split_family *f, struct str text, size_t at);
    uint32_t letters;    /* flags of the characters of words */
    uint32_t no_prefix;  /* flags of characters that cannot precede a word (nor \r and \n) */
    uint32_t punct_any;  /* punctuation has any of these flags (0: irrelevant) ... */
    uint32_t punct_none; /* ... and none of these */
    unsigned digits;     /* most numerals in one match; 0: numerals match nothing */
    bool contraction;    /* contractions match: before a word (plain) or after it (cased) */
    bool lines;          /* line ends after punctuation belong to the match ... */
    bool slash;          /* ... and '/' too */
    bool no_han;         /* Han characters are not part of words */
    bool glue;           /* ASCII punctuation matches with the ASCII letters after it */
};

/* Returns flags and length of the character at `at`; for ASCII by a table. */
static inline size_t read_at(struct str s, size_t at, uint32_t *flags)
{
    unsigned char c = (unsigned char)s.p[at];
    uint32_t cp;
    size_t n;

    if (RG_LIKELY(c < 0x80)) {
        *flags = unicode_ascii_flags[c];
        return 1;
    }
    n = unicode_read(s.p + at, &cp);
    *flags = unicode_flags(cp);
    return n;
}

/* Returns the end of the run of characters with any of these flags. */
static inline size_t run_any(struct str s, size_t at, uint32_t any)
{
    while (at < s.len) {
        uint32_t flags;
        size_t n = read_at(s, at, &flags);

        if (!(flags & any))
            break;
        at += n;
    }
    return at;
}

static inline bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

static inline bool is_punct(const struct split_family *f, uint32_t flags)
{
    return (!f->punct_any || (flags & f->punct_any)) && !(flags & f->punct_none);
}

/* Matches \s*[\r
 * ]+ (if lines), \s+(?!\S), \s+. There must be white space at `at`. */
static size_t match_space(struct str s, size_t at, bool lines)
{
    size_t last = at, line_end = 0, p = at;

    while (p < s.len) {
        uint32_t flags;
        size_t n = read_at(s, p, &flags);

        if (!(flags & UC_SPACE))
            break;
        last = p;
        if (is_newline(s.p[p]))
            line_end = p + 1;
        p += n;
    }
    if (lines && line_end)
        return line_end;
    return p < s.len && last > at ? last : p;
}

/* Matches 's 't 're 've 'm 'll 'd at an apostrophe; NONE if there is none. any_case includes
 * U+017F. */
static size_t match_contraction(struct str s, size_t at, bool any_case)
{
    unsigned char fold = any_case ? 0x20 : 0;
    unsigned char a, b;

    if (at + 1 >= s.len || s.p[at] != '\'')
        return NONE;
    a = (unsigned char)s.p[at + 1];
    b = at + 2 < s.len ? (unsigned char)s.p[at + 2] : 0;
    if (any_case && a == 0xc5 && b == 0xbf)
        return at + 3;
    a |= fold;
    b |= fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return at + 3;
    return NONE;
}

/* Matches the run of punctuation at `at` and the line ends after it; NONE if there is none. */
static size_t match_punct(const struct split_family *f, struct str s, size_t at)
{
    size_t from = at;

    while (at < s.len) {
        uint32_t flags;
        size_t n = read_at(s, at, &flags);

        if (!is_punct(f, flags))
            break;
        at += n;
    }
    if (at == from)
        return NONE;
    while (f->lines && at < s.len && (is_newline(s.p[at]) || (f->slash && s.p[at] == '/')))
        at++;
    return at;
}

/* Matches at most `most` numerals. */
static size_t match_digits(struct str s, size_t at, unsigned most)
{
    uint32_t flags;

    for (unsigned i = 0; i < most && at < s.len; i++) {
        size_t n = read_at(s, at, &flags);

        if (!(flags & UC_N))
            break;
        at += n;
    }
    return at;
}

/* Matches the last alternatives of all patterns but GPT-2's: numerals, [ ]punctuation, white
 * space. */
static size_t match_tail(const struct split_family *f, struct str s, size_t at, uint32_t flags)
{
    if ((flags & UC_N) && f->digits)
        return match_digits(s, at, f->digits);
    if (s.p[at] == ' ') {
        size_t end = match_punct(f, s, at + 1);

        if (end != NONE)
            return end;
    } else if (is_punct(f, flags)) {
        return match_punct(f, s, at);
    }
    return flags & UC_SPACE ? match_space(s, at, true) : NONE;
}

static inline bool may_prefix(const struct split_family *f, char c, uint32_t flags)
{
    return !(flags & f->no_prefix) && !is_newline(c);
}

static bool ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Matches ASCII punctuation and the ASCII letters after it; NONE without letters. */
static size_t match_glue(struct str s, size_t at)
{
    size_t end = at + 1;

    if (!(unicode_ascii_flags[(unsigned char)s.p[at]] & (UC_P | UC_S)))
        return NONE;
    while (end < s.len && ascii_letter(s.p[end]))
        end++;
    return end > at + 1 ? end : NONE;
}

/* Returns the end of the ASCII letters at `at`. */
static inline size_t ascii_letters(struct str s, size_t at)
{
#ifdef __SSE2__
    /* Sixteen bytes at a time: small letters become -128 to -103, all else is above. */
    while (s.len - at >= 16) {
        __m128i c = _mm_loadu_si128((const void *)(s.p + at));
        __m128i small = _mm_or_si128(c, _mm_set1_epi8(0x20));
        __m128i moved = _mm_add_epi8(small, _mm_set1_epi8(0x80 - 'a'));
        __m128i other = _mm_cmpgt_epi8(moved, _mm_set1_epi8('z' - 'a' - 128));
        unsigned mask = (unsigned)_mm_movemask_epi8(other);

        if (mask)
            return at + (size_t)__builtin_ctz(mask);
        at += 16;
    }
#endif
    while (at < s.len && ascii_letter(s.p[at]))
        at++;
    return at;
}

/* Matches [^\r\n..]?LETTER+ | ... for any text. */
static APART size_t match_plain_any(const struct split_family *f, struct str s, size_t at)
{
    uint32_t flags, next;
    size_t n = read_at(s, at, &flags), end;

    if (flags & f->letters)
        return run_any(s, at + n, f->letters);
    if (f->contraction && s.p[at] == '\'') {
        end = match_contraction(s, at, true);
        if (end != NONE)
            return end;
    }
    if (f->glue && n == 1) {
        end = match_glue(s, at);
        if (end != NONE)
            return end;
    }
    if (at + n < s.len && may_prefix(f, s.p[at], flags)) {
        size_t m = read_at(s, at + n, &next);

        if (next & f->letters)
            return run_any(s, at + n + m, f->letters);
    }
    return match_tail(f, s, at, flags);
}

/* Like match_plain_any, but fast if a run of ASCII letters ends before ASCII. Words of these
 * families consist of all letters, and ASCII has no other word characters. */
static size_t match_plain(const struct split_family *f, struct str s, size_t at)
{
    unsigned char c = (unsigned char)s.p[at];
    size_t word = at, end;
    uint32_t flags;

    if (c >= 0x80 || c == '\'' || f->glue)
        return match_plain_any(f, s, at);
    flags = unicode_ascii_flags[c];
    if (!(flags & UC_L)) {
        if (!may_prefix(f, (char)c, flags))
            return match_tail(f, s, at, flags);
        word++;
    }
    end = ascii_letters(s, word);
    if (RG_UNLIKELY(end < s.len && (unsigned char)s.p[end] >= 0x80))
        return match_plain_any(f, s, at);
    return end > word ? end : match_tail(f, s, at, flags);
}

static inline bool has_flags(const struct split_family *f, uint32_t flags, uint32_t part)
{
    return (flags & part) && !(f->no_han && (flags & UC_HAN));
}

enum {
    UPPER_PART = UC_LU | UC_LT | UC_LM | UC_LO | UC_M,
    LOWER_PART = UC_LL | UC_LM | UC_LO | UC_M
};

/* Returns the end of LOWER*. */
static size_t lower_run(const struct split_family *f, struct str s, size_t at)
{
    while (at < s.len) {
        uint32_t flags;
        size_t n = read_at(s, at, &flags);

        if (!has_flags(f, flags, LOWER_PART))
            break;
        at += n;
    }
    return at;
}

/* Matches UPPER*LOWER+ and, if that fails, UPPER+LOWER*. Greedy UPPER* backtracks to the last
 * character that is in both. */
static size_t match_cased(const struct split_family *f, struct str s, size_t at, bool lower_needed)
{
    size_t p = at, both_end = NONE, end;

    while (p < s.len) {
        uint32_t flags;
        size_t n = read_at(s, p, &flags);

        if (!has_flags(f, flags, UPPER_PART))
            break;
        p += n;
        if (flags & LOWER_PART)
            both_end = p;
    }
    end = lower_run(f, s, p);
    if (lower_needed)
        return end > p ? end : both_end;
    return p > at ? end : NONE;
}

/* Matches both forms of a word, each with and without the preceding character, then the rest. */
static size_t match_cased_words(const struct split_family *f, struct str s, size_t at)
{
    uint32_t flags;
    size_t n = read_at(s, at, &flags), end = NONE;
    bool prefix = at + n < s.len && may_prefix(f, s.p[at], flags);

    if (f->no_han && (flags & UC_HAN))
        return run_any(s, at + n, UC_HAN);
    for (int lower_needed = 1; lower_needed >= 0 && end == NONE; lower_needed--) {
        if (prefix)
            end = match_cased(f, s, at + n, lower_needed);
        if (end == NONE)
            end = match_cased(f, s, at, lower_needed);
    }
    if (end == NONE)
        return match_tail(f, s, at, flags);
    if (f->contraction) {
        size_t tail = match_contraction(s, end, true);

        return tail != NONE ? tail : end;
    }
    return end;
}

/* A blank may precede a word, a number or punctuation. */
static size_t match_gpt2(const struct split_family *f, struct str s, size_t at)
{
    uint32_t flags, kind;
    size_t n = read_at(s, at, &flags), word = at, end;

    if (s.p[at] == '\'') {
        end = match_contraction(s, at, false);
        if (end != NONE)
            return end;
    }
    if (s.p[at] == ' ' && at + 1 < s.len) {
        word = at + 1;
        n = read_at(s, word, &kind);
        if (kind & UC_SPACE)
            return match_space(s, at, false);
    } else {
        kind = flags;
    }
    if (kind & UC_L)
        return run_any(s, word + n, UC_L);
    if (kind & UC_N)
        return run_any(s, word + n, UC_N);
    if (kind & UC_SPACE)
        return match_space(s, at, false);
    return match_punct(f, s, word);
}

/* clang-format off */
static const struct split_family families[] = {
    {.pattern = STR_LIT("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                        "|\\s+(?!\\S)|\\s+"),
     .match = match_gpt2, .punct_none = UC_SPACE | UC_L | UC_N},
    {.pattern = STR_LIT(CONTRACTION "|" OTHER "\\p{L}+|\\p{N}" PUNCT SPACES),
     .match = match_plain, .letters = UC_L, .no_prefix = UC_L | UC_N,
     .punct_none = UC_SPACE | UC_L | UC_N, .digits = 1, .contraction = true,
     .lines = true},
    {.pattern = STR_LIT(CONTRACTION "|" OTHER "[\\p{L}\\p{M}]+|\\p{N}"
                        "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES),
     .match = match_plain, .letters = UC_L | UC_M, .no_prefix = UC_L | UC_N,
     .punct_none = UC_SPACE | UC_L | UC_M | UC_N, .digits = 1, .contraction = true,
     .lines = true},
    {.pattern = STR_LIT(CONTRACTION "|" OTHER "\\p{L}+|\\p{N}{1,3}" PUNCT SPACES),
     .match = match_plain, .letters = UC_L, .no_prefix = UC_L | UC_N,
     .punct_none = UC_SPACE | UC_L | UC_N, .digits = 3, .contraction = true,
     .lines = true},
    {.pattern = STR_LIT(OTHER UPPER "*" LOWER "+" CONTRACTION "?|" OTHER UPPER "+" LOWER "*"
                        CONTRACTION "?|\\p{N}{1,3}" PUNCT_SLASH SPACES),
     .match = match_cased_words, .no_prefix = UC_L | UC_N, .digits = 3, .contraction = true,
     .punct_none = UC_SPACE | UC_L | UC_N, .lines = true, .slash = true},
    {.pattern = STR_LIT(OTHER UPPER "*" LOWER "+|" OTHER UPPER "+" LOWER "*|\\p{N}" PUNCT_SLASH
                        SPACES),
     .match = match_cased_words, .no_prefix = UC_L | UC_N, .digits = 1,
     .punct_none = UC_SPACE | UC_L | UC_N, .lines = true, .slash = true},
    {.pattern = STR_LIT("[\\p{Han}]+|" OTHER UPPER_NO_HAN "*" LOWER_NO_HAN "+" CONTRACTION "?|"
                        OTHER UPPER_NO_HAN "+" LOWER_NO_HAN "*" CONTRACTION "?|\\p{N}{1,3}" PUNCT
                        SPACES),
     .match = match_cased_words, .no_prefix = UC_L | UC_N, .digits = 3, .contraction = true,
     .punct_none = UC_SPACE | UC_L | UC_N, .lines = true, .no_han = true},
    {.pattern = STR_LIT("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                        "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                        "| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES),
     .match = match_plain, .letters = UC_L | UC_M, .no_prefix = UC_L | UC_P | UC_S,
     .punct_any = UC_P | UC_S, .lines = true, .glue = true},
};

/* clang-format on */

const struct split_family *family_of(struct str pattern)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (str_eq(families[i].pattern, pattern))
            return &families[i];
    return NULL;
}

const struct split_family *family_gpt2(void)
{
    return &families[0];
}

const struct split_family *family_at(size_t i)
{
    return i < ARRAY_LEN(families) ? &families[i] : NULL;
}

struct str family_pattern(const struct split_family *f)
{
    return f->pattern;
}

size_t family_match(const struct split_family *f, struct str text, size_t at)
{
    return f->match(f, text, at);
}
