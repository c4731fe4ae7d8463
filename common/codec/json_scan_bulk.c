#include <math.h>
#include <string.h>

#include "common/base/vec.h"
#include "common/codec/json_digits.h"
#include "common/codec/json_number.h"
#include "common/codec/json_scan_internal.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Enters the array: 1 inside it (bulk set), 2 it was null, 0, -1. */
static int enter_array(struct json_scan *s, struct err *e)
{
    int rc;

    if (s->bulk)
        return 1;
    rc = json_scan_next(s, e);
    if (rc <= 0)
        return rc;
    s->items = 0;
    if (s->token == JSON_TOKEN_NULL)
        return 2;
    if (s->token != JSON_TOKEN_ARRAY)
        return json_scan_fail(s, e, "not an array");
    s->bulk = 1;
    return 1;
}

/* To the next item: 1 it stands at s->at, 2 the array ended, 0, -1. */
static inline int next_item(struct json_scan *s, struct err *e)
{
    int c, rc;

    if (RG_LIKELY(s->expect == EXPECT_COMMA_OR_END && s->end - s->at > 2 && *s->at == ',')) {
        bool space = s->at[1] == ' ';

        s->at += 1 + space;
        s->read += 1 + (uint64_t)space;
        s->expect = EXPECT_VALUE;
        if ((uint8_t)*s->at > ' ')
            return 1;
    }
    rc = json_scan_punctuation(s, &c, e);
    if (rc <= 0)
        return rc;
    if (c == ']' && s->expect != EXPECT_VALUE) {
        s->bulk = 0;
        return json_scan_close(s, e) < 0 ? -1 : 2;
    }
    return s->expect == EXPECT_COMMA_OR_END ? json_scan_fail(s, e, "unexpected character") : 1;
}

int json_scan_item(struct json_scan *s, struct err *e)
{
    return next_item(s, e);
}

/* An item that the piece's end cut: kept for the next piece unless it is absurdly long. */
static int cut_item(struct json_scan *s, struct err *e)
{
    if ((size_t)(s->end - s->at) > s->text_max)
        return json_scan_fail(s, e, "item too long");
    return json_scan_more(s);
}

enum { RUN_SLACK = 128 }; /* bytes that a quick item may look at */

/* Where the commas are in the 32 bytes at p, the first byte in the lowest bit. */
static inline uint32_t commas(const char *p)
{
#ifdef __SSE2__
    const __m128i comma = _mm_set1_epi8(',');
    const __m128i *v = (const __m128i *)(const void *)p;
    unsigned low = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(v), comma));
    unsigned high = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128(v + 1), comma));

    return low | high << 16;
#else
    uint32_t mask = 0;

    for (unsigned i = 0; i < 32; i++)
        mask |= (uint32_t)(p[i] == ',') << i;
    return mask;
#endif
}

static inline unsigned count_bits(uint32_t v)
{
    v -= v >> 1 & 0x55555555u;
    v = (v & 0x33333333u) + (v >> 2 & 0x33333333u);
    v = (v + (v >> 4)) & 0x0f0f0f0fu;
    return v * 0x01010101u >> 24;
}

/* The id whose digits end before `comma` and start at p, behind at most one space; -1: let the
 * exact reader see. Looks at the eight bytes before the comma. */
static inline int32_t id_before(const char *p, const char *comma)
{
    /* Of n digits the first is not 0 unless it is the only one. */
    static const uint32_t least[] = {0, 0, 10, 100, 1000, 10000, 100000, 1000000};
    uint32_t id;
    size_t n;
    uint64_t v;

    p += *p == ' ';
    n = (size_t)(comma - p);
    if (RG_UNLIKELY(n - 1 > 6))
        return -1;
    memcpy(&v, comma - 8, 8);
    v = (le64toh(v) ^ 0x3030303030303030u) >> (64 - 8 * n) << (64 - 8 * n);
    id = digits_value(v);
    if (RG_UNLIKELY((digits_other(v) != 0) | (id < least[n])))
        return -1;
    return (int32_t)id;
}

