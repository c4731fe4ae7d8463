#include "common/base/vec.h"
#include "testing.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

/* The bound never exceeds the number of tokens, and is close to it if every byte is a token. */
TEST(fewest, is_no_more_than_there_are)
{
    static const char *const pieces[] = {"!",        "a",         " ",  "<|im_start|>",
                                         "\xc3\xa9", "e\xcc\x81", "x\n"};
    struct tokenizer *t = tokenizer_builtin();
    struct encoder *enc = encoder_new(t);

    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        struct token_vec ids = {0};
        struct buf text = {0};
        size_t fewest;

        for (int k = 0; k < 5000; k++)
            buf_puts(&text, pieces[i]);
        fewest = tokenizer_fewest(t, buf_str(&text));
        cr_assert_eq(encoder_encode(enc, buf_str(&text), false, &ids, NULL), 0);
        cr_expect_leq(fewest, ids.n, "%s: %zu of %zu", pieces[i], fewest, ids.n);
        cr_expect_geq(fewest, text.len / 100, "%s: %zu of %zu bytes", pieces[i], fewest, text.len);
        vec_done(&ids);
        buf_done(&text);
    }
    encoder_free(enc);
    tokenizer_free(t);
}
