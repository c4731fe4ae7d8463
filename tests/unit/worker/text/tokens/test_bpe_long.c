/*
 * Long words are merged in windows. Words of byte-level models with ordered merges are tokenized
 * from left to right. Both give the tokens of the rule itself (repeatedly merge the lowest pair,
 * the leftmost of equal ones), for random models with chains of merges.
 */
#include "common/base/budget.h"
#include "common/base/vec.h"
#include "testing.h"
#include "worker/text/tokens/bpe.h"
#include "worker/text/tokens/byte_level.h"
#include "worker/text/tokens/longest.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/vocab.h"

#ifdef __SANITIZE_ADDRESS__
enum { MODELS = 4 }; /* the rule itself takes nearly all of the time */
#else
enum { MODELS = 60 };
#endif
enum { LETTERS = 4, PIECES = 90, MERGES = 400, PIECE_MAX = 40, WORD = 3000 };

enum kind {
    CHARACTERS,
    BYTES,           /* one merge for each token, after those of its parts */
    BYTES_ALL_WAYS,  /* one merge for each pair of pieces of a token */
    BYTES_UNORDERED, /* merges in any order */
    KINDS
};

struct chance {
    uint64_t state;
};

static uint32_t below(struct chance *c, uint32_t n)
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->state >> 33) % n;
}

/* A model: letters, then joins of two existing pieces. */
struct model {
    struct vocab vocab;
    struct bpe bpe;
    struct buf piece[LETTERS + PIECES];
    uint32_t have;
    int32_t left[MERGES], right[MERGES], made[MERGES];
    uint32_t n; /* merges */
};

static int32_t piece_id(const struct model *m, struct str text)
{
    for (uint32_t i = 0; i < m->have; i++)
        if (str_eq(buf_str(&m->piece[i]), text))
            return (int32_t)i;
    return -1;
}

static void add_merge(struct model *m, int32_t left, int32_t right, int32_t made)
{
    m->left[m->n] = left;
    m->right[m->n] = right;
    m->made[m->n++] = made;
}

/* Adds the other pairs of pieces that form a piece. */
static void add_ways(struct model *m, int32_t id)
{
    struct str text = buf_str(&m->piece[id]);

    for (size_t at = 1; at < text.len && m->n < MERGES; at++) {
        int32_t l = piece_id(m, str_sub(text, 0, at)), r = piece_id(m, str_sub(text, at, text.len));

        if (l >= 0 && r >= 0)
            add_merge(m, l, r, id);
    }
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t was = *a;

    *a = *b;
    *b = was;
}

static void add_pieces(struct model *m, struct chance *c, enum kind kind)
{
    for (int tries = 0; tries < 4000 && m->have < LETTERS + PIECES && m->n < MERGES; tries++) {
        uint32_t l = below(c, m->have), r = below(c, m->have);
        struct buf joined = {0};

        buf_add_str(&joined, buf_str(&m->piece[l]));
        buf_add_str(&joined, buf_str(&m->piece[r]));
        if (joined.len > PIECE_MAX || piece_id(m, buf_str(&joined)) >= 0) {
            buf_done(&joined);
            continue;
        }
        m->piece[m->have++] = joined;
        if (kind == BYTES_ALL_WAYS)
            add_ways(m, (int32_t)m->have - 1);
        else
            add_merge(m, (int32_t)l, (int32_t)r, (int32_t)m->have - 1);
    }
    for (uint32_t i = 0; kind == BYTES_UNORDERED && i < m->n; i++) {
        uint32_t k = below(c, m->n);

        swap(&m->left[i], &m->left[k]);
        swap(&m->right[i], &m->right[k]);
        swap(&m->made[i], &m->made[k]);
    }
}

static void add_piece(struct vocab *v, struct str piece, int64_t id)
{
    cr_assert_eq(vocab_add(v, piece, id, NULL), 0);
}

