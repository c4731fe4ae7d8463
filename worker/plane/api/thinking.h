/*
 * The thought settings of a request (thinking_wish), passed to the template's variables and to the
 * engines' budgets. Settings that neither supports are recorded for the answer's header.
 */
#ifndef RG_API_THINKING_H
#define RG_API_THINKING_H

struct arena;
struct call_env;
struct chat_request;
struct engine_pool;

/* Fills chat.kwargs, and removes a budget for which these engines have no field. Records settings,
 * arguments of the template and strict tools without effect. Does nothing if the request itself
 * goes to the engines. On the loop. */
void api_settle_thinking(const struct call_env *env, const struct engine_pool *engines,
                         struct arena *a, const char *dialect, struct chat_request *req);

#endif
