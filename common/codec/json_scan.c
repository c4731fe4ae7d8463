/* If a call cannot finish its token, it copies the unread bytes to `hold` and returns 0
 * (json_scan_more). The next piece is appended there. So callers need no buffer, and a long answer
 * is never in memory as a whole. s->expect is the whole grammar: what may come next. s->objects has
 * one bit for each open container (object or array), so depth needs no memory. */

#include "common/base/limits.h"
#include "common/codec/json_scan_internal.h"
#include "common/codec/json_wide.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/codec/json_number.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

void json_scan_init(struct json_scan *s, size_t text_max)
{
    *s = (struct json_scan){.text_max = text_max, .at = "", .end = "", .wide = json_wide_able()};
    s->end = s->at;
}

void json_scan_done(struct json_scan *s)
{
    buf_done(&s->hold);
    buf_done(&s->decoded);
}

void json_scan_reset(struct json_scan *s)
{
    struct buf hold = s->hold, decoded = s->decoded;

    json_scan_init(s, s->text_max);
    buf_clear(&hold);
    s->hold = hold;
    s->decoded = decoded;
}

void json_scan_feed(struct json_scan *s, struct str piece)
{
    if (s->hold.len > 0) {
        buf_add_str(&s->hold, piece);
        s->at = s->hold.p;
        s->end = s->hold.p + s->hold.len;
    } else {
        s->at = piece.p ? piece.p : "";
        s->end = s->at + piece.len;
    }
}

int json_scan_more(struct json_scan *s)
{
    size_t left = (size_t)(s->end - s->at);

    if (s->hold.len > 0) {
        buf_consume(&s->hold, s->hold.len - left);
    } else {
        buf_add(&s->hold, s->at, left);
    }
    s->at = s->end = s->hold.p ? s->hold.p : "";
    return 0;
}

int json_scan_fail(const struct json_scan *s, struct err *e, const char *what)
{
    return err_set(e, ERR_INVALID, "JSON: %s at byte %zu", what, (size_t)s->read);
}

static int fail_here(const struct json_scan *s, struct err *e)
{
    return json_scan_fail(s, e, "unexpected character");
}

static inline void skip_bytes(struct json_scan *s, size_t n)
{
    s->at += n;
    s->read += n;
}

/* Returns the next byte after white space, or -1 at the end of the input. */
static inline int peek_input(struct json_scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        skip_bytes(s, 1);
    return s->at < s->end ? (uint8_t)*s->at : -1;
}

static inline void after_value(struct json_scan *s)
{
    s->expect = s->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
}

static inline bool in_object(const struct json_scan *s)
{
    return s->objects[(s->depth - 1) / 64] >> ((s->depth - 1) % 64) & 1;
}

/* --- single tokens --- */

/* Opens an object or an array, with s->at at its bracket. */
static int open_container(struct json_scan *s, bool object, struct err *e)
{
    uint64_t bit = (uint64_t)1 << (s->depth % 64);

    if (s->depth == JSON_DEPTH_MAX)
        return json_scan_fail(s, e, "nested too deep");
    skip_bytes(s, 1);
    if (object)
        s->objects[s->depth / 64] |= bit;
    else
        s->objects[s->depth / 64] &= ~bit;
    s->depth++;
    s->expect = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    s->token = object ? JSON_TOKEN_OBJECT : JSON_TOKEN_ARRAY;
    return 1;
}

int json_scan_close(struct json_scan *s, struct err *e)
{
    if (s->depth == 0 || in_object(s) != (*s->at == '}'))
        return fail_here(s, e);
    skip_bytes(s, 1);
    s->token = in_object(s) ? JSON_TOKEN_OBJECT_END : JSON_TOKEN_ARRAY_END;
    s->depth--;
    after_value(s);
    return 1;
}

/* Reads true, false or null. */
static int scan_word(struct json_scan *s, struct str word, enum json_token token, struct err *e)
{
    size_t left = (size_t)(s->end - s->at);
    size_t n = MIN_OF(left, word.len);

    if (memcmp(s->at, word.p, n) != 0)
        return fail_here(s, e);
    if (left < word.len)
        return json_scan_more(s);
    skip_bytes(s, word.len);
    s->token = token;
    after_value(s);
    return 1;
}

