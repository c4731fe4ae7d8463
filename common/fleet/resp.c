/* The scan checks everything and keeps its position in arrays, so a long reply is read in linear
 * time however its bytes are cut. resp_read follows the same grammar without checks. */
#include "common/fleet/resp.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/check.h"

/* Cuts the line at `at` without its end. Returns the bytes with the end, 0 if the end is missing.
 */
static size_t cut_line(struct str bytes, size_t at, struct str *ret)
{
    const char *from = bytes.p + at;
    const char *end = memchr(from, '\n', bytes.len - at);

    if (!end)
        return 0;
    *ret = str_of(from, (size_t)(end - from));
    return ret->len + 1;
}

/* Reads a decimal number with an optional minus sign. -1: it is none. */
static int read_integer(struct str text, int64_t *ret)
{
    bool negative = str_starts(text, STR("-"));
    uint64_t value;

    if (str_to_u64(str_sub(text, negative, text.len), INT64_MAX, &value))
        return -1;
    *ret = negative ? -(int64_t)value : (int64_t)value;
    return 0;
}

static int refuse(struct err *e, const char *what)
{
    return err_set(e, ERR_IO, "the reply is not RESP2: %s", what);
}

/* Accepts a bulk of `number` bytes whose line ends at `at`. As resp_scan_reply. */
static int scan_bulk(struct resp_scan *s, struct str bytes, size_t at, int64_t number,
                     struct err *e)
{
    size_t n = number > 0 ? (size_t)number : 0;

    if (number < -1 || n > RESP_BYTES_MAX)
        return refuse(e, "the length of a bulk is below -1 or above 600 MiB");
    if (number >= 0) {
        if (bytes.len - at < n + 2)
            return 0;
        if (memcmp(bytes.p + at + n, "\r\n", 2) != 0)
            return refuse(e, "a bulk does not end with its length");
        at += n + 2;
    }
    s->at = at;
    return 1;
}

/* Opens an array of `number` items whose line ends at `at`. */
static int scan_array(struct resp_scan *s, size_t at, int64_t number, struct err *e)
{
    if (number < -1 || number > RESP_ITEMS_MAX)
        return refuse(e, "the length of an array is below -1 or above 1048576");
    s->at = at;
    if (number <= 0)
        return 1;
    if (s->depth == RESP_DEPTH_MAX)
        return refuse(e, "arrays are nested more than 8 deep");
    s->left[s->depth++] = (size_t)number;
    return 1;
}

/* Accepts one value, or the head of an array. */
static int scan_value(struct resp_scan *s, struct str bytes, struct err *e)
{
    struct str line = {0};
    size_t n = cut_line(bytes, s->at, &line);
    int64_t number;

    if (n == 0 ? bytes.len - s->at > RESP_LINE_MAX + 2 : line.len > RESP_LINE_MAX + 1)
        return refuse(e, "a line has more than 4096 bytes");
    if (n == 0)
        return 0;
    if (line.len < 2 || line.p[line.len - 1] != '\r')
        return refuse(e, "a line does not end with CR LF");
    line.len--;
    if (line.p[0] == '+' || line.p[0] == '-') {
        s->at += n;
        return 1;
    }
    if ((line.p[0] != ':' && line.p[0] != '$' && line.p[0] != '*') ||
        read_integer(str_sub(line, 1, line.len), &number))
        return refuse(e, "a line is neither a status, an error nor a number");
    if (line.p[0] == '$')
        return scan_bulk(s, bytes, s->at + n, number, e);
    if (line.p[0] == '*')
        return scan_array(s, s->at + n, number, e);
    s->at += n;
    return 1;
}

/* Counts a value whose bytes were accepted, and closes the arrays that it completes. */
static void count_value(struct resp_scan *s)
{
    while (s->depth > 0 && --s->left[s->depth - 1] == 0)
        s->depth--;
}

int resp_scan_reply(struct resp_scan *s, struct str bytes, struct err *e)
{
    do {
        unsigned depth = s->depth;
        int rc = scan_value(s, bytes, e);

        if (rc <= 0)
            return rc;
        if (++s->items > RESP_ITEMS_MAX || s->at > RESP_BYTES_MAX)
            return refuse(e, "it has more than 1048576 items or 600 MiB");
        if (s->depth == depth)
            count_value(s);
    } while (s->depth > 0);
    return 1;
}

/* Reads the value at *at and moves *at to its end. The depth is limited by the scan. */
/* NOLINTNEXTLINE(misc-no-recursion) */
static void read_value(struct arena *a, struct str bytes, size_t *at, struct resp *ret)
{
    struct str line = {0};
    struct resp *items;

    *ret = (struct resp){.kind = RESP_NULL};
    *at += cut_line(bytes, *at, &line);
    CHECK(line.p && line.len >= 2);
    ret->text = str_sub(line, 1, line.len - 2);
    if (line.p[0] == '+' || line.p[0] == '-') {
        ret->kind = line.p[0] == '+' ? RESP_STATUS : RESP_ERROR;
        return;
    }
    CHECK(read_integer(ret->text, &ret->number) == 0);
    ret->text = str_of(NULL, 0);
    if (line.p[0] == ':') {
        ret->kind = RESP_INTEGER;
        return;
    }
    if (ret->number < 0)
        return;
    ret->n = (size_t)ret->number;
    ret->number = 0;
    if (line.p[0] == '$') {
        ret->kind = RESP_BULK;
        ret->text = str_of(bytes.p + *at, ret->n);
        *at += ret->n + 2;
        ret->n = 0;
        return;
    }
    CHECK(line.p[0] == '*');
    ret->kind = RESP_ARRAY;
    ret->items = items = arena_calloc(a, ret->n, sizeof(*items));
    for (size_t i = 0; i < ret->n; i++)
        read_value(a, bytes, at, &items[i]);
}

const struct resp *resp_read(struct arena *a, struct str bytes)
{
    struct resp *ret = ARENA_NEW(a, struct resp);
    size_t at = 0;

    read_value(a, bytes, &at, ret);
    CHECK(at == bytes.len);
    return ret;
}

bool resp_has_items(const struct resp *r, size_t n)
{
    return r->kind == RESP_ARRAY && r->n >= n;
}

struct str resp_text(const struct resp *r, size_t i)
{
    return resp_has_items(r, i + 1) ? r->items[i].text : str_of(NULL, 0);
}

uint64_t resp_number(const struct resp *r, size_t i, uint64_t otherwise)
{
    uint64_t value = otherwise;

    if (!resp_has_items(r, i + 1))
        return otherwise;
    if (r->items[i].kind == RESP_INTEGER)
        return r->items[i].number >= 0 ? (uint64_t)r->items[i].number : otherwise;
    (void)str_to_u64(r->items[i].text, UINT64_MAX, &value);
    return value;
}

void resp_begin_command(struct buf *out, size_t n)
{
    buf_add_c(out, '*');
    buf_add_u64(out, n);
    buf_puts(out, "\r\n");
}

void resp_add_word(struct buf *out, struct str word)
{
    buf_add_c(out, '$');
    buf_add_u64(out, word.len);
    buf_puts(out, "\r\n");
    buf_add_str(out, word);
    buf_puts(out, "\r\n");
}

void resp_add_number(struct buf *out, uint64_t number)
{
    size_t digits = 1;

    for (uint64_t v = number; v >= 10; v /= 10)
        digits++;
    buf_add_c(out, '$');
    buf_add_u64(out, digits);
    buf_puts(out, "\r\n");
    buf_add_u64(out, number);
    buf_puts(out, "\r\n");
}
