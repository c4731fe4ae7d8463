/*
 * struct span: one piece of work, written as a Span in OTLP's JSON (ExportTraceServiceRequest by
 * protobuf's JSON mapping, with ids in hexadecimal digits as OTLP demands). Pure.
 *
 *     span_open(&out, &s); span_text(&out, "key", value); ...; span_close(&out, error);
 */
#ifndef RG_TRACE_TRACE_SPAN_H
#define RG_TRACE_TRACE_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/trace/trace_context.h"

struct buf;

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2, SPAN_CLIENT = 3 }; /* OTLP's numbers */

struct span {
    struct trace_context at;
    uint8_t parent[SPAN_ID_BYTES]; /* zeros: the span is a root */
    bool remote_parent;            /* a different program made the parent */
    struct str state;              /* tracestate, or absent */
    struct str name;
    enum span_kind kind;
    uint64_t start_ns, end_ns; /* since 1970 */
};

void span_open(struct buf *out, const struct span *s);

/* Write an attribute. An absent text is left out. */
void span_text(struct buf *out, const char *key, struct str value);
void span_number(struct buf *out, const char *key, int64_t value);
void span_bool(struct buf *out, const char *key, bool value);
void span_texts(struct buf *out, const char *key, const struct str *values, size_t n);

/* Shortens a client's name for use in a span to its first 256 bytes, whole characters. */
struct str span_name(struct str name);

/* Ends the span. `error` is a short name of what went wrong; absent: nothing did. */
void span_close(struct buf *out, struct str error);

/* Write the beginning and the end of a request. The spans between them are separated by commas. */
struct span_source {
    struct str version, instance, host; /* version of the program; names of the process */
};

void span_request_open(struct buf *out, const struct span_source *from);
void span_request_close(struct buf *out);

#endif
