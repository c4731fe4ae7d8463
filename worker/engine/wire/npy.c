/*
 * A file is a magic number, a version, the header's length (2 or 4 bytes) and the header, a Python
 * dict as text, then the items. Only three keys are searched, by their text, because NumPy writes
 * the dict in one way. Type and shape determine the end of a file. A further one may follow, and
 * the last must end with the bytes. Items become int32, the format of routed experts everywhere
 * else (experts.h).
 */
#include "worker/engine/wire/npy.h"

#include <stdlib.h>

#include "common/base/mem.h"

enum { HEADER_MAX = 1 << 20, BYTES_MAX = 1 << 30 };

static int fail_npy(struct err *e, const char *what)
{
    return err_set(e, ERR_ENGINE_INVALID, "the engine's routed experts are invalid: %s", what);
}

/* Returns the text after "'name':" in the header, without blanks; absent if it is not there. */
static struct str value_of(struct str header, const char *name)
{
    size_t at = str_find(header, str_cstr(name), 0);

    if (at == SIZE_MAX)
        return (struct str){0};
    return str_trim(str_sub(header, at + strlen(name), header.len));
}

/* Returns the size of an item, or 0. */
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

/* Returns the product of "(6, 2, 3)", or SIZE_MAX. */
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

static void widen_items(struct buf *out, const char *p, size_t n, size_t item)
{
    char *to = buf_reserve(out, n * 4);

    if (item == 4) {
        memcpy(to, p, n * 4);
    } else {
        memset(to, 0, n * 4);
        for (size_t i = 0; i < n; i++)
            memcpy(to + i * 4, p + i * item, item);
    }
    out->len += n * 4;
}

/* Finds the header's text; *ret_data: where the items start. Returns 0 if more bytes are needed, -1
 * if it is not such a file. */
static int find_header(struct str file, struct str *header, size_t *ret_data)
{
    static const struct str magic = {"\x93NUMPY", 6};
    size_t len, at = 10;

    if (!str_starts(magic, str_sub(file, 0, magic.len)))
        return -1;
    if (file.len < 12)
        return 0;
    len = (uint8_t)file.p[8] | (size_t)(uint8_t)file.p[9] << 8;
    if (file.p[6] >= 2) {
        len |= (size_t)(uint8_t)file.p[10] << 16 | (size_t)(uint8_t)file.p[11] << 24;
        at = 12;
    }
    if (len > HEADER_MAX)
        return -1;
    if (len > file.len - at)
        return 0;
    *header = str_sub(file, at, len);
    *ret_data = at + len;
    return 1;
}

/* Returns the first dimension. */
static size_t rows_of(struct str shape)
{
    uint64_t rows = 0;
    size_t digits = 0;

    while (1 + digits < shape.len && shape.p[1 + digits] >= '0' && shape.p[1 + digits] <= '9')
        digits++;
    return str_to_u64(str_sub(shape, 1, digits), UINT32_MAX, &rows) < 0 ? 0 : (size_t)rows;
}

/* Reads the next file's header, if all of it is there. *ret_len: its length. Returns like
 * find_header. */
static int read_npy_header(struct npy *n, struct str file, size_t *ret_len)
{
    struct str header, shape;
    size_t bytes;
    int rc = find_header(file, &header, ret_len);

    if (rc < 0)
        return fail_npy(&n->err, "not an .npy file");
    if (rc == 0)
        return 0;
    shape = value_of(header, "'shape':");
    n->item = item_bytes(value_of(header, "'descr':"));
    n->left = items_of(shape);
    if (!str_starts(value_of(header, "'fortran_order':"), STR("False")))
        return fail_npy(&n->err, "not in C order");
    if (n->item == 0 || n->left == SIZE_MAX || __builtin_mul_overflow(n->left, n->item, &bytes) ||
        bytes > BYTES_MAX)
        return fail_npy(&n->err, "type, shape and size do not agree");
    n->last = (struct npy_last){rows_of(shape), n->items.len};
    n->any = true;
    return 1;
}

void npy_feed(struct npy *n, struct buf *came)
{
    size_t at = 0, len = 0, k = 1;

    n->bytes += came->len;
    while (!n->bad && at < came->len && k > 0) {
        if (n->left == 0) {
            int rc = read_npy_header(n, str_sub(buf_str(came), at, SIZE_MAX), &len);

            n->bad = rc < 0;
            if (rc <= 0)
                break;
            at += len;
        }
        k = MIN_OF(n->left, (came->len - at) / n->item);
        widen_items(&n->items, came->p + at, k, n->item);
        at += k * n->item;
        n->left -= k;
        k += n->left == 0; /* a further file may follow */
    }
    if (!n->bad && n->bytes > BYTES_MAX)
        n->bad = fail_npy(&n->err, "too large") < 0;
    if (n->bad)
        at = came->len; /* the remaining bytes are ignored */
    buf_consume(came, at);
    n->bytes -= came->len;
}

int npy_end(const struct npy *n, const struct buf *left_over, struct err *e)
{
    if (n->bad) {
        *e = n->err;
        return -1;
    }
    if (n->left > 0)
        return fail_npy(e, "type, shape and size do not agree");
    return n->any && left_over->len == 0 ? 0 : fail_npy(e, "not an .npy file");
}

struct npy *npy_new(void)
{
    return mem_zalloc(sizeof(struct npy));
}

void npy_free(struct npy *n)
{
    if (n)
        buf_done(&n->items);
    free(n);
}
