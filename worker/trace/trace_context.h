/*
 * struct trace_context: the position of a span in a trace, in the form of W3C Trace Context (level
 * 2), which has the headers traceparent and tracestate. Pure.
 */
#ifndef RG_TRACE_TRACE_CONTEXT_H
#define RG_TRACE_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

enum { TRACE_ID_BYTES = 16, SPAN_ID_BYTES = 8, TRACE_PARENT_LEN = 55, TRACE_STATE_MAX = 512 };

enum { TRACE_SAMPLED = 1, TRACE_RANDOM = 2 }; /* flags; others are not passed on */

struct trace_context {
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t span_id[SPAN_ID_BYTES];
    uint8_t flags;
};

/* Reads a traceparent. Returns -1 if it is absent, malformed, of the forbidden version ff, or has
 * ids of zeros; its tracestate must then be ignored, too. Of a later version only the part that
 * version 00 has is read. */
int trace_parent_read(struct str text, struct trace_context *ret);

/* Writes a traceparent of version 00 and a NUL. */
void trace_parent_write(const struct trace_context *c, char ret[TRACE_PARENT_LEN + 1]);

/* Reports whether a tracestate is well-formed and may be passed on: at most 32 members,
 * TRACE_STATE_MAX bytes, no key twice. */
bool trace_state_valid(struct str text);

/* Makes the trace id of a session whose clients name none: the same for all its calls in any
 * worker, also after a restart. */
void trace_of_session(struct str session_id, uint8_t ret[TRACE_ID_BYTES]);

#endif
