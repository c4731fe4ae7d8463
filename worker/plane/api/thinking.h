/*
 * What a request wants of the model's thought (thinking_wish), brought to the template's variables
 * and to the engines' budgets. What neither can do is noted, for the answer's header.
 */
#ifndef RG_API_THINKING_H
#define RG_API_THINKING_H

struct arena;
struct call_env;
struct chat_request;
struct engine_pool;

/* Fills chat.kwargs, takes back a budget that these engines have no field for, and notes what
 * cannot be obeyed. Nothing is done where the request itself goes to them. On the loop. */
void api_settle_thinking(const struct call_env *env, const struct engine_pool *engines,
                         struct arena *a, const char *dialect, struct chat_request *req);

#endif
