/*
 * struct token_tree: the trajectories of an export as one tree, in which a common beginning is
 * stored once. Two tokens are the same node under three conditions: everything before them is the
 * same, their ids are equal, and the same answer sampled both, or neither was sampled. So a token
 * that was sampled twice is two nodes. Nodes are rows of columns of equal length; a node's parent
 * is the token before it.
 */
#ifndef RG_EXPORT_TOKEN_TREE_H
#define RG_EXPORT_TOKEN_TREE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/vec.h"
#include "worker/session/record/score.h"

struct trajectory;

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

/* Adds a trajectory. All together must have at most TOKEN_TREE_MAX tokens. */
void token_tree_add(struct token_tree *tree, const struct trajectory *t);

void token_tree_done(struct token_tree *tree);

#endif
