/*
 * The text that follows a checkpoint: the closing of its last turn, and the new messages. It is
 * made with a short stand-in conversation if that is enough (standin.h), otherwise with more and
 * more real messages. If the scratch audits, the text is compared with the rendering of the whole
 * chat.
 */
#ifndef RG_MODEL_SUFFIX_TEXT_H
#define RG_MODEL_SUFFIX_TEXT_H

#include "worker/text/model/model_internal.h"

/* The answer that a suffix follows. */
struct suffix_turn {
    const struct stop *stop; /* the token that ended it; NULL if it was cut */
    struct str added;        /* text that the client added to it; absent: none */
};

struct suffix_text {
    const struct stop *anchor; /* stop token right before the text, or NULL */
    /* the two texts whose concatenation follows; in the scratch's arena */
    struct str close, next;
    /* the checkpoint's last token must be dropped, because `next` begins with it */
    bool trim;
    bool rewrites; /* the text before the turn is rendered differently now */
    bool bare;     /* the template does not show the last turn now */
    enum model_audit audit;
};

/* Makes the text. Resets the scratch's arena. Errors: the template's own, ERR_UNSUPPORTED (also if
 * text was added and the template takes no stand-in), ERR_PROMPT_LEAK. */
int suffix_text(struct model_scratch *s, const struct chat *chat, size_t covered,
                struct suffix_turn turn, struct suffix_text *ret, struct err *e);

/* Joins both texts in the arena. */
struct str suffix_join(struct arena *a, struct str x, struct str y);

#endif
