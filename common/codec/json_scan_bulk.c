/* Long arrays of ids, numbers and logprob triples (json_scan.h) are most of what engines send.
 * There are three readers; each handles what the previous one refuses: whole chunks (json_wide.h,
 * or chunk_ints), single items of the usual form (quick_item), and the exact reader (scan_item). A
 * quick reader never reports an error. It stops, and the exact reader decides. */

#include <math.h>
#include <string.h>

#include "common/base/vec.h"
#include "common/codec/json_number.h"
#include "common/codec/json_quick.h"
#include "common/codec/json_scan_internal.h"
#include "common/codec/json_wide.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Enters an array. Returns 1 inside of it (bulk is set), 2 if the value was null, 0 or -1. */
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

/* Moves to the next item. Returns 1 if it begins at s->at, 2 if the array has ended, 0 or -1. */
static inline int next_bulk_item(struct json_scan *s, struct err *e)
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
    return next_bulk_item(s, e);
}

/* Keeps an item that the end of the piece cut. Fails if the item is longer than text_max. */
static int cut_item(struct json_scan *s, struct err *e)
{
    if ((size_t)(s->end - s->at) > s->text_max)
        return json_scan_fail(s, e, "item too long");
    return json_scan_more(s);
}

/* One bulk call: what it reads, and where it stores the items. */
struct bulk {
    enum { INTS, FLOATS, TRIPLES } kind;

    size_t from; /* index of the first item that is stored; earlier ones are only counted */
    struct json_floats *logprobs; /* NULL for INTS */
    struct json_ints *ids;        /* NULL for FLOATS */
};

/* ------------------------------------------------------------------ quick runs */

enum {
    RUN_SLACK = 128, /* number of bytes after p that quick_item may read */
    CHUNK = 1024,
    COMMAS_AT_ONCE = 6
};

/* Returns a bit for each comma in the 32 bytes at p; the lowest bit is the first byte. */
static inline uint32_t comma_bits(const char *p)
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

/* Writes the offsets of all commas in the CHUNK bytes at p. Returns their number. Writes
 * COMMAS_AT_ONCE offsets in each step, so that no branch depends on their number in 32 bytes. Later
 * steps overwrite the surplus. */
