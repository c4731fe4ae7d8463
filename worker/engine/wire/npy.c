/*
 * A file is a magic number, a version, the header's length (2 or 4 bytes) and the header, a Python
 * dict as text, then the items. Only three keys are looked for, by their text, since NumPy writes
 * the dict in one way. A file ends where type and shape say; a further one may follow, and the last
 * must end with the bytes. Items become int32, for a block of routed experts is int32 everywhere
 * else (experts.h).
 */
#include "worker/engine/wire/npy.h"

#include <stdint.h>

static int invalid(struct err *e, const char *what)
{
    return err_set(e, ERR_ENGINE_INVALID, "the engine's routed experts are invalid: %s", what);
}

/* What follows "'name':" in the header, without blanks; absent when it is not there. */
static struct str value_of(struct str header, const char *name)
{
    size_t at = str_find(header, str_cstr(name), 0);

    if (at == SIZE_MAX)
        return (struct str){0};
    return str_trim(str_sub(header, at + strlen(name), header.len));
}

/* Bytes of an item, or 0. */
static size_t item_bytes(struct str descr)
{
    static const struct {
        const char *text;
        size_t bytes;
    } known[] = {{"'|u1'", 1}, {"'<u2'", 2}, {"'<i2'", 2}, {"'<i4'", 4}, {"'<u4'", 4}};

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (str_starts(descr, str_cstr(known[i].text)))
            return known[i].bytes;
    }
    return 0;
}

/* The product of "(6, 2, 3)", or SIZE_MAX. */
static size_t items_of(struct str shape)
{
    size_t n = 1, at = 1;

    if (shape.len == 0 || shape.p[0] != '(')
        return SIZE_MAX;
    while (at < shape.len && shape.p[at] != ')') {
        size_t digits = 0;
        uint64_t v;

        while (at + digits < shape.len && shape.p[at + digits] >= '0' &&
               shape.p[at + digits] <= '9')
            digits++;
        if (str_to_u64(str_sub(shape, at, digits), UINT32_MAX, &v) < 0 ||
            __builtin_mul_overflow(n, (size_t)v, &n))
            return SIZE_MAX;
        at += digits;
        while (at < shape.len && (shape.p[at] == ',' || shape.p[at] == ' '))
            at++;
    }
    return at < shape.len ? n : SIZE_MAX;
}

static void widen(struct buf *out, const char *p, size_t n, size_t item)
{
    char *to = buf_reserve(out, n * 4 + 1);

    memset(to, 0, n * 4);
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * 4, p + i * item, item);
    out->len += n * 4;
}

/* Finds the header's text; *ret_data: where the items start. */
static int find_header(struct str file, struct str *header, size_t *ret_data)
{
    size_t len, at;

    if (!str_starts(file, STR("\x93NUMPY")) || file.len < 12)
        return -1;
    len = (uint8_t)file.p[8] | (size_t)(uint8_t)file.p[9] << 8;
    at = 10;
    if (file.p[6] >= 2) {
        len |= (size_t)(uint8_t)file.p[10] << 16 | (size_t)(uint8_t)file.p[11] << 24;
        at = 12;
    }
    if (len > file.len - at)
        return -1;
    *header = str_sub(file, at, len);
    *ret_data = at + len;
    return 0;
}

/* The first dimension. */
static size_t rows_of(struct str shape)
{
    uint64_t rows = 0;
    size_t digits = 0;

    while (1 + digits < shape.len && shape.p[1 + digits] >= '0' && shape.p[1 + digits] <= '9')
        digits++;
    return str_to_u64(str_sub(shape, 1, digits), UINT32_MAX, &rows) < 0 ? 0 : (size_t)rows;
}

/* Adds one file's items to out; *ret_len: how long the file is. */
static int take_file(struct str file, struct buf *out, size_t *ret_len, struct npy_last *last,
                     struct err *e)
{
    struct str header, shape;
    size_t data, item, n, bytes;

    if (find_header(file, &header, &data) < 0)
        return invalid(e, "not an .npy file");
    shape = value_of(header, "'shape':");
    item = item_bytes(value_of(header, "'descr':"));
    n = items_of(shape);
    if (!str_starts(value_of(header, "'fortran_order':"), STR("False")))
        return invalid(e, "not in C order");
    if (item == 0 || n == SIZE_MAX || __builtin_mul_overflow(n, item, &bytes) ||
        bytes > file.len - data)
        return invalid(e, "type, shape and size do not agree");
    *last = (struct npy_last){rows_of(shape), out->len};
    widen(out, file.p + data, n, item);
    *ret_len = data + bytes;
    return 0;
}

int npy_to_int32(struct buf *b, struct npy_last *ret_last, struct err *e)
{
    struct buf out = {0};
    struct npy_last last = {0};
    size_t at = 0, len = 0;

    do {
        if (take_file(str_sub(buf_str(b), at, SIZE_MAX), &out, &len, &last, e)) {
            buf_done(&out);
            return -1;
        }
        at += len;
    } while (at < b->len);
    buf_done(b);
    *b = out;
    if (ret_last)
        *ret_last = last;
    return 0;
}
