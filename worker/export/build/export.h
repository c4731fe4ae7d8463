/*
 * struct export: one session's trajectories on their way out, in one of the formats of
 * docs/trajectories.md.
 *
 *     export_new(s, ..., &x, e)      pins the session and fixes the branches that go out
 *     export_write(x, &out, e)       writes them, and pauses between parts of some kilobytes
 *     export_free(x)
 *
 * Calls of the session may run meanwhile; their answers are not in the export. The session may also
 * be of a replayed journal (`rollgate export`): nothing here sends, spools or finalizes.
 */
#ifndef RG_EXPORT_EXPORT_H
#define RG_EXPORT_EXPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
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
struct session_store;

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
    MEDIA_REFS,   /* where a client gets them */
    MEDIA_INLINE, /* their bytes, too */
    MEDIA_NONE,   /* the spans alone */
    MEDIA_COUNT
};

/* Strings are borrowed: they must live until export_new returns. */
struct export_options {
    enum export_format format;
    enum export_select select;
    bool drop_retries; /* pick=drop_retries */
    bool train_once;
    unsigned purposes;             /* bits 1 << enum purpose: of a branch's newest turn; 0: any */
    unsigned train_purposes;       /* likewise: of turns with mask 1; 0: any */
    struct str roles, train_roles; /* who spoke, names by commas, likewise; absent: any */
    enum export_merge merge;       /* timelines sessions merge by their own level unless set here */
    bool merge_set;
    bool ignore_tools; /* of merge; default true */
    bool ignore_tools_set;
    bool has_max_tokens;
    uint64_t max_tokens; /* per trajectory, cut by whole turns */
    bool strict; /* /samples: what has no token ids, or routed experts for a part of its turns only,
                    is an error instead of left out */
    bool collapsed_ids; /* ids=collapsed: as they were sent, a picture is one placeholder */
    enum export_media media;
    const struct media_store *store; /* for media=inline; must live as long as the export */
    bool no_drift;                   /* drift=off: leave the audit out */
    bool require_reward;             /* without a reward the export is an error (reward_missing) */
    bool require_trained; /* without a trained token the export is an error (unassemblable) */
    bool mask_unfinished; /* verl: loss_mask zero when reward_info.finished is false */
    struct str reported;  /* view: the weight version of the trainer's logprobs; absent: newest */
    struct str branch;    /* response id: only the branch that ends at this answer; absent: those
                             that `select` says */
    struct str
        uid; /* what the trainer groups rows by; default: metadata.uid, else the group's id */
    bool has_session_index;
    uint32_t session_index;      /* verl; default: the rollout's number in its group, else 0 */
    int64_t global_steps;        /* verl tags; -1: metadata.global_steps, else left out */
    const struct json *metadata; /* miles: session metadata, `reward` inside; NULL: none */
    atomic_size_t *held_bytes;   /* what the export holds is counted there, too; NULL: nowhere */
};

void export_options_init(struct export_options *o);

/* One option by its query name ("select", "pick", "train_once", "merge", "ignore_tools",
 * "max_tokens", "format", "drift", "ids", "media", "uid", "session_index", "global_steps",
 * "mask_unfinished", "require_reward"). Unknown names are ignored; bad values: ERR_INVALID with the
 * name. */
int export_option(struct export_options *o, struct str name, struct str value, struct err *e);

/* Options that contradict each other: ERR_INVALID that names both. export_new asks, too. */
int export_options_check(const struct export_options *o, struct err *e);

/* All of them from an object (finalize's or /samples' body; "max_seq_len" = max_tokens); NULL and
 * null are fine, and so are members that are null. Values may be strings, numbers or booleans. */
int export_options_json(struct export_options *o, const struct json *body, struct err *e);

/* require_trained: ERR_UNASSEMBLABLE when no answer that the options train has a token (answers
 * that a fork copied are another session's to train). require_reward: ERR_REWARD_MISSING when the
 * export would hold none. export_new asks, too; who closes the session for the export asks before.
 */
int export_check_reward(const struct session *s, const struct export_options *o, struct err *e);

/* Whether the format gives trainers one number as the reward, and there is none for what the
 * session holds. */
bool export_lacks_reward(const struct export *x);

/* True if no call of the session was answered: its agent probably used a different session. */
bool export_has_no_calls(const struct export *x);

/* Fixes the branches and prepares. `m` and `scratch` are for the drift audit and for merging by
 * token; NULL leaves the audit out. Both must live as long as the export. */
int export_new(struct session *s, const struct model *m, struct model_scratch *scratch,
               const struct export_options *o, struct export **ret, struct err *e);

/* The reader of an export. */
struct export_out {
    struct buf *bytes; /* written, not yet sent */

    /* Sends of `bytes` what is worth sending, and pauses. -1: nothing more is wanted. */
    int (*flow)(struct export_out *o, struct err *e);
    /* Calls export_run_work in a helper thread, and waits for it. NULL: there is no thread. */
    int (*offload)(struct export_out *o, struct export *x, struct err *e);
};

/* Writes all of it, and leaves the last bytes in out->bytes. -1: ERR_UNASSEMBLABLE if a trajectory
 * breaks what always holds (docs/trajectories.md, section 2) or, strict, cannot be a sample as it
 * was captured; or an error of reading, flow or offload. Only once. */
MAY_PAUSE int export_write(struct export *x, struct export_out *out, struct err *e);

/* For `offload`: does the work in the calling thread. Nobody else touches the export meanwhile. */
void export_run_work(struct export *x, struct model_scratch *scratch);
bool export_work_is_long(const struct export *x); /* it takes several milliseconds */

/* What merging did beyond any export of the session before, known at the end: answers put in place
 * of other ids, answers not found. For metrics. */
const uint32_t *export_merged(const struct export *x);

const char *export_content_type(const struct export *x);

/* By kind of drift (drift.h): trajectories whose audit was made for this export so far and found
 * one. DRIFT_KIND_COUNT numbers. */
const uint32_t *export_drifted(const struct export *x);

/* Tokens with mask 1, trajectories, and those of them whose audit found drift: known at the end. */
struct export_figures {
    uint64_t trained, trajectories, drifted;
};

struct export_figures export_figures(const struct export *x);

void export_free(struct export *x);

#endif
