/*
 * struct report_check: checks turns of POST /sessions/{id}/logprobs against the stored answers, and
 * compares the trainer's logprobs with the sampler's. Writes nothing.
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
    struct session *session; /* the session, pinned by the caller */
    const struct model *model;
    struct run_board *run;
    struct arena *arena; /* memory of all results */
    struct str version;  /* weight version of the report */
    VEC(struct version_tally *) tallies;
    /* figures of turns that have an older report of this version; or NULL */
    struct run_mismatch *repeated;
    VEC(struct run_token) worst; /* the worst tokens, with their texts */
};

/* A turn that was checked: one logprob for each of the answer's ids; NaN: not reported. */
struct reported_turn {
    const struct checkpoint *answer;
    float *logprobs;
};

/* Checks turn number `at` of the request. Returns -1 with ERR_INVALID that names field, value and
 * limit. */
MAY_PAUSE RG_MUSTCHECK int report_check_turn(struct report_check *v, uint32_t at,
                                             const struct json *turn, struct reported_turn *ret,
                                             struct err *e);

/* Checks again, right before the record is written, that the answer of turn `at` takes a report of
 * this version. */
RG_MUSTCHECK int report_check_room(const struct report_check *v, uint32_t at,
                                   const struct checkpoint *answer, struct err *e);

/* Adds the checked turns to the figures of the run, and writes their result as members: tokens,
 * mean, mean_abs, p99, max. The figures of the run count a version of an answer once: a turn that
 * had a report of this version before is only in the members. */
void report_check_count(const struct report_check *v, struct metrics_page *page,
                        struct json_out *o);

void report_check_done(struct report_check *v);

#endif
