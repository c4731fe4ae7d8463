/*
 * GET /sessions/{id} in steps: the state of a session with many answers or calls is written in
 * parts.
 */
#ifndef RG_SESSION_TELLING_H
#define RG_SESSION_TELLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/session/forest/branch.h"
#include "worker/session/record/telling_record.h"

struct err;
struct message_node;
struct session;

enum telling_stage {
    TELLING_HEAD,
    TELLING_CHAINS,
    TELLING_REWARDS,
    TELLING_NODES,
    TELLING_LEAVES,
    TELLING_IDS,
    TELLING_RECORDS,
};

/* session_write_state in steps, for sessions whose whole state would hold the loop for too long.
 * The caller sets session (which it pins), records and out, and may take the output between two
 * steps. Answers, rewards and calls that are recorded meanwhile are left out. */
struct session_telling {
    struct session *session;
    bool records;
    struct json_out out;

    /* The fields below belong to the steps. */
    enum telling_stage stage;
    size_t at; /* position in the stage */
    size_t n_checkpoints, n_rewards, n_calls, n_chains;
    struct branch_vec branches;
    struct arena arena; /* memory of the nodes' ids */
    struct map ids;     /* (parent checkpoint, trie node) -> id in the state */
    VEC(const struct message_node *)
    above;             /* messages above answer `at` that are not written, the lowest first */
    size_t above_left; /* number of these messages that this step may still write */
    uint32_t *checkpoint_ids; /* id in the state, by checkpoint id */
    bool *hidden;             /* by checkpoint id: was hidden when the writing began */
    uint32_t next_id;
    const struct checkpoint *path; /* end of the newest branch, or NULL */
    size_t n_path;                 /* number of its ids */
    struct record_telling record;
};

/* Writes the next step. Returns 1 after the last, 0 if more follow, -1 if evicted data cannot be
 * read back. */
int session_tell(struct session_telling *t, struct err *e);

/* Frees the fields of the steps, at the end or before. */
void session_tell_done(struct session_telling *t);

#endif
