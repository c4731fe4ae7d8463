/* Text to ids (tokenizer.h): the pipeline of the reference library, without its intermediate lists.
 *
 *   text ── added.raw ──┬─ added tokens (special ones and others searched in raw text)
 *                       └─ rest: normalizer ── added.normalized ──┬─ added tokens
 *                                                                 └─ rest: pre_tokenizer ── words
 *   word ── word cache, else bpe or unigram ── ids
 *
 * The post-processor's template (t->post) says which special tokens surround the text. A text can
 * be encoded in steps (encoder_encode_step): a step ends after an added token, because nothing
 * merges across one. Scratch memory is kept between calls up to SCRATCH_KEEP. */

#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/budget.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "worker/text/tokens/regex.h"
#include "worker/text/tokens/tokenizer.h"
#include "worker/text/tokens/tokenizer_parts.h"
#include "worker/text/tokens/unicode.h"
#include "worker/text/tokens/word_cache.h"

/* Memory that an encoder keeps between texts: symbols, and bytes of each changed form of a text. */
enum { SCRATCH_KEEP = 1 << 16, SCRATCH_TEXT_KEEP = 1 << 20 };

enum { PART_BYTES = 32 << 10 };

/* Keeps rare code out of the functions that run for each word, which then need no stack frame. */
#define APART __attribute__((noinline))

#define SPACE_PIECE "\xe2\x96\x81"

struct encoder {
    const struct tokenizer *t;
    struct word_cache cache;
    struct bpe_scratch bpe;
    struct unigram_scratch unigram;
    struct regex_scratch *regex;
    struct normalizer_scratch normalizer;
    struct pretok_scratch pretok;
    struct token_vec *out; /* ids of the present call */
    struct budget budget;  /* limits of the present call */
    struct plain_places plain;
    const char *whole; /* the text whose positions the offsets are */
};

/* Makes an encoder, one for each process or thread. Borrows the tokenizer, which must outlive
 * it. */
struct encoder *encoder_new(const struct tokenizer *t)
{
    struct encoder *enc = mem_zalloc(sizeof(*enc));

    enc->t = t;
    word_cache_init(&enc->cache);
    enc->regex = regex_scratch_new();
    regex_scratch_use(enc->regex, &enc->budget);
    enc->bpe.budget = enc->unigram.budget = &enc->budget;
    enc->normalizer.regex = enc->regex;
    pretok_scratch_init(&enc->pretok, &t->pretok, enc->regex);
    return enc;
}

/* Frees the encoder; accepts NULL. */
void encoder_free(struct encoder *enc)
{
    if (!enc)
        return;
    word_cache_done(&enc->cache);
    bpe_scratch_done(&enc->bpe);
    unigram_scratch_done(&enc->unigram);
    normalizer_scratch_done(&enc->normalizer);
    pretok_scratch_done(&enc->pretok);
    regex_scratch_free(enc->regex);
    free(enc);
}

static void append_ids(struct token_vec *out, const int32_t *ids, size_t n)
{
    vec_reserve(out, n + WORD_CACHE_IDS_MAX); /* the next word finds space, too */
    for (size_t i = 0; i < n; i++)
        out->at[out->n + i] = ids[i];
    out->n += n;
}

static int run_model(struct encoder *enc, struct str word, struct err *e)
{
    if (enc->t->is_unigram)
        return unigram_encode(&enc->t->unigram, &enc->unigram, word, enc->out, e);
    return bpe_encode(&enc->t->bpe, &enc->bpe, word, enc->out, e);
}

/* Encodes what encode_word does not: a word that the cache does not have, or ids for which there is
 * no space. */
