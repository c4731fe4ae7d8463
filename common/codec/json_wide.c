/* Arrays with AVX2 (json_wide.h). The positions of all commas in a chunk are found first, 32 bytes
 * at a time. Then the items between them are read, eight ids at once. So items do not depend on
 * each other. An item of an unusual form ends the run, and the caller's exact reader continues
 * there. */

#include "common/codec/json_wide.h"

#include "common/codec/json_quick.h"

#ifdef __x86_64__
#include <immintrin.h>

#define WIDE __attribute__((target("avx2,bmi,popcnt")))

enum {
    BLOCK = 32,
    SLACK = 64, /* bytes after a chunk that its last item may read */
    PLACES = JSON_WIDE_CHUNK + BLOCK + 1
};

bool json_wide_able(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("popcnt");
}

/* Returns the length of the next chunk at p, in whole blocks. */
static inline size_t chunk_len(const char *p, const char *end)
{
    ptrdiff_t left = end - p - SLACK;

    if (left >= JSON_WIDE_CHUNK)
        return JSON_WIDE_CHUNK;
    return left < BLOCK ? 0 : (size_t)left / BLOCK * BLOCK;
}

/* Returns a bit for each of the 32 bytes at p that is c. */
WIDE static inline uint32_t bytes_that_are(const char *p, char c)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);

    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_set1_epi8(c)));
}

/* Writes the positions of the commas of a block, `step` at once, to avoid branches on their number.
 * The next block overwrites surplus positions. */
WIDE static inline size_t put_places(uint16_t *places, uint32_t commas, size_t at, unsigned step)
{
    size_t n = (size_t)_mm_popcnt_u32(commas);

    do {
        for (unsigned i = 0; i < step; i++) {
            *places++ = (uint16_t)(at + _tzcnt_u32(commas));
            commas = _blsr_u32(commas);
        }
    } while (RG_UNLIKELY(commas != 0));
    return n;
}

/* Writes the offsets of the commas in len bytes at p. places[0] is 0, for the comma before p; a
 * comma at p[k] has the offset k + 1. Returns the number of commas after the first. */
WIDE static inline size_t find_commas(const char *p, size_t len, uint16_t places[static PLACES],
                                      unsigned step)
{
    size_t n = 0;

    places[0] = 0;
    for (size_t at = 0; at < len; at += BLOCK)
        n += put_places(places + 1 + n, bytes_that_are(p + at, ','), at + 1, step);
    return n;
}

/* Finds commas in a text with one space after each comma, up to the first comma without it. */
WIDE static inline size_t find_spaced(const char *p, size_t len, uint16_t places[static PLACES],
                                      unsigned step)
{
    uint32_t expected = 1; /* the space after the comma before p */
    size_t n = 0;

    places[0] = 0;
    for (size_t at = 0; at < len; at += BLOCK) {
        uint32_t commas = bytes_that_are(p + at, ',');
        uint32_t wrong = (expected | commas << 1) ^ bytes_that_are(p + at, ' ');

        expected = commas >> 31;
        if (RG_UNLIKELY(wrong != 0))
            commas &= _blsmsk_u32(wrong) >> 1;
        n += put_places(places + 1 + n, commas, at + 1, step);
        if (RG_UNLIKELY(wrong != 0))
            break;
    }
    return n;
}

/* ------------------------------------------------------------------ ids */

/* Loads the eight bytes before each of four offsets, each less '0'. Clears those before the id, by
 * a shift of 64 - 8 * n bits for n digits. */
WIDE static inline __m256i four_ids(const char *base, const uint16_t *ends, __m128i shifts)
{
    const __m128i *at[4];
    __m256i v, shift = _mm256_cvtepu16_epi64(shifts);

    for (int i = 0; i < 4; i++)
        at[i] = (const __m128i *)(const void *)(base + ends[i] - 8);
    v = _mm256_set_m128i(_mm_unpacklo_epi64(_mm_loadl_epi64(at[2]), _mm_loadl_epi64(at[3])),
                         _mm_unpacklo_epi64(_mm_loadl_epi64(at[0]), _mm_loadl_epi64(at[1])));
    v = _mm256_xor_si256(v, _mm256_set1_epi8('0'));
    return _mm256_sllv_epi64(_mm256_srlv_epi64(v, shift), shift);
}

WIDE static inline __m256i nines_at_most(__m256i v)
{
    return _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(9)), v);
}

/* Computes the value of each four bytes. */
WIDE static inline __m256i four_digits(__m256i v)
{
    v = _mm256_maddubs_epi16(v, _mm256_set1_epi16(0x010a));
    return _mm256_madd_epi16(v, _mm256_set1_epi32(0x00010064));
}

/* Computes the values of each eight bytes of a and b. Each half of the result has two of a, then
 * two of b. */
WIDE static inline __m256i eight_digits(__m256i a, __m256i b)
{
    return _mm256_madd_epi16(_mm256_packus_epi32(four_digits(a), four_digits(b)),
                             _mm256_set1_epi32(0x00012710));
}

/* Reads the eight ids before places[1..8]. Returns false if one of them is not plain. `gap`:
 * distance from a comma to the first digit. */