static size_t find_commas(const char *p, uint16_t places[static CHUNK + 32])
{
    size_t n = 0;

    for (unsigned at = 0; at < CHUNK; at += 32) {
        uint64_t mask = comma_bits(p + at);
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

/* Reads ids like json_wide_ints, on any processor. Commas are found first, so that items do not
 * depend on each other. */
static size_t chunk_ints(const char **at, const char *end, int32_t *ids)
{
    uint16_t places[CHUNK + 32];
    const char *p = *at, *chunk = p;
    size_t n = 0, found;

    if (end - p < CHUNK + RUN_SLACK)
        return 0;
    found = find_commas(chunk, places);
    while (n < found) {
        const char *comma = chunk + places[n];
        int32_t id = id_before(p, comma);

        if (id < 0)
            break;
        ids[n++] = id;
        p = comma + 1;
    }
    *at = p;
    return n;
}

/* Reads "[logprob,id,null]", with at most one space after each comma. Returns the position after
 * it, or NULL if the exact reader must read it. */
static inline const char *quick_triple(const char *p, float *logprob, int32_t *id)
{
    uint32_t mask = comma_bits(p);
    const char *first, *second;

    if (*p != '[' || (mask & (mask - 1)) == 0)
        return NULL;
    first = p + __builtin_ctz(mask);
    second = p + __builtin_ctz(mask & (mask - 1));
    if (second - p < 8 || !quick_number(p + 1, first, logprob))
        return NULL;
    *id = id_before(first + 1, second);
    if (*id < 0)
        return NULL;
    second += second[1] == ' ';
    return memcmp(second + 1, "null]", 5) == 0 ? second + 6 : NULL;
}

/* Reads one item and the comma after it. Returns the position after the comma, or NULL if the exact
 * reader must read the item. */
static inline const char *quick_item(const struct bulk *b, const char *p, float *logprob,
                                     int32_t *id)
{
    uint32_t mask;

    p += *p == ' ';
    if (b->kind == INTS) {
        *id = id_at(&p);
        return *id < 0 ? NULL : p;
    }
    if (b->kind == TRIPLES) {
        p = quick_triple(p, logprob, id);
        return p && *p == ',' ? p + 1 : NULL;
    }
    mask = comma_bits(p);
    if (mask == 0 || !quick_number(p, p + __builtin_ctz(mask), logprob))
        return NULL;
    return p + __builtin_ctz(mask) + 1;
}

/* Reserves capacity for a chunk. */
static void reserve_chunk(const struct bulk *b)
{
    if (b->kind != INTS)
        vec_reserve(b->logprobs, JSON_WIDE_ITEMS);
    if (b->kind != FLOATS)
        vec_reserve(b->ids, JSON_WIDE_ITEMS);
}

/* Return the position of the next item. */
static int32_t *next_id(const struct bulk *b)
{
    return b->ids->at + b->ids->n;
}

static float *next_logprob(const struct bulk *b)
{
    return b->logprobs->at + b->logprobs->n;
}

/* Reads a chunk of items and writes them after the stored ones, without counting them. Returns
 * their number, as json_wide_ints does. */
static size_t chunk_items(const struct json_scan *s, const struct bulk *b, const char **p)
{
    reserve_chunk(b);
    if (b->kind == INTS)
        return (s->wide ? json_wide_ints : chunk_ints)(p, s->end, next_id(b));
    if (!s->wide)
        return 0;
    if (b->kind == FLOATS)
        return json_wide_floats(p, s->end, next_logprob(b));
    return json_wide_triples(p, s->end, next_logprob(b), next_id(b));
}

/* Adds the n new items to the count. Drops those of them with an index below `from`. */
static void keep_items(struct json_scan *s, const struct bulk *b, size_t n)
{
    size_t skip = b->from > s->items ? MIN_OF(b->from - s->items, n) : 0, kept = n - skip;

    if (b->kind != INTS) {
        float *at = b->logprobs->at + b->logprobs->n;

        if (skip)
            memmove(at, at + skip, kept * sizeof(*at));
        b->logprobs->n += kept;
    }
    if (b->kind != FLOATS) {
        int32_t *at = b->ids->at + b->ids->n;

        if (skip)
            memmove(at, at + skip, kept * sizeof(*at));
        b->ids->n += kept;
    }
    s->items += n;
}

/* Counts the item, and stores it if its index is at least `from`. */
static inline void keep_item(struct json_scan *s, const struct bulk *b, float logprob, int32_t id)
{
    if (s->items++ < b->from)
        return;
    if (b->kind != INTS)
        *vec_push(b->logprobs) = logprob;
    if (b->kind != FLOATS)
        *vec_push(b->ids) = id;
}

/* Reads whole items with a comma after each, while RUN_SLACK bytes are readable. The remaining text
 * begins with an item. */
static inline void scan_run(struct json_scan *s, const struct bulk *b)
{
    const char *p = s->at;

    if (s->end - p >= RUN_SLACK)
        reserve_chunk(b);
    while (s->end - p >= RUN_SLACK) {
        float logprob = 0;
        int32_t id = 0;
        const char *next = quick_item(b, p, &logprob, &id);

        if (!next)
            break;
        keep_item(s, b, logprob, id);
        p = next;
        while (p - s->at >= 8 && s->end - p >= RUN_SLACK) { /* chunks read eight bytes before p */
            size_t n = chunk_items(s, b, &p);

            if (n == 0)
                break;
            keep_items(s, b, n);
        }
    }
    if (p == s->at)
        return;
    s->read += (uint64_t)(p - s->at);
    s->at = p;
    s->expect = EXPECT_VALUE;
}

/* ------------------------------------------------------------------ exact reading */

static inline const char *skip_white(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* Passes white space and the byte `want`. Returns 1, 0 or -1. */
static inline int skip_byte(const char **p, const char *end, char want)
{
    *p = skip_white(*p, end);
    if (*p == end)
        return 0;
    return *(*p)++ == want ? 1 : -1;
}

/* Reads a number, or null as NaN, after white space. */
static inline int pass_logprob(const char **p, const char *end, double *ret)
{
    *p = skip_white(*p, end);
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

/* Passes the third element of a triple and its bracket. The element may be of any kind without
 * containers. */
static inline int skip_triple_end(const char **at, const char *end)
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
        p = skip_white(p, end);
    }
    if (p >= end)
        return 0;
    *at = p + 1;
    return *p == ']' ? 1 : -1;
}

/* Reads one triple at *p. Returns 1, 0 or -1. */
static int scan_triple(const char **p, const char *end, float *logprob, int32_t *id)
{
    double d = 0;
    int rc = skip_byte(p, end, '[');

    if (rc == 1)
        rc = pass_logprob(p, end, &d);
    if (rc == 1)
        rc = skip_byte(p, end, ',');
    if (rc != 1)
        return rc;
    *p = skip_white(*p, end);
    rc = json_number_scan_id(p, end, id);
    if (rc != 1)
        return rc;
    *logprob = (float)d;
    /* After the id: the end, or a comma and one more element. */
    *p = skip_white(*p, end);
    if (*p < end && **p == ']') {
        ++*p;
        return 1;
    }
    rc = skip_byte(p, end, ',');
    return rc == 1 ? skip_triple_end(p, end) : rc;
}

/* Reads one item of any allowed form at *p. Returns 1, 0 or -1. */
static int scan_item(const struct bulk *b, const char **p, const char *end, float *logprob,
                     int32_t *id)
{
    double d = 0;
    int rc;

    if (b->kind == TRIPLES)
        return scan_triple(p, end, logprob, id);
    if (b->kind == FLOATS) {
        rc = pass_logprob(p, end, &d);
        *logprob = (float)d;
        return rc;
    }
    rc = json_number_scan_id(p, end, id);
    return rc == 1 && (**p == '.' || (**p | 0x20) == 'e') ? -1 : rc;
}

/* Reads an array. `what` is the error of a wrong item. Returns 1 if the array has ended or was
 * null, 0 or -1. */
static inline int scan_array(struct json_scan *s, const struct bulk *b, const char *what,
                             struct err *e)
{
    int rc = enter_array(s, e);

    if (rc != 1)
        return rc == 2 ? 1 : rc;
    while ((rc = next_bulk_item(s, e)) == 1) {
        const char *p;
        float logprob = 0;
        int32_t id = 0;

        scan_run(s, b);
        p = skip_white(s->at, s->end);
        s->read += (uint64_t)(p - s->at);
        s->at = p;
        rc = scan_item(b, &p, s->end, &logprob, &id);
        if (rc == 0)
            return cut_item(s, e);
        if (rc < 0)
            return json_scan_fail(s, e, what);
        keep_item(s, b, logprob, id);
        s->read += (size_t)(p - s->at);
        s->at = p;
        s->expect = EXPECT_COMMA_OR_END;
    }
    return rc == 2 ? 1 : rc;
}

int json_scan_ints(struct json_scan *s, size_t from, struct json_ints *ints, struct err *e)
{
    const struct bulk b = {INTS, from, NULL, ints};

    return scan_array(s, &b, "not an id", e);
}

int json_scan_floats(struct json_scan *s, size_t from, struct json_floats *floats, struct err *e)
{
    const struct bulk b = {FLOATS, from, floats, NULL};

    return scan_array(s, &b, "not a number", e);
}

int json_scan_triples(struct json_scan *s, size_t from, struct json_floats *logprobs,
                      struct json_ints *ids, struct err *e)
{
    const struct bulk b = {TRIPLES, from, logprobs, ids};

    return scan_array(s, &b, "not a logprob triple", e);
}
