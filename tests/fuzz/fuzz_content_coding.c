/* fuzz: rg_common. A body with a Content-Encoding: byte 0 chooses the coding and the limit. Steps
 * end, and what they make keeps to the limits. A second byte of 0 has the rest read as a header. */
#include "common/base/check.h"
#include "common/net/content_coding.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(enum content_coding coding, struct str encoded, size_t max_bytes)
{
    struct content_decoder *d = content_decoder_new(coding, encoded, max_bytes);
    struct buf out = {0};
    struct err e = {0};
    size_t steps = 0;
    int rc;

    while ((rc = content_decoder_step(d, &out, &e)) == 0) {
        CHECK(out.len <= max_bytes);
        CHECK(++steps <= encoded.len + max_bytes);
    }
    CHECK(rc == 1 || e.kind == ERR_INVALID || e.kind == ERR_BODY_TOO_LARGE);
    CHECK(out.len <= max_bytes + CODING_STEP);
    CHECK(rc == 1 || e.text[0]);
    CHECK(out.len <= CODING_FREE + CODING_STEP ||
          out.len / MAX_OF(encoded.len, (size_t)1) <= CODING_RATIO_MAX + 1 || rc < 0);
    buf_done(&out);
    content_decoder_free(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest;

    if (size < 2)
        return 0;
    rest = str_of((const char *)data + 2, size - 2);
    if (data[1] == 0)
        (void)content_coding_add(CODING_IDENTITY, rest);
    else
        decode(data[0] % 2 ? CODING_GZIP : CODING_DEFLATE, rest,
               data[0] & 2 ? (size_t)4 << 20 : 1000);
    return 0;
}
