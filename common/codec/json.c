/*
 * The reader goes over the text once. Values of open containers wait on a stack and are copied to
 * the arena when their container closes, so each container's values lie in one piece. Members lie
 * as key, value, key, value, which is struct json_member:
 *
 *   text    {"a": [1, 2], "b": 3}
 *   stack   1  2            at "]": both go to the arena, an array of two is the value of "a"
 *   stack   a  [2]  b  3    at "}": all four go to the arena, an object of two members
 *
 * Strings without escapes stay in the text. Those with escapes are decoded one behind the other
 * into one buffer: together they cannot be longer than the text that is left when the first one is
 * met. Runs of plain bytes, which most of a body is, are found 16 bytes at a time. Values are
 * looked at in json_value.c and written in json_write.c.
 */
#include "common/codec/json.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/hex.h"
#include "common/codec/utf8.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

struct json_reader {
    const char *start, *at, *end;
    struct arena *arena;
    struct json *stack;
    size_t n, cap;
    char *out; /* where the next decoded string goes; NULL before the first */
    unsigned depth;
    size_t check_at;   /* with so many values on the stack the budget is checked */
    bool once;         /* a key that stands twice in one object is an error */
    struct json twice; /* such a key, JSON_NULL: none was seen */
    struct err *e;
};

enum { CHECK_EVERY = 4096 };

enum { SMALL_OBJECT = 16 }; /* up to here duplicate keys are looked for pair by pair */

static int read_value(struct json_reader *r, struct json *ret);

static int fail(struct json_reader *r, const char *at, const char *what)
{
    return err_set(r->e, ERR_INVALID, "JSON: %s at byte %zu", what, (size_t)(at - r->start));
}

static int fail_here(struct json_reader *r)
{
    return fail(r, r->at, r->at == r->end ? "unexpected end" : "unexpected character");
}

static inline bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline void skip_space(struct json_reader *r)
{
    while (r->at < r->end && is_space(*r->at))
        r->at++;
}

/* The next byte after white space, not consumed; 0 at the end (a NUL is never expected). */
static inline char peek(struct json_reader *r)
{
    skip_space(r);
    return r->at < r->end ? *r->at : 0;
}

/* A place on the stack of values that wait for their container. */
static inline struct json *push(struct json_reader *r)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 64;
        r->stack = mem_realloc_array(r->stack, r->cap, sizeof(*r->stack));
    }
    return &r->stack[r->n++];
}

/* --- strings --- */

static inline bool is_plain(char c)
{
    return c != '"' && c != '\\' && (uint8_t)c >= 0x20;
}

#ifdef __SSE2__
/* Which of 16 bytes are a quote, a backslash or a control byte. */
static inline unsigned special_bytes(__m128i c)
{
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1f);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(c, quote), _mm_cmpeq_epi8(c, slash));

    return (unsigned)_mm_movemask_epi8(
        _mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(c, control), c)));
}
#endif

/* The first byte at or after p that is not plain, or end. */
static inline const char *plain_run(const char *p, const char *end)
{
#ifdef __SSE2__
    while (end - p >= 16) {
        unsigned mask = special_bytes(_mm_loadu_si128((const __m128i *)(const void *)p));

        if (mask)
            return p + __builtin_ctz(mask);
        p += 16;
    }
#endif
    while (p < end && is_plain(*p))
        p++;
    return p;
}

enum { BLOCK = 64, OUT_SLACK = BLOCK }; /* whole blocks are stored */

/* Copies plain bytes to r->out, up to the first that is not or the end. */
static inline void copy_plain(struct json_reader *r)
{
    const char *p = r->at, *end = r->end;
    char *out = r->out;

#ifdef __SSE2__
    while (end - p >= 16) {
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned mask = special_bytes(c);

        _mm_storeu_si128((__m128i *)(void *)out, c);
        if (mask) {
            r->at = p + __builtin_ctz(mask);
            r->out = out + __builtin_ctz(mask);
            return;
        }
        p += 16;
        out += 16;
    }
#endif
    while (p < end && is_plain(*p))
        *out++ = *p++;
    r->at = p;
    r->out = out;
}

