/*
 * The data of a committed answer that the client received and that neither its ids nor its message
 * contain. The session keeps it as a text with the answer (session_answer.told), so that a replay
 * and a stored response are equal to the first answer. Pure.
 */
#ifndef RG_CALL_TOLD_H
#define RG_CALL_TOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"

struct answer_head;
struct arena;
struct call_usage;
struct finished_answer;
struct token_logprob;
struct tokenizer;

struct told {
    uint64_t created_s;
    uint32_t cached_tokens, reasoning_tokens; /* tokens of the whole call */
    struct str stop_text;                     /* absent when none */
    struct str tops;                          /* read by told_tops */
    struct str asked;                         /* call_input.asked[ASKED_OWN] */
};

/* Reports whether the client got alternatives of its tokens. */
bool told_has_tops(const struct finished_answer *answer);

/* Appends those of the tokens from `from` on to tops, about `most` of them, as there may be many.
 * Returns which token comes next. */
size_t told_write_tops(struct buf *tops, const struct finished_answer *answer, size_t from,
                       size_t most);

/* Appends the data of `answer` of a call with this head and usage. tops: the alternatives of all
 * tokens; absent: none were sent. */
void told_write(struct buf *out, const struct answer_head *head, const struct call_usage *usage,
                const struct finished_answer *answer, struct str tops, struct str asked);

/* Reads it; strings are borrowed from the text. False on an absent or torn one: *ret is empty. */
bool told_read(struct str text, struct told *ret);

/* Adds to the n logprobs of the answer the alternatives that were sent with them. */
void told_tops(const struct told *t, struct arena *a, const struct tokenizer *tk,
               struct token_logprob *lp, size_t n);

#endif
