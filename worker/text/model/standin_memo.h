/*
 * The rendering of a stand-in's chat without new messages. In plain talk it is equal for turn after
 * turn, since marks replace the texts. So each thread keeps the last few such renderings with all
 * that the template read: messages, tools, variables, and the time if it uses the time.
 *
 * Turns with calls are not kept, since their ids are new each time. Chats with real messages are
 * not kept either.
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
 * turn, then the chat up to it. On true s->a holds both, and *prompt_ends is where the second
 * begins. False: they are to be made. */
bool standin_memo_find(struct model_scratch *s, const struct standin_in *in,
                       const struct rendering *r, size_t *prompt_ends);

/* Keeps s->a, which was made because standin_memo_find had nothing. */
void standin_memo_keep(struct model_scratch *s, size_t prompt_ends);

struct standin_memo *standin_memo_new(const struct model_scratch *s);

/* Frees the memo; accepts NULL. */
void standin_memo_free(struct standin_memo *memo);

#endif
