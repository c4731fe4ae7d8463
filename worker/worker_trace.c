/* Opens the exporter of a worker's spans (worker_state.h). Each worker sends its own. */

#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "worker/plane/call/call_trace.h"
#include "worker/trace/span_exporter.h"
#include "worker/worker_state.h"

int worker_trace_open(struct worker_state *w, struct err *e)
{
    const struct config *c = w->h->config;
    struct span_exporter_options o = {.loop = w->loop,
                                      .page = w->h->page,
                                      .endpoint = c->otlp_endpoint,
                                      .headers_file = c->otlp_headers_file,
                                      .worker = w->h->index};

    if (!c->otlp_endpoint || !c->otlp_endpoint[0])
        return 0;
    if (span_exporter_new(&o, &w->spans, e) != 0)
        return -1;
    w->service.calls.tracer = call_tracer_new(w->spans);
    return 0;
}

bool worker_trace_idle(struct worker_state *w)
{
    return !span_exporter_drain(w->spans);
}

/* Frees the exporter. No call may be left. */
void worker_trace_close(struct worker_state *w)
{
    call_tracer_free(w->service.calls.tracer);
    w->service.calls.tracer = NULL;
    span_exporter_free(w->spans);
    w->spans = NULL;
}