static APART int encode_slowly(struct encoder *enc, struct str word, struct err *e)
{
    const struct word_line *line;
    struct word_line *set;
    struct word_key key;
    size_t before = enc->out->n;

    if (word.len > WORD_CACHE_KEY_MAX || word.len <= enc->t->bpe.quick_len)
        return run_model(enc, word, e);
    key = word_key(word);
    set = word_cache_set(&enc->cache, &key);
    line = word_cache_get(set, &key);
    if (line) {
        append_ids(enc->out, line->ids, word_line_count(line));
        return 0;
    }
    if (run_model(enc, word, e) < 0)
        return -1;
    if (enc->out->n > before)
        word_cache_put(set, &key, &enc->out->at[before], enc->out->n - before);
    return 0;
}

/* Encodes a word. Uses the cache if the word fits into a line of it and takes longer to encode than
 * to look up; otherwise the model. */
static inline int encode_word(struct encoder *enc, struct str word, struct err *e)
{
    const struct bpe *bpe = &enc->t->bpe;
    struct token_vec *out = enc->out;
    const struct word_line *line;
    struct word_key key;
    int32_t id;

    if (word.len > WORD_CACHE_KEY_MAX || out->cap - out->n < WORD_CACHE_IDS_MAX)
        return encode_slowly(enc, word, e);
    if (word.len <= bpe->quick_len) {
        id = bpe_quick(bpe, word);
        if (RG_UNLIKELY(id < 0))
            return encode_slowly(enc, word, e);
        out->at[out->n++] = id;
        return 0;
    }
    key = word_key(word);
    line = word_cache_get(word_cache_set(&enc->cache, &key), &key);
    if (RG_UNLIKELY(!line))
        return encode_slowly(enc, word, e);
    /* always copies the whole line, because a fixed size is faster */
    memcpy(out->at + out->n, line->ids, sizeof(line->ids));
    out->n += word_line_count(line);
    return 0;
}

/* Encodes a word in which no merge joins "X|U+2581" in pieces, which are in the cache. */
static APART int encode_pieces(struct encoder *enc, struct str word, struct err *e)
{
    struct str space = STR(SPACE_PIECE);
    size_t from = 0;

    while (from < word.len) {
        size_t to = from;

        while (str_starts(str_sub(word, to, word.len), space))
            to += space.len;
        to = str_find(word, space, to);
        if (to == SIZE_MAX)
            to = word.len;
        if (encode_word(enc, str_sub(word, from, to - from), e) < 0)
            return -1;
        from = to;
    }
    return 0;
}

/* Called for each word. A long encoding notices here that it is cancelled. */
static int on_word(void *arg, struct str word, struct err *e)
{
    struct encoder *enc = arg;

    if (!budget_spend(&enc->budget, 1))
        return budget_fail(&enc->budget, "tokenizer.json: splitting the text into words", e);
    if (enc->t->bpe.splits_at_space)
        return encode_pieces(enc, word, e);
    return encode_word(enc, word, e);
}

/* --- added tokens --- */

static bool is_word_at_edge(uint32_t cp)
{
    return unicode_flags(cp) & UC_RUST_WORD;
}

struct text_run {
    size_t start, end;
};

/* Reports whether no word character is adjacent to the match. */
static bool stands_alone(struct str text, const struct trie_match *m)
{
    uint32_t cp;

    if (m->start > 0) {
        unicode_read_back(text.p + m->start, &cp);
        if (is_word_at_edge(cp))
            return false;
    }
    if (m->end == text.len)
        return true;
    unicode_read(text.p + m->end, &cp);
    return !is_word_at_edge(cp);
}

/* Returns the start of the white space before `at`, not before `floor`. */
static size_t space_before(struct str text, size_t at, size_t floor)
{
    while (at > floor) {
        uint32_t cp;
        size_t n = unicode_read_back(text.p + at, &cp);

        if (!(unicode_flags(cp) & UC_SPACE))
            break;
        at -= n;
    }
    return at;
}

/* Returns the end of the white space at `at`. *known is a run of white space that was found before,
 * so that many tokens in one run cost one walk. */
static size_t space_after(struct str text, size_t at, struct text_run *known)
{
    if (at >= known->start && at <= known->end)
        return known->end;
    known->start = at;
    while (at < text.len) {
        uint32_t cp;
        size_t n = unicode_read(text.p + at, &cp);

        if (!(unicode_flags(cp) & UC_SPACE))
            break;
        at += n;
    }
    known->end = at;
    return at;
}

