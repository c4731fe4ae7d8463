/* Decodes with zlib (content_coding.h). Each step reads or makes a limited number of bytes, so that
 * it ends. */
#include "common/net/content_coding.h"

#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"

struct content_decoder {
    z_stream z;
    enum content_coding coding;
    struct str encoded;
    size_t taken; /* bytes of it that were read */
    size_t max_bytes;
};

static enum content_coding coding_of(struct str name)
{
    if (name.len == 0 || str_eq_nocase(name, STR("identity")))
        return CODING_IDENTITY;
    if (str_eq_nocase(name, STR("gzip")) || str_eq_nocase(name, STR("x-gzip")))
        return CODING_GZIP;
    return str_eq_nocase(name, STR("deflate")) ? CODING_DEFLATE : CODING_UNKNOWN;
}

enum content_coding content_coding_add(enum content_coding had, struct str value)
{
    do {
        enum content_coding next = coding_of(str_trim(str_cut(&value, ',')));

        if (next != CODING_IDENTITY)
            had = had == CODING_IDENTITY ? next : CODING_UNKNOWN;
    } while (value.p);
    return had;
}

/* Reports whether s begins with zlib's header (RFC 1950): the method, and a check over both
 * bytes. */
static bool has_zlib_header(struct str s)
{
    return s.len >= 2 && (s.p[0] & 0x0f) == Z_DEFLATED &&
           ((unsigned)(unsigned char)s.p[0] << 8 | (unsigned char)s.p[1]) % 31 == 0;
}

struct content_decoder *content_decoder_new(enum content_coding coding, struct str encoded,
                                            size_t max_bytes)
{
    struct content_decoder *d = mem_zalloc(sizeof(*d));
    int window = MAX_WBITS;

    d->coding = coding;
    d->encoded = encoded;
    d->max_bytes = max_bytes;
    if (coding == CODING_GZIP)
        window += 16; /* selects gzip's header and checksum */
    else if (!has_zlib_header(encoded))
        window = -window;
    CHECK(inflateInit2(&d->z, window) == Z_OK);
    return d;
}

void content_decoder_free(struct content_decoder *d)
{
    if (!d)
        return;
    (void)inflateEnd(&d->z);
    free(d);
}

struct str content_decoder_next(const struct content_decoder *d)
{
    return str_sub(d->encoded, d->taken, d->taken + CODING_STEP);
}

static const char *name_of(const struct content_decoder *d)
{
    return d->coding == CODING_GZIP ? "gzip" : "deflate";
}

static int fail_coding(const struct content_decoder *d, const char *why, struct err *e)
{
    return err_field(e, "Content-Encoding", "the body is no valid %s: %s at byte %zu", name_of(d),
                     why, d->taken);
}

static int check_length(const struct content_decoder *d, size_t decoded, struct err *e)
{
    if (decoded > d->max_bytes)
        return err_set(e, ERR_BODY_TOO_LARGE, "the decoded body has more than %zu bytes",
                       d->max_bytes);
    if (decoded > CODING_FREE && decoded / MAX_OF(d->taken, (size_t)1) > CODING_RATIO_MAX)
        return err_set(e, ERR_BODY_TOO_LARGE,
                       "the body decodes to more than %d times its bytes, beyond the first %d",
                       CODING_RATIO_MAX, CODING_FREE);
    return 0;
}

/* Ends a stream. A gzip body may contain a further one. */
static int end_stream(struct content_decoder *d, struct err *e)
{
    if (d->taken == d->encoded.len)
        return 1;
    if (d->coding != CODING_GZIP)
        return fail_coding(d, "more bytes follow its end", e);
    CHECK(inflateReset(&d->z) == Z_OK);
    return 0;
}

int content_decoder_step(struct content_decoder *d, struct buf *out, struct err *e)
{
    struct str next = content_decoder_next(d);
    int rc;

    d->z.next_in = (unsigned char *)(uintptr_t)next.p; /* read only */
    d->z.avail_in = (uInt)next.len;
    d->z.next_out = (unsigned char *)buf_reserve(out, CODING_STEP);
    d->z.avail_out = CODING_STEP;
    rc = inflate(&d->z, Z_NO_FLUSH);
    d->taken += next.len - d->z.avail_in;
    out->len += CODING_STEP - d->z.avail_out;
    if (check_length(d, out->len, e))
        return -1;
    if (rc == Z_STREAM_END)
        return end_stream(d, e);
    if (rc != Z_OK && rc != Z_BUF_ERROR)
        return fail_coding(d, d->z.msg ? d->z.msg : "bad data", e);
    if (d->taken == d->encoded.len && d->z.avail_out > 0)
        return fail_coding(d, "it ends early", e);
    return 0;
}
