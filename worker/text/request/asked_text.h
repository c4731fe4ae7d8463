/*
 * enum asked_text: parts of a request that a stored answer echoes (dialect.asked): JSON objects as
 * text, and a text that is left out of one of them. Only the dialect that made them can interpret
 * them.
 */
#ifndef RG_REQUEST_ASKED_TEXT_H
#define RG_REQUEST_ASKED_TEXT_H

enum asked_text {
    ASKED_SHARED, /* members that all calls of an agent have in common */
    ASKED_OWN,    /* the other members */
    ASKED_BRIEF,  /* ASKED_SHARED without its long instructions; absent: they are not long */
    /* the instructions, which are also the text of the prompt's first message */
    ASKED_INSTRUCTIONS,
    ASKED_TEXTS
};

#endif
