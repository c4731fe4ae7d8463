/*
 * Upstreams that are asked with messages (engine kind `openai`): what their answers tell beside the
 * deltas. What they are asked is upstream_body.h's.
 */
#ifndef RG_CALL_UPSTREAM_H
#define RG_CALL_UPSTREAM_H

#include <stddef.h>

struct engine_result;
struct json;
struct model_call;
struct sample;

/* Takes the whole answer over into the sample: its message unless the deltas told it, ids, counts,
 * and the client's logprobs, which are still to be told (sample_taken). The sample's ids and
 * logprobs are filled already. */
void upstream_take(struct model_call *t, struct sample *r, const struct engine_result *res);

/* The next n logprobs of a chunk, for a client that asked. */
void upstream_logprobs(struct model_call *t, struct sample *r, const struct json *lps, size_t n);

#endif
