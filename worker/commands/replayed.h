/*
 * struct replayed: the sessions of one journal folder in memory, for commands. The model matters
 * for drift audits only; records carry all else.
 */
#ifndef RG_COMMANDS_REPLAYED_H
#define RG_COMMANDS_REPLAYED_H

#include "worker/session/store/session.h"
#include "worker/text/model/model.h"

struct replayed {
    struct model *model;
    struct session_store *store;
    uint64_t records, skipped;
    struct err unsupported; /* kind ERR_NONE: no record of another version was met */
};

/* d may be NULL (the spec's defaults). Reads only; damage is skipped like a worker does. */
int replayed_load(const char *dir, const struct model_options *o, const struct session_defaults *d,
                  struct replayed *ret, struct err *e);
void replayed_done(struct replayed *r);

/* Applies one record; counts it. */
void replayed_apply(struct replayed *r, struct str id, struct str payload);

/* Makes an empty replay with its model. */
int replayed_init(const struct model_options *o, const struct session_defaults *d,
                  struct replayed *ret, struct err *e);

#endif
