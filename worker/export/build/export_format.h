/*
 * struct format: how trajectories become bytes. export_write calls begin, then write for each
 * trajectory, then end. A file whose header needs all sizes first has several passes, and each pass
 * handles all trajectories. `begin` and `end` append to `out`. `write` leaves texts and arrays in
 * x->rope, which the export sends to its reader before the next trajectory.
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

/* Sums over the trajectories written so far. */
struct export_sums {
    uint64_t trained, prompt_tokens, drift, trimmed;
    uint64_t own_trained; /* of `trained`, without turns that a fork or an import copied */
    uint64_t trajectories, drifted;
    uint32_t repaired, lost; /* counted by merging */
    bool has_steps;
    int64_t min_step, max_step;
    uint64_t versioned, unversioned; /* trained turns, by whether all their tokens have versions */
};

struct export_picture;

/* Work with the scratch of the thread that runs it. */
MAY_PAUSE typedef void (*export_work_fn)(struct export *x, struct model_scratch *scratch);

struct export
{
    struct session *session; /* pinned during the export */
    struct export_options options;
    struct trajectory_input input;
    /* copy of the session's reward when the export began (export_take_reward) */
    const struct reward *told;
    bool rewarded, unfinished;
    double reward;             /* 0 if the reward is unknown */
    struct err failed;         /* input.failed: the error of reading back */
    struct recall *recall;     /* data that is read back in steps (export_recall); in the arena */
    struct arena arena;        /* memory of the export */
    struct arena scratch;      /* memory of the present trajectory */
    struct trajectory t;       /* the present trajectory */
    struct drift_audit *audit; /* in the export's arena */
    struct export_out *out;
    export_work_fn work; /* work of export_offload */
    struct rope rope;    /* output of the present trajectory */
    /* trajectories that were audited now, by their first mismatch */
    uint32_t drifted[DRIFT_KIND_COUNT];
    struct selection *selection; /* in the export's arena */
    struct export_sums sums;
    /* pictures of all trajectories, each once (media_table.h) */
    VEC(struct export_picture *) media;
    uint32_t news[2]; /* repaired, lost: in addition to any earlier export of the session */
    const struct format *format;
    void *state;       /* state of the format, in the arena */
    void *own;         /* further state of a format that writes a file of tensors, in the arena */
    bool all_logprobs; /* verl: every row has logprobs */
    const struct score_wants *score_wants; /* the session's own; in the arena */
    bool unscored;                         /* a wanted score is unknown for a trajectory */
    bool unsupported;     /* a sampling support was wanted, and a trained token has none */
    bool unindexed;       /* the indexer's top-k was wanted, and a trajectory has none */
    bool recomputed;      /* the rows of a turn were computed again (token_rows.h) */
    const char *unrouted; /* why a trajectory has no routed experts; NULL: none were asked for */
    bool unversioned;     /* areal: a trajectory has no weight versions, which is written as -1 */
    /* metadata's uid or global_steps has a wrong type, so it is unused */
    bool odd_uid, odd_step;
    size_t kept_bytes; /* bytes of texts that the format keeps for later */
    /* bytes of these and of the rope, as counted in the options' held_bytes */
    size_t counted_bytes;
    /* where the messages before the first answer are (native_write_rest) */
    size_t prompt_at, prompt_bytes;
    unsigned pass;
    size_t at;
};

struct format {
    unsigned passes;
    bool indexer;        /* the format has a field for the indexer's rows */
    bool text_too;       /* the format accepts trajectories without tokens */
    bool takes_once;     /* the format reads the trajectories only in the first pass */
    bool needs_reward;   /* trainers of this format need one number as the reward */
    bool media_in_table; /* media=inline puts the bytes into the summary's table */
    bool no_media;       /* the format has no images */
    /* the format shows the differences themselves, which a kept audit does not have */
    bool drift_places;
    /* the trainer's loss uses ratios to logprobs, so zeros would be read as certainty */
    bool needs_logprobs;
    void (*begin)(struct export *x, struct buf *out);
    /* checks whether the format can contain a trajectory (NULL: any), in the first pass */
    int (*check)(const struct export *x, const struct trajectory *t, struct err *e);
    /* NULL: writes nothing. Calls export_pause in its loops */
    MAY_PAUSE void (*write)(struct export *x, const struct trajectory *t);
    /* called at the end of every pass (x->pass is its number). Also calls export_pause */
    MAY_PAUSE void (*end)(struct export *x, struct buf *out);
    /* frees what `begin` made outside the arena; NULL: nothing */
    void (*drop)(struct export *x);
};

