/*
 * Token ids, logprobs and weight versions that come back from an upstream chat API, where it gives
 * them: vLLM's prompt_token_ids and token_ids (return_token_ids), SGLang's meta_info
 * (return_meta_info) and prompt_token_ids, or its sglext (return_output_ids_in_sglext). Read off
 * parsed documents into a struct reply. Pure.
 */
#ifndef RG_WIRE_UPSTREAM_IDS_H
#define RG_WIRE_UPSTREAM_IDS_H

#include <stdbool.h>

struct err;
struct json;
struct reply;

/* Takes the data of a chunk or the whole answer. -1 ERR_ENGINE_INVALID if it is misshapen. */
int upstream_ids_take(struct reply *y, const struct json *doc, struct err *e);

/* Ends the answer and checks counts. y->ids is empty if no ids came; y->logprobs then, and if none
 * came, too. -1 ERR_ENGINE_INVALID says what does not fit, or which requested data is missing. */
int upstream_ids_end(struct reply *y, bool asked_ids, bool asked_logprobs, struct err *e);

#endif