/* Four hex digits at p, or -1. */
static int32_t hex4(const char *p, const char *end)
{
    int32_t v = 0;

    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = hex_value(p[i]);

        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* \uXXXX with r->at behind the u; a pair of surrogate escapes is one character. */
static int read_unicode_escape(struct json_reader *r, uint8_t *flags)
{
    int32_t cp = hex4(r->at, r->end);

    if (cp < 0)
        return fail(r, r->at, "bad \\u escape");
    r->at += 4;
    if (cp >= 0xd800 && cp < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        int32_t low = hex4(r->at + 2, r->end);

        if (low >= 0xdc00 && low < 0xe000) {
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
            r->at += 6;
        }
    }
    if (cp >= 0xd800 && cp < 0xe000)
        *flags |= JSON_SURROGATE;
    if (cp < 0x80)
        *r->out++ = (char)cp;
    else
        r->out += utf8_encode(r->out, (uint32_t)cp);
    return 0;
}

/* One escape, r->at behind the backslash. */
static int read_escape(struct json_reader *r, uint8_t *flags)
{
    char c;

    if (r->at == r->end)
        return fail_here(r);
    c = *r->at++;
    switch (c) {
    case 'n':
        c = '\n';
        break;
    case 't':
        c = '\t';
        break;
    case 'r':
        c = '\r';
        break;
    case 'b':
        c = '\b';
        break;
    case 'f':
        c = '\f';
        break;
    case '"':
    case '\\':
    case '/':
        break;
    case 'u':
        return read_unicode_escape(r, flags);
    default:
        return fail(r, r->at - 1, "unknown escape");
    }
    *r->out++ = c;
    return 0;
}

/* What stands for one byte behind a backslash; 0: something else. */
static const char SIMPLE_ESCAPES[256] = {['n'] = '\n', ['t'] = '\t', ['r'] = '\r',  ['b'] = '\b',
                                         ['f'] = '\f', ['"'] = '"',  ['\\'] = '\\', ['/'] = '/'};

#ifdef __SSE2__
/* Decodes block after block while only simple escapes come. One mask for 64 bytes and copies of
 * fixed size: runs between escapes have no length that a branch could be predicted by. */
static void decode_blocks(struct json_reader *r)
{
    const char *p = r->at;
    char *out = r->out, c;

    while (r->end - p >= 2 * BLOCK + 2) {
        uint64_t mask = 0;
        size_t done = 0;

        for (size_t i = 0; i < BLOCK; i += 16)
            mask |= (uint64_t)special_bytes(_mm_loadu_si128((const __m128i *)(const void *)(p + i)))
                    << i;
        for (; mask; mask &= mask - 1) {
            size_t at = (size_t)__builtin_ctzll(mask);

            if (at < done)
                continue; /* the second byte of an escape */
            memcpy(out, p + done, BLOCK);
            out += at - done;
            c = p[at] == '\\' ? SIMPLE_ESCAPES[(uint8_t)p[at + 1]] : 0;
            if (!c) {
                r->at = p + at;
                r->out = out;
                return;
            }
            *out++ = c;
            done = at + 2;
        }
        if (done < BLOCK) {
            memcpy(out, p + done, BLOCK);
            out += BLOCK - done;
            done = BLOCK;
        }
        p += done;
    }
    r->at = p;
    r->out = out;
}
#else
static void decode_blocks(struct json_reader *r)
{
    (void)r;
}
#endif

/* The string that starts at `start` and has its first backslash at r->at. */
static int read_escaped(struct json_reader *r, const char *start, struct json *ret)
{
    size_t n = (size_t)(r->at - start);
    char *text;

    if (!r->out)
        r->out = arena_alloc(r->arena, (size_t)(r->end - start) + OUT_SLACK);
    text = r->out;
    ret->flags = 0;
    memcpy(r->out, start, n);
    r->out += n;
    decode_blocks(r);
    copy_plain(r);
    while (r->at < r->end && *r->at == '\\') {
        r->at++;
        if (read_escape(r, &ret->flags) < 0)
            return -1;
        decode_blocks(r);
        copy_plain(r);
    }
    if (r->at == r->end)
        return fail_here(r);
    if (*r->at != '"')
        return fail(r, r->at, "control character in a string");
    r->at++;
    ret->n = (uint32_t)(r->out - text);
    ret->text = text;
    return 0;
}

/* A string, r->at at its opening quote. */
static int read_string(struct json_reader *r, struct json *ret)
{
    const char *start = ++r->at;

    r->at = plain_run(start, r->end);
    ret->kind = JSON_STRING;
    if (RG_LIKELY(r->at < r->end && *r->at == '"')) {
        ret->flags = 0;
        ret->n = (uint32_t)(r->at - start);
        ret->text = start;
        r->at++;
        return 0;
    }
    if (r->at == r->end)
        return fail_here(r);
    if (*r->at != '\\')
        return fail(r, r->at, "control character in a string");
    return read_escaped(r, start, ret);
}

/* --- numbers and words --- */

static inline bool digit_at(const struct json_reader *r)
{
    return r->at < r->end && (unsigned)(*r->at - '0') < 10;
}

/* At least one digit. */
static int read_digits(struct json_reader *r)
{
    if (!digit_at(r))
        return fail_here(r);
    while (digit_at(r))
        r->at++;
    return 0;
}

/* Checks the form and keeps the text: no digit is lost. */
static int read_number(struct json_reader *r, struct json *ret)
{
    const char *start = r->at;

    if (*r->at == '-')
        r->at++;
    if (r->at < r->end && *r->at == '0')
        r->at++;
    else if (read_digits(r) < 0)
        return -1;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (read_digits(r) < 0)
            return -1;
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        if (read_digits(r) < 0)
            return -1;
    }
    *ret = (struct json){.kind = JSON_NUMBER, .n = (uint32_t)(r->at - start), {.text = start}};
    return 0;
}

