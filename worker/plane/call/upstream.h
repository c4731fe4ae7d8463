/*
 * Upstreams that are asked with messages (engine kind `openai`): takes what their answers contain
 * besides the deltas. upstream_body.h writes the requests.
 */
#ifndef RG_CALL_UPSTREAM_H
#define RG_CALL_UPSTREAM_H

#include <stddef.h>

struct engine_result;
struct json;
struct model_call;
struct sample;

/* Moves the whole answer into the sample: its message unless the deltas contained it, ids, counts,
 * and the client's logprobs, which must still be sent (sample_taken). The sample's ids and logprobs
 * must be filled already. */
void upstream_take(struct model_call *t, struct sample *r, const struct engine_result *res);

/* Takes the next n logprobs of a chunk, if the client asked for logprobs. */
void upstream_logprobs(struct model_call *t, struct sample *r, const struct json *lps, size_t n);

#endif