/* A row of common/codec/export_formats.def. */
struct format_row {
    const char *name, *content_type;
    const struct format *functions;
    bool hidden; /* clients cannot choose it */
};

extern const struct format_row export_formats[EXPORT_FORMAT_COUNT];

/* Declares the format of each row by the row's last column. */
#define X(id, name, type, symbol) extern const struct format symbol;
#include "common/codec/export_formats.def"
#undef X

/* Counts waiting texts in the options' held_bytes. Arenas count themselves. */
void export_count_texts(struct export *x);

/* Lets other tasks run. Returns false if the export has failed or was cancelled (x->failed). Then
 * everything written from now on is worthless. */
MAY_PAUSE bool export_pause(struct export *x);

/* Does work that is long for a long trajectory and reads no changing data of the session: in a
 * helper thread if that is worth it, else here. Returns false like export_pause. */
MAY_PAUSE bool export_offload(struct export *x, export_work_fn fn);

/* Called between steps of that work. Returns true if the work must continue. In a helper thread it
 * does not pause. */
MAY_PAUSE bool export_work_goes_on(struct export *x);

/* Reads back the data that was added to x->recall. Returns true when all of it is in memory, where
 * it stays until recall_done. Returns false like export_pause. */
MAY_PAUSE bool export_recall(struct export *x);

/* export_options.c: copies the options and everything that they borrow. Fills missing ones from the
 * session's group: uid, index, steps. */
void export_take_options(struct export *x, const struct export_options *o);

/* Returns the number of trajectories. */
size_t export_branches(const struct export *x);

/* Writes a member whose value is an array of numbers. The array is sent from the rope to which o
 * writes. */
void export_array(struct export *x, struct json_out *o, const char *key, enum rope_piece_kind kind,
                  const void *p, size_t n);

/* --- members of the native JSON that other formats have, too --- */

/* The first function adds a trajectory without its arrays to the JSON array in the metadata of a
 * file of tensors. The second writes the metadata at the end of that file. */
MAY_PAUSE void tensors_note_rest(struct export *x, const struct trajectory *t);
void tensors_note_end(struct export *x);

/* Writes the members that follow the arrays: num_turns .. extra_fields, without the enclosing
 * braces. Sets x->prompt_at. */
MAY_PAUSE void native_write_rest(struct export *x, const struct trajectory *t, struct json_out *o);

/* The first function writes these members except messages and turns; the second writes turn i as an
 * object. */
void native_write_brief(struct export *x, const struct trajectory *t, struct json_out *o);
void native_write_turn(const struct trajectory *t, uint32_t i, struct json_out *o);

/* Writes the members after `turns`: the session's results. */
void native_write_outcome(struct export *x, const struct trajectory *t, struct json_out *o);

/* Writes the members of one of its `turns`. */
void native_write_turn_members(const struct trajectory *t, const struct trajectory_turn *x,
                               struct json_out *o);

/* Writes routed experts as base64 under `key`, with KEY_shape and KEY_dtype; null if there are
 * none. */
void native_write_experts(struct export *x, const struct trajectory *t, const char *key,
                          struct json_out *o);

/* The summary object. */
void native_write_summary(struct export *x, struct json_out *o);

/* Ends the list of an envelope: `],"summary":{...}}`. */
void native_write_end(struct export *x, struct buf *out);

/* Writes the summary's member `warnings`: sentences about data that a trainer may miss. */
void native_write_warnings(const struct export *x, struct json_out *o);

/* Writes message i as an item. */
void native_write_message(const struct trajectory *t, uint32_t i, struct json_out *o);

/* Returns why the trajectory ends where it ends (materialization_reason), or NULL. */
const char *native_reason(const struct trajectory *t);
/* Write the members of extra_fields, and the whole object. */
void native_write_extra_members(const struct trajectory *t, struct json_out *o);
void native_write_extra(struct export *x, const struct trajectory *t, struct json_out *o);

#endif
