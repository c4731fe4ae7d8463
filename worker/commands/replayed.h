/*
 * struct replayed: the sessions of a journal folder, in memory, for commands. The model matters
 * only for drift audits; the records have everything else.
 */
#ifndef RG_COMMANDS_REPLAYED_H
#define RG_COMMANDS_REPLAYED_H

#include "worker/session/store/session.h"
#include "worker/text/model/model.h"

struct replayed {
    struct model *model;
    struct session_store *store;
    uint64_t records, skipped;
    struct err refused; /* record of an unknown version, or not a session's; ERR_NONE: no such */
};

/* Loads a journal folder read-only. Skips damage like a worker does. On error nothing needs to be
 * freed. Fails if a record has an unknown version or is not a session's. */
int replayed_load(const char *dir, const struct model_options *o, struct replayed *ret,
                  struct err *e);
/* Frees the store and the model. Accepts a zeroed struct. */
void replayed_done(struct replayed *r);

/* Applies one record to the store, and counts it in records or skipped. */
void replayed_apply(struct replayed *r, struct str id, struct str payload);

/* Makes an empty replay with its model and store. Returns -1 and *e on error. */
int replayed_init(const struct model_options *o, const struct session_defaults *d,
                  struct replayed *ret, struct err *e);

#endif
