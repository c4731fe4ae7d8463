/*
 * Reads items of the tools that the Responses API knows by name and the client runs: the computer,
 * two shells, and apply_patch. The model sees each as a call of a function with that name, and its
 * result.
 */
#ifndef RG_DIALECT_RESPONSES_CLIENT_TOOLS_H
#define RG_DIALECT_RESPONSES_CLIENT_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct err;
struct json;

/* Report whether an item of that type is a call, or a result, of such a tool. */
bool responses_client_call(struct str type);
bool responses_client_result(struct str type);

/* Sets *ret to the normalised call of input[at], for which responses_client_call is true. */
int responses_read_client_call(struct arena *a, const struct json *item, uint32_t at,
                               struct json *ret, struct err *e);

/* Reads input[at], for which responses_client_result is true. Sets *ret_id to the id of its call,
 * and *ret to the content for the model. */
int responses_read_client_result(struct arena *a, const struct json *item, uint32_t at,
                                 struct str *ret_id, struct json *ret, struct err *e);

#endif