/* true, false, null. */
static int read_word(struct json_reader *r, struct str word, struct json *ret, struct json value)
{
    if (!str_starts(str_of(r->at, (size_t)(r->end - r->at)), word))
        return fail_here(r);
    r->at += word.len;
    *ret = value;
    return 0;
}

/* --- containers --- */

/* One level deeper; also the place where a long parse notices that it is cancelled. */
static int enter(struct json_reader *r)
{
    if (++r->depth > JSON_DEPTH_MAX)
        return fail(r, r->at, "nested too deep");
    if (cancel_wanted())
        return cancel_fail(r->e);
    r->at++;
    return 0;
}

/* Moves the values from `base` on to the arena. */
static struct json *take_values(struct json_reader *r, size_t base)
{
    size_t bytes = (r->n - base) * sizeof(struct json);
    struct json *items = NULL;

    if (bytes) {
        CHECK(r->stack);
        items = arena_alloc(r->arena, bytes);
        memcpy(items, &r->stack[base], bytes);
    }
    r->n = base;
    return items;
}

static int fail_budget(const struct json_reader *r)
{
    return err_set(r->e, ERR_BODY_TOO_LARGE, "JSON: its values take more than %zu bytes of memory",
                   r->arena->max_bytes);
}

/* The stack has grown: whether the arena's budget holds it, too. */
static int check_stack(struct json_reader *r)
{
    size_t waiting = r->n * sizeof(*r->stack);

    if (r->n < r->check_at)
        return 0;
    r->check_at = r->n + CHECK_EVERY;
    if (r->arena->max_bytes == 0 || r->arena->used_bytes + waiting <= r->arena->max_bytes)
        return 0;
    r->arena->used_bytes += waiting; /* over the budget from here on */
    return fail_budget(r);
}

/* [...]: its items are those on the stack from `base` on. */
static int read_array(struct json_reader *r, struct json *ret)
{
    size_t base = r->n;
    struct json value;

    if (enter(r) < 0)
        return -1;
    if (peek(r) != ']') {
        for (;;) {
            if (read_value(r, &value) < 0)
                return -1;
            *push(r) = value;
            if (peek(r) != ',')
                break;
            if (check_stack(r) < 0)
                return -1;
            r->at++;
        }
    }
    if (peek(r) != ']')
        return fail_here(r);
    r->at++;
    r->depth--;
    *ret = (struct json){.kind = JSON_ARRAY, .n = (uint32_t)(r->n - base)};
    ret->items = take_values(r, base);
    return arena_over(r->arena) ? fail_budget(r) : 0;
}

static inline bool same_key(const struct json_member *a, const struct json_member *b)
{
    return a->key.n == b->key.n &&
           (a->key.n == 0 || memcmp(a->key.text, b->key.text, a->key.n) == 0);
}

/* Drops members whose key came before: the last value stands at the first key's place. Returns how
 * many are left. Compares each with each, for few members. */
static size_t merge_few(struct json_member *m, size_t n, struct json *twice)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;

        while (k < kept && !same_key(&m[k], &m[i]))
            k++;
        if (k < kept) {
            m[k].value = m[i].value;
            *twice = m[i].key;
        } else {
            m[kept++] = m[i];
        }
    }
    return kept;
}

/* The same through a table of places. Its seed is an address, so that collisions cannot be
 * prepared from outside. */
