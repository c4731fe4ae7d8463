/* Scans chunked framing (chunked.h), byte by byte except data. Strict where two readers might
 * disagree about the end of a body: CRLF only, hexadecimal sizes without signs or blanks, bounded
 * extensions and trailers. Data is passed in runs without being read. */

#include "common/net/chunked.h"

#include "common/codec/hex.h"
#include <stdbool.h>

enum { SIZE_DIGITS_MAX = 15, EXTENSION_MAX = 4096, TRAILER_MAX = 8192 };

enum chunked_state {
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER, /* at the start of a trailer line or of the last CRLF */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF
};

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* Ends the size line at its LF. */
static void begin_data(struct chunked *c)
{
    c->total_bytes += c->left_bytes;
    c->size_lines++;
    if (c->left_bytes == 0)
        c->extra_bytes = 0;
    c->state = c->left_bytes == 0 ? TRAILER : DATA;
}

/* Reads a byte of the size. */
static int step_size(struct chunked *c, char byte, struct err *e)
{
    int digit = hex_value(byte);

    if (digit >= 0) {
        if (c->digits++ == SIZE_DIGITS_MAX)
            return err_set(e, ERR_INVALID, "a chunk size is too long");
        c->left_bytes = c->left_bytes * 16 + (unsigned)digit;
        return 0;
    }
    if (c->digits == 0 || (byte != '\r' && byte != ';'))
        return err_set(e, ERR_INVALID, "a malformed chunk size");
    c->digits = 0;
    c->state = byte == ';' ? EXTENSION : SIZE_LF;
    return 0;
}

/* Reads a byte of an extension and ignores it. */
static int step_extension(struct chunked *c, char byte, struct err *e)
{
    if (byte == '\r') {
        c->state = SIZE_LF;
        return 0;
    }
    if (is_control(byte) || ++c->extra_bytes > EXTENSION_MAX)
        return err_set(e, ERR_INVALID, "a malformed chunk extension");
    return 0;
}

/* Checks trailer lines by the rules of header lines. */
static int step_trailer(struct chunked *c, char byte, struct err *e)
{
    if (++c->extra_bytes > TRAILER_MAX)
        return err_set(e, ERR_INVALID, "the trailers are too long");
    switch (c->state) {
    case TRAILER:
        if (!is_token(byte))
            break;
        c->state = TRAILER_NAME;
        return 0;
    case TRAILER_NAME:
        if (byte == ':')
            c->state = TRAILER_VALUE;
        else if (!is_token(byte))
            break;
        return 0;
    case TRAILER_VALUE:
        if (byte == '\r')
            c->state = TRAILER_LF;
        else if (is_control(byte))
            break;
        return 0;
    default:
        if (byte != '\n')
            break;
        c->state = TRAILER;
        return 0;
    }
    return err_set(e, ERR_INVALID, "a malformed trailer");
}

/* Reads a byte that must be `wanted`. */
static int expect_byte(struct chunked *c, char byte, char wanted, enum chunked_state next,
                       struct err *e)
{
    if (byte != wanted)
        return err_set(e, ERR_INVALID, "a chunk's line end is not CRLF");
    c->state = next;
    return 0;
}

/* Reads one byte that is not data. Returns 1 at the end of the body, 0, or -1. */
static int step_byte(struct chunked *c, char byte, struct err *e)
{
    switch (c->state) {
    case SIZE:
        return step_size(c, byte, e);
    case EXTENSION:
        return step_extension(c, byte, e);
    case SIZE_LF:
        if (expect_byte(c, byte, '\n', DATA, e) != 0)
            return -1;
        begin_data(c);
        return 0;
    case DATA_CR:
        return expect_byte(c, byte, '\r', DATA_LF, e);
    case DATA_LF:
        return expect_byte(c, byte, '\n', SIZE, e);
    case TRAILER:
        if (byte != '\r')
            return step_trailer(c, byte, e);
        c->state = END_LF;
        return 0;
    case END_LF:
        if (expect_byte(c, byte, '\n', SIZE, e) != 0)
            return -1;
        c->extra_bytes = 0;
        return 1;
    default:
        return step_trailer(c, byte, e);
    }
}

static bool in_trailer(const struct chunked *c, char byte)
{
    return (c->state == TRAILER && byte != '\r') ||
           (c->state >= TRAILER_NAME && c->state <= TRAILER_LF);
}

/* Passes the bytes of the chunk that are in `in`. */
static void pass_data(struct chunked *c, size_t available, struct chunked_run *ret)
{
    ret->kind = CHUNKED_DATA;
    ret->len_bytes = available < c->left_bytes ? available : (size_t)c->left_bytes;
    c->left_bytes -= ret->len_bytes;
    if (c->left_bytes == 0)
        c->state = DATA_CR;
}

static bool at_size_line(const struct chunked *c)
{
    return c->state == SIZE && c->digits == 0;
}

int chunked_next(struct chunked *c, struct str in, struct chunked_run *ret, struct err *e)
{
    size_t i = 0;
    int r = 0;
    bool trailer;

    *ret = (struct chunked_run){0};
    if (in.len == 0)
        return 0;
    if (c->state == DATA) {
        pass_data(c, in.len, ret);
        return 0;
    }
    trailer = in_trailer(c, in.p[0]);
    do
        r = step_byte(c, in.p[i++], e);
    while (r == 0 && i < in.len && c->state != DATA && !at_size_line(c) &&
           in_trailer(c, in.p[i]) == trailer);
    ret->len_bytes = i;
    ret->kind = trailer ? CHUNKED_TRAILER : CHUNKED_FRAMING;
    return r;
}

/* Reports whether the scanner is inside a size line, after its first byte. */
static bool in_size_line(const struct chunked *c)
{
    return (c->state == SIZE && c->digits > 0) || c->state == EXTENSION || c->state == SIZE_LF;
}

/* *ret_pass is for a relay that forwards framing and data unchanged. *ret_used also covers
 * trailers, which are not forwarded. */
int chunked_scan(struct chunked *c, struct str in, size_t *ret_used, size_t *ret_pass,
                 struct err *e)
{
    size_t used = 0;
    int r = 0;

    *ret_used = *ret_pass = 0;
    while (r == 0 && used < in.len) {
        struct chunked before = *c;
        struct chunked_run run;

        if (used > 0 && in_trailer(c, in.p[used]))
            break;
        r = chunked_next(c, str_sub(in, used, in.len), &run, e);
        if (r < 0)
            return -1;
        if (in_size_line(c)) {
            *c = before;
            break;
        }
        used += run.len_bytes;
        if (run.kind == CHUNKED_TRAILER) {
            *ret_used = used;
            return r;
        }
    }
    *ret_used = *ret_pass = used;
    return r;
}
