/*
 * struct logprob_report: the logprobs that a trainer computed for the sampled ids of an answer,
 * under a weight version that it names. Each report is a record of its own. Reports of an answer
 * form a list, newest first; a report of the same version replaces the older one.
 */
#ifndef RG_SESSION_LOGPROB_REPORT_H
#define RG_SESSION_LOGPROB_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct buf;
struct checkpoint;
struct session;

enum { REPORT_VERSIONS_MAX = 16, REPORT_VERSION_BYTES = 64 };

/* A report, in the arena of the session's forest. */
struct logprob_report {
    struct logprob_report *older;
    struct str version;
    float logprobs[]; /* one for each sampled id; NaN: not reported */
};

/* Returns the report of that version, or with an absent version the newest. Returns NULL if there
 * is none. */
const struct logprob_report *checkpoint_report(const struct checkpoint *t, struct str version);

/* Reports whether a report of that version is accepted: it replaces one, or there are fewer than
 * REPORT_VERSIONS_MAX. */
bool checkpoint_takes_report(const struct checkpoint *t, struct str version);

/* Returns what the report of an answer with n sampled ids counts for --max-session-report-bytes. */
uint64_t logprob_report_bytes(uint32_t n);

/* Returns the bytes of all reports in the session's records, including replaced ones. */
uint64_t session_report_bytes(const struct session *s);

/* Returns how many of the answer's last sampled ids an export may omit, because later turns dropped
 * them. */
uint32_t session_trimmed_of(const struct session *s, const struct checkpoint *t);

/* Writes the record of a report. `logprobs` has one value for each sampled id. */
void session_report_record(const struct session *s, const struct checkpoint *t, struct str version,
                           const float *logprobs, uint64_t now_ms, struct buf *record);

#endif
