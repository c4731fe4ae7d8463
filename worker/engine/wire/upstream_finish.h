/*
 * Reads the words with which servers report the end of an answer. Each server has its own for a
 * full length, a filter and a failure. If one were read as "stop", a cut answer would seem
 * complete. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_FINISH_H
#define RG_WIRE_UPSTREAM_FINISH_H

#include "common/base/str.h"

enum upstream_finish {
    UPSTREAM_RUNNING, /* no word, or one that does not mean an end */
    UPSTREAM_STOP,
    UPSTREAM_LENGTH,
    UPSTREAM_REPEATS, /* vLLM's repetition detection cut the answer */
    UPSTREAM_CALLS,
    UPSTREAM_FILTERED,
    UPSTREAM_ABORTED,
    UPSTREAM_FAILED,
    UPSTREAM_UNKNOWN
};

/* Reads a word. Case does not matter, nor does text after a colon ("content_filter: SAFETY"). */
enum upstream_finish upstream_finish_read(struct str word);

#endif
