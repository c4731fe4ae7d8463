/*
 * The method that renders only a suffix. A short stand-in conversation ends with a copy of the
 * covered assistant turn: its texts are replaced by a mark, its tool calls keep name and id. It is
 * rendered with and without the new messages. The text after the mark closes the turn, and is
 * followed by the new messages. The cost depends on the new messages, never on the history.
 *
 * Every stand-in contains the model's mark, a random word of each load; text with the mark never
 * becomes a suffix. If a template writes a stand-in after the turn, standin_clean refuses, and
 * suffix.c tries again with more real messages.
 */
#ifndef RG_MODEL_STANDIN_H
#define RG_MODEL_STANDIN_H

#include "worker/text/model/model_internal.h"

struct standin_in {
    const struct json *last; /* the covered assistant message */
    struct str added;        /* text that follows the message's own text, which the mark replaces */
    const struct json *system; /* system messages of the covered part; their texts are replaced */
    /* number of `system`; 0 unless the template writes them after earlier turns */
    uint32_t n_system;
    uint32_t n_first;            /* number of first messages that come before all others */
    const struct json *earlier;  /* an earlier turn that a template may rewrite, or NULL */
    bool longer;                 /* the chat has one more turn in front (probing only) */
    bool user_between;           /* a user message is between `earlier` and the last turn */
    const struct json *messages; /* the new messages */
    uint32_t n;
    const struct json *tools, *kwargs;
    bool real_tools, real_system; /* use the real tools and system messages instead of stand-ins */
    /* covered messages before the last one, if they are rendered and only the last one's texts are
     * replaced; NULL: a short chat stands for them */
    const struct json *history;
    uint32_t n_history;
};

struct standin {
    struct str closing; /* text after the turn's last text, as far as it belongs to the turn */
    struct str next;    /* the new messages and the generation prompt */
    /* closing is one token that replaces a different one at the end of a chat */
    bool replaced;
    bool rewrites; /* the text before the turn is rendered differently now */
    bool bare;     /* the real turn is not shown: closing is that of a different turn */
};

/* Renders the stand-in. Texts are slices of s->a and s->b. Returns -1 if the template refuses (e is
 * its error). */
int standin_render(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                   struct standin *ret, struct err *e);

/* Makes the stand-in like standin_render, but returns -1 with ERR_PROMPT_LEAK if a stand-in would
 * be sent. */
int standin_clean(const struct model *m, struct model_scratch *s, const struct standin_in *in,
                  struct standin *ret, struct err *e);

/* Draws the model's mark: a word that no text has by chance, whatever letter case a template makes
 * of it. It is a valid name of a function and a valid id of a call. */
void standin_draw_mark(struct model *m);

/* Reports whether the text contains the mark, in any letter case. */
bool standin_marked(const struct model *m, struct str text);

/* Fills earlier, user_between and system from a chat with `covered` messages in the checkpoint.
 * all_system: system gets all such messages; otherwise only a first one, and the function looks at
 * no more than a fixed number of messages. */
void standin_find_earlier(struct arena *a, const struct json *messages, size_t covered,
                          bool all_system, struct standin_in *ret);

/* Makes a list with one function, the stand-in of the real tools. */
struct json standin_tools(struct arena *a, const char *name);

#endif