/* Handles the text between added tokens. */
typedef int rest_fn(struct encoder *enc, struct pretok_piece piece, struct err *e);

/* Passes the text between two added tokens on, with its share of the head. */
static int pass_text_between(struct encoder *enc, const struct pretok_piece *piece, size_t start,
                             size_t end, rest_fn *rest, struct err *e)
{
    size_t head = piece->head > start ? MIN_OF(piece->head - start, end - start) : 0;

    if (start >= end)
        return 0;
    return rest(enc, (struct pretok_piece){str_sub(piece->text, start, end - start), head}, e);
}

/* Extends a match by the surrounding blanks that the token swallows. Blanks that the token before
 * it, which ends at `done`, has swallowed do not count. */
static void widen_match(const struct added_token *token, struct str text, size_t done,
                        struct text_run *blank, size_t *start, size_t *end)
{
    if (token->lstrip)
        *start = *start > done ? space_before(text, *start, done) : done;
    if (token->rstrip)
        *end = space_after(text, *end, blank);
}

static bool is_plain_match(const struct encoder *enc, struct str text, size_t at)
{
    size_t from = 0, to = text.p == enc->whole ? enc->plain.n : 0;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (enc->plain.at[middle] == at)
            return true;
        if (enc->plain.at[middle] < at)
            from = middle + 1;
        else
            to = middle;
    }
    return false;
}

/* Appends the ids of the added tokens in the piece, and calls `rest` for the text between them.
 * White space that a token swallows is not searched again, but matches inside it count, as in the
 * library. at: NULL, or the start of this step. The step ends after a token when it is long enough,
 * and sets *at. */
static int split_added(struct encoder *enc, const struct trie *trie, struct pretok_piece piece,
                       rest_fn *rest, size_t *at, struct err *e)
{
    struct text_run blank = {0, 0};
    struct trie_match m;
    size_t begin = at ? *at : 0, done = begin, from = begin;

    for (; trie_find(trie, piece.text, from, &enc->budget, &m); from = m.end) {
        const struct added_token *token = added_by_id(&enc->t->added, m.value);
        size_t start = m.start, end = m.end;

        if (token->single_word && !stands_alone(piece.text, &m))
            continue;
        if (RG_UNLIKELY(enc->plain.n > 0) && is_plain_match(enc, piece.text, m.start))
            continue;
        widen_match(token, piece.text, done, &blank, &start, &end);
        if (pass_text_between(enc, &piece, done, start, rest, e) < 0)
            return -1;
        if (start < end) /* a token whose blanks were swallowed before may be empty */
            *vec_push(enc->out) = token->id;
        done = end;
        if (at && end == m.end && end - begin >= PART_BYTES) {
            *at = end;
            return 0;
        }
    }
    if (enc->budget.over)
        return budget_fail(&enc->budget, "tokenizer.json: the search for added_tokens", e);
    if (at)
        *at = piece.text.len;
    return pass_text_between(enc, &piece, done, piece.text.len, rest, e);
}

static int encode_plain(struct encoder *enc, struct pretok_piece piece, struct err *e)
{
    return pretok_run(&enc->t->pretok, &enc->pretok, piece, on_word, enc, e);
}

/* Encodes text without raw added tokens: normalizes it, then searches the normalized added
 * tokens. */
static int encode_raw(struct encoder *enc, struct pretok_piece piece, struct err *e)
{
    const struct tokenizer *t = enc->t;

    if (normalizer_apply(&t->normalizer, &enc->normalizer, &piece.text, &piece.head, e) < 0)
        return -1;
    if (trie_empty(&t->added.normalized))
        return encode_plain(enc, piece, e);
    return split_added(enc, &t->added.normalized, piece, encode_plain, NULL, e);
}

