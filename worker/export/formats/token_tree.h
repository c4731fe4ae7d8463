/*
 * struct token_tree: the trajectories of an export laid over each other: a token that several of
 * them begin with stands once. Two tokens are one when what stands before them is one, their ids
 * are equal, and the same answer sampled both, or none did: what was sampled twice stands twice.
 * Columns of equal length; a token stands behind the one before it.
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
    int32_t *parents;   /* -1: a trajectory's first */
    int32_t *positions; /* tokens before it on its path */
    int32_t *through;   /* trajectories that go through it */
    float *weights;     /* number of these in which it has mask 1 */
    float *logprobs;    /* 0 where nothing is trained */
    int64_t *versions;  /* -1 likewise */
    float *scores[SCORE_KINDS];
    int32_t *authors;         /* id of the checkpoint whose answer it is of, or -1 */
    int32_t *first, *sibling; /* first child; the next child of its parent; -1: none */
    int32_t roots;            /* the first one; n > 0 only */
    VEC(int64_t) ends;        /* per trajectory its last token */
    VEC(int64_t) prompts;     /* per trajectory how many stand before its response */
};

/* Lays one over it. Together they must have at most TOKEN_TREE_MAX tokens. */
void token_tree_add(struct token_tree *tree, const struct trajectory *t);

void token_tree_done(struct token_tree *tree);

#endif
