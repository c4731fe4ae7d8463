/*
 * Logprobs as chat completions tell them: [{"token", "logprob", "top_logprobs": [...]}, ...].
 */
#ifndef RG_REQUEST_CHAT_LOGPROBS_H
#define RG_REQUEST_CHAT_LOGPROBS_H

struct arena;
struct json;
struct token_logprob;

/* Those of a list `content` to ret, content->n of them; texts and alternatives are copied into the
 * arena. */
void chat_logprobs_read(const struct json *content, struct token_logprob *ret, struct arena *a);

#endif
