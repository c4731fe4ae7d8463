/*
 * struct report_check: turns of POST /sessions/{id}/logprobs, held against the stored answers and
 * compared with the sampler's logprobs. Nothing is written here.
 */
#ifndef RG_CONTROL_REPORT_CHECK_H
#define RG_CONTROL_REPORT_CHECK_H

#include <stdint.h>

#include "common/base/attrs.h"
#include "common/base/str.h"
#include "common/base/vec.h"

struct arena;
struct checkpoint;
struct err;
struct json;
struct json_out;
struct metrics_page;
struct model;
struct run_board;
struct run_mismatch;
struct run_token;
struct session;
struct version_tally;

struct report_check {
    struct session *session; /* pinned by the caller */
    const struct model *model;
    struct run_board *run;
    struct arena *arena; /* memory of all results */
    struct str version;  /* weight version of the report */
    VEC(struct version_tally *) tallies;
    struct run_mismatch *repeated; /* of turns with an older report of this version; or NULL */
    VEC(struct run_token) worst;   /* with their texts */
};

/* A turn that was checked: a logprob for each of the answer's ids, NaN: not reported. */
struct reported_turn {
    const struct checkpoint *answer;
    float *logprobs;
};

/* Checks turn number `at` of the request. -1: ERR_INVALID that names field, value and limit. */
MAY_PAUSE RG_MUSTCHECK int report_check_turn(struct report_check *v, uint32_t at,
                                             const struct json *turn, struct reported_turn *ret,
                                             struct err *e);

/* Whether the answer of turn `at` still takes a report of this version, as it did when it was
 * checked: asked right before its record is written. */
RG_MUSTCHECK int report_check_room(const struct report_check *v, uint32_t at,
                                   const struct checkpoint *answer, struct err *e);

/* Adds what was checked to the figures of the run, and writes what it came to as members: tokens,
 * mean, mean_abs, p99, max. The figures count a version of an answer once: a turn that had a report
 * of this version when it was checked is among the members alone. */
void report_check_count(const struct report_check *v, struct metrics_page *page,
                        struct json_out *o);

void report_check_done(struct report_check *v);

#endif