/* Reads a number. The byte after it must be present, because a piece can end inside a number. */
static int scan_number(struct json_scan *s, struct err *e)
{
    const char *p = s->at;
    double d;
    int rc = json_number_scan(&p, s->end, &d);

    if ((size_t)((rc == 1 ? p : s->end) - s->at) > s->text_max)
        return json_scan_fail(s, e, "number too long");
    if (rc == 0)
        return json_scan_more(s);
    if (rc < 0)
        return json_scan_fail(s, e, "bad number");
    s->text = str_of(s->at, (size_t)(p - s->at));
    skip_bytes(s, s->text.len);
    s->token = JSON_TOKEN_NUMBER;
    after_value(s);
    return 1;
}

/* Returns the quote that ends the string whose text begins at p, or NULL. s->seen stores the
 * searched length, so that small pieces do not repeat the search. */
static const char *find_quote(struct json_scan *s, const char *p)
{
    const char *start = p;

    p += s->seen;
    while (p < s->end && *p != '"') {
        if (*p == '\\' && ++p == s->end) {
            p--;
            break;
        }
        p++;
    }
    s->seen = (size_t)(p - start);
    return p < s->end && *p == '"' ? p : NULL;
}

/* Decodes the text between two quotes. Strings with escapes go to json_parse, so that escapes have
 * one implementation. */
static int decode_string(struct json_scan *s, const char *quote, const char *end, struct err *e)
{
    struct str raw = str_of(quote + 1, (size_t)(end - quote - 1));
    const struct json *v;
    struct arena a = {0};
    int rc = -1;

    if (!memchr(raw.p, '\\', raw.len) && utf8_valid(raw)) {
        for (size_t i = 0; i < raw.len; i++) {
            if ((uint8_t)raw.p[i] < 0x20)
                return json_scan_fail(s, e, "control character in a string");
        }
        s->text = raw;
        return 0;
    }
    if (json_parse(&a, str_of(quote, raw.len + 2), &v, e) < 0)
        goto out;
    buf_set(&s->decoded, json_string(v));
    s->text = buf_str(&s->decoded);
    rc = 0;
out:
    arena_done(&a);
    return rc;
}

/* Reads and decodes a string or a key. */
static int scan_string(struct json_scan *s, bool key, struct err *e)
{
    const char *quote = s->at;
    const char *end = find_quote(s, quote + 1);

    if (s->seen > s->text_max)
        return json_scan_fail(s, e, "string too long");
    if (!end)
        return json_scan_more(s);
    s->seen = 0;
    if (decode_string(s, quote, end, e) < 0)
        return -1;
    skip_bytes(s, (size_t)(end + 1 - quote));
    s->token = key ? JSON_TOKEN_KEY : JSON_TOKEN_STRING;
    if (key)
        s->expect = EXPECT_COLON;
    else
        after_value(s);
    return 1;
}

/* Reads the value that begins with c, of any kind. */
static int scan_value(struct json_scan *s, int c, struct err *e)
{
    switch (c) {
    case '"':
        return scan_string(s, false, e);
    case '{':
        return open_container(s, true, e);
    case '[':
        return open_container(s, false, e);
    case 't':
        return scan_word(s, STR("true"), JSON_TOKEN_TRUE, e);
    case 'f':
        return scan_word(s, STR("false"), JSON_TOKEN_FALSE, e);
    case 'n':
        return scan_word(s, STR("null"), JSON_TOKEN_NULL, e);
    case ']':
        return s->expect == EXPECT_VALUE_OR_END ? json_scan_close(s, e) : fail_here(s, e);
    default:
        return scan_number(s, e);
    }
}

static int scan_key(struct json_scan *s, int c, struct err *e)
{
    if (c == '}' && s->expect == EXPECT_KEY_OR_END)
        return json_scan_close(s, e);
    return c == '"' ? scan_string(s, true, e) : fail_here(s, e);
}

