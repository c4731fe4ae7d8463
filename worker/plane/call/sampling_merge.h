/*
 * Merges what the agent asked for with the session's trusted sampling defaults: a name the agent
 * may not override (lock_sampling) or did not send takes the default.
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

/* defaults: object or NULL; locked: array of names or NULL. Fields of req->sampling_given are
 * applied last unless locked. -1: a default cannot be used (ERR_INVALID). */
int merge_sampling(struct arena *a, const struct chat_request *req, const struct json *defaults,
                   const struct json *locked, struct sampling *ret, struct err *e);

/* Lists the parameters that the request set and that a lock replaces by a different value: an array
 * of names in the arena. */
struct json sampling_list_overruled(struct arena *a, const struct chat_request *req,
                                    const struct json *defaults, const struct json *locked);

/* Returns -1 and e (ERR_INVALID) if an id among the parameters (stop_token_ids, allowed_token_ids,
 * logit_bias) is none of the model's. A model that was not named is not the engine's: then any is
 * taken. */
int sampling_check_ids(const struct call_env *env, const struct sampling *s, struct err *e);

/* tool_choice, the tools allowed, parallel_tool_calls and a JSON response format become one grammar
 * in s, in the model's own formats and behind its thought. A JSON format alone, where no thought
 * can come first, stays as it is: engines read schemas better than grammars. Grammars that the
 * client wrote itself stay as well. ERR_INVALID: a demand that cannot be enforced. */
int merge_constraint(struct arena *a, const struct chat_request *req,
                     const struct answer_formats *m, struct sampling *s, struct err *e);

#endif
