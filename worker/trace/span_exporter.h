/*
 * struct span_exporter: finished spans on their way to an OTLP/HTTP collector, in batches, one
 * request at a time. No call waits for it: spans that do not fit into its queue, or that the
 * collector does not accept in time, are dropped, counted and logged.
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
    const char *endpoint;     /* http://HOST[:PORT][/PATH]; without a path /v1/traces */
    const char *headers_file; /* lines NAME: VALUE, sent with each request; NULL or "": none */
    unsigned worker;          /* index of this worker */
};

/* ERR_CONFIG: the address or the file is bad. The endpoint is not asked. */
int span_exporter_new(const struct span_exporter_options *o, struct span_exporter **ret,
                      struct err *e);

/* Whether the two settings could be used. */
int span_exporter_check(const char *endpoint, const char *headers_file, struct err *e);

/* Takes one span's JSON (trace_span.h), which is left empty. */
void span_exporter_add(struct span_exporter *x, struct buf *span);

/* While the process ends: sends at once what waits. Whether that is still under way, to an endpoint
 * that answered the last time it was asked; after five seconds it is not waited for any more. */
bool span_exporter_drain(struct span_exporter *x);

/* Frees the exporter and drops unsent spans. Accepts NULL. */
void span_exporter_free(struct span_exporter *x);

#endif
