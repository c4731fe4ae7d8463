/*
 * The part of onig.c that reads character classes and escapes into sets. Internal to onig*.c.
 */
#ifndef RG_TOKENS_ONIG_CLASS_H
#define RG_TOKENS_ONIG_CLASS_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/str.h"
#include "worker/text/tokens/charset.h"

/* Position of the reader. */
struct onig_input {
    const char *p, *end;
    const char *start;
    bool ignore_case;
    unsigned depth;
    unsigned sets; /* named sets so far, each of which needs a walk through all code points */
    struct err *e;
};

/* Refuses the syntax at p: "regular expression: WHAT at byte N is not supported". Returns -1. */
int onig_refuse(struct onig_input *in, const char *what);

/* Reads an escape that means characters; p is after the backslash. Fills set and moves p. *single
 * is the character if it is one, else UINT32_MAX. Returns 1 if it is not such an escape (p does not
 * move). */
int onig_read_escape(struct onig_input *in, struct charset *set, uint32_t *single, bool in_class);

/* Reads a [class]; p is first after the bracket, then after the class. The set is sealed. */
int onig_read_class(struct onig_input *in, struct charset *set);

/* Adds what a set also matches without regard to case. Refuses sets whose case folding it does not
 * know (non-ASCII letters). Needs and leaves a sealed set. */
int onig_fold_case(struct onig_input *in, struct charset *set);

#endif
