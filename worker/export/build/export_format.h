/*
 * struct format: how trajectories become bytes. export_write calls begin, then write for each
 * trajectory, then end. A file whose header needs all sizes first has several passes, and each goes
 * through all trajectories. `begin` and `end` append to `out`; `write` leaves texts and arrays in
 * x->rope, which the export drains to its reader before the next trajectory.
 *
 * To add a format: a row in common/codec/export_formats.def, and a struct format in a file of its
 * own.
 */
#ifndef RG_EXPORT_EXPORT_FORMAT_H
#define RG_EXPORT_EXPORT_FORMAT_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "worker/export/build/drift.h"
#include "worker/export/build/export.h"
#include "worker/export/build/rope.h"
#include "worker/export/build/trajectory.h"

struct drift_audit;
struct json_out;
struct recall;
struct reward;
struct score_wants;
struct selection;
struct trajectory_turn;

/* Sums over the trajectories written so far. */
struct export_sums {
    uint64_t trained, prompt_tokens, drift, trimmed;
    uint64_t trajectories, drifted;
    uint32_t repaired, lost; /* by merging */
    bool has_steps;
    int64_t min_step, max_step;
    uint64_t versioned, unversioned; /* trained turns, by whether all of it has versions */
};

struct export_picture;

/* With a scratch of the thread that runs it. */
typedef void (*export_work_fn)(struct export *x, struct model_scratch *scratch);

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
    struct trajectory t;       /* the one at hand */
    struct drift_audit *audit; /* in the export's arena */
    struct export_out *out;
    export_work_fn work;                /* what export_run_work does */
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
    bool unsupported;     /* a sampling support was wanted, and some trained token has none */
    bool unindexed;       /* the indexer's top-k was wanted, and some trajectory has none */
    bool recomputed;      /* some turn's rows were computed again: token_rows.h */
    const char *unrouted; /* why some trajectory has no routed experts; NULL: none was asked for */
    bool unversioned;     /* areal: some trajectory has no weight versions, told as -1 */
    size_t kept_bytes;    /* of texts that the format keeps for later */
    size_t counted_bytes; /* of them and of the rope, as the options' held_bytes has them */
    size_t prompt_at, prompt_bytes; /* of the messages before the first answer: native_write_rest */
    unsigned pass;
    size_t at;
};

struct format {
    unsigned passes;
    bool indexer;        /* it has a place for the indexer's rows */
    bool text_too;       /* trajectories without tokens, too */
    bool takes_once;     /* it takes all it needs of the trajectories in the first pass */
    bool needs_reward;   /* its trainer reads one number */
    bool media_in_table; /* media=inline puts the bytes into the summary's table */
    bool no_media;       /* it holds no images */
    bool drift_places;   /* it shows the differences themselves, which a kept audit does not have */
    bool needs_logprobs; /* its loss is of ratios to them: zeros would be read as certainty */
    void (*begin)(struct export *x, struct buf *out);
    /* Whether the format can hold this one (NULL: any); asked in the first pass. */
    int (*check)(const struct export *x, const struct trajectory *t, struct err *e);
    /* NULL: nothing. Pauses by export_pause in its loops. */
    MAY_PAUSE void (*write)(struct export *x, const struct trajectory *t);
    /* At the end of every pass (x->pass is its number). Pauses likewise. */
    MAY_PAUSE void (*end)(struct export *x, struct buf *out);
    /* Frees what begin made outside the arena; NULL: nothing. */
    void (*drop)(struct export *x);
};

/* A row of common/codec/export_formats.def. */
struct format_row {
    const char *name, *content_type;
    const struct format *functions;
    bool hidden; /* no client names it */
};

extern const struct format_row export_formats[EXPORT_FORMAT_COUNT];

/* The format's functions, by the last column of its row. */
#define X(id, name, type, symbol) extern const struct format symbol;
#include "common/codec/export_formats.def"
#undef X

/* Counts texts that wait in the options' held_bytes. Arenas count themselves. */
void export_count_texts(struct export *x);

/* Lets others run. False: the export has failed or was cancelled (x->failed), and what is written
 * from now on is worthless. */
MAY_PAUSE bool export_pause(struct export *x);

/* Does work that is long for a long trajectory and reads nothing of the session that changes: in a
 * helper thread if it is worth one, else here. False: like export_pause. */
MAY_PAUSE bool export_offload(struct export *x, export_work_fn fn);

/* Between parts of that work: true while it goes on. In a helper thread it does not pause. */
MAY_PAUSE bool export_work_goes_on(struct export *x);

/* Reads back what x->recall was told of. True: all is there, and stays until recall_done. False:
 * like export_pause. */
MAY_PAUSE bool export_recall(struct export *x);

/* export_sums.c: adds a trajectory that is whole to x->sums; in the first pass only. */
void export_sum_up(struct export *x, const struct trajectory *t);

/* export_options.c: keeps the options, with what they borrow, and takes from the session what they
 * leave out of its group: uid, index, steps. */
void export_take_options(struct export *x, const struct export_options *o);

/* How many trajectories it holds. */
size_t export_branches(const struct export *x);

/* A member whose value is an array of numbers, drained from the rope o writes to. */
void export_array(struct export *x, struct json_out *o, const char *key, enum rope_piece_kind kind,
                  const void *p, size_t n);

/* --- parts of the native JSON that other formats hold too --- */

/* A trajectory without its arrays as one item of the JSON array in the metadata of a file of
 * tensors, and the metadata at that file's end. */
MAY_PAUSE void tensors_note_rest(struct export *x, const struct trajectory *t);
void tensors_note_end(struct export *x);

/* The members behind the arrays: num_turns .. extra_fields, without the enclosing braces. Sets
 * x->prompt_at. */
MAY_PAUSE void native_write_rest(struct export *x, const struct trajectory *t, struct json_out *o);

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

/* Message i as an item. */
void native_write_message(const struct trajectory *t, uint32_t i, struct json_out *o);

/* Why it ends where it ends (materialization_reason), or NULL. */
const char *native_reason(const struct trajectory *t);
/* The members of extra_fields; and the whole object. */
void native_write_extra_members(const struct trajectory *t, struct json_out *o);
void native_write_extra(struct export *x, const struct trajectory *t, struct json_out *o);

#endif
