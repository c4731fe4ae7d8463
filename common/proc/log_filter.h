/*
 * Reduces a log to what the gateway itself wrote, for `rollgate support`. A line of either log
 * format becomes one line of JSON. Numbers are kept. Texts are kept if the supervisor wrote them,
 * which reads no byte of an agent, or if their key has only words of ours as values (outcome, kind
 * ...). Ids are kept if this gateway made them. Every other text becomes "(removed)", because a
 * fragment of it may be an agent's. Secrets are removed from the rest (redaction.h). Pure.
 */
#ifndef RG_PROC_LOG_FILTER_H
#define RG_PROC_LOG_FILTER_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"

/* Appends the filtered line (given without its line feed) with a line feed. Returns false, and
 * appends nothing, if the text is not a log line. */
bool log_filter_add(struct str line, struct buf *out);

#endif
