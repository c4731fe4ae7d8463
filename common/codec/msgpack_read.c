#include "common/codec/msgpack_read.h"

#include <math.h>

#include "common/base/utf8.h"

enum { DEPTH_MAX = 200 };

struct msgpack_reader {
    struct arena *arena;
    struct str bytes;
    size_t at;
    unsigned depth;
    uint64_t n_values; /* number of values in all arrays and maps that have begun */
    struct err *err;
};

static int read_msgpack_value(struct msgpack_reader *r, struct json *out);

static int refuse_bytes(struct msgpack_reader *r, const char *why)
{
    return err_set(r->err, ERR_INVALID, "msgpack at byte %zu: %s", r->at, why);
}

/* Reads an unsigned big-endian number of n bytes. */
static int read_big_endian(struct msgpack_reader *r, size_t n, uint64_t *ret)
{
    *ret = 0;
    if (r->bytes.len - r->at < n)
        return refuse_bytes(r, "it ends inside a value");
    for (size_t i = 0; i < n; i++)
        *ret = *ret << 8 | (uint8_t)r->bytes.p[r->at++];
    return 0;
}

static int read_bytes(struct msgpack_reader *r, uint64_t n, struct str *ret)
{
    if (n > r->bytes.len - r->at || n > UINT32_MAX)
        return refuse_bytes(r, "it ends inside a value");
    *ret = str_sub(r->bytes, r->at, n);
    r->at += n;
    return 0;
}

static int read_msgpack_string(struct msgpack_reader *r, uint64_t n, bool text, struct json *out)
{
    struct str s = {0};

    if (read_bytes(r, n, &s))
        return -1;
    if (text && !utf8_valid(s))
        return refuse_bytes(r, "the text before is not UTF-8");
    *out = json_make_string(s);
    out->flags = text ? 0 : MSGPACK_BYTES;
    return 0;
}

static int read_ext(struct msgpack_reader *r, uint64_t n, struct json *out)
{
    static const struct {
        uint8_t flag, size;
    } kinds[] = {{0, 1}, {MSGPACK_IDS, 4}, {MSGPACK_MASK, 1}, {MSGPACK_FLOATS, 4}};

    uint64_t kind;

    if (read_big_endian(r, 1, &kind))
        return -1;
    if (kind == 0 || kind >= ARRAY_LEN(kinds) || n % kinds[kind].size != 0)
        return refuse_bytes(r, "it is no array of ids, masks or logprobs (ext types 1, 2, 3)");
    if (read_msgpack_string(r, n, false, out))
        return -1;
    out->flags = kinds[kind].flag;
    return 0;
}

/* Checks the number of values of an array or a map. Each value needs at least one byte, so larger
 * numbers are refused before memory is allocated. */
static int check_count(struct msgpack_reader *r, uint64_t n)
{
    r->n_values += n;
    if (r->n_values > r->bytes.len)
        return refuse_bytes(r, "it ends inside a list");
    return r->depth >= DEPTH_MAX ? refuse_bytes(r, "it is nested too deeply") : 0;
}

static int read_array(struct msgpack_reader *r, uint64_t n, struct json *out)
{
    if (check_count(r, n))
        return -1;
    *out = (struct json){.kind = JSON_ARRAY, .n = (uint32_t)n};
    out->items = arena_calloc(r->arena, n, sizeof(*out->items));
    r->depth++;
    for (uint64_t i = 0; i < n; i++)
        if (read_msgpack_value(r, &out->items[i]))
            return -1;
    r->depth--;
    return 0;
}

static int read_map(struct msgpack_reader *r, uint64_t n, struct json *out)
{
    if (check_count(r, 2 * n))
        return -1;
    *out = (struct json){.kind = JSON_OBJECT, .n = (uint32_t)n};
    out->members = arena_calloc(r->arena, n, sizeof(*out->members));
    r->depth++;
    for (uint64_t i = 0; i < n; i++) {
        if (read_msgpack_value(r, &out->members[i].key))
            return -1;
        if (!json_is(&out->members[i].key, JSON_STRING) || out->members[i].key.flags)
            return refuse_bytes(r, "the key before is no text");
        if (read_msgpack_value(r, &out->members[i].value))
            return -1;
    }
    r->depth--;
    return 0;
}

