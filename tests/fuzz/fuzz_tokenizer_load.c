/* fuzz: rg_tokens */
/* Any bytes as a tokenizer.json: refused with a text, or a tokenizer whose ids are in range and
 * whose decoding is UTF-8. */
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "fuzz_limits.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *t)
{
    struct str text = STR(" The 12 caf\xc3\xa9 \xe2\x96\x81\xe4\xb8\xad!\n  <s>ab ");
    struct encoder *enc = encoder_new(t);
    struct token_vec ids = {0};
    struct buf out = {0};
    struct err e = {0};

    if (encoder_encode(enc, text, true, &ids, &e) < 0)
        CHECK(ids.n == 0 && e.text[0]);
    for (size_t i = 0; i < ids.n; i++)
        CHECK(ids.at[i] >= 0 && (size_t)ids.at[i] < tokenizer_vocab_size(t));
    tokenizer_decode(t, ids.at, ids.n, true, &out);
    CHECK(utf8_valid(buf_str(&out)));
    for (int32_t id = -1; id < 8; id++)
        tokenizer_text(t, id);
    buf_done(&out);
    vec_done(&ids);
    encoder_free(enc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t;
    struct err e = {0};

    fuzz_limits_begin();
    if (tokenizer_parse(str_of((const char *)data, size), &t, &e) < 0) {
        CHECK(e.kind == ERR_CONFIG || e.kind == ERR_UNSUPPORTED);
        CHECK(e.text[0]);
        return 0;
    }
    use(t);
    tokenizer_free(t);
    fuzz_limits_end(size);
    return 0;
}
