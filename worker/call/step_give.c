/* The steps NAMES and GIVE, around the end that the listeners are told: what very many tool calls
 * of answers take, in parts, so that other sessions' turns come between. */
#include "worker/call/call_env.h"
#include "worker/call/call_rows.h"
#include "worker/call/call_trace.h"
#include "worker/call/model_call_internal.h"
#include "worker/call/sample.h"
#include "worker/call/sampled_answer.h"
#include "worker/session/session.h"

/* Ids of calls by which the next request may name them. A session that has gone since then needs
 * none. */
enum step_result step_names(struct model_call *t)
{
    bool ended;
    struct session *s = session_find(t->env->store, t->in.session_id, &ended);

    return s && session_note_calls(s) ? model_call_next_part(t) : STEP_NEXT;
}

/* Each tool call of an answer has some buffers of its own. */
enum { GIVE_CALLS = 2048 };

/* Everybody has heard the end: nobody joins any more. */
enum step_result step_give(struct model_call *t)
{
    size_t calls = 0;

    call_rows_leave(t);
    model_call_leaving(t);
    if (t->trace)
        call_trace_end(t);
    for (; t->n_given < t->n_samples && calls < GIVE_CALLS; t->n_given++) {
        struct sample *r = &t->samples[t->n_given];

        calls += r->answer->n_calls;
        sample_end(r);
    }
    return t->n_given < t->n_samples ? model_call_next_part(t) : STEP_NEXT;
}
