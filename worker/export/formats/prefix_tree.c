/* Format prefix-tree: all trajectories in one file of tensors, each token once (token_tree.h). */

#include "common/base/arena.h"
#include "common/base/err.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/export/formats/token_tree.h"

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
