/* The unigram model (unigram.h): of all ways to cut a word into pieces, the one with the highest
 * sum of scores (Viterbi). s->at[i] is the best way to byte i. From each position, every piece that
 * begins there is tried, with the position's score plus its own. If no piece is exactly the next
 * character, an unknown one is tried with a low score. At the end the best way is followed
 * backwards.
 *
 * Pieces are in a trie in which a node's children have successive numbers, with the labels in an
 * array of their own, so that a step is one memchr. */

#include "worker/text/tokens/unigram.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/budget.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/text/tokens/unicode.h"
#include "worker/text/tokens/vocab.h"

static const double UNKNOWN_COST = 10.0;

struct unigram_node {
    uint32_t child; /* first child */
    uint16_t n;
    int32_t id; /* piece that ends here, or -1 */
};

struct unigram_best {
    double score;
    uint32_t start; /* start of that piece */
    int32_t id;     /* last piece of the best way; NOWHERE: no way ends here */
};

enum { NOWHERE = -2 };

/* --- construction --- */

struct unigram_piece {
    struct str text;
    int32_t id;
};

/* Pieces lo..hi have the same first `depth` bytes, which lead to the node. */
struct range {
    size_t lo, hi, depth;
};

/* Compares pieces in the order of the trie. */
static int by_bytes(const void *x, const void *y)
{
    const struct unigram_piece *a = x, *b = y;
    size_t n = MIN_OF(a->text.len, b->text.len);
    int rc = n ? memcmp(a->text.p, b->text.p, n) : 0;

    return rc ? rc : (a->text.len > b->text.len) - (a->text.len < b->text.len);
}

/* Sorts all pieces by their bytes. Returns their number. */
static size_t sorted_pieces(const struct vocab *v, struct unigram_piece *list)
{
    size_t n = 0;

    for (size_t id = 0; id < v->id_count; id++) {
        struct str text = vocab_piece(v, (int32_t)id);

        if (text.len)
            list[n++] = (struct unigram_piece){text, (int32_t)id};
    }
    qsort(list, n, sizeof(*list), by_bytes);
    return n;
}

/* Builds the trie breadth first: a node's children get successive numbers. */
static void build_trie(struct unigram *u, const struct unigram_piece *list, size_t n, size_t room)
{
    struct range *ranges = mem_calloc(room, sizeof(*ranges));

    u->nodes = mem_calloc(room, sizeof(*u->nodes));
    u->labels = mem_calloc(room, 1);
    ranges[0] = (struct range){0, n, 0};
    u->n_nodes = 1;
    for (size_t at = 0; at < u->n_nodes; at++) {
        struct range r = ranges[at];
        struct unigram_node *node = &u->nodes[at];

        *node = (struct unigram_node){.child = (uint32_t)u->n_nodes, .id = -1};
        if (r.lo < r.hi && list[r.lo].text.len == r.depth)
            node->id = list[r.lo++].id;
        while (r.lo < r.hi) {
            unsigned char c = (unsigned char)list[r.lo].text.p[r.depth];
            size_t end = r.lo;

            while (end < r.hi && (unsigned char)list[end].text.p[r.depth] == c)
                end++;
            u->labels[u->n_nodes] = c;
            ranges[u->n_nodes++] = (struct range){r.lo, end, r.depth + 1};
            node->n++;
            r.lo = end;
        }
    }
    free(ranges);
}

/* Finds the ids of "<0x00>" to "<0xFF>". */
static void find_bytes(struct unigram *u)
{
    u->has_bytes = true;
    for (int i = 0; i < 256; i++) {
        char text[8];
        int n = snprintf(text, sizeof(text), "<0x%02X>", (unsigned)i);

        u->bytes[i] = vocab_id(u->vocab, str_of(text, (size_t)n));
        u->has_bytes = u->has_bytes && u->bytes[i] >= 0;
    }
}

/* An unknown character scores UNKNOWN_COST below the worst piece, as in the library. */
void unigram_init(struct unigram *u, const struct vocab *vocab, double *scores, int32_t unk)
{
    struct unigram_piece *list = mem_calloc(vocab->id_count + 1, sizeof(*list));
    size_t n = sorted_pieces(vocab, list), room = 1;
    double least = 0;

    *u = (struct unigram){.vocab = vocab, .scores = scores, .unk = unk};
    for (size_t i = 0; i < vocab->id_count; i++)
        least = i == 0 || scores[i] < least ? scores[i] : least;
    u->unk_score = least - UNKNOWN_COST;
    for (size_t i = 0; i < n; i++)
        room += list[i].text.len;
    build_trie(u, list, n, room);
    u->nodes = mem_realloc(u->nodes, u->n_nodes * sizeof(*u->nodes));
    free(list);
    find_bytes(u);
}

