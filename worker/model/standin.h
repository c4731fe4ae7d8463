/*
 * The trick behind suffix-only rendering: a short stand-in conversation that ends with a copy of
 * the covered assistant turn (its texts replaced by a mark, its tool calls kept by name and id)
 * is rendered with and without the new messages. What stands behind the mark is how the template
 * closes the turn, and what comes next. Cost follows the new messages, never the history.
 */
#ifndef RG_MODEL_STANDIN_H
#define RG_MODEL_STANDIN_H

#include "worker/model/model_internal.h"

struct standin_in {
    const struct json *last;     /* the covered assistant message */
    bool thought_before;         /* an earlier turn since the last user message has reasoning */
    const struct json *messages; /* the new ones */
    uint32_t n;
    const struct json *tools, *kwargs;
};

struct standin {
    struct str closing; /* behind the turn's last text, as far as it belongs to the turn */
    struct str next;    /* the new messages and the generation prompt */
    bool rewrites;      /* what stands before is rendered differently now */
};

/* Texts are slices of s->a and s->b. -1 when the template refuses (e is its error). */
int standin_render(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                   struct standin *ret, struct err *e);

/* Whether a turn between the last user message and messages[covered-1] carries reasoning; looks
 * at no more than a fixed number of messages. */
bool standin_thought_before(const struct json *messages, size_t covered);

/* A one-function tools list that stands in for the real ones. */
struct json standin_tools(struct arena *a, const char *name);

#define STANDIN_MARK "RGTURN7"

#endif
