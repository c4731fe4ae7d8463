/* Byte-pair encoding (bpe.h). One word goes through these steps:
 *
 * - ignore_merges: a word that is a piece itself becomes that piece;
 * - a byte-level model whose merges are in order uses longest.h instead of the next steps;
 * - the word becomes symbols: bytes (byte_symbols) or characters with prefix and suffix
 *   (char_symbols), unknown ones by byte fallback or unk;
 * - symbols are merged: up to SHORT_WORD by scanning for the lowest rank, longer words by a heap
 *   over a linked list, in windows.
 *
 * Outdated entries are never removed from the heap: an entry counts only while its rank is still
 * the one recorded for the pair at its position (merge_queue). */

#include "worker/text/tokens/bpe.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/budget.h"
#include "common/base/vec.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/longest.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/unicode.h"
#include "worker/text/tokens/vocab.h"

enum { SHORT_WORD = 48, MERGE_BATCH = 64, QUICK_LEN = 3 };

enum { WINDOW = 384, WINDOW_TAIL = 32 }; /* symbols of a long word that are merged in one step */

#define NO_RANK PAIR_NONE
#define SPACE_PIECE "\xe2\x96\x81"

void bpe_init(struct bpe *b, const struct vocab *vocab, size_t merges)
{
    *b = (struct bpe){.vocab = vocab, .unk = BPE_UNK_NONE};
    pair_table_init(&b->ranks, merges);
    b->merged = mem_alloc((merges + 1) * sizeof(*b->merged));
}

void bpe_done(struct bpe *b)
{
    if (b->longest)
        longest_done(b->longest);
    free(b->longest);
    pair_table_done(&b->ranks);
    free(b->merged);
    *b = (struct bpe){0};
}

static inline uint32_t pair_rank(const struct bpe *b, int32_t left, int32_t right)
{
    return pair_table_get(&b->ranks, left, right);
}

/* Returns the id of left + tail. Merges usually make successive ids, so the id after the last one
 * is tried before the table. */
static int32_t joined_id(const struct bpe *b, struct str left, struct str tail)
{
    int32_t guess = b->merge_count ? b->merged[b->merge_count - 1] + 1 : 0, id;
    struct str piece = vocab_piece(b->vocab, guess);
    size_t len = left.len + tail.len;
    char small[256], *text = small;

    if (piece.len == len && str_starts(piece, left) && str_ends(piece, tail))
        return guess;
    if (len > sizeof(small))
        text = mem_alloc(len);
    if (left.len)
        memcpy(text, left.p, left.len);
    if (tail.len)
        memcpy(text + left.len, tail.p, tail.len);
    id = vocab_id(b->vocab, str_of(text, len));
    if (text != small)
        free(text);
    return id;
}

/* Gives the pair the next rank. */
static int add_merge(struct bpe *b, int32_t left, int32_t right, int32_t joined, struct err *e)
{
    if (left < 0 || right < 0 || joined < 0)
        return err_set(e, ERR_CONFIG, "merge %zu: a token is not in the vocabulary",
                       b->merge_count + 1);
    pair_table_put(&b->ranks, left, right, (uint32_t)b->merge_count);
    if (b->ranks.probes > 64 * b->merge_count + (1 << 16))
        return err_set(e, ERR_UNSUPPORTED, "model: too many merges hash alike");
    b->merged[b->merge_count++] = joined;
    return 0;
}

/* Looks up the pieces of many merges at once, so that the processor fetches their slots from memory
 * in parallel. Loading a vocabulary is limited by that. */
static int add_batch(struct bpe *b, const struct bpe_merge *merges, size_t n, struct err *e)
{
    uint32_t hash[MERGE_BATCH][2];
    size_t skip = 0;

    for (size_t i = 0; i < b->prefix.len; i += unicode_len(b->prefix.p[i]))
        skip++; /* a number of characters is used as a number of bytes, as in the library */
    for (size_t i = 0; i < n; i++) {
        hash[i][0] = vocab_hash(b->vocab, merges[i].left);
        hash[i][1] = vocab_hash(b->vocab, merges[i].right);
    }
    for (size_t i = 0; i < n; i++) {
        vocab_prefetch(b->vocab, hash[i][0]);
        vocab_prefetch(b->vocab, hash[i][1]);
    }
    for (size_t i = 0; i < n; i++) {
        const struct bpe_merge *m = &merges[i];
        int32_t left = vocab_id_at(b->vocab, m->left, hash[i][0]);
        int32_t right = vocab_id_at(b->vocab, m->right, hash[i][1]);
        int32_t joined = joined_id(b, m->left, str_sub(m->right, skip, m->right.len));

        if (add_merge(b, left, right, joined, e) < 0)
            return -1;
    }
    return 0;
}