void unigram_done(struct unigram *u)
{
    free(u->scores);
    free(u->nodes);
    free(u->labels);
    *u = (struct unigram){0};
}

void unigram_scratch_done(struct unigram_scratch *s)
{
    free(s->at);
    vec_done(&s->ends);
    *s = (struct unigram_scratch){.budget = s->budget};
}

/* --- encoding --- */

static void offer_way(struct unigram_best *to, double score, size_t start, int32_t id)
{
    if (to->id == NOWHERE || score > to->score)
        *to = (struct unigram_best){score, (uint32_t)start, id};
}

/* Tries all pieces that begin at `start`, and the unknown character if no piece is exactly that
 * character. */
static int offer_from(const struct unigram *u, const struct unigram_scratch *s, struct str word,
                      size_t start, struct err *e)
{
    struct unigram_best *best = s->at;
    size_t char_len = unicode_len(word.p[start]), node = 0, i = start;
    double here = best[start].score;
    bool known = false;

    for (; i < word.len; i++) {
        const struct unigram_node *at = &u->nodes[node];
        const unsigned char *children = u->labels + at->child;
        const unsigned char *found =
            at->n ? memchr(children, (unsigned char)word.p[i], at->n) : NULL;

        if (!found)
            break;
        node = at->child + (size_t)(found - children);
        if (u->nodes[node].id < 0)
            continue;
        offer_way(&best[i + 1], u->scores[u->nodes[node].id] + here, start, u->nodes[node].id);
        known = known || i + 1 - start == char_len;
    }
    if (!budget_spend(s->budget, (i - start) / 4 + 1))
        return budget_fail(s->budget, "tokenizer.json, model: a word", e);
    if (known)
        return 0;
    if (u->unk < 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "the text has a character that is no token, and the model has no unk_id");
    offer_way(&best[start + char_len], u->unk_score + here, start, u->unk);
    return 0;
}

/* Writes adjacent unknown characters: as the piece that they are together, as their bytes, or as
 * unknown. */
static void add_unknown(const struct unigram *u, struct str text, struct token_vec *out)
{
    int32_t id = vocab_id(u->vocab, text);
    bool bytes = id < 0 && u->byte_fallback;

    for (size_t i = 0; i < text.len && bytes; i++)
        bytes = u->bytes[(unsigned char)text.p[i]] >= 0;
    if (!bytes)
        *vec_push(out) = id >= 0 ? id : u->unk;
    for (size_t i = 0; i < text.len && bytes; i++)
        *vec_push(out) = u->bytes[(unsigned char)text.p[i]];
}

/* Follows the best way backwards, then writes its tokens in order. */
static void write_way(const struct unigram *u, struct unigram_scratch *s, struct str word,
                      struct token_vec *out)
{
    size_t end = word.len, begin;

    vec_clear(&s->ends);
    while (end > 0) {
        *vec_push(&s->ends) = (int32_t)end;
        end = s->at[end].start;
    }
    for (size_t i = s->ends.n; i-- > 0;) {
        end = (size_t)s->ends.at[i];
        begin = s->at[end].start;
        if (s->at[end].id != u->unk) {
            *vec_push(out) = s->at[end].id;
            continue;
        }
        while (i > 0 && s->at[s->ends.at[i - 1]].id == u->unk)
            end = (size_t)s->ends.at[--i];
        add_unknown(u, str_sub(word, begin, end - begin), out);
    }
}

/* Reserves one entry more than the word has bytes. Returns false if the budget does not permit
 * it. */
static bool reserve_ways(struct unigram_scratch *s, size_t n)
{
    if (n <= s->cap)
        return true;
    if (!budget_hold(s->budget, (n - s->cap) * (sizeof(*s->at) + sizeof(*s->ends.at))))
        return false;
    free(s->at);
    s->cap = n;
    s->at = mem_calloc(n, sizeof(*s->at));
    return true;
}

int unigram_encode(const struct unigram *u, struct unigram_scratch *s, struct str word,
                   struct token_vec *out, struct err *e)
{
    if (word.len >= INT32_MAX)
        return err_set(e, ERR_UNSUPPORTED, "a word of more than 2 GiB");
    if (!reserve_ways(s, word.len + 1))
        return budget_fail(s->budget, "tokenizer.json, model: a word", e);
    for (size_t i = 0; i <= word.len; i++)
        s->at[i] = (struct unigram_best){.id = NOWHERE};
    for (size_t at = 0; at < word.len; at += unicode_len(word.p[at]))
        if (offer_from(u, s, word, at, e) < 0)
            return -1;
    write_way(u, s, word, out);
    return 0;
}
