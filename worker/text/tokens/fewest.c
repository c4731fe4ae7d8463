/* A lower bound for the number of a text's tokens, without encoding it, from the longest token. So
 * a call that cannot fit is refused before its text is encoded. If a tokenizer may drop or join
 * text without limit, the bound is 0. The same pass over all tokens marks those whose texts
 * decoding may copy unchanged. */
#include "worker/text/tokens/tokenizer_parts.h"

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "worker/text/tokens/tokenizer.h"
#include "worker/text/tokens/unicode.h"

/* Characters that are composed into one are together at most this many times as long. */
enum { COMPOSED_MAX = 4 };

/* Reports whether every byte of a text becomes a byte of some token: nothing is dropped, swallowed
 * or joined into one token of unlimited length. */
static bool keeps_all(const struct tokenizer *t)
{
    for (size_t i = 0; i < t->added.list.n; i++)
        if (t->added.list.at[i].lstrip || t->added.list.at[i].rstrip)
            return false;
    if (!pretok_keeps_all(&t->pretok) || !normalizer_only_composes(&t->normalizer))
        return false;
    if (t->is_unigram)
        return t->unigram.byte_fallback && t->unigram.has_bytes;
    for (size_t i = 0; i < 256; i++)
        if (t->bpe.bytes[i] < 0)
            return false;
    return t->bpe.byte_level || t->bpe.byte_fallback;
}

/* Called once, at the end of loading. */
void tokenizer_measure(struct tokenizer *t)
{
    size_t longest = 0;

    CHECK(t->texts.len < TEXT_PLAIN);
    for (size_t i = 0; i < t->vocab_size; i++) {
        struct str text = tokenizer_text(t, (int32_t)i);

        longest = MAX_OF(longest, text.len);
        if (t->texts_at && text.len > 0 && utf8_valid(text) && !tokenizer_is_added(t, (int32_t)i))
            t->texts_at[i] |= TEXT_PLAIN;
    }
    t->longest = keeps_all(t) ? longest : 0;
}

/* ASCII is never composed, so the bound is not divided. */
static bool is_ascii(struct str text)
{
    return unicode_ascii_run(text.p, text.len) == text.len;
}

size_t tokenizer_fewest(const struct tokenizer *t, struct str text)
{
    if (t->longest == 0)
        return 0;
    return text.len / t->longest / (is_ascii(text) ? 1 : COMPOSED_MAX);
}
