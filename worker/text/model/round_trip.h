/*
 * Checks whether the parsers can read what the template writes: a tool call is rendered, and the
 * parser gets the text. A template is the best evidence of how its model writes calls.
 */
#ifndef RG_MODEL_ROUND_TRIP_H
#define RG_MODEL_ROUND_TRIP_H

#include "worker/text/model/model_internal.h"
#include "worker/text/parsers/kinds.h"

enum round_trip {
    ROUND_TRIP_UNSEEN, /* the template does not render calls, or not this one */
    ROUND_TRIP_EXACT,
    ROUND_TRIP_DIFFERS, /* the parser finds calls, but different ones */
    ROUND_TRIP_LOST,    /* the parser finds no call */
};

enum { ROUND_TRIP_CALLS_MAX = 2 };

struct round_trip_plan {
    enum tool_kind tool;
    enum reasoning_kind reasoning;
    uint32_t calls; /* 1 to ROUND_TRIP_CALLS_MAX, in one message */
};

/* Renders the calls and reads them with these parsers. Appends the rendered message to `text` (may
 * be NULL). */
enum round_trip round_trip(const struct model *m, struct model_scratch *s,
                           const struct round_trip_plan *plan, struct buf *text);

/* Chooses a different tool parser if the one found by marks does not read the template's own call
 * and a different one does. Records that in the model's notes. */
void round_trip_choose(struct model *m, struct model_scratch *s);

#endif
