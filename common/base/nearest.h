/*
 * struct nearest: finds the known name that an unknown one was most likely meant to be, for errors
 * that ask "did you mean". Names are offered one after the other; the best one wins. Letter case
 * and '-' against '_' make no difference. Pure.
 */
#ifndef RG_BASE_NEAREST_H
#define RG_BASE_NEAREST_H

#include "common/base/str.h"

struct nearest {
    struct str given;
    const char *name; /* the best name so far; NULL: no name is near */
    unsigned cost;    /* letters that were changed, added, left out or swapped in that name */
};

static inline struct nearest nearest_to(struct str given)
{
    return (struct nearest){.given = given};
}

/* Offers a name, which must live as long as the answer is used. It wins if it is near, and nearer
 * than all names before. */
void nearest_offer(struct nearest *n, const char *name);

#endif