int json_scan_punctuation(struct json_scan *s, int *c, struct err *e)
{
    *c = peek_input(s);
    if (*c < 0)
        return s->expect == EXPECT_NOTHING ? 1 : json_scan_more(s);
    if (s->expect == EXPECT_COLON) {
        if (*c != ':')
            return fail_here(s, e);
        skip_bytes(s, 1);
        s->expect = EXPECT_VALUE;
    } else if (s->expect == EXPECT_COMMA_OR_END && *c == ',') {
        skip_bytes(s, 1);
        s->expect = in_object(s) ? EXPECT_KEY : EXPECT_VALUE;
    } else {
        return 1;
    }
    *c = peek_input(s);
    return *c < 0 ? json_scan_more(s) : 1;
}

int json_scan_next(struct json_scan *s, struct err *e)
{
    int c, rc = json_scan_punctuation(s, &c, e);

    if (rc <= 0)
        return rc;
    switch ((enum json_expect)s->expect) {
    case EXPECT_VALUE:
    case EXPECT_VALUE_OR_END:
        return scan_value(s, c, e);
    case EXPECT_KEY:
    case EXPECT_KEY_OR_END:
        return scan_key(s, c, e);
    case EXPECT_COMMA_OR_END:
        return c == ']' || c == '}' ? json_scan_close(s, e) : fail_here(s, e);
    case EXPECT_NOTHING:
        if (c >= 0)
            return json_scan_fail(s, e, "text after the value");
        (void)json_scan_more(s);
        s->token = JSON_TOKEN_END;
        return 1;
    case EXPECT_COLON:
        break;
    }
    UNREACHABLE();
}

/* --- skipping --- */

/* Returns the first quote or bracket at or after p, or end. `string`: returns the first quote or
 * backslash instead. */
static const char *skip_plain(const char *p, const char *end, bool string)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    const __m128i low = _mm_set1_epi8(0x20), open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}');

    while (end - p >= 16) {
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_cmpeq_epi8(c, quote);
        int mask;

        if (string) {
            hit = _mm_or_si128(hit, _mm_cmpeq_epi8(c, slash));
        } else {
            /* '[' | 0x20 is '{', and ']' | 0x20 is '}'. */
            c = _mm_or_si128(c, low);
            hit =
                _mm_or_si128(hit, _mm_or_si128(_mm_cmpeq_epi8(c, open), _mm_cmpeq_epi8(c, close)));
        }
        mask = _mm_movemask_epi8(hit);
        if (mask)
            return p + __builtin_ctz((unsigned)mask);
        p += 16;
    }
#endif
    while (p < end && *p != '"' &&
           (string ? *p != '\\' : ((*p | 0x20) != '{' && (*p | 0x20) != '}')))
        p++;
    return p;
}

/* Passes the rest of a string that is skipped. */
static int skip_string(struct json_scan *s)
{
    for (;;) {
        skip_bytes(s, (size_t)(skip_plain(s->at, s->end, true) - s->at));
        if (s->at == s->end)
            return json_scan_more(s);
        if (*s->at == '"') {
            skip_bytes(s, 1);
            s->skip_string = false;
            return 1;
        }
        if (s->end - s->at < 2)
            return json_scan_more(s);
        skip_bytes(s, 2);
    }
}

/* Passes the rest of the containers that are skipped. */
static int skip_containers(struct json_scan *s)
{
    while (s->skip_depth > 0) {
        char c;

        if (s->skip_string && skip_string(s) == 0)
            return 0;
        skip_bytes(s, (size_t)(skip_plain(s->at, s->end, false) - s->at));
        if (s->at == s->end)
            return json_scan_more(s);
        c = *s->at;
        skip_bytes(s, 1);
        if (c == '"')
            s->skip_string = true;
        else
            s->skip_depth += (c | 0x20) == '{' ? 1u : -1u;
    }
    return 1;
}

