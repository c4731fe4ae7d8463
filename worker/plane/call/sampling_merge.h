/*
 * Merges the request's sampling parameters with the session's trusted defaults: the default applies
 * to a parameter that the agent may not override (lock_sampling) or did not send.
 */
#ifndef RG_CALL_SAMPLING_MERGE_H
#define RG_CALL_SAMPLING_MERGE_H

struct answer_formats;
struct arena;
struct call_env;
struct chat_request;
struct err;
struct json;
struct sampling;

/* Merges `defaults` (object or NULL) into `req`. `locked` is an array of names, or NULL. Fields of
 * req->sampling_given are applied last unless locked. Returns -1 with ERR_INVALID if a default
 * cannot be used. */
int merge_sampling(struct arena *a, const struct chat_request *req, const struct json *defaults,
                   const struct json *locked, struct sampling *ret, struct err *e);

/* Returns the parameters that the request set and that a lock replaces by a different value: an
 * array of names in the arena. */
struct json sampling_list_overruled(struct arena *a, const struct chat_request *req,
                                    const struct json *defaults, const struct json *locked);

/* Returns -1 with ERR_INVALID if the model has not one of the parameters' ids (stop_token_ids,
 * allowed_token_ids, logit_bias). Accepts any id for a model that was not named, because that is
 * not the engine's. */
int sampling_check_ids(const struct call_env *env, const struct sampling *s, struct err *e);

/* Combines tool_choice, the allowed tools, parallel_tool_calls and a JSON response format into one
 * grammar in s, in the model's own formats and after its thought. A JSON format alone stays as it
 * is if no thought can precede it, because engines handle schemas better than grammars. A grammar
 * that the client wrote stays, too. Returns -1 with ERR_INVALID for a demand that cannot be
 * enforced. */
int merge_constraint(struct arena *a, const struct chat_request *req,
                     const struct answer_formats *m, struct sampling *s, struct err *e);

#endif