/* The id at *p with a comma behind it, which is passed; -1: let the exact reader see. */
static inline int32_t id_at(const char **p)
{
    unsigned n;
    uint64_t v;
    const char *digits = *p + (**p == ' ');

    v = digits_at(digits, &n);
    if (n - 1 > 6 || digits[n] != ',' || (*digits == '0' && n > 1))
        return -1;
    *p = digits + n + 1;
    return (int32_t)digits_value(v << (64 - 8 * n));
}

/* A quick run ends before the item at p. */
static void end_run(struct json_scan *s, const char *p, size_t items)
{
    if (p == s->at)
        return;
    s->items = items;
    s->read += (uint64_t)(p - s->at);
    s->at = p;
    s->expect = EXPECT_VALUE;
}

enum { CHUNK = 1024, COMMAS_AT_ONCE = 6 };

/* The places of all commas in the CHUNK bytes at p; returns their number. Writes several at once,
 * so that no branch depends on how many there are in 32 bytes; what is too much is overwritten. */
static size_t find_commas(const char *p, uint16_t places[static CHUNK + 32])
{
    size_t n = 0;

    for (unsigned at = 0; at < CHUNK; at += 32) {
        uint64_t mask = commas(p + at);
        uint16_t *out = places + n;

        n += count_bits((uint32_t)mask);
        do {
            for (unsigned i = 0; i < COMMAS_AT_ONCE; i++) {
                *out++ = (uint16_t)(at + (unsigned)__builtin_ctzll(mask | (uint64_t)1 << 32));
                mask &= mask - 1;
            }
        } while (RG_UNLIKELY(mask != 0));
    }
    return n;
}

/* Passes whole items with a comma behind them, as long as there is room to look around without
 * asking: what is left starts with an item. The commas are found first, so that the items do not
 * wait for one another. */
static void run_ints(struct json_scan *s, size_t from, struct json_ints *ints)
{
    uint16_t places[CHUNK + 32];
    const char *p = s->at, *end = s->end;
    size_t items = s->items;

    if (end - p < RUN_SLACK)
        return;
    vec_reserve(ints, 8);
    while (p - s->at < 8) {
        int32_t id = id_at(&p);

        if (id < 0)
            goto out;
        ints->at[ints->n] = id;
        ints->n += items++ >= from;
    }
    while (end - p >= CHUNK) {
        const char *chunk = p;
        size_t found = find_commas(chunk, places), n = ints->n;
        int32_t *at;

        vec_reserve(ints, CHUNK);
        at = ints->at;
        for (size_t i = 0; i < found; i++) {
            const char *comma = chunk + places[i];
            int32_t id = id_before(p, comma);

            if (id < 0)
                break;
            at[n] = id;
            n += items++ >= from;
            p = comma + 1;
        }
        ints->n = n;
        if (found == 0 || p != chunk + places[found - 1] + 1)
            break;
    }
out:
    end_run(s, p, items);
}

int json_scan_ints(struct json_scan *s, size_t from, struct json_ints *ints, struct err *e)
{
    int rc = enter_array(s, e);

    if (rc != 1)
        return rc == 2 ? 1 : rc;
    while ((rc = next_item(s, e)) == 1) {
        const char *p;
        int32_t v;

        run_ints(s, from, ints);
        while (s->at < s->end && *s->at == ' ') {
            s->at++;
            s->read++;
        }
        p = s->at;
        rc = json_number_scan_id(&p, s->end, &v);
        if (rc == 0)
            return cut_item(s, e);
        if (rc < 0 || *p == '.' || (*p | 0x20) == 'e')
            return json_scan_fail(s, e, "not an id");
        if (s->items++ >= from)
            *vec_push(ints) = v;
        s->read += (size_t)(p - s->at);
        s->at = p;
        s->expect = EXPECT_COMMA_OR_END;
    }
    return rc == 2 ? 1 : rc;
}

/* Passes white space and the byte `want`; 1, 0, -1. */
static inline int pass(const char **p, const char *end, char want)
{
    while (*p < end && (uint8_t) * *p <= ' ' && **p != want)
        ++*p;
    if (*p == end)
        return 0;
    return *(*p)++ == want ? 1 : -1;
}

