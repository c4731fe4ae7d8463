/*
 * What a request wants of the model's thought (thinking_wish), brought to the template's variables
 * and to the engines' budgets. What neither can do is noted, for the answer's header.
 */
#ifndef RG_API_THINKING_H
#define RG_API_THINKING_H

#include <stdbool.h>

struct arena;
struct call_env;
struct chat_request;

/* Fills chat.kwargs, takes back a budget that the engines have no field for, and notes what cannot
 * be obeyed. `passed`: the request itself goes to the engines. On the loop. */
void api_settle_thinking(const struct call_env *env, struct arena *a, bool passed,
                         struct chat_request *req);

#endif