int bpe_add_merges(struct bpe *b, const struct bpe_merge *merges, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i += MERGE_BATCH)
        if (add_batch(b, merges + i, MIN_OF(n - i, (size_t)MERGE_BATCH), e) < 0)
            return -1;
    return 0;
}

/* Reports whether a U+2581 in the piece follows a different character. */
static bool crosses_space(struct str piece)
{
    struct str space = STR(SPACE_PIECE);
    size_t lead = 0;

    while (str_starts(str_sub(piece, lead, piece.len), space))
        lead += space.len;
    return str_find(piece, space, lead) != SIZE_MAX;
}

/* Reports whether every character becomes at least one symbol. Otherwise its neighbours could be
 * merged across it. */
static bool drops_nothing(const struct bpe *b)
{
    bool all = b->byte_fallback;

    for (size_t i = 0; all && i < 256; i++)
        all = b->bytes[i] >= 0;
    return all || b->unk >= 0;
}

/* Reports whether words can be cut before each U+2581 without changing the result. No merge may
 * join a character with a U+2581 after it, and nothing may depend on where a word begins or
 * ends. */
static bool splits_at_space(const struct bpe *b)
{
    if (b->byte_level || !drops_nothing(b) || b->prefix.len || b->suffix.len || b->ignore_merges ||
        vocab_id(b->vocab, STR(SPACE_PIECE)) < 0)
        return false;
    for (size_t i = 0; i < b->merge_count; i++)
        if (crosses_space(vocab_piece(b->vocab, b->merged[i])))
            return false;
    return true;
}

/* Finds the ids of single bytes, then decides which of the two shortcuts the model permits. */
void bpe_seal(struct bpe *b)
{
    for (unsigned i = 0; i < 256; i++) {
        char byte = (char)i;
        struct buf piece = {0};

        if (b->byte_level)
            byte_level_write(str_of(&byte, 1), &piece);
        else
            buf_printf(&piece, "<0x%02X>", i);
        b->bytes[i] = vocab_id(b->vocab, buf_str(&piece));
        buf_done(&piece);
    }
    pair_table_seal(&b->ranks);
    b->splits_at_space = splits_at_space(b);
    if (!b->byte_level)
        return;
    b->longest = mem_zalloc(sizeof(*b->longest));
    longest_init(b->longest, &(struct longest_merges){.ranks = &b->ranks,
                                                      .merged = b->merged,
                                                      .n = b->merge_count,
                                                      .id_count = b->vocab->id_count,
                                                      .bytes = b->bytes});
    b->quick_len = b->longest->origins && !b->ignore_merges ? QUICK_LEN : 0;
}

static int fail_budget(const struct bpe_scratch *s, struct err *e)
{
    return budget_fail(s->budget, "tokenizer.json, model: a word", e);
}

/* Reserves space for n symbols in the caller's scratch. Returns false if the budget does not permit
 * it. */
static bool reserve_symbols(struct bpe_scratch *s, size_t n)
{
    size_t had = s->cap;

    if (n <= s->cap)
        return true;
    if (!budget_hold(s->budget, (n + n / 2 + 256 - had) *
                                    (sizeof(*s->id) + sizeof(*s->token) + sizeof(*s->span))))
        return false;
    s->cap = n + n / 2 + 256;
    s->id = mem_realloc_array(s->id, s->cap, sizeof(*s->id));
    s->token = mem_realloc_array(s->token, s->cap, sizeof(*s->token));
    s->span = mem_realloc_array(s->span, s->cap, sizeof(*s->span));
    return true;
}

enum { QUEUE_BYTES = 44 }; /* bytes of memory for one symbol */

/* Reserves space for n symbols in the merge queue. Returns false if the budget does not permit
 * it. */
static bool queue_reserve(struct bpe_queue *q, struct budget *budget, size_t n)
{
    if (n <= q->cap)
        return true;
    if (!budget_hold(budget, (n + WINDOW - q->cap) * QUEUE_BYTES))
        return false;
    q->cap = n + WINDOW;
    q->id = mem_realloc_array(q->id, q->cap, sizeof(*q->id));
    q->rank = mem_realloc_array(q->rank, q->cap, sizeof(*q->rank));
    q->next = mem_realloc_array(q->next, q->cap, sizeof(*q->next));
    q->prev = mem_realloc_array(q->prev, q->cap, sizeof(*q->prev));
    q->span = mem_realloc_array(q->span, q->cap, sizeof(*q->span));
    q->heap = mem_realloc_array(q->heap, q->cap * 3, sizeof(*q->heap));
    return true;
}

