/*
 * enum asked_text: what a stored answer echoes of its request (dialect.asked): JSON objects as
 * text, and what is left out of one of them. Opaque but to the dialect that made them.
 */
#ifndef RG_REQUEST_ASKED_TEXT_H
#define RG_REQUEST_ASKED_TEXT_H

enum asked_text {
    ASKED_SHARED,       /* text that an agent's calls have in common */
    ASKED_OWN,          /* the rest */
    ASKED_BRIEF,        /* ASKED_SHARED without instructions that are long; absent: they are not */
    ASKED_INSTRUCTIONS, /* these instructions, which are the text of the prompt's first message, too
                         */
    ASKED_TEXTS
};

#endif
