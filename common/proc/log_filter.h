/*
 * Keeps of a log what the gateway itself wrote: for `rollgate support`. A line of either log format
 * becomes one line of JSON. Numbers stay. Of texts, those stay that the supervisor wrote, which
 * reads no byte of an agent, and those of keys whose values are words of ours (outcome, kind ...).
 * Ids stay if this gateway made them. Every other text becomes "(removed)", since a part of it may
 * be an agent's. Secrets are removed from what stays (redaction.h). Pure.
 */
#ifndef RG_PROC_LOG_FILTER_H
#define RG_PROC_LOG_FILTER_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"

/* Appends the line (without its end) with an end. False, and nothing appended: it is no log line.
 */
bool log_filter_add(struct str line, struct buf *out);

#endif
