/*
 * struct format: how trajectories become bytes. An export calls begin, one per trajectory in
 * order, end; with several passes (files whose header needs all sizes first) it goes through all
 * trajectories once per pass. begin and end append to `out`; one leaves its texts and arrays in
 * x->rope, from where they go out a part at a time.
 */
#ifndef RG_EXPORT_EXPORT_FORMAT_H
#define RG_EXPORT_EXPORT_FORMAT_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "worker/export/drift.h"
#include "worker/export/export.h"
#include "worker/export/rope.h"
#include "worker/export/trajectory.h"

struct drift_audit;
struct json_out;
struct native_rest;
struct recall;
struct reward;
struct score_wants;
struct selection;
struct trajectory_turn;

/* Sums over the trajectories written so far. */
struct export_sums {
    uint64_t trained, prompt_tokens, drift, trimmed;
    uint32_t repaired, lost; /* by merging */
    bool has_steps;
    int64_t min_step, max_step;
    uint64_t versioned, unversioned; /* trained turns, by whether all of it has versions */
};

struct export_picture;

struct export
{
    struct session *session; /* pinned */
    struct export_options options;
    struct trajectory_input input;
    /* export_take_reward: of the session, as it was then */
    const struct reward *told;
    bool rewarded, unfinished;
    double reward;             /* 0: it is not known */
    struct err failed;         /* input.failed: what could not be read back */
    struct recall *recall;     /* what is read back in steps (export_recalls); in the arena */
    struct arena arena;        /* of the export */
    struct arena scratch;      /* of the trajectory at hand */
    struct trajectory t;       /* the one at hand, while `building` */
    struct drift_audit *audit; /* in the export's arena */
    bool building, writing;

    enum { AUDIT_NONE, AUDIT_DUE, AUDIT_STARTED, AUDIT_MADE } auditing;

    bool checked;                       /* and expanded */
    struct native_rest *rest;           /* own; NULL: none was made yet */
    bool laid;                          /* format->lay is done */
    bool work_due;                      /* export_work is to come */
    struct rope rope;                   /* of the trajectory at hand */
    uint32_t drifted[DRIFT_KIND_COUNT]; /* newly audited ones, by their first mismatch */
    struct selection *selection;        /* likewise */
    struct export_sums sums;
    VEC(struct export_picture *) media; /* of all trajectories, each once: media_table.h */
    uint32_t news[2]; /* repaired, lost: more than any export of the session had before */
    const struct format *format;
    void *state;       /* the format's, in the arena */
    void *own;         /* beside a file of tensors: what its format keeps, in the arena */
    bool all_logprobs; /* verl: every row has them */
    const struct score_wants *score_wants; /* the session's own; in the arena */
    bool unscored;                         /* one of them is not known of some trajectory */
    bool unsupported;      /* a sampling support was wanted, and some trained token has none */
    bool unindexed;        /* the indexer's top-k was wanted, and some trajectory has none */
    bool recomputed;       /* some turn's rows were computed again: token_rows.h */
    const char *unrouted;  /* why some trajectory has no routed experts; NULL: none was asked for */
    bool unversioned;      /* areal: some trajectory has no weight versions, told as -1 */
    VEC(struct buf) parts; /* made, but not yet handed out (a header), in order */
    size_t part_bytes;     /* of them */
    size_t made_bytes;     /* of what format->rest has made so far */
    size_t counted_bytes;  /* of both and of the rope, as the options' held_bytes has them */
    size_t part;
    size_t part_at;
    unsigned pass;
    size_t at;

    enum { EXPORT_SELECT, EXPORT_BEGIN, EXPORT_MIDDLE, EXPORT_END, EXPORT_DONE } step;
};

struct format {
    const char *name;
    const char *content_type;
    unsigned passes;
    bool hidden;         /* the gateway's own: no client names it */
    bool indexer;        /* it has a place for the indexer's rows */
    bool text_too;       /* trajectories without tokens, too */
    bool takes_once;     /* it takes all it needs of the trajectories in the first pass */
    bool needs_reward;   /* its trainer reads one number */
    bool media_in_table; /* media=inline puts the bytes into the summary's table */
    bool no_media;       /* it holds no images */
    bool needs_logprobs; /* its loss is of ratios to them: zeros would be read as certainty */
    void (*begin)(struct export *x, struct buf *out);
    /* Whether the format can hold this one (NULL: any); asked in the first pass. */
    int (*check)(const struct export *x, const struct trajectory *t, struct err *e);
    void (*one)(struct export *x, const struct trajectory *t);
    /* In the first pass, before `one`: a part of what would take long in one step; true while there
     * is more. NULL: nothing. */
    bool (*part)(struct export *x, const struct trajectory *t);
    /* In the first pass, of a long history, when it is checked: the next part of what `one` writes
     * behind the arrays; true while there is more. NULL: nothing, or `one` does all. */
    bool (*rest)(struct export *x, const struct trajectory *t);
    /* In the first pass, behind `one`: what takes long for a long trajectory. It looks at nothing
     * of the session that changes, so another thread may do it. NULL: nothing. */
    void (*lay)(struct export *x, const struct trajectory *t);
    /* In the first pass, behind all that: a part of what `one` has left to be done in steps; true
     * while there is more. NULL: nothing. */
    bool (*settle)(struct export *x);
    /* At the end of every pass (x->pass tells which). */
    void (*end)(struct export *x, struct buf *out);
    /* Frees what begin made outside the arena; NULL: nothing. */
    void (*drop)(struct export *x);
};

