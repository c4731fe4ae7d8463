/*
 * struct prompt_scores: what an engine makes of ids that it did not sample: sent once as a prompt,
 * it tells of each the logprob given those before, and the best alternatives. Kinds sglang (prompt
 * logprobs of /generate) and vllm (prompt_logprobs of its generate or completions route). Writes
 * the request and reads the answer; no connection, no clock.
 */
#ifndef RG_WIRE_PROMPT_SCORES_H
#define RG_WIRE_PROMPT_SCORES_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/engine/pool/adapter.h"
#include "worker/engine/wire/wire_fields.h"
#include "worker/text/tokens/span.h"

struct wire_send;

struct prompt_scores {
    enum scorer_kind kind;
    struct token_span ids; /* borrowed */
    uint32_t top_k;
    struct str lora; /* borrowed: the adapter to score with; absent after init */
    struct fields fields;
    bool complete; /* the JSON has its end */

    /* The answer, once it is read: a logprob for each id (the first: 0), alternatives best first
     * (-1 and -inf where there are fewer). */
    struct json_floats logprobs, top_logprobs;
    struct json_ints top_ids;

    /* While it is read: ids as told, and of each position the entries. */
    struct json_ints told, entry_ids, entry_ends;
    struct json_floats entry_logprobs;
};

/* route: of the kind vllm 0 generate, 1 completions. */
void prompt_scores_write(const struct prompt_scores *p, unsigned route, struct wire_send *send);

void prompt_scores_init(struct prompt_scores *p, enum scorer_kind kind, struct token_span ids,
                        uint32_t top_k);
void prompt_scores_done(struct prompt_scores *p);

/* Bytes of the answer; its end. -1: ERR_ENGINE_INVALID says what is wrong. */
int prompt_scores_feed(struct prompt_scores *p, struct str bytes, struct err *e);
int prompt_scores_end(struct prompt_scores *p, struct err *e);

#endif
