/* Converts the engine's results to the form of the record. A helper prepares long messages. A long
 * answer takes many pauses, an ordinary one takes none. */
#include "common/base/buf.h"
#include "common/os/task.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/plane/call/told.h"
#include "worker/plane/call/work.h"
#include "worker/session/call/session_answer.h"
#include "worker/text/request/asked_text.h"

/* Tokens, with their alternatives, that are converted in about half a millisecond. */
enum { RESULTS_TOKENS = 32 << 10 };

/* Bytes of text that are copied, and logprobs that are read, in the time that one token takes. */
enum { TOKEN_BYTES = 32, LOOKED_AT = 2 };

/* Adds to the work since the last pause, and pauses if the sum is large enough. */
MAY_PAUSE static int count_work(struct model_call *t, size_t *work, size_t more)
{
    *work += more;
    if (*work < RESULTS_TOKENS)
        return 0;
    *work = 0;
    return model_call_pause(t);
}

/* Counts the cached tokens of a call. The n answers to one prompt count once, with the tokens that
 * the engine had cached for all of them. */
static void count_cached(struct model_call *t)
{
    int64_t least = INT64_MAX;

    for (uint32_t i = 0; i < t->n_samples; i++)
        least = MIN_OF(least, MAX_OF(t->samples[i].cached_tokens, 0));
    t->usage.cached_tokens = (uint32_t)MIN_OF(least, (int64_t)t->usage.prompt_tokens);
}

/* Converts the answers to the form of the record. */
MAY_PAUSE static int convert_answers(struct model_call *t)
{
    size_t work = 0;

    t->answers = arena_calloc(&t->arena, t->n_samples, sizeof(*t->answers));
    for (uint32_t i = 0; i < t->n_samples; i++) {
        struct sample *r = &t->samples[i];
        size_t odds;

        while ((odds = sample_keep_odds(r, RESULTS_TOKENS)) > 0)
            if (count_work(t, &work, odds))
                return -1;
        sample_result(t, r, &t->answers[i]);
        if (count_work(t, &work, r->n_ids + sampled_answer_bytes(r->answer) / TOKEN_BYTES))
            return -1;
    }
    count_cached(t);
    return 0;
}

/* Writes the additional data of an answer that replays need. */
MAY_PAUSE static int write_told(struct model_call *t, struct sample *r, struct session_answer *ret,
                                size_t *work)
{
    struct str asked = t->in.asked ? t->in.asked[ASKED_OWN] : (struct str){0};
    bool has_tops = told_has_tops(&r->out);
    struct buf told = {0}, tops = {0};
    size_t at = 0;
    int rc = 0;

    while (has_tops && rc == 0 && at < r->out.n_logprobs) {
        size_t from = at;

        at = told_write_tops(&tops, &r->out, at, RESULTS_TOKENS);
        rc = count_work(t, work, (at - from) * (1 + (size_t)r->lp[0].n_top));
    }
    if (rc == 0) {
        told_write(&told, &t->head, &t->usage, &r->out, has_tops ? buf_str(&tops) : (struct str){0},
                   asked);
        r->replay_text = told.p;
        ret->told = buf_str(&told);
    }
    buf_done(&tops);
    return rc ? -1 : count_work(t, work, r->out.n_logprobs / LOOKED_AT);
}

/* The additional data of an answer contains the sums of all answers. */
int call_make_results(struct model_call *t)
{
    size_t work = 0;

    if (convert_answers(t))
        return -1;
    for (uint32_t i = 0; i < t->n_samples; i++)
        if (write_told(t, &t->samples[i], &t->answers[i], &work))
            return -1;
    session_settle_answers(t->plan, t->answers, t->n_samples);
    return 0;
}

/* Makes the messages, perhaps in a helper (work.h). */
static int run_messages(void *ctx, void *tool, struct err *e)
{
    struct model_call *t = ctx;

    if (work_note(tool, t->in.work_hash, e))
        return -1;
    session_make_messages(t->plan, t->answers, t->n_samples);
    return 0;
}

/* Makes on the loop the messages that a helper had no time for, because an answer that was sampled
 * is always recorded. */
int call_make_messages(struct model_call *t)
{
    size_t bytes = session_long_messages(t->answers, t->n_samples, CALL_FRAGMENT);
    struct task_work w = {.fn = run_messages, .ctx = t, .is_long = bytes > WORK_JSON_LONG};

    if (bytes == 0)
        return 0;
    /* a lane of its own, so that an answer that was sampled does not wait for other work of the
     * session */
    w.lane =
        arena_printf(&t->arena, "answers of %.*s", (int)t->in.session_id.len, t->in.session_id.p);
    return model_call_offload(t, &w) && (t->failing || t->err.kind == ERR_CANCELLED) ? -1 : 0;
}
