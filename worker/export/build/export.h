/*
 * struct export: writes one session's trajectories in one of the formats of docs/trajectories.md.
 *
 *     export_new(s, ..., &x, e)      pins the session and chooses the branches to export
 *     export_write(x, &out, e)       writes them, and pauses after every few kilobytes
 *     export_free(x)
 *
 * Calls of the session may run meanwhile; their answers are not in the export. The session may also
 * come from a replayed journal (`rollgate export`): nothing here sends, spools or finalizes.
 */
#ifndef RG_EXPORT_EXPORT_H
#define RG_EXPORT_EXPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/str.h"

struct export;
struct json;
struct media_store;
struct model;
struct model_scratch;
struct session;

enum export_format {

#define X(id, name, type, symbol) EXPORT_##id,
#include "common/codec/export_formats.def"
#undef X
    EXPORT_FORMAT_COUNT
};

enum export_select {
    SELECT_LEAVES,
    SELECT_ALL_CHECKPOINTS,
    SELECT_LAST,
    SELECT_LONGEST,
    SELECT_COUNT
};

enum export_merge { MERGE_NONE, MERGE_TEXT, MERGE_TOKEN, MERGE_COUNT };

enum export_media {
    MEDIA_REFS,   /* addresses from which a client gets the pictures */
    MEDIA_INLINE, /* addresses and bytes */
    MEDIA_NONE,   /* only the positions of the pictures */
    MEDIA_COUNT
};

/* Options of an export. Strings are borrowed until export_new returns. */
struct export_options {
    enum export_format format;
    enum export_select select;
    bool drop_retries; /* pick=drop_retries */
    bool train_once;
    unsigned purposes;       /* bits 1 << enum purpose: of a branch's newest turn; 0: any */
    unsigned train_purposes; /* purposes of turns with mask 1; 0: any */
    /* speakers: of a branch's newest turn, and of turns with mask 1; names separated by commas;
     * absent: any */
    struct str roles, train_roles;
    /* how to merge; timelines sessions have a default of their own */
    enum export_merge merge;
    bool merge_set;
    bool ignore_tools; /* for merge; default true */
    bool ignore_tools_set;
    bool has_max_tokens;
    uint64_t max_tokens; /* limit for each trajectory, which is cut by whole turns */
    /* /samples: a trajectory without token ids, or with routed experts for only some turns, is an
     * error instead of being left out */
    bool strict;
    /* ids=collapsed: ids as they were sent, with one placeholder for each picture */
    bool collapsed_ids;
    enum export_media media;
    const struct media_store *store; /* for media=inline; must live as long as the export */
    bool no_drift;                   /* drift=off: no audit */
    bool require_reward;             /* without a reward the export is an error (reward_missing) */
    bool require_trained; /* without a trained token the export is an error (unassemblable) */
    bool mask_unfinished; /* verl: loss_mask zero when reward_info.finished is false */
    struct str reported;  /* view: weight version of the trainer's logprobs; absent: the newest */
    /* response id: only the branch that ends at this answer; absent: `select` decides */
    struct str branch;
    struct str
        uid; /* key by which the trainer groups rows; default: metadata.uid, else the group's id */
    bool has_session_index;
    uint32_t session_index; /* verl; default: the rollout's number in its group, else 0 */
    int64_t global_steps;   /* verl tags; -1: metadata.global_steps, else left out */
    /* miles: metadata of the session, with `reward` in it; NULL: none */
    const struct json *metadata;
    atomic_size_t *held_bytes; /* counter for the memory of the export; NULL: none */
};

void export_options_init(struct export_options *o);

/* Sets one option by its query name ("select", "pick", "train_once", "merge", "ignore_tools",
 * "max_tokens", "format", "drift", "ids", "media", "uid", "session_index", "global_steps",
 * "mask_unfinished", "require_reward"). Unknown names are ignored. A bad value fails with
 * ERR_INVALID and the name. */
int export_option(struct export_options *o, struct str name, struct str value, struct err *e);

/* Checks for options that contradict each other. Fails with ERR_INVALID, which names both.
 * export_new calls this, too. */
int export_options_check(const struct export_options *o, struct err *e);

/* Sets all options from an object (finalize's or /samples' body; "max_seq_len" = max_tokens). NULL,
 * null, and members that are null are accepted. Values may be strings, numbers or booleans. */
int export_options_json(struct export_options *o, const struct json *body, struct err *e);

/* Checks require_trained and require_reward. Fails with ERR_UNASSEMBLABLE if no answer that the
 * options train has a token (answers copied by a fork are trained with the original session), and
 * with ERR_REWARD_MISSING if the export would have no reward. export_new calls this, too. If the
 * session is closed for the export, call it before that. */
int export_check_reward(const struct session *s, const struct export_options *o, struct err *e);

/* Reports whether the format has one number as the reward and the session has none. */
bool export_lacks_reward(const struct export *x);

/* Returns true if no call of the session was answered: its agent probably used a different
 * session. */
bool export_has_no_calls(const struct export *x);

/* Chooses the branches and prepares. `m` and `scratch` are for the drift audit and for merging by
 * token; NULL: no audit. Both must live as long as the export. */
int export_new(struct session *s, const struct model *m, struct model_scratch *scratch,
               const struct export_options *o, struct export **ret, struct err *e);

/* The reader of an export. */
struct export_out {
    struct buf *bytes; /* written but not sent yet */

    /* Sends `bytes` if they are enough, and pauses. -1: the reader wants nothing more. */
    MAY_PAUSE int (*flow)(struct export_out *o, struct err *e);
};

/* Writes the whole export, and leaves the last bytes in out->bytes. Call it once. Returns -1 with
 * ERR_UNASSEMBLABLE if a trajectory violates an invariant (docs/trajectories.md, section 2) or, if
 * strict, cannot be a sample as it was captured. Also on errors of reading, flow or long work. */
MAY_PAUSE int export_write(struct export *x, struct export_out *out, struct err *e);

/* Returns what merging did in addition to any earlier export of the session: answers that replaced
 * other ids, answers that were not found. Known at the end. For metrics. */
const uint32_t *export_merged(const struct export *x);

const char *export_content_type(const struct export *x);

/* Returns, by kind of drift (drift.h), the trajectories in which an audit of this export has found
 * one so far. DRIFT_KIND_COUNT numbers. */
const uint32_t *export_drifted(const struct export *x);

/* Tokens with mask 1, trajectories, and those of them whose audit found drift. Known at the end. */
struct export_figures {
    uint64_t trained, trajectories, drifted;
};

struct export_figures export_figures(const struct export *x);

void export_free(struct export *x);

#endif
