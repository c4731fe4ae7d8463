/*
 * The data of a committed answer that the client received but that neither the answer's ids nor its
 * message contain. The session keeps these data as a text with the answer (session_answer.told), so
 * that a replay and a stored response equal the first answer. Pure.
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
    struct str stop_text;                     /* absent: none */
    struct str tops;                          /* text of the alternatives, which told_tops reads */
    struct str asked;                         /* call_input.asked[ASKED_OWN] */
};

/* Reports whether the client got alternatives of the answer's tokens. */
bool told_has_tops(const struct finished_answer *answer);

/* Appends to `tops` about `most` of the alternatives, those of the tokens from `from` on; a long
 * answer needs several calls. Returns the index of the next token. */
size_t told_write_tops(struct buf *tops, const struct finished_answer *answer, size_t from,
                       size_t most);

/* Appends the data of `answer`, of a call with this head and usage. `tops` are the alternatives of
 * all tokens; absent: none were sent. */
void told_write(struct buf *out, const struct answer_head *head, const struct call_usage *usage,
                const struct finished_answer *answer, struct str tops, struct str asked);

/* Reads such a text; the strings are borrowed from it. Returns false, with *ret empty, if the text
 * is absent or incomplete. */
bool told_read(struct str text, struct told *ret);

/* Adds to the answer's n logprobs the alternatives that were sent with them. */
void told_tops(const struct told *t, struct arena *a, const struct tokenizer *tk,
               struct token_logprob *lp, size_t n);

#endif
