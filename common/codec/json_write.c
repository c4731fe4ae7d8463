/* Writes JSON (json.h): single values, and struct json_out, which adds the commas. Runs of a string
 * that need no escape are copied. Lone surrogates in three-byte form are written as \u escapes,
 * because they are not UTF-8. So each text that json_parse has read can be written back. */

#include <math.h>

#include "common/base/check.h"
#include "common/codec/json.h"
#include "common/codec/json_number.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __SSE2__
/* Returns a bit for each byte of c that may need an escape (0xed begins surrogates). */
static unsigned special_bytes(__m128i c)
{
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1f), ed = _mm_set1_epi8((char)0xed);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(c, quote), _mm_cmpeq_epi8(c, slash));

    hit = _mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(c, control), c));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(hit, _mm_cmpeq_epi8(c, ed)));
}
#endif

/* Returns the first byte at or after p that may need an escape (0xed begins surrogates), or end. */
static const char *plain_run(const char *p, const char *end)
{
#ifdef __SSE2__
    const char *begin = p;

    for (; end - p >= 16; p += 16) {
        unsigned special = special_bytes(_mm_loadu_si128((const __m128i *)(const void *)p));

        if (special)
            return p + __builtin_ctz(special);
    }
    if (end - begin >= 16) { /* the last 16 bytes; some of them are known to be plain */
        unsigned special =
            special_bytes(_mm_loadu_si128((const __m128i *)(const void *)(end - 16)));

        return special ? end - 16 + __builtin_ctz(special) : end;
    }
    if (end - p >= 8) { /* the first eight and the last eight bytes, which may overlap */
        unsigned special = special_bytes(
            _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)(const void *)p),
                               _mm_loadl_epi64((const __m128i *)(const void *)(end - 8))));

        if (special & 0xff)
            return p + __builtin_ctz(special);
        return special ? end - 16 + __builtin_ctz(special) : end;
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && (uint8_t)*p >= 0x20 && (uint8_t)*p != 0xed)
        p++;
    return p;
}

/* Writes \uXXXX. */
static char *put_u_escape(char *out, unsigned unit)
{
    static const char hex[] = "0123456789abcdef";

    *out++ = '\\';
    *out++ = 'u';
    for (int shift = 12; shift >= 0; shift -= 4)
        *out++ = hex[unit >> shift & 15];
    return out;
}

/* The character after the backslash of a short escape, by byte; 0: the byte has no short escape. */
static const char SHORT_ESCAPES[256] = {['"'] = '"',  ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r',
                                        ['\t'] = 't', ['\b'] = 'b',  ['\f'] = 'f'};

/* Writes the escape of the byte or surrogate at *p, and moves *p to the next character. */
static char *put_special(char *out, const char **p, const char *end)
{
    const uint8_t *c = (const uint8_t *)*p;

    (*p)++;
    if (SHORT_ESCAPES[*c]) {
        *out++ = '\\';
        *out++ = SHORT_ESCAPES[*c];
        return out;
    }
    if (*c < 0x20)
        return put_u_escape(out, *c);
    if (*c == 0xed && end - *p >= 2 && c[1] >= 0xa0) {
        *p += 2;
        return put_u_escape(out, 0xd000u | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu));
    }
    *out++ = (char)*c;
    return out;
}

enum { ESCAPE_MAX = 6 }; /* bytes of the longest escape */

enum { ESCAPE_STEP = 256 }; /* bytes that are read between two reservations */

/* Writes the rest of a string, from its first byte that may need an escape. Consecutive escapes
 * cost one look-up in a table each, without a search. */
static void write_escaped(struct buf *b, const char *p, const char *end)
{
    while (p < end) {
        const char *stop = p + MIN_OF(end - p, ESCAPE_STEP), *run;
        char *room = buf_reserve(b, (size_t)(stop - p) * ESCAPE_MAX), *out = room;

        while (p < stop &&
               (SHORT_ESCAPES[(uint8_t)*p] || (uint8_t)*p < 0x20 || (uint8_t)*p == 0xed))
            out = put_special(out, &p, end);
        b->len += (size_t)(out - room);
        run = p;
        p = plain_run(p, end);
        buf_add(b, run, (size_t)(p - run));
    }
}

