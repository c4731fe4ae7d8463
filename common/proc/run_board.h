/*
 * struct run_board: the figures of a training run, in shared memory made before the first fork. Any
 * process adds events, any process reads all figures. Memory is fixed: a ring of minutes for each
 * row.
 *
 *   row "total"        | minute | minute | ... RUN_MINUTES of them
 *   row "evaluation"   |
 *   rows of tasks      | named when they first appear; the last row of each label counts the rest
 *   rows of models     |
 *   rows of versions   |
 *
 * A new name replaces the row that was silent longest, if that was for RUN_SILENT_MINUTES. The
 * minutes of the replaced row are added to the last row. The ring is a cache: it outlives workers,
 * not the supervisor. A robust mutex guards it, for less than a millisecond at a time.
 */
#ifndef RG_PROC_RUN_BOARD_H
#define RG_PROC_RUN_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"
#include "common/proc/ids.h"

struct json_out;
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
    RUN_ROWS_MAX = 16, /* rows of a label, including the last one */
    RUN_NAME_MAX = 64, /* longer names are cut */
    RUN_SLOWEST = 4,   /* sessions kept for each minute */
    RUN_GROUP_MAX = 132,
    RUN_WORST = 16, /* tokens, or slowest sessions, in an answer */
    RUN_TEXT_MAX = 96,
    RUN_SPENDINGS = RUN_SPENT_SCORING - RUN_SPENT_START + 1
};

/* Counts by enum run_figure. Units are microseconds or millionths, depending on the figure's kind.
 */
struct run_counts {
    int64_t at[RUN_FIGURES];
};

/* Adds figure by figure. A sum that would overflow stays at the largest number. */
void run_counts_add(struct run_counts *to, const struct run_counts *from);

/* A row's ring. `minutes` has the minute of each slot (minutes since 1970); 0: empty. */
struct run_series {
    char name[RUN_NAME_MAX];
    uint32_t newest; /* minute of the last addition; 0: the row is free */
    uint32_t minutes[RUN_MINUTES];
    struct run_counts counts[RUN_MINUTES];
};

/* A session that ended, as a candidate for the slowest of its minute. */
struct run_ended {
    char session[ID_TEXT_MAX], group[RUN_GROUP_MAX]; /* group "": the session has no group */
    uint64_t ended_ms;
    int64_t run_us, spent_us[RUN_SPENDINGS]; /* by figure, from RUN_SPENT_START on */
    int64_t turns, tokens;
    enum run_figure cause; /* RUN_ENDED_... */
    bool rewarded;
    double reward;
};

/* An event to add. If a name is absent, the event counts in no row of that label. */
struct run_event {
    struct run_counts counts;
    struct str names[RUN_LABELS];
    /* the event counts in the row "evaluation" only, and in no metric */
    bool evaluation;
    const struct run_ended *ended; /* a session that ended with this event; or NULL */
};

/* Returns "task", "model" or "version". */
const char *run_label_name(enum run_label label);

/* Returns the number of rows of a label, without the last one. */
unsigned run_label_rows(enum run_label label);

/* Copies a text to a NUL-terminated field. A long text is cut at the start of a character. */
void run_copy_text(char *to, size_t size, struct str text);

struct run_board *run_board_new(uint64_t now_ms);
void run_board_free(struct run_board *b);

/* Adds an event at a wall-clock time to the rows and to the metrics. b NULL: does nothing. */
void run_board_add(struct run_board *b, struct metrics_page *page, const struct run_event *event,
                   uint64_t now_ms);

/* Copies the row "total" or "evaluation". */
void run_board_read(struct run_board *b, bool evaluation, struct run_series *ret);

/* Copies all rows of the label under one lock, so that nothing counts in two rows. Returns the
 * number of rows, including free ones. The last row has no name. */
unsigned run_board_read_rows(struct run_board *b, enum run_label label,
                             struct run_series ret[RUN_ROWS_MAX]);

/* Copies the slowest sessions that ended within [from, to) (minutes), longest first. Returns their
 * number, at most RUN_WORST. */
size_t run_board_read_slowest(struct run_board *b, uint32_t from, uint32_t to,
                              struct run_ended ret[RUN_WORST]);

/* Returns the wall-clock time at which counting began. */
uint64_t run_board_since(const struct run_board *b);

/* Returns the newest known version of the policy's own weights, or -1. If a session that began at
 * began_ms was sampled with a higher `version`, that becomes the newest, unless a trainer has set
 * the version after began_ms. */
int64_t run_board_newest_version(struct run_board *b, int64_t version, uint64_t began_ms);

/* Sets the trainer's version, which may be lower than the present one. */
void run_board_set_version(struct run_board *b, int64_t version, uint64_t now_ms);

/* --- logprobs of trainer and sampler compared (run_mismatch.c) --- */

enum {
    RUN_POSITIONS = 7, /* number of buckets for the position of a token in its answer */
    RUN_SCALE = 49     /* number of buckets of |difference|, logarithmic */
};

/* lower bounds of the buckets of positions */
extern const uint32_t run_positions[RUN_POSITIONS];

/* Tally of the tokens of one bucket. Sums are in units of 1e-9 and stop at the largest number. */
struct run_mismatch {
    int64_t tokens, sum, sum_abs;
    double max; /* largest |difference| */
    uint64_t scale[RUN_SCALE];
};

/* A token with a large difference, and the text around it. */
struct run_token {
    char session[ID_TEXT_MAX], response[RUN_NAME_MAX], version[RUN_NAME_MAX];
    char reported[RUN_NAME_MAX]; /* version named in the report */
    char before[RUN_TEXT_MAX], token[RUN_TEXT_MAX], after[RUN_TEXT_MAX];
    uint64_t at_ms;
    uint32_t position;
    int32_t id;
    float sampled, trained;
};

struct run_mismatch_row {
    char version[RUN_NAME_MAX];
    struct run_mismatch positions[RUN_POSITIONS];
};

/* Adds a token's difference to a tally, limited to 1e5. A difference that is not a number is
 * skipped. */
void run_mismatch_add(struct run_mismatch *m, double difference);

/* Adds the tally `other` to m. */
void run_mismatch_merge(struct run_mismatch *m, const struct run_mismatch *other);

/* Returns the upper bound of the bucket with the 99th percentile of |difference|, at most `max`. */
double run_mismatch_p99(const struct run_mismatch *m);

/* Members of an open object: tokens, mean, mean_abs, p99, max; null if there are no tokens. */
void run_mismatch_put(const struct run_mismatch *m, struct json_out *o);

/* Returns the index of a position's bucket. */
unsigned run_position_bucket(uint32_t position);

/* Adds the tallies of tokens that weights of this version sampled, to the board and to the metrics.
 */
void run_board_add_mismatch(struct run_board *b, struct metrics_page *page, struct str version,
                            const struct run_mismatch positions[RUN_POSITIONS], uint64_t now_ms);

/* Reports whether a token with this |difference| would be among the worst now. */
bool run_board_wants_token(struct run_board *b, double difference, uint64_t now_ms);

void run_board_add_token(struct run_board *b, const struct run_token *t, uint64_t now_ms);

/* Sums the rows of all versions over [from, to) (minutes). The last row is for versions without a
 * row of their own. */
void run_board_read_mismatch(struct run_board *b, uint32_t from, uint32_t to,
                             struct run_mismatch_row ret[RUN_ROWS_MAX]);

/* Copies those of the worst tokens that were reported within [from, to) (minutes), worst first.
 * Returns their number. */
size_t run_board_read_worst(struct run_board *b, uint32_t from, uint32_t to,
                            struct run_token ret[RUN_WORST]);

#endif
