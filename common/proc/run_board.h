/*
 * struct run_board: the figures of a training run, in shared memory made before the first fork. Any
 * process adds what ended, any process reads all. Memory is fixed: a ring of minutes for each row.
 *
 *   row "total"        | minute | minute | ... RUN_MINUTES of them
 *   row "evaluation"   |
 *   rows of tasks      | named as they come; the last row of each label counts what finds no row
 *   rows of models     |
 *   rows of versions   |
 *
 * A new name replaces the row that was silent longest, if that was for RUN_SILENT_MINUTES; the
 * minutes of the replaced row go to the last one. The ring is a cache: it outlives workers, not the
 * supervisor. A robust mutex guards it, for less than a millisecond at a time.
 */
#ifndef RG_PROC_RUN_BOARD_H
#define RG_PROC_RUN_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/proc/ids.h"

struct metrics_page;
struct run_board;

enum run_figure {

#define FIGURE(field, kind, group, name, metric, label) RUN_##field,
#include "common/proc/run_figures.def"
    RUN_FIGURES
};

enum run_label { RUN_TASK, RUN_MODEL, RUN_VERSION, RUN_LABELS };

enum {
    RUN_MINUTES = 240,
    RUN_SILENT_MINUTES = 10,
    RUN_ROWS_MAX = 16, /* rows of a label, with the last one */
    RUN_NAME_MAX = 64, /* longer names are cut */
    RUN_SLOWEST = 4,   /* sessions kept for each minute */
    RUN_GROUP_MAX = 132,
    RUN_WORST = 16, /* tokens, or slowest sessions, in an answer */
    RUN_TEXT_MAX = 96,
    RUN_SPENDINGS = RUN_SPENT_SCORING - RUN_SPENT_START + 1
};

/* Counts by enum run_figure: in microseconds and millionths as its kind says. */
struct run_counts {
    int64_t at[RUN_FIGURES];
};

/* Adds figure by figure; a sum stops at the largest number. */
void run_counts_add(struct run_counts *to, const struct run_counts *from);

/* A row's ring; `minutes` says which minute a slot holds (minutes since 1970), 0: none. */
struct run_series {
    char name[RUN_NAME_MAX];
    uint32_t newest; /* minute of the last addition; 0: the row is free */
    uint32_t minutes[RUN_MINUTES];
    struct run_counts counts[RUN_MINUTES];
};

/* A session that ended, as a candidate for the slowest of its minute. */
struct run_ended {
    char session[ID_TEXT_MAX], group[RUN_GROUP_MAX]; /* "": of no group */
    uint64_t ended_ms;
    int64_t run_us, spent_us[RUN_SPENDINGS]; /* by figure, from RUN_SPENT_START on */
    int64_t turns, tokens;
    enum run_figure cause; /* RUN_ENDED_... */
    bool rewarded;
    double reward;
};

/* An addition. An absent name counts in no row of its label. */
struct run_event {
    struct run_counts counts;
    struct str names[RUN_LABELS];
    bool evaluation;               /* counts in the row "evaluation" alone, and in no metric */
    const struct run_ended *ended; /* or NULL */
};

/* "task", "model", "version". */
const char *run_label_name(enum run_label label);

/* Rows of a label, without the last one. */
unsigned run_label_rows(enum run_label label);

/* Copies a text to a zero-terminated field, cut at a character's start. */
void run_copy_text(char *to, size_t size, struct str text);

struct run_board *run_board_new(uint64_t now_ms);
void run_board_free(struct run_board *b);

/* Adds an event at the wall-clock time, to the rows and to the metrics. `b` NULL: counts nothing.
 */
void run_board_add(struct run_board *b, struct metrics_page *page, const struct run_event *event,
                   uint64_t now_ms);

/* Copies the row "total" or "evaluation". */
void run_board_read(struct run_board *b, bool evaluation, struct run_series *ret);

/* Copies all rows of the label at one time, so that nothing counts in two of them. Returns how
 * many, with free ones; the last one has no name. */
unsigned run_board_read_rows(struct run_board *b, enum run_label label,
                             struct run_series ret[RUN_ROWS_MAX]);

/* Copies the slowest sessions that ended within [from, to) (minutes), longest first; returns how
 * many of RUN_WORST. */
size_t run_board_read_slowest(struct run_board *b, uint32_t from, uint32_t to,
                              struct run_ended ret[RUN_WORST]);

/* The wall-clock time since when it counts. */
uint64_t run_board_since(const struct run_board *b);

/* The newest version of the policy's own weights that is known, or -1. A session that began at this
 * time and was sampled with `version` raises it, unless a trainer has set it since then. */
int64_t run_board_newest_version(struct run_board *b, int64_t version, uint64_t began_ms);

/* The trainer's version now, also a lower one. */
void run_board_set_version(struct run_board *b, int64_t version, uint64_t now_ms);

/* --- the trainer's logprobs against the sampler's (run_mismatch.c) --- */

enum {
    RUN_POSITIONS = 7, /* buckets of positions in an answer */
    RUN_SCALE = 49     /* buckets of |difference|, logarithmic */
};

/* Lower bounds of the buckets of positions. */
extern const uint32_t run_positions[RUN_POSITIONS];

/* Tokens of one bucket. Sums in units of 1e-9; they stop at the largest number. */
struct run_mismatch {
    int64_t tokens, sum, sum_abs;
    double max; /* largest |difference| */
    uint64_t scale[RUN_SCALE];
};

/* A token with a large difference, and the text around it. */
struct run_token {
    char session[ID_TEXT_MAX], response[RUN_NAME_MAX], version[RUN_NAME_MAX];
    char reported[RUN_NAME_MAX]; /* version of the report */
    char before[RUN_TEXT_MAX], token[RUN_TEXT_MAX], after[RUN_TEXT_MAX];
    uint64_t at_ms;
    uint32_t position;
    int32_t id;
    float sampled, trained;
};

struct run_mismatch_row {
    char version[RUN_NAME_MAX];
    uint64_t newest_ms; /* 0: free */
    struct run_mismatch positions[RUN_POSITIONS];
};

/* Adds a token's difference to a tally, at most 1e5; one that is no number is skipped. */
void run_mismatch_add(struct run_mismatch *m, double difference);

/* Adds a tally to another one. */
void run_mismatch_merge(struct run_mismatch *m, const struct run_mismatch *other);

/* The upper bound of the bucket that holds the 99th percentile of |difference|, at most `max`. */
double run_mismatch_p99(const struct run_mismatch *m);

/* The index of a position's bucket. */
unsigned run_position_bucket(uint32_t position);

/* Adds the tallies of tokens that weights of this version sampled, and to the metrics. */
void run_board_add_mismatch(struct run_board *b, struct metrics_page *page, struct str version,
                            const struct run_mismatch positions[RUN_POSITIONS], uint64_t now_ms);

/* Whether a token with this |difference| would be among the worst now. */
bool run_board_wants_token(struct run_board *b, double difference, uint64_t now_ms);

void run_board_add_token(struct run_board *b, const struct run_token *t, uint64_t now_ms);

/* Copies all rows; the last one has no version of its own. */
void run_board_read_mismatch(struct run_board *b, struct run_mismatch_row ret[RUN_ROWS_MAX]);

/* Copies the worst tokens, worst first; returns how many. */
size_t run_board_read_worst(struct run_board *b, struct run_token ret[RUN_WORST]);

#endif