static struct json make_double(struct arena *a, double d)
{
    struct buf text = {0};
    struct json v;

    if (!isfinite(d))
        return (struct json){.kind = JSON_NULL};
    json_write_double(&text, d);
    v = json_make_string(arena_str(a, buf_str(&text)));
    v.kind = JSON_NUMBER;
    buf_done(&text);
    return v;
}

static int read_float(struct msgpack_reader *r, size_t n, struct json *out)
{
    uint64_t bits;
    uint32_t low;
    float f;
    double d;

    if (read_big_endian(r, n, &bits))
        return -1;
    low = (uint32_t)bits;
    memcpy(&f, &low, sizeof(f));
    memcpy(&d, &bits, sizeof(d));
    *out = make_double(r->arena, n == sizeof(f) ? (double)f : d);
    return 0;
}

static int read_unsigned(struct msgpack_reader *r, size_t n, struct json *out)
{
    uint64_t v;

    if (read_big_endian(r, n, &v))
        return -1;
    *out = json_make_string(arena_printf(r->arena, "%llu", (unsigned long long)v));
    out->kind = JSON_NUMBER;
    return 0;
}

static int read_signed(struct msgpack_reader *r, size_t n, struct json *out)
{
    uint64_t v, sign = (uint64_t)1 << (8 * n - 1);

    if (read_big_endian(r, n, &v))
        return -1;
    *out = json_make_i64(r->arena, (int64_t)((v ^ sign) - sign));
    return 0;
}

/* Reads a value whose length follows in 1, 2 or 4 bytes. */
static int read_sized(struct msgpack_reader *r, uint8_t head, struct json *out)
{
    uint64_t n;

    if (head >= 0xdc) { /* array, map: 16, 32 */
        if (read_big_endian(r, head & 1 ? 4 : 2, &n))
            return -1;
        return head < 0xde ? read_array(r, n, out) : read_map(r, n, out);
    }
    if (head >= 0xd9) /* str: 8, 16, 32 */
        return read_big_endian(r, (size_t)1 << (head - 0xd9), &n)
                   ? -1
                   : read_msgpack_string(r, n, true, out);
    if (head >= 0xd4) /* ext of 1 to 16 bytes */
        return read_ext(r, (uint64_t)1 << (head - 0xd4), out);
    if (head >= 0xc7)
        return read_big_endian(r, (size_t)1 << (head - 0xc7), &n) ? -1 : read_ext(r, n, out);
    return read_big_endian(r, (size_t)1 << (head - 0xc4), &n)
               ? -1
               : read_msgpack_string(r, n, false, out);
}

static int read_msgpack_value(struct msgpack_reader *r, struct json *out)
{
    uint64_t n;
    uint8_t head;

    if (read_big_endian(r, 1, &n))
        return -1;
    head = (uint8_t)n;
    if (head < 0x80 || head >= 0xe0) {
        *out = json_make_i64(r->arena, (int8_t)head);
        return 0;
    }
    if (head < 0x90)
        return read_map(r, head & 15, out);
    if (head < 0xa0)
        return read_array(r, head & 15, out);
    if (head < 0xc0)
        return read_msgpack_string(r, head & 31, true, out);
    if (head == 0xc0) {
        out->kind = JSON_NULL;
        return 0;
    }
    if (head == 0xc2 || head == 0xc3) {
        *out = json_make_bool(head == 0xc3);
        return 0;
    }
    if (head == 0xc1)
        return refuse_bytes(r, "0xc1 begins no value");
    if (head == 0xca || head == 0xcb)
        return read_float(r, head == 0xca ? 4 : 8, out);
    if (head >= 0xcc && head <= 0xcf)
        return read_unsigned(r, (size_t)1 << (head - 0xcc), out);
    if (head >= 0xd0 && head <= 0xd3)
        return read_signed(r, (size_t)1 << (head - 0xd0), out);
    return read_sized(r, head, out);
}

int msgpack_read(struct arena *a, struct str *bytes, const struct json **ret, struct err *e)
{
    struct msgpack_reader r = {.arena = a, .bytes = *bytes, .err = e};
    struct json *v = ARENA_NEW(a, struct json);

    if (read_msgpack_value(&r, v))
        return -1;
    *ret = v;
    *bytes = str_sub(*bytes, r.at, SIZE_MAX);
    return 0;
}