int json_scan_skip(struct json_scan *s, struct err *e)
{
    int c, rc;

    if (!s->bulk) {
        rc = json_scan_punctuation(s, &c, e);
        if (rc <= 0)
            return rc;
        if (s->expect != EXPECT_VALUE && s->expect != EXPECT_VALUE_OR_END)
            return fail_here(s, e);
        if (c != '"' && c != '[' && c != '{')
            return scan_value(s, c, e);
        s->bulk = 1;
        s->skip_string = c == '"';
        s->skip_depth = c == '"' ? 0 : 1;
        skip_bytes(s, 1);
    }
    rc = s->skip_depth ? skip_containers(s) : skip_string(s);
    if (rc > 0) {
        s->bulk = 0;
        after_value(s);
    }
    return rc;
}

/* --- base64 --- */

/* Enters a string. Returns 1 inside of it, 2 if the value was null, 0 or -1. */
static int enter_string(struct json_scan *s, struct err *e)
{
    int c, rc;

    if (s->bulk)
        return 1;
    rc = json_scan_punctuation(s, &c, e);
    if (rc <= 0)
        return rc;
    if (c == 'n') {
        rc = json_scan_next(s, e);
        return rc == 1 ? 2 : rc;
    }
    if (c != '"' || (s->expect != EXPECT_VALUE && s->expect != EXPECT_VALUE_OR_END))
        return fail_here(s, e);
    skip_bytes(s, 1);
    s->bulk = 1;
    s->base64 = (struct base64_reader){0};
    return 1;
}

/* Removes the bytes of out from `before` on that are outside of the window. */
static void keep_window(struct base64_window *w, struct buf *out, size_t before)
{
    uint64_t got = out->len - before, skip = w->seen < w->from ? w->from - w->seen : 0;

    skip = MIN_OF(skip, got);
    w->seen += got;
    if (skip > 0)
        memmove(out->p + before, out->p + before + skip, got - skip);
    out->len -= skip;
    if (w->over || out->len > w->max) {
        w->over = true;
        buf_done(out);
    }
}

/* Decodes a piece of base64 and appends it to out, or only its bytes inside of the window w. */
static int decode_base64(struct json_scan *s, struct base64_window *w, struct str piece,
                         struct buf *out)
{
    size_t before = out->len;

    if (base64_feed(&s->base64, piece, out) < 0)
        return -1;
    if (w)
        keep_window(w, out, before);
    return 0;
}

/* Decodes a base64 string while it arrives. Without a window (w is NULL), more than max bytes are
 * an error. */
static int scan_base64(struct json_scan *s, size_t max, struct base64_window *w, struct buf *out,
                       bool *ret_null, struct err *e)
{
    int rc = enter_string(s, e);

    *ret_null = rc == 2;
    if (rc != 1)
        return rc == 2 ? 1 : rc;
    for (;;) {
        const char *p = skip_plain(s->at, s->end, true);
        struct str run = str_of(s->at, (size_t)(p - s->at));

        if (!w && out->len + base64_room(run.len) > max)
            return json_scan_fail(s, e, "base64 text too long");
        if (decode_base64(s, w, run, out) < 0)
            return json_scan_fail(s, e, "bad base64 text");
        skip_bytes(s, run.len);
        if (s->at == s->end || (*s->at == '\\' && s->end - s->at < 2))
            return json_scan_more(s);
        if (*s->at == '"')
            break;
        /* Some writers escape the slash. */
        if (s->at[1] != '/' || decode_base64(s, w, STR("/"), out) < 0)
            return json_scan_fail(s, e, "bad base64 text");
        skip_bytes(s, 2);
    }
    if (base64_finish(&s->base64) < 0)
        return json_scan_fail(s, e, "bad base64 text");
    skip_bytes(s, 1);
    s->bulk = 0;
    after_value(s);
    return 1;
}

int json_scan_base64(struct json_scan *s, size_t max, struct buf *out, bool *ret_null,
                     struct err *e)
{
    return scan_base64(s, max, NULL, out, ret_null, e);
}

int json_scan_base64_window(struct json_scan *s, struct base64_window *w, struct buf *out,
                            bool *ret_null, struct err *e)
{
    return scan_base64(s, 0, w, out, ret_null, e);
}
