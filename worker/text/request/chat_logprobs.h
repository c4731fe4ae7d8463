/*
 * Logprobs in the form of chat completions: [{"token", "logprob", "top_logprobs": [...]}, ...].
 */
#ifndef RG_REQUEST_CHAT_LOGPROBS_H
#define RG_REQUEST_CHAT_LOGPROBS_H

#include <stddef.h>

struct arena;
struct json;
struct token_logprob;

/* Reads n items of such a list into ret. Texts and alternatives are copied into the arena. An
 * alternative whose logprob is null cannot be sampled, and is left out. */
void chat_logprobs_read(const struct json *lps, size_t n, struct token_logprob *ret,
                        struct arena *a);

/* Returns the cost of reading one item: 1 plus the number of its alternatives. */
size_t chat_logprobs_cost(const struct json *lp);

#endif
