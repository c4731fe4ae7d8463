/*
 * Tokens are rows of columns, appended in the order in which they are first met, so a parent always
 * has a smaller number than its children. Children of a token are a list (first, sibling), newest
 * first:
 *
 *   roots -> 0: a -> 1: b -> 2: c          trajectories  a b c  and  a b d
 *                      '--> 3: d           first[1] = 3, sibling[3] = 2
 *
 * A trajectory is added token by token: pass_token() follows the child with the same id and author,
 * or appends one. All columns grow together, and links are numbers, so nothing points into memory
 * that moves.
 */
#include "worker/export/formats/token_tree.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/checkpoint.h"

enum { NONE = -1 };

static void grow_tree(struct token_tree *tree)
{
    size_t cap = tree->cap ? tree->cap * 2 : 4096;

    tree->ids = mem_realloc_array(tree->ids, cap, sizeof(*tree->ids));
    tree->parents = mem_realloc_array(tree->parents, cap, sizeof(*tree->parents));
    tree->positions = mem_realloc_array(tree->positions, cap, sizeof(*tree->positions));
    tree->through = mem_realloc_array(tree->through, cap, sizeof(*tree->through));
    tree->weights = mem_realloc_array(tree->weights, cap, sizeof(*tree->weights));
    tree->logprobs = mem_realloc_array(tree->logprobs, cap, sizeof(*tree->logprobs));
    tree->versions = mem_realloc_array(tree->versions, cap, sizeof(*tree->versions));
    for (int i = 0; i < SCORE_KINDS; i++)
        tree->scores[i] = mem_realloc_array(tree->scores[i], cap, sizeof(*tree->scores[i]));
    tree->authors = mem_realloc_array(tree->authors, cap, sizeof(*tree->authors));
    tree->first = mem_realloc_array(tree->first, cap, sizeof(*tree->first));
    tree->sibling = mem_realloc_array(tree->sibling, cap, sizeof(*tree->sibling));
    tree->cap = cap;
}

/* Returns the link to a token's first child; for NONE: to the first root. Valid until the tree
 * grows. */
static int32_t *children_of(struct token_tree *tree, int32_t parent)
{
    return parent == NONE ? &tree->roots : &tree->first[parent];
}

static int32_t append_token(struct token_tree *tree, int32_t parent, int32_t id, int32_t author)
{
    size_t at = tree->n;
    int32_t *children;

    if (at == tree->cap)
        grow_tree(tree);
    tree->n++;
    tree->ids[at] = id;
    tree->parents[at] = parent;
    tree->positions[at] = parent == NONE ? 0 : tree->positions[parent] + 1;
    tree->authors[at] = author;
    tree->through[at] = 0;
    tree->weights[at] = 0;
    tree->logprobs[at] = 0;
    tree->versions[at] = -1;
    for (int i = 0; i < SCORE_KINDS; i++)
        tree->scores[i][at] = 0;
    tree->first[at] = NONE;
    if (at == 0)
        tree->roots = NONE;
    children = children_of(tree, parent);
    tree->sibling[at] = *children;
    *children = (int32_t)at;
    return (int32_t)at;
}

/* Returns the child with this id and author, which is made if it does not exist. */
static int32_t pass_token(struct token_tree *tree, int32_t parent, int32_t id, int32_t author)
{
    int32_t at = tree->n > 0 ? *children_of(tree, parent) : NONE;

    while (at != NONE && (tree->ids[at] != id || tree->authors[at] != author))
        at = tree->sibling[at];
    return at != NONE ? at : append_token(tree, parent, id, author);
}

static void add_visit(struct token_tree *tree, int32_t at, const struct trajectory *t, uint32_t i)
{
    tree->through[at]++;
    for (int k = 0; k < SCORE_KINDS; k++)
        if (t->scores[k])
            tree->scores[k][at] = t->scores[k]->logprobs[i];
    if (i < t->n_prompt || !t->mask[i - t->n_prompt])
        return;
    tree->weights[at] += 1;
    if (t->logprobs)
        tree->logprobs[at] = t->logprobs[i - t->n_prompt];
    if (t->versions)
        tree->versions[at] = t->versions[i - t->n_prompt];
}

void token_tree_add(struct token_tree *tree, const struct trajectory *t)
{
    int32_t at = NONE;
    uint32_t turn = 0;

    for (uint32_t i = 0; i < t->total; i++) {
        int32_t author = NONE;

        while (turn < t->n_turns && i >= t->n_prompt + t->turns[turn].end)
            turn++;
        if (turn < t->n_turns && i >= t->n_prompt + t->turns[turn].start)
            author = (int32_t)t->turns[turn].checkpoint->id;
        at = pass_token(tree, at, t->ids[i], author);
        add_visit(tree, at, t, i);
    }
    *vec_push(&tree->ends) = at;
    *vec_push(&tree->prompts) = t->n_prompt;
}

void token_tree_done(struct token_tree *tree)
{
    free(tree->ids);
    free(tree->parents);
    free(tree->positions);
    free(tree->through);
    free(tree->weights);
    free(tree->logprobs);
    free(tree->versions);
    for (int i = 0; i < SCORE_KINDS; i++)
        free(tree->scores[i]);
    free(tree->authors);
    free(tree->first);
    free(tree->sibling);
    vec_done(&tree->ends);
    vec_done(&tree->prompts);
    *tree = (struct token_tree){0};
}
