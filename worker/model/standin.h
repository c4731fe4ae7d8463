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
    const struct json *system;   /* system messages of the covered part; texts are stood in for */
    uint32_t n_system;           /* unless the template writes them behind earlier turns */
    const struct json *earlier;  /* an earlier turn that a template may rewrite, or NULL */
    bool longer;                 /* one more turn in front (probing only) */
    bool user_between;           /* a user message stands between that and the last one */
    const struct json *messages; /* the new ones */
    uint32_t n;
    const struct json *tools, *kwargs;
};

struct standin {
    struct str closing; /* behind the turn's last text, as far as it belongs to the turn */
    struct str next;    /* the new messages and the generation prompt */
    bool replaced;      /* closing is one token that stands for another at the end of a chat */
    bool rewrites;      /* what stands before is rendered differently now */
};

/* Texts are slices of s->a and s->b. -1 when the template refuses (e is its error). */
int standin_render(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                   struct standin *ret, struct err *e);

/* Fills system, earlier and user_between from a chat of which `covered` messages are in the
 * checkpoint. Looks at no more than a fixed number of messages, but for templates that write
 * system messages behind earlier turns. */
void standin_look_back(const struct model *m, struct arena *a, const struct json *messages,
                       size_t covered, struct standin_in *ret);

/* A one-function tools list that stands in for the real ones. */
struct json standin_tools(struct arena *a, const char *name);

#define STANDIN_MARK "RGTURN7"

#endif
