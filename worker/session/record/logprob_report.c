/* Stores trainers' reports of logprobs (logprob_report.h). */
#include "worker/session/record/logprob_report.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/err.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/store.h"

const struct logprob_report *checkpoint_report(const struct checkpoint *t, struct str version)
{
    const struct logprob_report *r = t->reports;

    while (r && version.len > 0 && !str_eq(r->version, version))
        r = r->older;
    return r;
}

bool checkpoint_takes_report(const struct checkpoint *t, struct str version)
{
    unsigned n = 0;

    for (const struct logprob_report *r = t->reports; r; r = r->older) {
        if (str_eq(r->version, version))
            return true;
        n++;
    }
    return n < REPORT_VERSIONS_MAX;
}

uint64_t logprob_report_bytes(uint32_t n)
{
    return n * sizeof(float) + REPORT_VERSION_BYTES;
}

uint64_t session_report_bytes(const struct session *s)
{
    return s->report_bytes;
}

uint32_t session_trimmed_of(const struct session *s, const struct checkpoint *t)
{
    uint32_t trimmed = 0;

    for (size_t i = t->id; i < s->forest.checkpoints.n && t->children > 0; i++)
        if (s->forest.checkpoints.at[i]->parent == t)
            trimmed = MAX_OF(trimmed, s->forest.checkpoints.at[i]->trim);
    return trimmed;
}

void session_report_record(const struct session *s, const struct checkpoint *t, struct str version,
                           const float *logprobs, uint64_t now_ms, struct buf *record)
{
    record_begin(record, RECORD_LOGPROBS, s->id, now_ms);
    record_put_str(record, version);
    record_put_u(record, t->id);
    record_put_u(record, t->n);
    record_put_floats(record, logprobs, t->n);
}

/* Takes the report of that version out of the list, or makes one. */
static struct logprob_report *take_report(struct session *s, struct checkpoint *t,
                                          struct str version)
{
    struct logprob_report **at = &t->reports, *r;

    while (*at && !str_eq((*at)->version, version))
        at = &(*at)->older;
    r = *at;
    if (r) {
        *at = r->older;
        return r;
    }
    r = arena_alloc(&s->forest.arena, sizeof(*r) + t->n * sizeof(*r->logprobs));
    r->version = forest_text(&s->forest, version);
    return r;
}

int session_apply_report(struct session *s, struct record_in *r, struct err *e)
{
    struct str version = record_str(r);
    uint32_t id = record_u32(r), n = record_u32(r);
    const char *logprobs = record_floats(r, n);
    struct logprob_report *report;
    struct checkpoint *t = NULL;

    if (id < s->forest.checkpoints.n)
        t = s->forest.checkpoints.at[id];
    if (r->bad || r->p != r->end || !t || t->n != n || n == 0 || version.len == 0 ||
        version.len > REPORT_VERSION_BYTES || !checkpoint_takes_report(t, version))
        return err_set(e, ERR_IO, "session record: logprobs of an unknown form");
    report = take_report(s, t, version);
    memcpy(report->logprobs, logprobs, n * sizeof(*report->logprobs));
    report->older = t->reports;
    t->reports = report;
    s->report_bytes += logprob_report_bytes(n);
    return 0;
}