/* Most strings need no escape and are copied whole. */
void json_write_string(struct buf *b, struct str s)
{
    const char *end = s.p + s.len, *plain = plain_run(s.p, end);
    size_t n = (size_t)(plain - s.p);
    char *out = buf_reserve(b, s.len + 2);

    *out = '"';
    if (n > 0) /* absent: NULL. NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
        memcpy(out + 1, s.p, n);
    b->len += 1 + n;
    if (plain < end)
        write_escaped(b, plain, end);
    buf_add_c(b, '"');
}

void json_write_double(struct buf *b, double d)
{
    if (!isfinite(d))
        buf_puts(b, "null");
    else
        b->len += json_number_write(buf_reserve(b, JSON_DOUBLE_TEXT_MAX), d);
}

void json_write(struct buf *b, const struct json *v)
{
    struct json_out o = json_out_to(b);

    json_out_value(&o, v);
}

/* --- struct json_out --- */

static void before_value(struct json_out *o)
{
    if (o->comma)
        buf_add_c(o->b, ',');
    o->comma = true;
}

void json_out_obj(struct json_out *o)
{
    before_value(o);
    buf_add_c(o->b, '{');
    o->comma = false;
}

void json_out_end_obj(struct json_out *o)
{
    buf_add_c(o->b, '}');
    o->comma = true;
}

void json_out_arr(struct json_out *o)
{
    before_value(o);
    buf_add_c(o->b, '[');
    o->comma = false;
}

void json_out_end_arr(struct json_out *o)
{
    buf_add_c(o->b, ']');
    o->comma = true;
}

void json_out_key_str(struct json_out *o, struct str key)
{
    before_value(o);
    json_write_string(o->b, key);
    buf_add_c(o->b, ':');
    o->comma = false;
}

void json_out_str(struct json_out *o, struct str s)
{
    before_value(o);
    if (s.p)
        json_write_string(o->b, s);
    else
        buf_puts(o->b, "null");
}

void json_out_cstr(struct json_out *o, const char *s)
{
    json_out_str(o, str_cstr(s));
}

void json_out_i64(struct json_out *o, int64_t v)
{
    before_value(o);
    buf_add_i64(o->b, v);
}

void json_out_double(struct json_out *o, double v)
{
    before_value(o);
    json_write_double(o->b, v);
}

/* A decimal of up to 15 digits is the shortest text of its double, so no search is needed. */
void json_out_seconds(struct json_out *o, uint64_t ms)
{
    char part[] = {'.', (char)('0' + ms / 100 % 10), (char)('0' + ms / 10 % 10),
                   (char)('0' + ms % 10)};
    size_t n = sizeof(part);

    if (ms % 1000 == 0 || ms >= 1000000000000000) {
        json_out_double(o, (double)ms / 1000);
        return;
    }
    before_value(o);
    buf_add_i64(o->b, (int64_t)(ms / 1000));
    while (part[n - 1] == '0')
        n--;
    buf_add(o->b, part, n);
}

void json_out_bool(struct json_out *o, bool v)
{
    before_value(o);
    buf_puts(o->b, v ? "true" : "false");
}

void json_out_null(struct json_out *o)
{
    before_value(o);
    buf_puts(o->b, "null");
}

/* Writes the members in their order. */
static void out_object(struct json_out *o, const struct json *v)
{
    json_out_obj(o);
    for (size_t i = 0; i < v->n; i++)
        json_out_member_of(o, json_text(&v->members[i].key), &v->members[i].value);
    json_out_end_obj(o);
}

static void out_array(struct json_out *o, const struct json *v)
{
    json_out_arr(o);
    for (size_t i = 0; i < v->n; i++)
        json_out_value(o, &v->items[i]);
    json_out_end_arr(o);
}

void json_out_value(struct json_out *o, const struct json *v)
{
    if (!v) {
        json_out_null(o);
        return;
    }
    switch ((enum json_kind)v->kind) {
    case JSON_NULL:
        json_out_null(o);
        return;
    case JSON_BOOL:
        json_out_bool(o, json_is_true(v));
        return;
    case JSON_NUMBER:
        json_out_raw(o, json_text(v));
        return;
    case JSON_STRING:
        json_out_str(o, json_text(v));
        return;
    case JSON_ARRAY:
        out_array(o, v);
        return;
    case JSON_OBJECT:
        out_object(o, v);
        return;
    }
    UNREACHABLE();
}

void json_out_raw(struct json_out *o, struct str json_text)
{
    before_value(o);
    buf_add_str(o->b, json_text);
}
