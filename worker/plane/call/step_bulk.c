/* The steps RESULTS, MESSAGES and BULK: what the engine gave takes the form of the record, a helper
 * makes long messages ready for it, and long bytes go into the journal before the commit that names
 * them, a fragment in each turn of the loop, so that other sessions' turns come between. An
 * ordinary call passes at once. */
#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/os/task.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/commit_counts.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/plane/call/told.h"
#include "worker/plane/call/work.h"
#include "worker/session/call/session_answer.h"
#include "worker/text/request/asked_text.h"

/* So many tokens, an alternative as much as a sampled one, are made ready in about half a
 * millisecond. One write of a fragment of that size holds the loop for a twentieth of a
 * millisecond, on a virtual machine that has yet to find the pages for several times as long. */
enum { RESULTS_TOKENS = 32 << 10, FRAGMENT = 128 << 10 };

/* So many bytes of text are copied in the time of a token, and so many logprobs looked at. */
enum { TOKEN_BYTES = 32, LOOKED_AT = 2 };

/* Of n answers to one prompt, counted once: what the engine had for all of them. */
static void settle_cached(struct model_call *t)
{
    int64_t least = INT64_MAX;

    for (uint32_t i = 0; i < t->n_samples; i++)
        least = MIN_OF(least, MAX_OF(t->samples[i].cached_tokens, 0));
    t->usage.cached_tokens = (uint32_t)MIN_OF(least, (int64_t)t->usage.prompt_tokens);
}

/* What the next answer tells besides, for replays: first the alternatives, up to so many of them
 * now. Returns how many it went through, or, where there are none, what it took to see that. */
static size_t keep_told(struct model_call *t, size_t most)
{
    struct sample *r = &t->samples[t->n_told];
    bool has = told_has_tops(&r->out);
    struct buf told = {0};
    size_t from = t->tops_at;

    if (!t->tops)
        t->tops = ARENA_NEW(&t->arena, struct buf);
    if (has)
        t->tops_at = told_write_tops(t->tops, &r->out, from, most);
    if (has && t->tops_at < r->out.n_logprobs)
        return most;
    told_write(&told, &t->head, &t->usage, &r->out, has ? buf_str(t->tops) : (struct str){0},
               t->in.asked ? t->in.asked[ASKED_OWN] : (struct str){0});
    r->told = told.p;
    t->answers[t->n_told++].told = buf_str(&told);
    from = has ? (t->tops_at - from) * r->lp[0].n_top : r->out.n_logprobs / LOOKED_AT;
    t->tops_at = 0;
    buf_done(t->tops);
    return from;
}

/* What the answers tell has the sums of all of them in it. */
enum step_result step_results(struct model_call *t)
{
    size_t work = 0;

    if (!t->answers)
        t->answers = arena_calloc(&t->arena, t->n_samples, sizeof(*t->answers));
    for (uint32_t i = t->n_results; i < t->n_samples && work < RESULTS_TOKENS; i++)
        work += sample_keep_odds(&t->samples[i], RESULTS_TOKENS - work);
    if (work >= RESULTS_TOKENS)
        return model_call_next_part(t);
    for (; t->n_results < t->n_samples && work < RESULTS_TOKENS; t->n_results++) {
        struct sample *r = &t->samples[t->n_results];

        sample_result(t, r, &t->answers[t->n_results]);
        work += MAX_OF(MAX_OF(r->n_ids, r->completion_tokens),
                       sampled_answer_bytes(r->answer) / TOKEN_BYTES);
    }
    if (t->n_results < t->n_samples)
        return model_call_next_part(t);
    settle_cached(t);
    while (t->n_told < t->n_samples && work < RESULTS_TOKENS)
        work += keep_told(t, RESULTS_TOKENS - work);
    if (t->n_told < t->n_samples || work >= RESULTS_TOKENS) /* the record is a turn's work, too */
        return model_call_next_part(t);
    session_settle_answers(t->plan, t->answers, t->n_samples);
    commit_count_answers(t, t->answers);
    return STEP_NEXT;
}

/* In a helper, maybe: see work.h. */
static int make_messages(void *ctx, void *tool, struct err *e)
{
    struct model_call *t = ctx;

    if (work_note(tool, t->in.work_hash, e))
        return -1;
    session_make_messages(t->plan, t->answers, t->n_samples);
    return 0;
}

/* Long messages of answers, and many tool calls, become the JSON that is journaled and what the
 * session keeps. The record makes what a helper had no time for: what was sampled is recorded. */
enum step_result step_messages(struct model_call *t)
{
    size_t bytes = t->unrecorded ? 0 : session_long_messages(t->answers, t->n_samples, FRAGMENT);
    struct task_work w = {.fn = make_messages, .ctx = t, .is_long = bytes > WORK_JSON_LONG};

    if (bytes == 0)
        return STEP_NEXT;
    /* not the session's lane: what was sampled does not wait for what others of it ask */
    w.lane =
        arena_printf(&t->arena, "answers of %.*s", (int)t->in.session_id.len, t->in.session_id.p);
    return model_call_offload(t, &w) && (t->failing || t->err.kind == ERR_CANCELLED) ? STEP_FAILED
                                                                                     : STEP_NEXT;
}

enum step_result step_bulk(struct model_call *t)
{
    struct buf record = {0};
    bool more;
    int rc = 0;

    if (t->unrecorded)
        return STEP_NEXT;
    if (session_compares_context(t->plan))
        return model_call_next_part(t);
    more =
        session_bulk_record(t->plan, t->answers, t->n_samples, FRAGMENT, clock_wall_ms(), &record);
    if (more)
        rc = ledger_write_call(t->env->ledger, t->in.session_id, buf_str(&record),
                               (struct ledger_done){0}, &t->err);
    buf_done(&record);
    if (rc)
        return STEP_FAILED;
    return more ? model_call_next_part(t) : STEP_NEXT;
}
