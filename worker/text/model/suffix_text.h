/*
 * The text that follows a checkpoint: the closing of its last turn, and the new messages. Made with
 * a short stand-in conversation if that is enough (standin.h), otherwise with more and more real
 * messages. Compared with the whole chat's rendering if the scratch audits.
 */
#ifndef RG_MODEL_SUFFIX_TEXT_H
#define RG_MODEL_SUFFIX_TEXT_H

#include "worker/text/model/model_internal.h"

struct suffix_text {
    const struct stop *anchor; /* the token right before the text, if it is a stop token */
    struct str close, next;    /* the text: both together; in the scratch's arena */
    bool trim;                 /* the checkpoint's last token is not counted: `next` has it again */
    bool rewrites;             /* the text before the turn is rendered differently now */
    bool bare;                 /* the template does not show the last turn now */
    enum model_audit audit;
};

/* `stop`: what the checkpoint ended with, NULL when it was cut. Resets the scratch's arena. Errors:
 * the template's own, ERR_UNSUPPORTED, ERR_PROMPT_LEAK. */
int suffix_text(struct model_scratch *s, const struct chat *chat, size_t covered,
                const struct stop *stop, struct suffix_text *ret, struct err *e);

/* Joins both texts in the arena. */
struct str suffix_join(struct arena *a, struct str x, struct str y);

#endif
