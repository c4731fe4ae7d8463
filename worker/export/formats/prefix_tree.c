/* Format prefix-tree: all trajectories in one file of tensors, each token once. */

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"

/* --- the tree --- */

/* struct token_tree: the trajectories of an export as one tree, in which a common beginning is
 * stored once. Two tokens are the same node under three conditions: everything before them is the
 * same, their ids are equal, and the same answer sampled both, or neither was sampled. So a token
 * that was sampled twice is two nodes. Nodes are rows of columns of equal length; a node's parent
 * is the token before it.
 *
 * Tokens are rows of columns, appended in the order in which they are first met, so a parent always
 * has a smaller number than its children. Children of a token are a list (first, sibling), newest
 * first:
 *
 *   roots -> 0: a -> 1: b -> 2: c          trajectories  a b c  and  a b d
 *                      '--> 3: d           first[1] = 3, sibling[3] = 2
 *
 * A trajectory is added token by token: pass_token() follows the child with the same id and author,
 * or appends one. All columns grow together, and links are numbers, so nothing points into memory
 * that moves. */

enum { TOKEN_TREE_MAX = INT32_MAX };

struct token_tree {
    size_t n, cap;
    int32_t *ids;
    int32_t *parents;   /* -1: first token of a trajectory */
    int32_t *positions; /* number of tokens before it on its path */
    int32_t *through;   /* number of trajectories through it */
    float *weights;     /* number of trajectories in which it has mask 1 */
    float *logprobs;    /* 0 if it is not trained */
    int64_t *versions;  /* -1 if it is not trained */
    float *scores[SCORE_KINDS];
    int32_t *authors;         /* id of the checkpoint whose answer has it, or -1 */
    int32_t *first, *sibling; /* first child; next child of its parent; -1: none */
    int32_t roots;            /* the first root; valid if n > 0 */
    VEC(int64_t) ends;        /* last token of each trajectory */
    VEC(int64_t) prompts;     /* number of tokens before the response of each trajectory */
};

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

/* Adds a trajectory. All together must have at most TOKEN_TREE_MAX tokens. */
static void token_tree_add(struct token_tree *tree, const struct trajectory *t)
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

static void token_tree_done(struct token_tree *tree)
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

/* --- the format --- */

struct prefix_tree {
    struct token_tree tokens;
    /* sum of the tokens of all trajectories: an upper bound for the tree */
    uint64_t sum;
    bool no_logprobs, no_versions; /* a trajectory lacks them */
    bool unscored[SCORE_KINDS];
    float *rewards;
};

static void tree_begin(struct export *x, struct buf *out)
{
    tensors_begin(x, out);
    x->own = ARENA_NEW(&x->arena, struct prefix_tree);
}

/* Checks the size, because links have 32 bits. */
static int tree_check(const struct export *x, const struct trajectory *t, struct err *e)
{
    struct prefix_tree *p = x->own;

    p->sum += t->total;
    if (p->sum > TOKEN_TREE_MAX)
        return err_set(e, ERR_UNASSEMBLABLE,
                       "the prefix-tree format holds %d tokens, and the trajectories up to %zu "
                       "have %llu",
                       TOKEN_TREE_MAX, t->index, (unsigned long long)p->sum);
    return 0;
}

/* Adds a trajectory. For a long history that takes tens of milliseconds. */
static void add_tokens(struct export *x, struct model_scratch *scratch)
{
    struct prefix_tree *p = x->own;

    (void)scratch;
    token_tree_add(&p->tokens, &x->t);
}

MAY_PAUSE static void tree_write(struct export *x, const struct trajectory *t)
{
    struct prefix_tree *p = x->own;

    tensors_note_rest(x, t);
    p->no_logprobs = p->no_logprobs || !t->logprobs;
    p->no_versions = p->no_versions || !t->versions;
    for (int i = 0; i < SCORE_KINDS; i++)
        p->unscored[i] = p->unscored[i] || !t->scores[i];
    (void)export_offload(x, add_tokens);
}

static void add_tree_tensor(struct export *x, const char *name, enum tensor_type type, uint64_t n,
                            struct cells cells)
{
    tensors_add(x, name, SIZE_MAX, type, SHAPE1(n), cells);
}

static void add_scores(struct export *x, const struct prefix_tree *p)
{
    static const char *const names[SCORE_KINDS] = {[SCORE_TEACHER] = "teacher_logprobs",
                                                   [SCORE_REFERENCE] = "reference_logprobs",
                                                   [SCORE_SELF] = "self_logprobs"};

    for (int i = 0; i < SCORE_KINDS && p->tokens.n > 0; i++)
        if (!p->unscored[i])
            add_tree_tensor(x, names[i], TENSOR_F32, p->tokens.n, CELLS(RAW, p->tokens.scores[i]));
}

static void add_rewards(struct export *x, struct prefix_tree *p)
{
    size_t n = p->tokens.ends.n;
    double reward;

    if (!export_reward(x, &reward))
        return;
    if (!p->rewards)
        p->rewards = arena_calloc(&x->arena, n + 1, sizeof(*p->rewards));
    for (size_t i = 0; i < n; i++)
        p->rewards[i] = (float)reward;
    add_tree_tensor(x, "rewards", TENSOR_F32, n, CELLS(RAW, p->rewards));
}

MAY_PAUSE static void tree_end(struct export *x, struct buf *out)
{
    struct prefix_tree *p = x->own;
    const struct token_tree *t = &p->tokens;

    if (tensors_sizing(x))
        tensors_note_end(x);
    add_tree_tensor(x, "token_ids", TENSOR_I64, t->n, CELLS(WIDE_I32, t->ids));
    add_tree_tensor(x, "parents", TENSOR_I64, t->n, CELLS(WIDE_I32, t->parents));
    add_tree_tensor(x, "positions", TENSOR_I64, t->n, CELLS(WIDE_I32, t->positions));
    add_tree_tensor(x, "ends", TENSOR_I64, t->ends.n, CELLS(RAW, t->ends.at));
    add_tree_tensor(x, "prompt_lengths", TENSOR_I64, t->prompts.n, CELLS(RAW, t->prompts.at));
    if (!p->no_versions && t->n > 0)
        add_tree_tensor(x, "versions", TENSOR_I64, t->n, CELLS(RAW, t->versions));
    add_tree_tensor(x, "weights", TENSOR_F32, t->n, CELLS(RAW, t->weights));
    if (!p->no_logprobs && t->n > 0)
        add_tree_tensor(x, "logprobs", TENSOR_F32, t->n, CELLS(RAW, t->logprobs));
    add_scores(x, p);
    add_rewards(x, p);
    add_tree_tensor(x, "trajectories", TENSOR_I32, t->n, CELLS(RAW, t->through));
    tensors_end(x, out);
}

static void tree_drop(struct export *x)
{
    struct prefix_tree *p = x->own;

    if (p)
        token_tree_done(&p->tokens);
    tensors_drop(x);
}

const struct format format_prefix_tree = {.needs_reward = true,
                                          .takes_once = true,
                                          .passes = TENSOR_PASSES,
                                          .begin = tree_begin,
                                          .check = tree_check,
                                          .write = tree_write,
                                          .end = tree_end,
                                          .drop = tree_drop};
