/*
 * Token ids, logprobs and weight versions that an upstream chat API may return: vLLM's
 * prompt_token_ids and token_ids (return_token_ids), SGLang's meta_info (return_meta_info) and
 * prompt_token_ids, or its sglext (return_output_ids_in_sglext). Read from parsed documents into a
 * struct reply. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_IDS_H
#define RG_WIRE_UPSTREAM_IDS_H

#include <stdbool.h>

struct err;
struct json;
struct reply;

/* Reads the data of a chunk or of the whole answer. Returns -1 with ERR_ENGINE_INVALID if it has a
 * wrong form. */
int upstream_ids_take(struct reply *y, const struct json *doc, struct err *e);

/* Ends the answer and checks counts. If no ids came, y->ids and y->logprobs are empty; y->logprobs
 * also if no logprobs came. Returns -1 with ERR_ENGINE_INVALID, which names the mismatch, or the
 * requested data that is missing. */
int upstream_ids_end(struct reply *y, bool asked_ids, bool asked_logprobs, struct err *e);

#endif