static void add_vocab(struct model *m)
{
    uint32_t id = m->have;

    vocab_init(&m->vocab, LETTERS + PIECES + 256, (size_t)(LETTERS + PIECES + 256) * PIECE_MAX);
    for (uint32_t i = 0; i < m->have; i++)
        add_piece(&m->vocab, buf_str(&m->piece[i]), i);
    for (unsigned i = 0; i < 256; i++) {
        struct buf spelled = {0};
        char byte = (char)i;

        byte_level_write(str_of(&byte, 1), &spelled);
        if (i < 'a' || i >= 'a' + LETTERS)
            add_piece(&m->vocab, buf_str(&spelled), id++);
        buf_done(&spelled);
    }
    cr_assert_eq(vocab_seal(&m->vocab, NULL), 0);
}

/* Checks which models are tokenized from left to right. */
static void expect_way(const struct model *m, enum kind kind)
{
    if (kind != BYTES_UNORDERED)
        cr_assert_eq(m->bpe.longest && m->bpe.longest->origins, kind != CHARACTERS);
}

static void make_model(struct model *m, struct chance *c, enum kind kind)
{
    struct bpe_merge merges[MERGES];

    *m = (struct model){.have = LETTERS};
    for (uint32_t i = 0; i < LETTERS; i++)
        buf_add_c(&m->piece[i], (char)('a' + i));
    add_pieces(m, c, kind);
    add_vocab(m);
    for (uint32_t i = 0; i < m->n; i++)
        merges[i] =
            (struct bpe_merge){buf_str(&m->piece[m->left[i]]), buf_str(&m->piece[m->right[i]])};
    bpe_init(&m->bpe, &m->vocab, m->n);
    m->bpe.byte_level = kind != CHARACTERS;
    cr_assert_eq(bpe_add_merges(&m->bpe, merges, m->n, NULL), 0);
    bpe_seal(&m->bpe);
    expect_way(m, kind);
}

static void drop_model(struct model *m)
{
    bpe_done(&m->bpe);
    vocab_done(&m->vocab);
    for (uint32_t i = 0; i < m->have; i++)
        buf_done(&m->piece[i]);
}

/* Tokenizes by the rule itself. */
static size_t by_the_rule(const struct model *m, struct str word, int32_t *id)
{
    size_t n = word.len;

    for (size_t i = 0; i < n; i++)
        id[i] = word.p[i] - 'a';
    for (;;) {
        uint32_t low = m->n;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t k = 0; k < low; k++)
                if (m->left[k] == id[i] && m->right[k] == id[i + 1]) {
                    low = k;
                    at = i;
                }
        if (low == m->n)
            return n;
        id[at] = m->made[low];
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof(*id));
        n--;
    }
}

/* Makes a random word: runs of one letter, periods, or random letters. */
static void make_word(struct chance *c, struct buf *word)
{
    uint32_t n = 200 + below(c, WORD - 200), period = 1 + below(c, 7);
    bool repeats = below(c, 3) != 0;
    char *p = buf_reserve(word, n);

    for (uint32_t i = 0; i < n; i++)
        p[i] = repeats && i >= period && below(c, 200) ? p[i - period]
                                                       : (char)('a' + below(c, LETTERS));
    word->len = n;
}

static void check_model(struct chance *c, enum kind kind)
{
    static int32_t want[WORD];
    struct budget budget;
    struct bpe_scratch s = {.budget = &budget};
    struct token_vec got = {0};
    struct buf word = {0};
    struct model m;
    size_t n;

    make_model(&m, c, kind);
    make_word(c, &word);
    n = by_the_rule(&m, buf_str(&word), want);
    budget_init(&budget, BUDGET_DEFAULT_STEPS, BUDGET_DEFAULT_BYTES, 0, NULL);
    cr_assert_eq(bpe_encode(&m.bpe, &s, buf_str(&word), &got, NULL), 0);
    cr_assert(got.n == n && memcmp(got.at, want, n * sizeof(*want)) == 0, "kind %d, word %.*s",
              kind, (int)word.len, word.p);
    bpe_scratch_done(&s);
    vec_done(&got);
    buf_done(&word);
    drop_model(&m);
}

TEST(bpe_long, no_way_changes_the_tokens)
{
    struct chance c = {1};

    for (int k = 0; k < MODELS * KINDS; k++)
        check_model(&c, (enum kind)(k % KINDS));
}
