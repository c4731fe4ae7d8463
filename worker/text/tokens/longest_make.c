/* Computes, once, the facts of a vocabulary that longest.h needs. Steps: the pair of each rank
 * (read_pairs), the last merge of each token (find_origins), whether merges are in order, the text
 * of each token (spell_tokens), the tokens sorted by text, and at last the trie (make_nodes), level
 * by level so that the children of a node have successive numbers. Models that fail a step stay
 * without origins and use the merge loop. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "worker/text/tokens/longest.h"
#include "worker/text/tokens/longest_bear.h"
#include "worker/text/tokens/pair_table.h"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

/* A token's text, for sorting. */
struct spelling {
    /* first eight bytes, the first one highest; a shorter text is padded with zeros */
    uint64_t head;
    int32_t id;
    uint32_t len;
    const uint8_t *text;
};

struct longest_making {
    struct longest *l;
    const struct longest_merges *merges;
    /* pair of each rank; -1: the pair has a different rank, too, which counts */
    int32_t (*pairs)[2];
    uint8_t *text; /* texts of all tokens, one after the other ... */
    size_t *at;    /* ... and their offsets, by id */
    struct spelling *sorted;
    size_t n;      /* number of tokens that merges make */
    uint16_t *row; /* by id: number of merges in a row, later of tokens with which it begins */
    bool too_long; /* a token begins with too many others */
};

/* Inverts the table: rank -> pair. */
static void read_pairs(struct longest_making *m)
{
    const struct pair_table *t = m->merges->ranks;
    uint64_t value = (1u << PAIR_VALUE_BITS) - 1;

    m->pairs = mem_alloc((m->merges->n + 1) * sizeof(*m->pairs));
    memset(m->pairs, 0xff, (m->merges->n + 1) * sizeof(*m->pairs));
    for (size_t i = 0; i <= t->mask; i++) {
        uint64_t slot = t->slots[i];
        int32_t *pair;

        if (!slot)
            continue;
        pair = m->pairs[(slot & value) - 1];
        pair[0] = (int32_t)(slot >> PAIR_VALUE_BITS >> PAIR_KEY_BITS);
        pair[1] = (int32_t)(slot >> PAIR_VALUE_BITS & PAIR_KEY_MAX);
    }
}

/* Initialises the origins: the 256 ids are bytes, all others unset. Returns -1 if a byte is absent,
 * or if a merge makes it. */
static int begin_origins(struct longest_making *m)
{
    const struct longest_merges *merges = m->merges;
    struct token_origin *o = m->l->origins;

    for (size_t id = 0; id < merges->id_count; id++)
        o[id] = (struct token_origin){.left = -1, .right = -1, .shorter = -1};
    for (size_t i = 0; i < 256; i++) {
        if (merges->bytes[i] < 0)
            return -1;
        o[merges->bytes[i]].len = 1;
    }
    for (size_t k = 0; k < merges->n; k++)
        if (o[merges->merged[k]].len)
            return -1;
    return 0;
}

/* Finds the merge that makes each token. Returns -1 if a token has two, or too many in a row. */
static int find_origins(struct longest_making *m)
{
    struct token_origin *o = m->l->origins;

    for (size_t k = 0; k < m->merges->n; k++) {
        int32_t a = m->pairs[k][0], b = m->pairs[k][1];
        struct token_origin *made = &o[m->merges->merged[k]];

        if (a < 0 || !o[a].len || !o[b].len || !longest_bear(m->l, a, b))
            continue;
        if (made->len)
            return -1;
        *made = (struct token_origin){a, b, (uint32_t)k + 1, o[a].len + o[b].len, -1};
        m->row[m->merges->merged[k]] = (uint16_t)(MAX_OF(m->row[a], m->row[b]) + 1);
        if (m->row[m->merges->merged[k]] > LONGEST_ROW_MAX)
            return -1;
        m->n++;
    }
    return 0;
}

/* Reports whether no merge ranks below those that make its two sides. */
static bool in_order(const struct longest_making *m)
{
    const struct token_origin *o = m->l->origins;

    for (size_t k = 0; k < m->merges->n; k++) {
        int32_t a = m->pairs[k][0], b = m->pairs[k][1];

        if (a >= 0 && o[a].len && o[b].len && (o[a].order > k || o[b].order > k))
            return false;
    }
    return true;
}

/* Writes the texts of all tokens in the order of their merges, so that both sides precede the
 * whole. */
static void spell_tokens(struct longest_making *m)
{
    const struct token_origin *o = m->l->origins;
    size_t sum = 256, to = 256;

    for (size_t id = 0; id < m->merges->id_count; id++)
        sum += o[id].len;
    m->text = mem_alloc(sum);
    m->at = mem_alloc((m->merges->id_count + 1) * sizeof(*m->at));
    m->sorted = mem_alloc((m->n + 1) * sizeof(*m->sorted));
    for (size_t i = 0; i < 256; i++) {
        m->text[i] = (uint8_t)i;
        m->at[m->merges->bytes[i]] = i;
    }
    m->n = 0;
    for (size_t k = 0; k < m->merges->n; k++) {
        int32_t id = m->merges->merged[k];
        const struct token_origin *t = &o[id];
        uint64_t head = 0;

        if (t->order != k + 1)
            continue;
        m->at[id] = to;
        memcpy(m->text + to, m->text + m->at[t->left], o[t->left].len);
        memcpy(m->text + to + o[t->left].len, m->text + m->at[t->right], o[t->right].len);
        for (uint32_t i = 0; i < 8; i++)
            head = head << 8 | (i < t->len ? m->text[to + i] : 0);
        m->sorted[m->n++] = (struct spelling){head, id, t->len, m->text + to};
        to += t->len;
    }
}