WIDE static inline bool eight_ids(const char *base, const uint16_t *places, __m128i gap,
                                  int32_t *ids)
{
    /* The smallest id of n digits, for n modulo 8: a first digit of 0 must be the only one. */
    const __m256i least = _mm256_setr_epi32(10000000, 0, 10, 100, 1000, 10000, 100000, 1000000);
    __m128i from = _mm_loadu_si128((const __m128i *)(const void *)places);
    __m128i to = _mm_loadu_si128((const __m128i *)(const void *)(places + 1));
    __m128i n = _mm_sub_epi16(_mm_sub_epi16(to, from), gap); /* digits */
    __m128i more = _mm_sub_epi16(n, _mm_set1_epi16(1));
    __m128i shifts = _mm_sub_epi16(_mm_set1_epi16(64), _mm_slli_epi16(n, 3));
    __m256i a = four_ids(base, places + 1, shifts);
    __m256i b = four_ids(base, places + 5, _mm_srli_si128(shifts, 8));
    __m256i id = _mm256_permute4x64_epi64(eight_digits(a, b), 0xd8);
    __m256i low = _mm256_permutevar8x32_epi32(least, _mm256_cvtepu16_epi32(n));
    __m256i small = _mm256_cmpgt_epi32(low, id);
    __m256i digits = _mm256_and_si256(nines_at_most(a), nines_at_most(b));
    __m128i lengths = _mm_cmpeq_epi16(_mm_min_epu16(more, _mm_set1_epi16(7)), more);

    _mm256_storeu_si256((__m256i *)(void *)ids, id);
    digits = _mm256_andnot_si256(small, digits);
    return (_mm256_movemask_epi8(digits) &
            (int)(0xffff0000u | (unsigned)_mm_movemask_epi8(lengths))) == -1;
}

WIDE size_t json_wide_ints(const char **p, const char *end, int32_t *ids)
{
    uint16_t places[PLACES];
    const char *base = *p - 1;
    size_t len = chunk_len(*p, end), n = 0, found;
    bool spaced = **p == ' ';

    if (len == 0)
        return 0;
    found = spaced ? find_spaced(*p, len, places, 6) : find_commas(*p, len, places, 6);
    while (n + 8 <= found &&
           eight_ids(base, places + n, _mm_set1_epi16((short)(1 + spaced)), ids + n))
        n += 8;
    for (size_t last = MIN_OF(found, n + 8); n < last; n++) {
        int32_t id = id_before(base + places[n] + 1, base + places[n + 1]);

        if (id < 0)
            break;
        ids[n] = id;
    }
    *p = base + places[n] + 1;
    return n;
}

/* ------------------------------------------------------------------ logprobs */

/* Reads a float like plain_float, but all digits after the point at once. */
WIDE static inline bool wide_float(const char *p, const char *comma, float *ret)
{
    static const uint8_t keep[56] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                     255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    bool negative = *p == '-';
    uint32_t group[3];
    unsigned whole;
    uint64_t first;
    __m256i v;
    size_t n;

    if (!quick_whole(&p, &whole))
        return false;
    n = (size_t)(comma - p);
    if (RG_UNLIKELY(n - 1 >= QUICK_FRACTION_MAX))
        return false;
    v = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)p),
                         _mm256_set1_epi8('0'));
    v = _mm256_and_si256(
        v, _mm256_loadu_si256((const __m256i *)(const void *)(keep + QUICK_FRACTION_MAX - n)));
    if (RG_UNLIKELY(_mm256_movemask_epi8(nines_at_most(v)) != -1))
        return false;
    v = eight_digits(v, v);
    first = (uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128(v));
    group[0] = (uint32_t)first;
    group[1] = (uint32_t)(first >> 32);
    group[2] = (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(v, 1));
    return quick_sum(whole, group, negative, ret);
}

WIDE static inline bool read_float(const char *p, const char *comma, float *ret)
{
    return RG_LIKELY(wide_float(p, comma, ret)) || quick_float(p, ret) == comma;
}

WIDE size_t json_wide_floats(const char **p, const char *end, float *logprobs)
{
    uint16_t places[PLACES];
    const char *base = *p - 1;
    size_t len = chunk_len(*p, end), n, found;

    if (len == 0)
        return 0;
    found = find_commas(*p, len, places, 3);
    for (n = 0; n < found; n++) {
        const char *item = base + places[n] + 1;

        if (!read_float(item + (*item == ' '), base + places[n + 1], &logprobs[n]))
            break;
    }
    *p = base + places[n] + 1;
    return n;
}

WIDE size_t json_wide_triples(const char **p, const char *end, float *logprobs, int32_t *ids)
{
    static const char null_end[8] = "null],";
    uint16_t places[PLACES];
    const char *base = *p - 1;
    size_t len = chunk_len(*p, end), n, found;

    if (len == 0)
        return 0;
    found = find_commas(*p, len, places, 4) / 3;
    for (n = 0; n < found; n++) {
        const uint16_t *at = places + 3 * n;
        const char *item = base + at[0] + 1, *first = base + at[1], *second = base + at[2];
        const char *null = second + 1 + (second[1] == ' ');

        item += *item == ' ';
        ids[n] = id_before(first + 1, second);
        if (ids[n] < 0 || *item != '[' || memcmp(null, null_end, 6) != 0 ||
            !read_float(item + 1, first, &logprobs[n]))
            break;
    }
    *p = base + places[3 * n] + 1;
    return n;
}

#else

bool json_wide_able(void)
{
    return false;
}

size_t json_wide_ints(const char **p, const char *end, int32_t *ids)
{
    return ((void)p, (void)end, (void)ids, 0);
}

/* Reads logprobs. */
size_t json_wide_floats(const char **p, const char *end, float *logprobs)
{
    return ((void)p, (void)end, (void)logprobs, 0);
}

/* Reads triples [logprob, id, null]. */
size_t json_wide_triples(const char **p, const char *end, float *logprobs, int32_t *ids)
{
    return ((void)p, (void)end, (void)logprobs, (void)ids, 0);
}
#endif
