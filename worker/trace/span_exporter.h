/*
 * struct span_exporter: sends finished spans to an OTLP/HTTP collector in batches, one request at a
 * time. No call waits for it: spans that do not fit into its queue, or that the collector does not
 * accept in time, are dropped, counted and logged.
 */
#ifndef RG_TRACE_SPAN_EXPORTER_H
#define RG_TRACE_SPAN_EXPORTER_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"

struct buf;
struct loop;
struct metrics_page;
struct span_exporter;

struct span_exporter_options {
    struct loop *loop;
    struct metrics_page *page;
    const char *endpoint; /* http://HOST[:PORT][/PATH]; the default path is /v1/traces */
    /* file with lines NAME: VALUE, sent with each request; NULL or "": none */
    const char *headers_file;
    unsigned worker; /* index of this worker */
};

/* Makes an exporter. Does not contact the endpoint. Returns -1 with ERR_CONFIG if the address or
 * the file is bad. */
int span_exporter_new(const struct span_exporter_options *o, struct span_exporter **ret,
                      struct err *e);

/* Checks the two settings without an exporter. */
int span_exporter_check(const char *endpoint, const char *headers_file, struct err *e);

/* Takes the JSON of one span (trace_span.h) out of `span`, which is empty afterwards. */
void span_exporter_add(struct span_exporter *x, struct buf *span);

/* Called while the process ends: sends waiting spans at once. Returns whether spans are still being
 * sent to an endpoint that accepted the last request; after five seconds returns false. */
bool span_exporter_drain(struct span_exporter *x);

/* Frees the exporter and drops unsent spans. Accepts NULL. */
void span_exporter_free(struct span_exporter *x);

#endif
