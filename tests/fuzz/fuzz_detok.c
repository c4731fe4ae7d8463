/* fuzz: rg_tokens */
/* Ids (two bytes each) fed one by one with random pauses equal the whole decoding; what comes out
 * of each feed is whole characters. */
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "tokens_fuzz_kit.h"
#include "worker/text/tokens/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip)
{
    struct detok *d = detok_new(t, skip);
    struct buf whole = {0}, pieces = {0};

    for (size_t i = 0; i < n; i++) {
        size_t before = pieces.len;

        detok_feed(d, ids[i], &pieces);
        CHECK(utf8_valid(str_sub(buf_str(&pieces), before, pieces.len)));
    }
    detok_finish(d, &pieces);
    tokenizer_decode(t, ids, n, skip, &whole);
    CHECK(str_eq(buf_str(&whole), buf_str(&pieces)));
    buf_clear(&pieces); /* finished: d starts anew */
    for (size_t i = 0; i < n; i++)
        detok_feed(d, ids[i], &pieces);
    detok_finish(d, &pieces);
    CHECK(str_eq(buf_str(&whole), buf_str(&pieces)));
    detok_free(d);
    buf_done(&whole);
    buf_done(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizers[FUZZ_TOKENIZERS];
    int32_t ids[256];
    size_t n = 0;

    for (size_t i = 1; i + 1 < size && n < 256; i += 2)
        ids[n++] = (data[i] & 2 ? 256 : 0) * (data[i] & 1) + data[i + 1];
    for (size_t i = 0; i < FUZZ_TOKENIZERS; i++) {
        if (!tokenizers[i])
            tokenizers[i] = fuzz_tokenizer(fuzz_pipelines[i]);
        check(tokenizers[i], ids, n, size > 0 && (data[0] & 1));
    }
    return 0;
}