/* Frees the memory. The scratch can be used again. */
void bpe_scratch_done(struct bpe_scratch *s)
{
    free(s->id);
    free(s->token);
    free(s->span);
    free(s->queue.id);
    free(s->queue.rank);
    free(s->queue.next);
    free(s->queue.prev);
    free(s->queue.span);
    free(s->queue.heap);
    buf_done(&s->text);
    *s = (struct bpe_scratch){.budget = s->budget};
}

/* --- symbols --- */

struct symbols {
    struct bpe_scratch *s;
    size_t n;
    bool unk_waits; /* an unknown run has not been written yet */
};

static void add_symbol(struct symbols *y, int32_t id)
{
    y->s->id[y->n++] = id;
}

static void flush_unk(const struct bpe *b, struct symbols *y)
{
    if (y->unk_waits)
        add_symbol(y, b->unk);
    y->unk_waits = false;
}

/* Handles a character (or byte) that the vocabulary lacks. As in the library, bytes do not end a
 * waiting unknown run. */
static int add_unknown(const struct bpe *b, struct symbols *y, struct str piece, struct err *e)
{
    bool all = b->byte_fallback && !b->byte_level;

    for (size_t i = 0; all && i < piece.len; i++)
        all = b->bytes[(unsigned char)piece.p[i]] >= 0;
    if (all) {
        for (size_t i = 0; i < piece.len; i++)
            add_symbol(y, b->bytes[(unsigned char)piece.p[i]]);
        return 0;
    }
    if (b->unk == BPE_UNK_NONE)
        return 0;
    if (b->unk == BPE_UNK_ABSENT)
        return err_set(e, ERR_UNSUPPORTED,
                       "the text needs the unk_token, which is not in the vocabulary");
    if (!b->fuse_unk)
        flush_unk(b, y);
    y->unk_waits = true;
    return 0;
}

/* Makes one symbol of each byte. Bytes that the vocabulary lacks go to add_unknown. */
static int byte_symbols(const struct bpe *b, struct symbols *y, struct str word, struct err *e)
{
    for (size_t i = 0; i < word.len; i++) {
        int32_t id = b->bytes[(unsigned char)word.p[i]];

        if (RG_LIKELY(id >= 0 && !y->unk_waits)) {
            add_symbol(y, id);
        } else if (id >= 0) {
            flush_unk(b, y);
            add_symbol(y, id);
        } else if (add_unknown(b, y, str_sub(word, i, 1), e) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Returns the piece of the character at [from, from+len), with prefix and suffix where they
 * belong. */
static struct str affixed_piece(const struct bpe *b, struct bpe_scratch *s, struct str word,
                                size_t from, size_t len)
{
    bool first = from == 0, last = from + len == word.len;
    struct str piece = str_sub(word, from, len);

    if ((first || !b->prefix.len) && (!last || !b->suffix.len))
        return piece;
    buf_clear(&s->text);
    if (!first)
        buf_add_str(&s->text, b->prefix);
    buf_add_str(&s->text, piece);
    if (last)
        buf_add_str(&s->text, b->suffix);
    return buf_str(&s->text);
}

/* Makes one symbol of each character. */
static int char_symbols(const struct bpe *b, struct symbols *y, struct str word, struct err *e)
{
    for (size_t i = 0; i < word.len;) {
        size_t len = unicode_len(word.p[i]);
        struct str piece = affixed_piece(b, y->s, word, i, len);
        int32_t id = vocab_id(b->vocab, piece);

        if (id >= 0) {
            flush_unk(b, y);
            add_symbol(y, id);
        } else if (add_unknown(b, y, piece, e) < 0) {
            return -1;
        }
        i += len;
    }
    return 0;
}

/* --- merging --- */

/* Merges in place. Returns the new length. Quadratic, which is faster than any queue for so few
 * symbols. */
static size_t merge_short(const struct bpe *b, int32_t *id, size_t n)
{
    uint32_t rank[SHORT_WORD];

    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = pair_rank(b, id[i], id[i + 1]);
    while (n > 1) {
        uint32_t low = NO_RANK;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            if (rank[i] < low) {
                low = rank[i];
                at = i;
            }
        }
        if (low == NO_RANK)
            break;
        id[at] = b->merged[low];
        n--;
        memmove(id + at + 1, id + at + 2, (n - at - 1) * sizeof(*id));
        memmove(rank + at, rank + at + 1, (n - at) * sizeof(*rank));
        if (at > 0)
            rank[at - 1] = pair_rank(b, id[at - 1], id[at]);
        if (at + 1 < n)
            rank[at] = pair_rank(b, id[at], id[at + 1]);
    }
    return n;
}

/* Restores a binary heap of rank << 32 | position. */
static void sift_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t v = heap[at];

    for (size_t kid; (kid = at * 2 + 1) < n; at = kid) {
        if (kid + 1 < n && heap[kid + 1] < heap[kid])
            kid++;
        if (heap[kid] >= v)
            break;
        heap[at] = heap[kid];
    }
    heap[at] = v;
}

/* Adds v. The caller has reserved space. */
static void heap_push(uint64_t *heap, size_t *n, uint64_t v)
{
    size_t at = (*n)++;

    for (; at > 0 && heap[(at - 1) / 2] > v; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = v;
}

/* Removes and returns the lowest entry. */
static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0];

    heap[0] = heap[--(*n)];
    if (*n > 0)
        sift_down(heap, *n, 0);
    return top;
}