static int by_text(const void *a, const void *b)
{
    const struct spelling *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);

    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Sorts by the heads, digit by digit from the lowest, then tokens with equal heads. */
static void sort_tokens(struct longest_making *m)
{
    struct spelling *other = mem_alloc((m->n + 1) * sizeof(*other)), *swap;
    uint32_t from[DIGITS + 1];

    for (unsigned shift = 0; shift < 64; shift += DIGIT_BITS) {
        memset(from, 0, sizeof(from));
        for (size_t i = 0; i < m->n; i++)
            from[(m->sorted[i].head >> shift) % DIGITS + 1]++;
        for (size_t i = 0; i < DIGITS; i++)
            from[i + 1] += from[i];
        for (size_t i = 0; i < m->n; i++)
            other[from[(m->sorted[i].head >> shift) % DIGITS]++] = m->sorted[i];
        swap = m->sorted;
        m->sorted = other;
        other = swap;
    }
    free(other);
    for (size_t i = 0, end; i < m->n; i = end) {
        for (end = i + 1; end < m->n && m->sorted[end].head == m->sorted[i].head;)
            end++;
        if (end - i > 1)
            qsort(m->sorted + i, end - i, sizeof(*m->sorted), by_text);
    }
}

/* The nodes so far, and for each the range of sorted tokens that begin with its text, and its
 * length. */
struct longest_growing {
    struct node_range {
        uint32_t from, to, depth;
        int32_t deepest; /* longest token with which it begins */
    } * ranges;

    size_t n, cap;
};

/* Appends a node for the sorted tokens of `range`. */
static void add_node(struct longest_making *m, struct longest_growing *g, struct node_range range,
                     uint8_t last)
{
    if (g->n == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 4096;
        g->ranges = mem_realloc_array(g->ranges, g->cap, sizeof(*g->ranges));
        m->l->nodes = mem_realloc_array(m->l->nodes, g->cap + 1, sizeof(*m->l->nodes));
        m->l->last = mem_realloc_array(m->l->last, g->cap, 1);
    }
    m->l->last[g->n] = last;
    g->ranges[g->n++] = range;
}

static inline uint8_t byte_at(const struct spelling *s, uint32_t i)
{
    return i < 8 ? (uint8_t)(s->head >> (56 - 8 * i)) : s->text[i];
}

/* Completes a node, and adds the nodes with one byte more. */
static void grow_node(struct longest_making *m, struct longest_growing *g, size_t node)
{
    struct node_range r = g->ranges[node];
    const struct spelling *s = m->sorted;
    int32_t token = node < 256 ? m->merges->bytes[node] : -1;

    if (r.from < r.to && s[r.from].len == r.depth) {
        token = s[r.from++].id;
        m->l->origins[token].shorter = r.deepest;
        m->row[token] = (uint16_t)(r.deepest < 0 ? 0 : m->row[r.deepest] + 1);
    }
    m->l->nodes[node] = (struct token_start){(uint32_t)g->n, token};
    if (token >= 0)
        r.deepest = token;
    m->too_long = m->too_long || (token >= 0 && m->row[token] >= LONGEST_ROW_MAX);
    for (uint32_t i = r.from, end; i < r.to && !m->too_long; i = end) {
        uint8_t last = byte_at(&s[i], r.depth);

        for (end = i + 1; end < r.to && byte_at(&s[end], r.depth) == last;)
            end++;
        add_node(m, g, (struct node_range){i, end, r.depth + 1, r.deepest}, last);
    }
}

/* The 256 single bytes are nodes 0 to 255. Then every node adds its children. */
static void make_nodes(struct longest_making *m)
{
    struct longest_growing g = {0};
    uint32_t at = 0;

    for (uint32_t i = 0; i < 256; i++) {
        uint32_t from = at;

        while (at < m->n && byte_at(&m->sorted[at], 0) == i)
            at++;
        add_node(m, &g, (struct node_range){from, at, 1, -1}, (uint8_t)i);
    }
    for (size_t i = 0; i < g.n; i++)
        grow_node(m, &g, i);
    m->l->nodes[g.n] = (struct token_start){(uint32_t)g.n, -1};
    m->l->twos = mem_calloc(65536, sizeof(*m->l->twos));
    for (uint32_t i = 0; i < 256; i++)
        for (uint32_t k = m->l->nodes[i].longer; k < m->l->nodes[i + 1].longer; k++)
            m->l->twos[i << 8 | m->l->last[k]] = k;
    m->l->nodes = mem_to_large_pages(m->l->nodes, (g.n + 1) * sizeof(*m->l->nodes));
    m->l->origins =
        mem_to_large_pages(m->l->origins, (m->merges->id_count + 1) * sizeof(*m->l->origins));
    free(g.ranges);
}

/* Frees the temporary arrays; the tables belong to l. */
void longest_init(struct longest *l, const struct longest_merges *merges)
{
    struct longest_making m = {.l = l, .merges = merges};

    *l = (struct longest){.ranks = merges->ranks};
    l->origins = mem_alloc((merges->id_count + 1) * sizeof(*l->origins));
    m.row = mem_calloc(merges->id_count + 1, sizeof(*m.row));
    read_pairs(&m);
    if (begin_origins(&m) < 0 || find_origins(&m) < 0 || !in_order(&m)) {
        longest_done(l);
    } else {
        spell_tokens(&m);
        sort_tokens(&m);
        make_nodes(&m);
        if (m.too_long)
            longest_done(l);
    }
    free(m.row);
    free(m.pairs);
    free(m.text);
    free(m.at);
    free(m.sorted);
}

/* Frees the tables. Also used if a model turns out not to fit. */
void longest_done(struct longest *l)
{
    free(l->origins);
    free(l->nodes);
    free(l->last);
    free(l->twos);
    *l = (struct longest){0};
}
