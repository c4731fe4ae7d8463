/*
 * Long words are merged in windows: the same tokens as by the rule itself (the lowest pair, of
 * equal ones the leftmost, until there is none), for models made by chance whose merges chain in
 * every way.
 */
#include "common/base/vec.h"
#include "testing.h"
#include "worker/tokens/bpe.h"

enum { MODELS = 60, LETTERS = 4, PIECES = 90, PIECE_MAX = 40, WORD = 3000 };

struct chance {
    uint64_t state;
};

static uint32_t below(struct chance *c, uint32_t n)
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->state >> 33) % n;
}

/* Letters, then joins of two pieces that are there; each new one is a merge. */
struct model {
    struct vocab vocab;
    struct bpe bpe;
    struct buf piece[LETTERS + PIECES];
    uint32_t left[PIECES], right[PIECES];
    uint32_t n; /* merges */
};

static void make_model(struct model *m, struct chance *c)
{
    struct bpe_merge merges[PIECES];
    uint32_t have = LETTERS;

    *m = (struct model){0};
    vocab_init(&m->vocab, LETTERS + PIECES, (LETTERS + PIECES) * PIECE_MAX);
    for (uint32_t i = 0; i < LETTERS; i++)
        buf_add_c(&m->piece[i], (char)('a' + i));
    for (int tries = 0; tries < 4000 && m->n < PIECES; tries++) {
        uint32_t l = below(c, have), r = below(c, have);
        struct buf joined = {0};
        bool known = m->piece[l].len + m->piece[r].len > PIECE_MAX;

        buf_add_str(&joined, buf_str(&m->piece[l]));
        buf_add_str(&joined, buf_str(&m->piece[r]));
        for (uint32_t i = 0; i < have && !known; i++)
            known = str_eq(buf_str(&m->piece[i]), buf_str(&joined));
        if (known) {
            buf_done(&joined);
            continue;
        }
        m->left[m->n] = l;
        m->right[m->n++] = r;
        m->piece[have++] = joined;
    }
    for (uint32_t i = 0; i < have; i++)
        cr_assert_eq(vocab_add(&m->vocab, buf_str(&m->piece[i]), i, NULL), 0);
    vocab_seal(&m->vocab);
    for (uint32_t i = 0; i < m->n; i++)
        merges[i] =
            (struct bpe_merge){buf_str(&m->piece[m->left[i]]), buf_str(&m->piece[m->right[i]])};
    bpe_init(&m->bpe, &m->vocab, m->n);
    cr_assert_eq(bpe_add_merges(&m->bpe, merges, m->n, NULL), 0);
    bpe_seal(&m->bpe);
}

static void drop_model(struct model *m)
{
    bpe_done(&m->bpe);
    vocab_done(&m->vocab);
    for (uint32_t i = 0; i < LETTERS + PIECES; i++)
        buf_done(&m->piece[i]);
}

/* The rule, word for word. */
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
                if ((int32_t)m->left[k] == id[i] && (int32_t)m->right[k] == id[i + 1]) {
                    low = k;
                    at = i;
                }
        if (low == m->n)
            return n;
        id[at] = (int32_t)(LETTERS + low);
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof(*id));
        n--;
    }
}

/* Runs of one letter, periods, and chance. */
static void make_word(struct chance *c, struct buf *word)
{
    uint32_t n = 200 + below(c, WORD - 200), period = 1 + below(c, 7);
    bool repeats = below(c, 3) != 0;

    for (uint32_t i = 0; i < n; i++)
        buf_add_c(word, repeats && i >= period && below(c, 200) ? word->p[i - period]
                                                                : (char)('a' + below(c, LETTERS)));
}

TEST(bpe_long, windows_change_nothing)
{
    static int32_t want[WORD];
    struct chance c = {1};

    for (int k = 0; k < MODELS; k++) {
        struct bpe_scratch s = {0};
        struct token_vec got = {0};
        struct buf word = {0};
        struct model m;
        size_t n;

        make_model(&m, &c);
        make_word(&c, &word);
        n = by_the_rule(&m, buf_str(&word), want);
        cr_assert_eq(bpe_encode(&m.bpe, &s, buf_str(&word), &got, NULL), 0);
        cr_assert(got.n == n && memcmp(got.at, want, n * sizeof(*want)) == 0, "model %d, word %.*s",
                  k, (int)word.len, word.p);
        bpe_scratch_done(&s);
        vec_done(&got);
        buf_done(&word);
        drop_model(&m);
    }
}