/* Computes the rank of the pair that starts at `at` again and queues it. */
static void rank_pair(const struct bpe *b, struct bpe_queue *q, size_t *heap_n, int32_t at)
{
    int32_t next = q->next[at];

    q->rank[at] = next < 0 ? NO_RANK : pair_rank(b, q->id[at], q->id[next]);
    if (q->rank[at] != NO_RANK)
        heap_push(q->heap, heap_n, (uint64_t)q->rank[at] << 32 | (uint32_t)at);
}

/* Merges the n symbols at q->id in place. Returns the number of tokens; 0: the budget is
 * exhausted. */
static size_t merge_queue(const struct bpe *b, struct bpe_queue *q, struct budget *budget, size_t n)
{
    size_t heap_n = 0, out = 0;

    for (size_t i = 0; i < n; i++) {
        q->next[i] = i + 1 < n ? (int32_t)(i + 1) : -1;
        q->prev[i] = (int32_t)i - 1;
        q->rank[i] = i + 1 < n ? pair_rank(b, q->id[i], q->id[i + 1]) : NO_RANK;
        if (q->rank[i] != NO_RANK)
            q->heap[heap_n++] = (uint64_t)q->rank[i] << 32 | (uint32_t)i;
    }
    if (!budget_spend(budget, n / 8))
        return 0;
    for (size_t i = heap_n / 2; i-- > 0;)
        sift_down(q->heap, heap_n, i);
    while (heap_n > 0 && budget_spend(budget, 4)) {
        uint64_t top = heap_pop(q->heap, &heap_n);
        int32_t at = (int32_t)(uint32_t)top, gone;

        if (q->rank[at] != (uint32_t)(top >> 32))
            continue; /* the pair was merged away, or got a new rank later */
        gone = q->next[at];
        q->id[at] = b->merged[top >> 32];
        q->rank[gone] = NO_RANK;
        q->next[at] = q->next[gone];
        if (q->next[at] >= 0)
            q->prev[q->next[at]] = at;
        rank_pair(b, q, &heap_n, at);
        if (q->prev[at] >= 0)
            rank_pair(b, q, &heap_n, q->prev[at]);
    }
    for (int32_t i = 0, next; i >= 0 && !budget->over; i = next) {
        next = q->next[i];
        q->id[out] = q->id[i];
        q->span[out++] = (uint32_t)((next < 0 ? (int32_t)n : next) - i);
    }
    return out;
}

static size_t merge_symbols(const struct bpe *b, struct bpe_scratch *s, const int32_t *symbols,
                            size_t n)
{
    if (!queue_reserve(&s->queue, s->budget, n))
        return 0;
    memcpy(s->queue.id, symbols, n * sizeof(*symbols));
    return merge_queue(b, &s->queue, s->budget, n);
}

/*
 * State of merging a long word in windows. The result is exact: tokens are the merged form of their
 * symbols if and only if every two neighbours are the merged form of theirs. (The first merge
 * across a border would have the lowest rank of all. So it would also occur when only the two
 * tokens at the border are merged, because their earlier merges are the same.) So a window's tokens
 * are final except the last ones, which later text may change. At the border to the next window the
 * two adjacent tokens are merged alone. If they change, the last final token is dropped and its
 * symbols are read again.
 */
struct window_merge {
    const int32_t *symbols;
    size_t n, at; /* number of symbols; start of the next window */
    size_t kept;  /* number of tokens in out, which cover the symbols [0, at) */
    int32_t *out;
    uint32_t *span;
    size_t patience; /* windows that may still be read again */
};

/* Merges the symbols (`span`) of the last kept token and of the first new one alone. Returns true
 * if the same two tokens result. */
