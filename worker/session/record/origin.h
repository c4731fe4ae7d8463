/*
 * The model that made a session (origin.c), and counts of sessions that a different model made.
 */
#ifndef RG_SESSION_ORIGIN_H
#define RG_SESSION_ORIGIN_H

#include <stddef.h>

#include "worker/text/model/model.h"

struct session_store;

/* Counts of sessions that have not ended and that a different model made. */
struct session_origins {
    size_t foreign;
    size_t other_special, other_template; /* counts of those with this tokenizer */
    struct model_fingerprint first_foreign;
};

void session_store_origins(const struct session_store *st, struct session_origins *ret);

#endif
