/*
 * Spans of model calls (--otlp-endpoint). A call's span has the spans of its parts below it:
 *
 *   [tool gap]  [chat MODEL .................................................]
 *               [render][queue][engine ....................][parse][commit]
 *
 * It stands below the span that the client's traceparent names, else it is a root in the trace of
 * its session. Times are noted while the call runs. Spans are written when it is over and its
 * answer was sent. Off, env->tracer and call->trace are NULL: a comparison a step.
 */
#ifndef RG_CALL_CALL_TRACE_H
#define RG_CALL_CALL_TRACE_H

#include <stdint.h>

#include "common/base/str.h"
#include "worker/plane/call/model_call_internal.h"

struct call_trace;
struct call_tracer;
struct span_exporter;

/* Sends to `x`, which the caller frees afterwards. */
struct call_tracer *call_tracer_new(struct span_exporter *x);

/* Frees the tracer; accepts NULL. */
void call_tracer_free(struct call_tracer *c);

enum call_mark { CALL_RENDERED, CALL_ASKED, CALL_ANSWERED, CALL_COMMITTED, CALL_MARKS };

/* The call begins: t->trace is made when there is a tracer. */
void call_trace_begin(struct model_call *t);

void call_trace_note(struct call_trace *c, enum call_mark mark);

/* Marks that the call has reached this point. */
static inline void call_trace_mark(struct model_call *t, enum call_mark mark)
{
    if (t->trace)
        call_trace_note(t->trace, mark);
}

/* Returns the header lines that tell the engine of sample i its position in the trace, in the
 * call's arena; absent if there is no trace. */
struct str call_trace_headers(struct model_call *t, uint32_t i);

/* Writes the spans of a call that is over: t->trace is not NULL, t->outcome says how it ended. */
void call_trace_end(struct model_call *t);

#endif