static bool neighbours_stay(const struct bpe *b, struct bpe_scratch *s,
                            const struct window_merge *w, uint32_t span)
{
    struct bpe_queue *q = &s->queue;
    size_t before = w->span[w->kept - 1];
    int32_t left = w->out[w->kept - 1];

    return merge_symbols(b, s, w->symbols + w->at - before, before + span) == 2 &&
           q->id[0] == left && q->span[0] == before;
}

/* Keeps a window's tokens, or drops the last kept token. */
static void merge_window(const struct bpe *b, struct bpe_scratch *s, struct window_merge *w)
{
    struct bpe_queue *q = &s->queue;
    size_t n = MIN_OF(w->n - w->at, (size_t)WINDOW), covered = 0, keep = 0;
    size_t limit = w->at + n == w->n ? n : n - WINDOW_TAIL;
    size_t got = merge_symbols(b, s, w->symbols + w->at, n);

    if (got == 0)
        return;
    do {
        covered += q->span[keep++];
    } while (keep < got && covered + q->span[keep] <= limit);
    memcpy(w->out + w->kept, q->id, keep * sizeof(*q->id));
    memcpy(w->span + w->kept, q->span, keep * sizeof(*q->span));
    if (w->kept == 0 || neighbours_stay(b, s, w, w->span[w->kept])) {
        w->kept += keep;
        w->at += covered;
    } else {
        w->at -= w->span[--w->kept];
        w->patience--;
    }
}

/* Merges a long word window by window. If too many windows had to be read again, merges the whole
 * word in one piece. Returns the number of tokens; 0: the budget is exhausted. */
static size_t merge_long(const struct bpe *b, struct bpe_scratch *s, size_t n)
{
    struct window_merge w = {
        .symbols = s->id, .n = n, .out = s->token, .span = s->span, .patience = 16 + n / WINDOW};

    while (w.at < n && w.patience > 0 && !s->budget->over)
        merge_window(b, s, &w);
    if (w.at < n) {
        w.kept = merge_symbols(b, s, w.symbols, n);
        w.out = s->queue.id;
    }
    if (s->budget->over)
        return 0;
    memcpy(s->id, w.out, w.kept * sizeof(*w.out));
    return w.kept;
}

/* Encodes a byte-level word by longest.h. Returns -1 if the budget is exhausted. */
static int encode_longest(const struct bpe *b, struct bpe_scratch *s, struct str word,
                          struct token_vec *out, struct err *e)
{
    struct longest_room room = {s->id, s->span};
    size_t n = longest_encode(b->longest, word.p, word.len, room, s->budget);

    if (n == 0)
        return fail_budget(s, e);
    vec_reserve(out, n);
    memcpy(out->at + out->n, s->id, n * sizeof(*s->id));
    out->n += n;
    return 0;
}

/* Reports whether the word is one piece of the vocabulary. */
static bool whole_piece(const struct bpe *b, struct bpe_scratch *s, struct str word, int32_t *id)
{
    if (b->byte_level) {
        buf_clear(&s->text);
        byte_level_write(word, &s->text);
        word = buf_str(&s->text);
    }
    *id = vocab_id(b->vocab, word);
    return *id >= 0;
}

int32_t bpe_quick(const struct bpe *b, struct str word)
{
    return longest_whole(b->longest, word.p, word.len);
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *s, struct str word, struct token_vec *out,
               struct err *e)
{
    struct symbols y = {.s = s};
    int32_t id;
    int rc;

    if (word.len == 0)
        return 0;
    if (b->ignore_merges && whole_piece(b, s, word, &id)) {
        *vec_push(out) = id;
        return 0;
    }
    if (word.len >= INT32_MAX / 2)
        return err_set(e, ERR_INVALID, "a word of %zu bytes is too long", word.len);
    if (!reserve_symbols(s, word.len + b->suffix.len + b->prefix.len * word.len + 1) ||
        !budget_spend_bytes(s->budget, word.len))
        return fail_budget(s, e);
    if (b->longest && b->longest->origins)
        return encode_longest(b, s, word, out, e);
    rc = b->byte_level ? byte_symbols(b, &y, word, e) : char_symbols(b, &y, word, e);
    if (rc < 0)
        return -1;
    flush_unk(b, &y);
    y.n = y.n <= SHORT_WORD ? merge_short(b, s->id, y.n) : merge_long(b, s, y.n);
    if (s->budget->over)
        return fail_budget(s, e);
    if (y.n == 0)
        return 0;
    vec_reserve(out, y.n);
    memcpy(out->at + out->n, s->id, y.n * sizeof(*s->id));
    out->n += y.n;
    return 0;
}
