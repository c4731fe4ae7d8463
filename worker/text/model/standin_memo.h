/*
 * Remembers renderings of a stand-in's chat without new messages. In chats without tools these are
 * equal from turn to turn, because marks replace the texts. So each thread keeps the last few
 * renderings with everything that the template read: messages, tools, variables, and the time if it
 * uses the time.
 *
 * Turns with calls are not remembered, because their ids are new each time. Chats with real
 * messages are not remembered either.
 */
#ifndef RG_MODEL_STANDIN_MEMO_H
#define RG_MODEL_STANDIN_MEMO_H

#include <stdbool.h>
#include <stddef.h>

struct model_scratch;
struct rendering;
struct standin_in;
struct standin_memo;

/* Looks for the renderings of these messages (the last turn among them): the prompt before that
 * turn, then the chat up to the turn. If it returns true, s->a has both, and *prompt_ends is the
 * start of the second. False: the caller must render them. */
bool standin_memo_find(struct model_scratch *s, const struct standin_in *in,
                       const struct rendering *r, size_t *prompt_ends);

/* Remembers s->a, which was rendered after standin_memo_find returned false. */
void standin_memo_keep(struct model_scratch *s, size_t prompt_ends);

struct standin_memo *standin_memo_new(const struct model_scratch *s);

/* Frees the memo; accepts NULL. */
void standin_memo_free(struct standin_memo *memo);

#endif