/* White space, then a number or null (NaN). */
static inline int pass_logprob(const char **p, const char *end, double *ret)
{
    while (*p < end && (uint8_t) * *p <= ' ')
        ++*p;
    if (*p < end && **p == 'n') {
        if (end - *p < 4)
            return 0;
        *ret = (double)NAN;
        if (memcmp(*p, "null", 4) != 0)
            return -1;
        *p += 4;
        return 1;
    }
    return json_number_scan(p, end, ret);
}

/* The rest of a triple behind its id: "]", ", null]" or a third element of any kind that has no
 * containers. */
static inline int pass_rest(const char **at, const char *end)
{
    const char *p = *at;

    while (p < end && *p != ']' && *p != ',' && *p != '"' && *p != '[' && *p != '{')
        p++;
    if (p < end && *p == '"') {
        for (p++; p < end && *p != '"'; p++) {
            if (*p == '\\')
                p++;
        }
        if (p < end)
            p++;
        while (p < end && (uint8_t)*p <= ' ')
            p++;
    }
    if (p >= end)
        return 0;
    *at = p + 1;
    return *p == ']' ? 1 : -1;
}

/* One triple at *p; 1, 0, -1. */
static int scan_triple(const char **p, const char *end, float *logprob, int32_t *id)
{
    double d = 0;
    int rc = pass(p, end, '[');

    if (rc == 1)
        rc = pass_logprob(p, end, &d);
    if (rc == 1)
        rc = pass(p, end, ',');
    if (rc != 1)
        return rc;
    while (*p < end && (uint8_t) * *p <= ' ')
        ++*p;
    rc = json_number_scan_id(p, end, id);
    if (rc != 1)
        return rc;
    *logprob = (float)d;
    /* What may follow an id: the end, or a comma and one more element. */
    while (*p < end && (uint8_t) * *p <= ' ')
        ++*p;
    if (*p < end && **p == ']') {
        ++*p;
        return 1;
    }
    rc = pass(p, end, ',');
    return rc == 1 ? pass_rest(p, end) : rc;
}

/* A number by quick arithmetic; NULL: let the exact reader see. The quotient is wrong by less than
 * 3 units in the last place of a double, which cannot change the nearest float unless the double
 * lies beside the middle between two of them. */
static inline const char *quick_float(const char *p, float *ret)
{
    static const double powers[] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    static const uint32_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    bool negative = *p == '-';
    unsigned n, digits, shift = 0;
    uint64_t v, w, bits;
    double d;

    p += negative;
    v = digits_at(p, &n);
    if (n - 1 > 6 || (*p == '0' && n > 1))
        return NULL;
    w = digits_value(v << (64 - 8 * n));
    digits = n;
    p += n;
    if (*p == '.') {
        const char *start = ++p;

        do {
            v = digits_at(p, &n);
            w = w * tens[n] + (n ? digits_value(v << (64 - 8 * n)) : 0);
            p += n;
        } while (n == 8 && p - start < 24);
        shift = (unsigned)(p - start);
        digits += shift;
        if (shift == 0)
            return NULL;
    }
    if ((*p | 0x20) == 'e') {
        if (p[1] != '-')
            return NULL;
        (void)digits_at(p + 2, &n);
        if (n - 1 > 1)
            return NULL;
        shift +=
            n == 2 ? (unsigned)(p[2] - '0') * 10 + (unsigned)(p[3] - '0') : (unsigned)(p[2] - '0');
        p += 2 + n;
    }
    if (digits > 19 || shift > 36)
        return NULL;
    d = shift > 22 ? (double)w / 1e22 / powers[shift - 22] : (double)w / powers[shift];
    memcpy(&bits, &d, sizeof(bits));
    if (((bits & 0x1fffffff) - 0xffffff8) < 16)
        return NULL;
    *ret = negative ? -(float)d : (float)d;
    return p;
}

/* "-d.ddd" or "-dd.ddd" with 1 to 24 digits behind the point up to `comma`; false: look closer. One
 * way for all lengths: what is behind the number counts as zeros. All terms have one sign, so that
 * the sum is wrong by a few units in the last place; as in quick_float, farther from the middle. */