static size_t merge_many(struct json_member *m, size_t n, struct json *twice)
{
    uint64_t seed = (uint64_t)(uintptr_t)m;
    size_t cap = 64, kept = 0;
    uint32_t *table; /* place + 1, 0 free */

    while (cap < n * 2)
        cap *= 2;
    table = mem_calloc(cap, sizeof(*table));
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)str_hash(json_text(&m[i].key), seed) & (cap - 1);

        while (table[at] && !same_key(&m[table[at] - 1], &m[i]))
            at = (at + 1) & (cap - 1);
        if (table[at]) {
            m[table[at] - 1].value = m[i].value;
            *twice = m[i].key;
        } else {
            m[kept] = m[i];
            table[at] = (uint32_t)++kept;
        }
    }
    free(table);
    return kept;
}

/* Key and value, both on the stack. */
static int read_member(struct json_reader *r)
{
    struct json key, value;

    if (peek(r) != '"')
        return fail_here(r);
    if (read_string(r, &key) < 0)
        return -1;
    if (peek(r) != ':')
        return fail_here(r);
    r->at++;
    if (read_value(r, &value) < 0)
        return -1;
    *push(r) = key;
    *push(r) = value;
    return 0;
}

/* For bodies of the control plane, where only one of two could be obeyed. */
static int fail_twice(struct json_reader *r)
{
    enum { SHOWN = 64 };
    struct str key = str_sub(json_text(&r->twice), 0, SHOWN);

    key = str_sub(key, 0, utf8_valid_len(key));
    return err_set(r->e, ERR_INVALID, "JSON: the key \"%.*s\" stands twice in one object",
                   (int)key.len, key.p);
}

/* {...}: duplicate keys are merged as Python's dict does. */
static int read_object(struct json_reader *r, struct json *ret)
{
    size_t base = r->n;
    struct json_member *members;
    size_t n;

    if (enter(r) < 0)
        return -1;
    if (peek(r) != '}') {
        for (;;) {
            if (read_member(r) < 0 || check_stack(r) < 0)
                return -1;
            if (peek(r) != ',')
                break;
            r->at++;
        }
    }
    if (peek(r) != '}')
        return fail_here(r);
    r->at++;
    r->depth--;
    n = (r->n - base) / 2;
    if (n == 0) {
        *ret = (struct json){.kind = JSON_OBJECT};
        return 0;
    }
    CHECK(r->stack);
    members = (struct json_member *)(void *)(r->stack + base);
    n = n <= SMALL_OBJECT ? merge_few(members, n, &r->twice) : merge_many(members, n, &r->twice);
    if (r->once && r->twice.kind != JSON_NULL)
        return fail_twice(r);
    r->n = base + n * 2;
    *ret = (struct json){.kind = JSON_OBJECT, .n = (uint32_t)n};
    ret->members = (struct json_member *)(void *)take_values(r, base);
    return arena_over(r->arena) ? fail_budget(r) : 0;
}

/* The value that begins at the next byte, of any kind. */
static int read_value(struct json_reader *r, struct json *ret)
{
    switch (peek(r)) {
    case '"':
        return read_string(r, ret);
    case '{':
        return read_object(r, ret);
    case '[':
        return read_array(r, ret);
    case 't':
        return read_word(r, STR("true"), ret, json_make_bool(true));
    case 'f':
        return read_word(r, STR("false"), ret, json_make_bool(false));
    case 'n':
        return read_word(r, STR("null"), ret, (struct json){.kind = JSON_NULL});
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return read_number(r, ret);
    default:
        return fail_here(r);
    }
}

/* The text must be UTF-8 and hold one value. */
static int parse(struct arena *a, struct str text, bool once, const struct json **ret,
                 struct err *e)
{
    const char *p = text.p ? text.p : "";
    struct json_reader r = {.start = p,
                            .at = p,
                            .end = p + text.len,
                            .arena = a,
                            .once = once,
                            .e = e,
                            .check_at = CHECK_EVERY};
    struct json *v = arena_alloc(a, sizeof(*v));
    size_t valid = utf8_valid_len(text);
    int rc;

    *ret = NULL;
    if (text.len >= UINT32_MAX / 2)
        return err_set(e, ERR_INVALID, "JSON: longer than 2 GB");
    if (valid != text.len)
        return fail(&r, p + valid, "invalid UTF-8");
    rc = read_value(&r, v);
    skip_space(&r);
    if (rc == 0 && r.at != r.end)
        rc = fail(&r, r.at, "text after the value");
    free(r.stack);
    if (rc == 0)
        *ret = v;
    return rc;
}

int json_parse(struct arena *a, struct str text, const struct json **ret, struct err *e)
{
    return parse(a, text, false, ret, e);
}

int json_parse_once(struct arena *a, struct str text, const struct json **ret, struct err *e)
{
    return parse(a, text, true, ret, e);
}
