/*
 * struct trajectory: a track (track.h) as flat arrays (docs/trajectories.md), made one at a time in
 * an arena that is reset in between. Formats read struct trajectory and nothing else.
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
    uint32_t start, end; /* in response ids */
    bool trained;        /* mask 1 here */
};

/* One picture in it. */
struct trajectory_image {
    const struct json *part; /* the session's: worker/text/request/images.h */
    uint32_t offset, length; /* its ids, from the prompt's first on */
    uint32_t place;          /* in the export's table of pictures */
};

/* An array that a trajectory has when it was asked for: little-endian, C order. */
struct trajectory_array {
    const char *name;
    bool floats; /* float32, else int32 */
    uint64_t shape[3];
    unsigned dims;
    const void *cells;
};

/* The odds of a trajectory's response (odds.h); zero: not known of every trained token. */
struct trajectory_odds {
    uint32_t n_top;
    int32_t *top_ids; /* n x n_top, -1 where nothing is known, or was sampled */
    float *top_logprobs;
    const struct odds_support *support; /* NULL: none; counts are 0 where nothing was sampled */
};

enum { TRAJECTORY_ARRAYS_MAX = 16 };

/* How many numbers it has. */
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

    bool text;                   /* captured as text: no tokens, no mask; turns have no places */
    int32_t *ids;                /* prompt, then response */
    uint32_t total, n_prompt, n; /* n: response */
    uint8_t *mask;
    float *logprobs;           /* n of them, or NULL */
    int64_t *versions;         /* n of them, -1 on context, or NULL */
    struct str *version_texts; /* instead, when one of them is no decimal number */
    bool has_steps;            /* min_step and max_step are known */
    int64_t min_step, max_step;

    const int32_t *sampled; /* the response's ids before images became runs of theirs */
    uint32_t n_sampled;

    struct trajectory_turn *turns;
    uint32_t n_turns;
    uint32_t trained; /* tokens with mask 1 */
    uint32_t trimmed;
    struct json *messages;
    uint8_t *generated;      /* per message */
    uint32_t verl_num_turns; /* user and assistant messages + 1, as verl counts */
    uint32_t repaired;       /* merged: answers that stand where the client's copy had other ids */
    struct checkpoint *
        *lost; /* merged: answers whose place was not found; they are not trained here */
    uint32_t n_lost;
    struct drift drift;
    struct trajectory_image *images; /* n_images of them, in order: pictures_layout.h fills them */
    uint32_t n_images;

    bool own; /* every turn stands in the ids it was asked with: no merge put another's in */

    struct str experts; /* rows of total - 1, or absent */
    uint32_t experts_rows, experts_layers, experts_topk, experts_item; /* bytes an element */
    struct token_rows
        indexer; /* rows of the indexer, if the format has them: int32; among the arrays, too */
    bool has_indexer; /* its rows are known */

    struct trajectory_odds odds;
    const struct score **scores; /* by enum score_what: of all its ids, or NULL */
    struct trajectory_array arrays[TRAJECTORY_ARRAYS_MAX];
    unsigned n_arrays;
};

/* The owners of completions that several tracks share: by checkpoint id, the index + 1 of the track
 * that trains it. NULL: all. */
struct trajectory_input {
    struct session *session;
    const struct model *model; /* NULL: no audit, merges repair by own turns only */
    struct model_scratch *scratch;
    const uint32_t *owners;
    unsigned train_purposes; /* export.h, as the next */
    struct str train_roles;
    bool audit;
    bool indexer;    /* the format has a place for the indexer's rows */
    size_t n_scores; /* scores that the session had when the export began; 0 also with pictures,
                        since a scorer is asked with ids alone */
    bool text_too;   /* the format holds trajectories without tokens, too */
    struct err *
        failed; /* error of reading back; later results are worthless. NULL if nothing is evicted */
};

/* Reads back the payload of t, in one step. False: input.failed has the error. */
bool trajectory_recall(const struct trajectory_input *in, const struct checkpoint *t);

/* Whether an answer has mask 1 where it stands, as far as the answer and the input's train_purposes
 * and train_roles say; which of several trajectories trains it (owners) is not looked at. */
bool trajectory_trains(const struct trajectory_input *in, const struct checkpoint *t);

/* Notes what building that track reads of the session, long blocks of rows, too, if the recall has
 * `rows`. */
void trajectory_note(const struct track *track, struct recall *ret);

/* Notes what checking it reads once more: its turns. */
void trajectory_note_turns(const struct trajectory *r, struct recall *ret);

/* Builds track number `index` in the arena, its drift not yet audited. */
void trajectory_build(const struct trajectory_input *in, const struct track *track, size_t index,
                      struct arena *a, struct trajectory *ret);

/* Whether it is to be audited. */
bool trajectory_is_audited(const struct trajectory_input *in, const struct trajectory *r);

/* Whether an earlier export has audited this path: then r->drift is filled from it. */
bool trajectory_audit_kept(const struct trajectory_input *in, struct trajectory *r);

/* Begins the audit. As trajectory_audited, it looks at nothing of the session that changes, so
 * another thread may do it, with a scratch of its own. */
void trajectory_audit(const struct trajectory_input *in, const struct trajectory *r,
                      struct model_scratch *scratch, struct drift_audit *ret);

/* Fills r->drift from the audit when drift_next has had its end. */
void trajectory_audited(struct drift_audit *audit, struct arena *a, struct trajectory *r);

/* Keeps it for later exports (trajectory_audit_kept). */
void trajectory_keep_audit(struct session *s, const struct trajectory *r);

/* Checks what always holds (docs/trajectories.md, section 2) on one whose turns are in memory:
 * lengths, whose ids a mask-1 run holds, and that every answer was asked for with exactly the ids
 * that stand before it. ERR_UNASSEMBLABLE when one does not hold. */
int trajectory_check(const struct trajectory *r, struct err *e);

/* Checks one checkpoint without building: its prompt is its parent's ids and its own context, as
 * long as the one that was sent, and there are ids between two answers. */
int trajectory_check_turn(const struct session *s, const struct checkpoint *t, struct err *e);

/* The reward of one response, or NULL. */
const struct reward *trajectory_turn_reward(const struct session *s, const struct checkpoint *t);

#endif