static inline bool plain_float(const char *p, const char *comma, float *ret)
{
    static const uint8_t keep[48] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                     255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    uint64_t v[3], mask[3], bits;
    unsigned whole, second;
    size_t n;
    bool negative = *p == '-';
    double d;

    p += negative;
    whole = (unsigned)(*p++ - '0');
    if (RG_UNLIKELY(whole > 9))
        return false;
    if (*p != '.') {
        second = (unsigned)(*p++ - '0');
        if (whole == 0 || second > 9 || *p != '.')
            return false;
        whole = whole * 10 + second;
    }
    p++;
    n = (size_t)(comma - p);
    if (n - 1 > 23)
        return false;
    memcpy(v, p, sizeof(v));
    memcpy(mask, keep + 24 - n, sizeof(mask));
    for (unsigned i = 0; i < 3; i++)
        v[i] = le64toh((v[i] ^ 0x3030303030303030u) & mask[i]);
    if (digits_other(v[0]) | digits_other(v[1]) | digits_other(v[2]))
        return false;
    d = (double)(int64_t)(whole * UINT64_C(10000000000000000) +
                          digits_value(v[0]) * UINT64_C(100000000) + digits_value(v[1])) *
            1e-16 +
        (double)(int32_t)digits_value(v[2]) * 1e-24;
    memcpy(&bits, &d, sizeof(bits));
    if (((bits & 0x1fffffff) - 0xffffff0) < 32)
        return false;
    *ret = negative ? -(float)d : (float)d;
    return true;
}

/* "[logprob,id,null]" with at most one space behind commas; NULL: let the exact reader see. The
 * commas are found first, so that the next item does not wait for this one's digits. */
static inline const char *quick_triple(const char *p, float *logprob, int32_t *id)
{
    uint32_t mask = commas(p);
    const char *first, *second;

    if (*p != '[' || (mask & (mask - 1)) == 0)
        return NULL;
    first = p + __builtin_ctz(mask);
    second = p + __builtin_ctz(mask & (mask - 1));
    if (second - p < 8)
        return NULL;
    if (!plain_float(p + 1, first, logprob) && quick_float(p + 1, logprob) != first)
        return NULL;
    *id = id_before(first + 1, second);
    if (*id < 0)
        return NULL;
    second += second[1] == ' ';
    return memcmp(second + 1, "null]", 5) == 0 ? second + 6 : NULL;
}

/* As run_ints. */
static void run_triples(struct json_scan *s, size_t from, struct json_floats *logprobs,
                        struct json_ints *ids)
{
    const char *p = s->at, *end = s->end;
    size_t items = s->items;

    while (end - p >= RUN_SLACK) {
        float logprob;
        int32_t id;
        const char *next = quick_triple(p, &logprob, &id);

        if (!next || *next != ',')
            break;
        if (items++ >= from) {
            *vec_push(logprobs) = logprob;
            *vec_push(ids) = id;
        }
        p = next + 1;
        p += *p == ' ';
    }
    end_run(s, p, items);
}

int json_scan_triples(struct json_scan *s, size_t from, struct json_floats *logprobs,
                      struct json_ints *ids, struct err *e)
{
    int rc = enter_array(s, e);

    if (rc != 1)
        return rc == 2 ? 1 : rc;
    while ((rc = next_item(s, e)) == 1) {
        const char *p;
        float logprob = 0;
        int32_t id = 0;

        run_triples(s, from, logprobs, ids);
        p = s->at;
        rc = scan_triple(&p, s->end, &logprob, &id);
        if (rc == 0)
            return cut_item(s, e);
        if (rc < 0)
            return json_scan_fail(s, e, "not a logprob triple");
        if (s->items++ >= from) {
            *vec_push(logprobs) = logprob;
            *vec_push(ids) = id;
        }
        s->read += (size_t)(p - s->at);
        s->at = p;
        s->expect = EXPECT_COMMA_OR_END;
    }
    return rc == 2 ? 1 : rc;
}
