/*
 * struct policy: how requests attach to what a session remembers (docs/sessions.md, section 3). A
 * policy chooses the position of a plan, says at commit time whether that position still holds,
 * books a committed checkpoint, and names the branches of an export. It knows the forest; it does
 * not know HTTP, the engine, records or formats.
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

    /* p->walk and p->env are set. Sets parent, covered, prompt and, where it applies, chain,
     * rollback, head_version. ERR_HISTORY_CONFLICT. */
    int (*position)(struct session *s, struct plan *p, struct err *e);

    /* Whether the position still stands: ERR_STATE_CONFLICT otherwise. NULL: always. */
    int (*check)(const struct session *s, const struct plan *p, struct err *e);

    /* Books a checkpoint that apply has linked into the forest. `chain` is the id of the chain it
     * continues or UINT32_MAX; `rollback` whether it replaces that chain's last checkpoint. NULL:
     * none.
     */
    int (*commit)(struct session *s, struct checkpoint *t, uint32_t chain, bool rollback,
                  struct err *e);

    /* Pushes the heads of all branches, in export order. */
    void (*branches)(struct session *s, struct branch_vec *out);
};

extern const struct policy policy_tree, policy_chains, policy_linear, policy_timelines;

/* Finds a policy by name, or NULL. */
const struct policy *policy_find(struct str name);

/* linear, a record says where the head stands: what lies beyond was rolled back. */
void linear_move(struct session *s, struct checkpoint *head);

/* The head is this one, and nothing was rolled back for it. */
void linear_fork(struct session *s, struct checkpoint *head);

/* linear, the body of a drop record. */
int linear_apply_drop(struct session *s, struct record_in *r, struct err *e);

/* chains, closing without a commit (budget gone); `kept`: its last answer is rolled back, too, and
 * so many ids stay; 0: all do. */
int chains_close(struct session *s, uint32_t chain, uint32_t kept, struct err *e);

/* Appends a chain to `active_chains` of the session's state; nothing for a closed one. */
void chain_put(const struct session *s, const struct chain *c, struct json_out *o);

/* Returns how much of the path (ids) that ends in `dropped` remains without that answer and the
 * generation prompt before it. */
uint32_t chains_kept(const struct session *s, const struct checkpoint *dropped, const int32_t *ids);

#endif
