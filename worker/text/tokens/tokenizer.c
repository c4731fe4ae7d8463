/* Look-ups and decoding of the loaded tokenizer (tokenizer.h). tokenizer_load.c makes it, encoder.c
 * encodes. An added token has priority over a piece of the vocabulary with the same id or text. If
 * the decoder is only ByteLevel, the bytes of every token are computed at loading (texts), so that
 * decoding only copies. */

#include "worker/text/tokens/tokenizer.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/vec.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/tokenizer_parts.h"

struct detok {
    const struct tokenizer *t;
    bool skip_special;
    struct decoding decoding;
};

/* Compiles a small pattern to find out. */
bool tokenizer_jit_works(void)
{
    struct regex *r = NULL;
    struct err e;
    bool works = regex_new(STR("a+b"), &r, &e) == 0 && regex_jitted(r);

    regex_free(r);
    return works;
}

/* Frees the members in any order: they borrow from each other only while they are used. */
void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    decoder_done(&t->decoder);
    pretok_done(&t->pretok);
    normalizer_done(&t->normalizer);
    added_done(&t->added);
    bpe_done(&t->bpe);
    unigram_done(&t->unigram);
    vocab_done(&t->vocab);
    vec_done(&t->post);
    buf_done(&t->texts);
    free(t->texts_at);
    buf_done(&t->note);
    arena_done(&t->arena);
    free(t);
}

int32_t tokenizer_id(const struct tokenizer *t, struct str piece)
{
    const struct added_token *added = added_by_content(&t->added, piece);

    return added ? added->id : vocab_id(&t->vocab, piece);
}

struct str tokenizer_piece(const struct tokenizer *t, int32_t id)
{
    const struct added_token *added = added_by_id(&t->added, id);

    return added ? added->content : vocab_piece(&t->vocab, id);
}

/* Returns the bytes of the token if they are known, else the piece as the file writes it. Only an
 * empty text does not show whether the token exists. */
struct str tokenizer_text(const struct tokenizer *t, int32_t id)
{
    struct str piece;

    if (t->texts_at && id >= 0 && (size_t)id < t->vocab_size) {
        uint32_t from = text_at(t, (size_t)id), to = text_at(t, (size_t)id + 1);

        if (from < to)
            return str_of(t->texts.p + from, to - from);
    }
    piece = tokenizer_piece(t, id);
    return piece.p && t->texts_at ? STR("") : piece;
}

size_t tokenizer_plain(const struct tokenizer *t, const int32_t *ids, size_t n)
{
    size_t i = 0;

    while (t->texts_at && i < n && (uint32_t)ids[i] < t->vocab_size &&
           (t->texts_at[ids[i]] & TEXT_PLAIN))
        i++;
    return i;
}

size_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->vocab_size;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    const struct added_token *added = added_by_id(&t->added, id);

    return added && added->special;
}

const struct added_token *tokenizer_added_of(const struct tokenizer *t, int32_t id)
{
    return added_by_id(&t->added, id);
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
    return added_by_id(&t->added, id) != NULL;
}

size_t tokenizer_added_count(const struct tokenizer *t)
{
    return t->added.list.n;
}

const struct added_token *tokenizer_added(const struct tokenizer *t, size_t i)
{
    return i < t->added.list.n ? &t->added.list.at[i] : NULL;
}

bool tokenizer_byte_level(const struct tokenizer *t)
{
    return t->decoder.byte_level;
}

const char *tokenizer_remarks(const struct tokenizer *t)
{
    return t->note.p ? t->note.p : "";
}

/* --- decoding --- */

static void detok_init(struct detok *d, const struct tokenizer *t, bool skip_special)
{
    d->t = t;
    d->skip_special = skip_special;
    decoding_init(&d->decoding, &t->decoder);
}

struct detok *detok_new(const struct tokenizer *t, bool skip_special_tokens)
{
    struct detok *d = mem_alloc(sizeof(*d));

    detok_init(d, t, skip_special_tokens);
    return d;
}

void detok_free(struct detok *d)
{
    if (!d)
        return;
    decoding_done(&d->decoding);
    free(d);
}

/* Ids that are not in the vocabulary, and special ones on request, give no text. */
void detok_feed(struct detok *d, int32_t id, struct buf *out)
{
    struct str token =
        d->t->decoder.byte_level ? tokenizer_text(d->t, id) : tokenizer_piece(d->t, id);

    if (!token.p || (d->skip_special && tokenizer_is_special(d->t, id)))
        return;
    decoding_feed(&d->decoding, token, out);
}

/* Appends the texts of the first ids that are plain (tokenizer_plain), while out has fewer than
 * `until` bytes. Returns the number of ids. Most texts are short, and copying 16 bytes is faster
 * than copying their exact length. */
static size_t add_plain(const struct tokenizer *t, const int32_t *ids, size_t n, size_t until,
                        struct buf *out)
{
    const uint32_t *texts_at = t->texts_at;
    const char *texts = t->texts.p;
    size_t vocab_size = t->vocab_size, len = out->len, i = 0;

    for (; texts_at && i < n && len < until && (uint32_t)ids[i] < vocab_size; i++) {
        uint32_t at = texts_at[ids[i]];
        const char *from = texts + (at & ~TEXT_PLAIN);
        size_t more = ((texts_at[ids[i] + 1] - at) & ~TEXT_PLAIN);

        if (!(at & TEXT_PLAIN))
            break;
        if (RG_UNLIKELY(out->cap - len < more + TEXTS_BEHIND)) {
            out->len = len;
            buf_reserve(out, more + TEXTS_BEHIND + (n - i) * sizeof(*ids));
        }
        memcpy(out->p + len, from, TEXTS_BEHIND);
        if (RG_UNLIKELY(more > TEXTS_BEHIND))
            memcpy(out->p + len, from, more);
        len += more;
    }
    out->len = len;
    return i;
}

size_t detok_feed_plain(struct detok *d, const int32_t *ids, size_t n, size_t until,
                        struct buf *out)
{
    return decoding_waits(&d->decoding) ? 0 : add_plain(d->t, ids, n, until, out);
}

void detok_finish(struct detok *d, struct buf *out)
{
    decoding_finish(&d->decoding, out);
}

/* Uses the same code as for ids that arrive one by one, so both give the same text. */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n,
                      bool skip_special_tokens, struct buf *out)
{
    struct detok d;
    size_t i = add_plain(t, ids, n, SIZE_MAX, out);

    if (i == n)
        return;
    detok_init(&d, t, skip_special_tokens);
    while (i < n) {
        detok_feed(&d, ids[i++], out);
        i += detok_feed_plain(&d, ids + i, n - i, SIZE_MAX, out);
    }
    detok_finish(&d, out);
    decoding_done(&d.decoding);
}
