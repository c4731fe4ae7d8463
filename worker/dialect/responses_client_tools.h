/*
 * Items of the tools that the Responses API knows by their own names and the client runs: the
 * computer, two shells, and apply_patch. For the model each is a call of a function of that name,
 * and its result.
 */
#ifndef RG_DIALECT_RESPONSES_CLIENT_TOOLS_H
#define RG_DIALECT_RESPONSES_CLIENT_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"

struct arena;
struct err;
struct json;

bool responses_client_call(struct str type);
bool responses_client_result(struct str type);

/* input[at], of a type that is such a call: the call in normalised form. */
int responses_read_client_call(struct arena *a, const struct json *item, uint32_t at,
                               struct json *ret, struct err *e);

/* input[at], of a type that is such a result: the id of its call, and what the model reads. */
int responses_read_client_result(struct arena *a, const struct json *item, uint32_t at,
                                 struct str *ret_id, struct json *ret, struct err *e);

#endif
