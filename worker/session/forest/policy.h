/*
 * struct policy: how requests attach to what a session stores (docs/sessions.md, section 3). A
 * policy chooses the position of a plan, decides at commit time whether that position is still
 * valid, keeps track of a committed checkpoint, and lists the branches of an export. It uses the
 * forest, but not HTTP, the engine, records or formats.
 */
#ifndef RG_SESSION_POLICY_H
#define RG_SESSION_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct branch_vec;
struct chain;
struct checkpoint;
struct err;
struct json_out;
struct plan;
struct record_in;
struct session;

struct policy {
    const char *name;

    /* Chooses the position. p->walk and p->env are set. Sets parent, covered, prompt and, if it
     * applies, chain, rollback, head_version. Returns -1 with ERR_HISTORY_CONFLICT. */
    int (*position)(struct session *s, struct plan *p, struct err *e);

    /* Checks whether the position is still valid. Returns -1 with ERR_STATE_CONFLICT if not. NULL:
     * always valid. */
    int (*check)(const struct session *s, const struct plan *p, struct err *e);

    /* Updates the policy's own data for a checkpoint that apply has linked into the forest. `chain`
     * is the id of the chain that it continues, or UINT32_MAX. `rollback`: it replaces that chain's
     * last checkpoint. NULL: nothing to do. */
    int (*commit)(struct session *s, struct checkpoint *t, uint32_t chain, bool rollback,
                  struct err *e);

    /* Appends the heads of all branches, in export order. */
    void (*branches)(struct session *s, struct branch_vec *out);
};

extern const struct policy policy_tree, policy_chains, policy_linear, policy_timelines;

/* Finds a policy by name, or NULL. */
const struct policy *policy_find(struct str name);

/* linear: moves the head to where a record says; later checkpoints were rolled back. */
void linear_move(struct session *s, struct checkpoint *head);

/* linear: sets the head of a fork, for which nothing was rolled back. */
void linear_fork(struct session *s, struct checkpoint *head);

/* linear: applies the body of a drop record. */
int linear_apply_drop(struct session *s, struct record_in *r, struct err *e);

/* chains: closes a chain without a commit, because the budget is used up. `kept`: its last answer
 * is rolled back, too, and so many ids stay; 0: all stay. */
int chains_close(struct session *s, uint32_t chain, uint32_t kept, struct err *e);

/* Appends a chain to `active_chains` of the session's state. Appends nothing for a closed one. */
void chain_put(const struct session *s, const struct chain *c, struct json_out *o);

/* Returns how many ids of the path that ends in `dropped` remain without that answer and the
 * generation prompt before it. */
uint32_t chains_kept(const struct session *s, const struct checkpoint *dropped, const int32_t *ids);

#endif
