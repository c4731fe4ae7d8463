/*
 * Spans of model calls (--otlp-endpoint). A call's span has the spans of its parts below it:
 *
 *   [tool gap]  [chat MODEL .................................................]
 *               [render][queue][engine ....................][parse][commit]
 *
 * The parent of the call's span is the span that the client's traceparent names. Without one it is
 * a root in the trace of its session. Times are noted while the call runs. Spans are written when
 * the call is over and its answer was sent. Without tracing, env->tracer and call->trace are NULL,
 * which costs one comparison a step.
 */
#ifndef RG_CALL_CALL_TRACE_H
#define RG_CALL_CALL_TRACE_H

#include <stdint.h>

#include "common/base/str.h"
#include "worker/plane/call/model_call_internal.h"

struct call_trace;
struct call_tracer;
struct span_exporter;

/* Makes a tracer that sends spans to `x`. The caller frees `x` after the tracer. */
struct call_tracer *call_tracer_new(struct span_exporter *x);

/* Frees the tracer; accepts NULL. */
void call_tracer_free(struct call_tracer *c);

enum call_mark { CALL_RENDERED, CALL_ASKED, CALL_ANSWERED, CALL_COMMITTED, CALL_MARKS };

/* Starts the trace of a call: makes t->trace if there is a tracer. */
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

/* Writes the spans of a call that is over. t->trace must not be NULL, and t->outcome names how the
 * call ended. */
void call_trace_end(struct model_call *t);

#endif
