/*
 * struct trajectory: a track (track.h) as flat arrays (docs/trajectories.md). They are made one at
 * a time, in an arena that is reset in between. Formats read only struct trajectory.
 */
#ifndef RG_EXPORT_TRAJECTORY_H
#define RG_EXPORT_TRAJECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/export/build/drift.h"
#include "worker/text/request/token_rows.h"

struct arena;
struct checkpoint;
struct drift_audit;
struct err;
struct json;
struct model;
struct model_scratch;
struct odds_support;
struct recall;
struct reward;
struct score;
struct session;
struct track;

/* One generated turn inside a trajectory. */
struct trajectory_turn {
    struct checkpoint *checkpoint;
    uint32_t start, end; /* range of the response ids */
    bool trained;        /* the turn has mask 1 in this trajectory */
};

/* One picture in a trajectory. */
struct trajectory_image {
    const struct json *part; /* the session's part of the picture (worker/text/request/images.h) */
    uint32_t offset, length; /* range of its ids, counted from the prompt's first */
    uint32_t place;          /* index in the export's table of pictures */
};

/* An array that was asked for: little-endian, C order. */
struct trajectory_array {
    const char *name;
    bool floats; /* elements are float32, else int32 */
    uint64_t shape[3];
    unsigned dims;
    const void *cells;
};

/* The odds of a trajectory's response (odds.h). Zero if they are not known of every trained
 * token. */
struct trajectory_odds {
    uint32_t n_top;
    int32_t *top_ids; /* n x n_top; -1 where nothing is known or nothing was sampled */
    float *top_logprobs;
    const struct odds_support *support; /* NULL: none; counts are 0 where nothing was sampled */
};

enum { TRAJECTORY_ARRAYS_MAX = 16 };

/* Returns the number of elements. */
static inline size_t trajectory_cells(const struct trajectory_array *v)
{
    size_t n = 1;

    for (unsigned i = 0; i < v->dims; i++)
        n *= v->shape[i];
    return n;
}

struct trajectory {
    struct session *session;
    const struct track *track;
    size_t index;

    /* captured as text: no tokens and no mask; turns have no positions */
    bool text;
    int32_t *ids;                /* of the prompt, then of the response */
    uint32_t total, n_prompt, n; /* n: number of response ids */
    uint8_t *mask;
    float *logprobs;           /* n of them, or NULL */
    int64_t *versions;         /* n of them, -1 on context; or NULL */
    struct str *version_texts; /* used instead if one of them is not a decimal number */
    bool has_steps;            /* min_step and max_step are known */
    int64_t min_step, max_step;

    const int32_t *sampled; /* the response's ids before pictures were expanded */
    uint32_t n_sampled;

    struct trajectory_turn *turns;
    uint32_t n_turns;
    uint32_t trained; /* number of tokens with mask 1 */
    uint32_t trimmed;
    struct json *messages;
    uint8_t *generated;      /* by message: whether it was generated */
    uint32_t verl_num_turns; /* number of user and assistant messages + 1, as verl counts */
    uint32_t repaired;       /* merged: answers that replaced the other ids of a client's copy */
    struct checkpoint *
        *lost; /* merged: answers whose position was not found, so that they are not trained here */
    uint32_t n_lost;
    struct drift drift;
    struct trajectory_image *images; /* n_images of them, in order; filled by pictures_layout.h */
    uint32_t n_images;

    bool own; /* every turn is in the ids that its call had: no merge has replaced them */

    struct str experts; /* total - 1 rows, or absent */
    uint32_t experts_rows, experts_layers, experts_topk, experts_item; /* bytes of an element */
    struct token_rows
        indexer; /* rows of the indexer, if the format has them: int32; also among the arrays */
    bool has_indexer; /* the rows of the indexer are known */

    struct trajectory_odds odds;
    const struct score **scores; /* by enum score_what: scores of all its ids, or NULL */
    struct trajectory_array arrays[TRAJECTORY_ARRAYS_MAX];
    unsigned n_arrays;
};

/* Input for trajectories. `owners`: by checkpoint id, index + 1 of the track that trains a
 * completion which several tracks contain. NULL: every track trains its own. */
struct trajectory_input {
    struct session *session;
    const struct model *model; /* NULL: no audit, and merges repair only the head's own turns */
    struct model_scratch *scratch;
    const uint32_t *owners;
    unsigned train_purposes; /* as in export.h, like the next */
    struct str train_roles;
    bool audit;
    bool indexer; /* the format has a field for the indexer's rows */
    /* number of the session's scores when the export began; 0 also with pictures, because a scorer
     * gets only ids */
    size_t n_scores;
    bool text_too;      /* the format accepts trajectories without tokens */
    struct err *failed; /* error of reading back, after which results are worthless. NULL if nothing
                           is evicted */
};

/* Reads back the payload of t, in one step. Returns false if that fails; input.failed has the
 * error. */
bool trajectory_recall(const struct trajectory_input *in, const struct checkpoint *t);

/* Reports whether an answer has mask 1, as far as the answer and the input's train_purposes and
 * train_roles decide. `owners` is not considered. */
bool trajectory_trains(const struct trajectory_input *in, const struct checkpoint *t);

/* Adds to the recall what building the track reads from the session. If the recall has `rows`, also
 * long blocks of rows. */
void trajectory_note(const struct track *track, struct recall *ret);

/* Adds to the recall what checking reads once more: the turns. */
void trajectory_note_turns(const struct trajectory *r, struct recall *ret);

/* Builds track number `index` in the arena. Its drift is not audited yet. */
void trajectory_build(const struct trajectory_input *in, const struct track *track, size_t index,
                      struct arena *a, struct trajectory *ret);

/* Reports whether it must be audited. */
bool trajectory_is_audited(const struct trajectory_input *in, const struct trajectory *r);

/* Fills r->drift if an earlier export has audited this path. Returns whether it has. */
bool trajectory_audit_kept(const struct trajectory_input *in, struct trajectory *r);

/* Begins the audit. Like trajectory_audited, it reads no changing data of the session, so any
 * thread may do it, with a scratch of its own. */
void trajectory_audit(const struct trajectory_input *in, const struct trajectory *r,
                      struct model_scratch *scratch, struct drift_audit *ret);

/* Fills r->drift from the audit, after drift_next has returned false. */
void trajectory_audited(struct drift_audit *audit, struct arena *a, struct trajectory *r);

/* Keeps the result of the audit for later exports (trajectory_audit_kept). */
void trajectory_keep_audit(struct session *s, const struct trajectory *r);

/* Checks the invariants (docs/trajectories.md, section 2) of a trajectory whose turns are in
 * memory: lengths, the ids of mask-1 runs, and that every answer was requested with exactly the ids
 * before it. Fails with ERR_UNASSEMBLABLE. */
int trajectory_check(const struct trajectory *r, struct err *e);

/* Checks one checkpoint without building it: its prompt must be its parent's ids and its own
 * context, as long as the one that was sent, and there must be ids between two answers. */
int trajectory_check_turn(const struct session *s, const struct checkpoint *t, struct err *e);

/* Returns the reward of one response, or NULL. */
const struct reward *trajectory_turn_reward(const struct session *s, const struct checkpoint *t);

#endif
