/* fuzz: rg_tokens */
/* Any UTF-8 through tokenizers of several families: ids in range, a second run equal to the first,
 * and byte-level ones give the text back. Other bytes are refused. */
#include <string.h>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "fuzz_limits.h"
#include "tokens_fuzz_kit.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct tokenizer *t, struct encoder *enc, struct str text, bool exact)
{
    struct token_vec ids = {0}, again = {0};
    struct buf out = {0};
    struct err e;

    CHECK(encoder_encode(enc, text, true, &ids, &e) == 0);
    CHECK(encoder_encode(enc, text, true, &again, &e) == 0);
    CHECK(ids.n == again.n);
    CHECK(ids.n == 0 || memcmp(ids.at, again.at, ids.n * sizeof(*ids.at)) == 0);
    for (size_t i = 0; i < ids.n; i++)
        CHECK(ids.at[i] >= 0 && (size_t)ids.at[i] < tokenizer_vocab_size(t));
    tokenizer_decode(t, ids.at, ids.n, false, &out);
    CHECK(utf8_valid(buf_str(&out)));
    CHECK(!exact || str_eq(buf_str(&out), text));
    vec_done(&ids);
    vec_done(&again);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizers[FUZZ_TOKENIZERS];
    static struct encoder *encoders[FUZZ_TOKENIZERS];
    struct str text = str_of((const char *)data, size);

    fuzz_limits_begin();
    for (size_t i = 0; i < FUZZ_TOKENIZERS; i++) {
        struct token_vec none = {0};
        struct err e;

        if (!tokenizers[i]) {
            tokenizers[i] = fuzz_tokenizer(fuzz_pipelines[i]);
            encoders[i] = encoder_new(tokenizers[i]);
        }
        if (utf8_valid(text))
            check(tokenizers[i], encoders[i], text, i < FUZZ_EXACT);
        else
            CHECK(encoder_encode(encoders[i], text, false, &none, &e) == -1 && none.n == 0);
    }
    fuzz_limits_end(size);
    return 0;
}
