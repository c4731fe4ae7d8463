/*
 * Logprobs in the form of chat completions: [{"token", "logprob", "top_logprobs": [...]}, ...].
 */
#ifndef RG_REQUEST_CHAT_LOGPROBS_H
#define RG_REQUEST_CHAT_LOGPROBS_H

#include <stddef.h>

struct arena;
struct json;
struct token_logprob;

/* n of such a list to ret; texts and alternatives are copied into the arena. */
void chat_logprobs_read(const struct json *lps, size_t n, struct token_logprob *ret,
                        struct arena *a);

/* The work that one of them makes: itself and its alternatives, counted. */
size_t chat_logprobs_cost(const struct json *lp);

#endif