/* By its name in the options. */
const struct format *export_format_of(enum export_format f);

/* export_sums.c: adds a trajectory that is whole to x->sums; in the first pass only. */
void export_sum_up(struct export *x, const struct trajectory *t);

/* export_options.c: keeps the options, with what they borrow, and takes from the session what they
 * leave out of its group: uid, index, steps. */
void export_take_options(struct export *x, const struct export_options *o);

/* Reads back the next part of what x->recall was told of. True: there is more, for another step;
 * false: all is there, and stays until recall_done, or x->failed says why it is not. */
bool export_recalls(struct export *x);

/* How many trajectories it holds. */
size_t export_branches(const struct export *x);

/* Takes the bytes over, to be handed out before anything else; `b` is empty afterwards. */
void export_defer(struct export *x, struct buf *b);

extern const struct format format_json, format_msgpack, format_safetensors, format_verl,
    format_miles, format_areal, format_slime, format_prime_rl, format_openai_messages,
    format_prefix_tree, format_skyrl, format_nemo_gym, format_atif, format_none, format_view;

/* A member whose value is an array of numbers, drained from the rope o writes to. */
void export_array(struct export *x, struct json_out *o, const char *key, enum rope_piece_kind kind,
                  const void *p, size_t n);

/* --- parts of the native JSON that other formats hold too --- */

/* A trajectory without its arrays as one item of the JSON array in the metadata of a file of
 * tensors, and the metadata at that file's end. */
void tensors_note_rest(struct export *x, const struct trajectory *t);
void tensors_note_end(struct export *x);

/* The members behind the arrays: num_turns .. extra_fields, without the enclosing braces. A long
 * history has megabytes of them: with format->rest = native_rest_part they are made in parts
 * before. */
void native_write_rest(struct export *x, const struct trajectory *t, struct json_out *o);
void native_take_rest(struct export *x, const struct trajectory *t,
                      struct buf *ret); /* as a text */
bool native_rest_part(struct export *x, const struct trajectory *t);

/* Whether it is worth parts. */
bool native_is_long(const struct trajectory *t);

/* Gives up what parts have made. */
void native_rest_drop(struct export *x);

/* Of these members all but messages and turns; and turn i, an object. */
void native_write_brief(struct export *x, const struct trajectory *t, struct json_out *o);
void native_write_turn(const struct trajectory *t, uint32_t i, struct json_out *o);

/* Those after `turns`: what the session came to. */
void native_write_outcome(struct export *x, const struct trajectory *t, struct json_out *o);

/* The members of one of its `turns`. */
void native_write_turn_members(const struct trajectory *t, const struct trajectory_turn *x,
                               struct json_out *o);

/* Routed experts as base64 under `key`, with KEY_shape and KEY_dtype; null: none. */
void native_write_experts(struct export *x, const struct trajectory *t, const char *key,
                          struct json_out *o);

/* Arrays that were asked for, each as base64 with NAME_shape and NAME_dtype. */
void native_write_arrays(struct export *x, const struct trajectory *t, struct json_out *o);

/* The summary object. */
void native_write_summary(struct export *x, struct json_out *o);

/* Its member `warnings`: sentences about what a trainer may miss. */
void native_write_warnings(const struct export *x, struct json_out *o);

/* Message i as an item; and those before the first one that was generated, as an array. */
void native_write_message(const struct trajectory *t, uint32_t i, struct json_out *o);
void native_write_prompt(const struct export *x, const struct trajectory *t, struct json_out *o);

/* Why it ends where it ends (materialization_reason), or NULL. */
const char *native_reason(const struct trajectory *t);
/* The members of extra_fields; and the whole object. */
void native_write_extra_members(const struct trajectory *t, struct json_out *o);
void native_write_extra(struct export *x, const struct trajectory *t, struct json_out *o);

#endif
