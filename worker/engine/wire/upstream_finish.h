/*
 * Reads the words of servers for the end of an answer. Each server has its own for a full length, a
 * filter and a failure: one taken for "stop" would make a cut answer a complete one. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_FINISH_H
#define RG_WIRE_UPSTREAM_FINISH_H

#include "common/base/str.h"

enum upstream_finish {
    UPSTREAM_RUNNING, /* no word, or one that means no end */
    UPSTREAM_STOP,
    UPSTREAM_LENGTH,
    UPSTREAM_CALLS,
    UPSTREAM_FILTERED,
    UPSTREAM_ABORTED,
    UPSTREAM_FAILED,
    UPSTREAM_UNKNOWN
};

/* Case does not count, nor what follows a colon ("content_filter: SAFETY"). */
enum upstream_finish upstream_finish_read(struct str word);

#endif
