/* Searches streamed text for stop strings (stop_text.h): for all of them at once, with a tree with
 * fallback links (Aho-Corasick). Each byte is one step. Text that may still become a stop string is
 * held back: at most the length of the longest. The tree is made once a call, in its arena, and
 * shared by its samples. */

#include "worker/plane/call/stop_text.h"

#include "common/codec/json.h"

enum { ROOT, NO_STOP = -1 };

/* A node stands for a common prefix of some stop strings. */
struct stop_node {
    uint32_t depth; /* length of the prefix in bytes */
    uint32_t fail;  /* node of the prefix's longest proper suffix that is a node */
    int32_t stop;   /* index of the longest stop string that the prefix ends with, or NO_STOP */
};

/* Edges (parent and byte -> child) are kept in one hash table, because most nodes have few
 * children. */
struct stop_edge {
    uint32_t parent, child; /* child ROOT: the slot is free */
    uint8_t byte;
};

struct stop_tree {
    const struct json *stops;
    struct stop_node *nodes;
    struct stop_edge *edges;
    uint32_t *order; /* slots of the edges in the order in which they were made */
    uint32_t n;
    uint32_t mask; /* size of the edge table minus 1 */
};

/* --- making the tree --- */

/* Returns the slot of the edge, or the free slot for it. */
static struct stop_edge *edge_slot(const struct stop_tree *t, uint32_t parent, uint8_t byte)
{
    uint64_t key = ((uint64_t)parent << 8 | byte) * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(key >> 32) & t->mask;

    while (t->edges[i].child != ROOT && (t->edges[i].parent != parent || t->edges[i].byte != byte))
        i = (i + 1) & t->mask;
    return &t->edges[i];
}

/* Adds the nodes of one stop string. */
static void add_stop(struct stop_tree *t, struct str stop, int32_t number)
{
    uint32_t at = ROOT;

    for (size_t i = 0; i < stop.len; i++) {
        struct stop_edge *e = edge_slot(t, at, (uint8_t)stop.p[i]);

        if (e->child == ROOT) {
            t->nodes[t->n] = (struct stop_node){(uint32_t)i + 1, ROOT, NO_STOP};
            *e = (struct stop_edge){at, t->n++, (uint8_t)stop.p[i]};
        }
        at = e->child;
    }
    if (t->nodes[at].stop == NO_STOP)
        t->nodes[at].stop = number;
}

/* Returns the node after one more byte. */
static uint32_t step_tree(const struct stop_tree *t, uint32_t at, uint8_t byte)
{
    for (;; at = t->nodes[at].fail) {
        uint32_t child = edge_slot(t, at, byte)->child;

        if (child != ROOT || at == ROOT)
            return child;
    }
}

/* Sorts the edges by the depth of their children, because a node's suffixes are shorter than the
 * node itself. */
static void sort_edges(struct stop_tree *t, struct arena *a, uint32_t depth_max)
{
    uint32_t *first = arena_calloc(a, (size_t)depth_max + 2, sizeof(*first));

    t->order = arena_calloc(a, t->n, sizeof(*t->order));
    for (uint32_t i = ROOT + 1; i < t->n; i++)
        first[t->nodes[i].depth + 1]++;
    for (uint32_t d = 1; d <= depth_max + 1; d++)
        first[d] += first[d - 1];
    for (uint32_t i = 0; i <= t->mask; i++)
        if (t->edges[i].child != ROOT)
            t->order[first[t->nodes[t->edges[i].child].depth]++] = i;
}

/* Links each node to its fallback: the node of its longest suffix. */
static void link_ends(struct stop_tree *t)
{
    for (uint32_t i = 0; i + 1 < t->n; i++) {
        const struct stop_edge *e = &t->edges[t->order[i]];
        struct stop_node *node = &t->nodes[e->child];

        if (e->parent != ROOT)
            node->fail = step_tree(t, t->nodes[e->parent].fail, e->byte);
        if (node->stop == NO_STOP)
            node->stop = t->nodes[node->fail].stop;
    }
}

const struct stop_tree *stop_tree_new(struct arena *a, const struct json *stops)
{
    struct stop_tree *t;
    size_t bytes = 0, cap = 16, longest = 0;

    for (size_t i = 0; json_at(stops, i); i++) {
        struct str stop = json_string(json_at(stops, i));

        bytes += stop.len;
        longest = stop.len > longest ? stop.len : longest;
    }
    if (bytes == 0)
        return NULL;
    while (cap < bytes * 2)
        cap *= 2;
    t = ARENA_NEW(a, struct stop_tree);
    *t = (struct stop_tree){.stops = stops, .n = 1, .mask = (uint32_t)(cap - 1)};
    t->nodes = arena_alloc(a, (bytes + 1) * sizeof(*t->nodes));
    t->nodes[ROOT] = (struct stop_node){0, ROOT, NO_STOP};
    t->edges = arena_calloc(a, cap, sizeof(*t->edges));
    for (uint32_t i = 0; i < stops->n; i++)
        add_stop(t, json_string(json_at(stops, i)), (int32_t)i);
    sort_edges(t, a, (uint32_t)longest);
    link_ends(t);
    return t;
}

/* --- searching --- */

void stop_text_init(struct stop_text *s, const struct stop_tree *tree)
{
    *s = (struct stop_text){.tree = tree};
}

void stop_text_done(struct stop_text *s)
{
    buf_done(&s->held);
}

/* Appends nothing after a stop string was found. */
void stop_text_feed(struct stop_text *s, struct str text, struct buf *out)
{
    /* number of bytes, of held-back and new text, that are certain and not yet in out */
    size_t sure = s->held.len;

    if (s->hit.p)
        return;
    if (!s->tree) {
        buf_add_str(out, text);
        return;
    }
    buf_add_str(&s->held, text);
    for (size_t i = 0; i < text.len && !s->hit.p; i++) {
        s->at = step_tree(s->tree, s->at, (uint8_t)text.p[i]);
        sure++;
        if (s->tree->nodes[s->at].stop != NO_STOP)
            s->hit = json_string(json_at(s->tree->stops, (size_t)s->tree->nodes[s->at].stop));
    }
    sure -= s->hit.p ? s->hit.len : s->tree->nodes[s->at].depth;
    buf_add_str(out, str_sub(buf_str(&s->held), 0, sure));
    buf_consume(&s->held, sure);
}

void stop_text_pass(struct stop_text *s, struct buf *out)
{
    struct buf held = s->held;
    size_t passed = s->hit.len;

    s->held = (struct buf){0};
    s->hit = (struct str){0};
    s->at = ROOT;
    buf_add_str(out, str_sub(buf_str(&held), 0, passed));
    stop_text_feed(s, str_sub(buf_str(&held), passed, held.len), out);
    buf_done(&held);
}

void stop_text_finish(struct stop_text *s, struct buf *out)
{
    if (!s->hit.p)
        buf_add_str(out, buf_str(&s->held));
    buf_clear(&s->held);
}