/* Encodes the text of one message. Its first character is the head (normalizer.h). */
static int encode_text(struct encoder *enc, struct str text, size_t *at, struct err *e)
{
    struct pretok_piece piece = {text, 0};

    if (text.len == 0)
        return 0;
    piece.head = unicode_len(text.p[0]);
    return split_added(enc, &enc->t->added.raw, piece, encode_raw, at, e);
}

/* Limits for one text: the same for all short ones, in proportion for long ones. Real tokenizers
 * need some ten bytes and less than a step for each byte of text. */
enum { STEPS_A_BYTE = 256, BYTES_A_BYTE = 32, BYTES_LEAST = 16 << 20 };

static void begin_budget(struct encoder *enc, struct str text)
{
    budget_init(&enc->budget, BUDGET_DEFAULT_STEPS + (uint64_t)text.len * STEPS_A_BYTE,
                BYTES_LEAST + (uint64_t)text.len * BYTES_A_BYTE, 0, NULL);
}

/* Frees the memory that a long text needed. */
static void free_excess(struct encoder *enc)
{
    if (enc->bpe.cap > SCRATCH_KEEP || enc->bpe.queue.cap > SCRATCH_KEEP)
        bpe_scratch_done(&enc->bpe);
    if (enc->unigram.cap > SCRATCH_KEEP)
        unigram_scratch_done(&enc->unigram);
    for (size_t i = 0; i < ARRAY_LEN(enc->normalizer.bufs); i++)
        buf_done_above(&enc->normalizer.bufs[i], SCRATCH_TEXT_KEEP);
    for (size_t i = 0; i < enc->pretok.n; i++)
        buf_done_above(&enc->pretok.bufs[i], SCRATCH_TEXT_KEEP);
}

/* Adds the template's special tokens on request. A failure removes all ids of this call. */
int encoder_encode(struct encoder *enc, struct str text, bool add_special_tokens,
                   struct token_vec *out, struct err *e)
{
    const struct token_vec *post = &enc->t->post;
    size_t before = out->n, n = before;
    int rc = 0;

    if (!utf8_valid(text))
        return err_set(e, ERR_INVALID, "the text is not UTF-8");
    enc->out = out;
    begin_budget(enc, text);
    for (size_t i = 0; i < post->n && rc == 0; i++) {
        if (post->at[i] == TEMPLATE_TEXT)
            rc = encode_text(enc, text, NULL, e);
        else if (add_special_tokens)
            *vec_push(out) = post->at[i];
        if (rc == 0 && !budget_hold(&enc->budget, (out->n - n) * sizeof(*out->at)))
            rc = budget_fail(&enc->budget, "tokenizer.json: post_processor", e);
        n = out->n;
    }
    if (rc < 0)
        out->n = before;
    free_excess(enc);
    return rc;
}

int encoder_encode_plain(struct encoder *enc, struct str text, const struct plain_places *plain,
                         struct token_vec *out, struct err *e)
{
    int rc;

    enc->plain = *plain;
    enc->whole = text.p;
    rc = encoder_encode(enc, text, false, out, e);
    enc->plain = (struct plain_places){0};
    enc->whole = NULL;
    return rc;
}

/* A text whose template adds more tokens is encoded as a whole, not in steps. */
int encoder_encode_step(struct encoder *enc, struct str text, size_t *at, struct token_vec *out,
                        struct err *e)
{
    const struct token_vec *post = &enc->t->post;
    size_t before = out->n;
    int rc;

    if (post->n != 1 || post->at[0] != TEMPLATE_TEXT || text.len == 0) {
        *at = text.len; /* the ids are not only those of the text */
        return encoder_encode(enc, text, false, out, e) == 0 ? 1 : -1;
    }
    if (*at == 0 && !utf8_valid(text))
        return err_set(e, ERR_INVALID, "the text is not UTF-8");
    enc->out = out;
    begin_budget(enc, text);
    rc = encode_text(enc, text, at, e);
    free_excess(enc);
    if (rc < 0) {
        out->n = before;
        return -1;
    }
    return *at == text.len;
}
