/*
 * struct prompt_scores: scores of ids that the engine did not sample. They are sent once as a
 * prompt; the answer has for each the logprob given the ids before it, and the best alternatives.
 * Kinds sglang (prompt logprobs of /generate) and vllm (prompt_logprobs of its generate or
 * completions route). Writes the request and reads the answer; no connection, no clock.
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
    struct str lora; /* borrowed: adapter to score with; absent after init */
    struct fields fields;
    bool complete; /* the JSON is complete */

    /* The answer, when it is read: a logprob for each id (the first: 0), and alternatives, best
     * first (-1 and -inf if there are fewer). */
    struct json_floats logprobs, top_logprobs;
    struct json_ints top_ids;

    /* State of reading: reported ids, and the entries of each position. */
    struct json_ints told, entry_ids, entry_ends;
    struct json_floats entry_logprobs;
};

/* Writes the request. route: for kind vllm 0 generate, 1 completions. */
void prompt_scores_write(const struct prompt_scores *p, unsigned route, struct wire_send *send);

void prompt_scores_init(struct prompt_scores *p, enum scorer_kind kind, struct token_span ids,
                        uint32_t top_k);
void prompt_scores_done(struct prompt_scores *p);

/* Reads bytes of the answer; the other function reads its end. Return -1 with ERR_ENGINE_INVALID
 * and the mistake. */
int prompt_scores_feed(struct prompt_scores *p, struct str bytes, struct err *e);
int prompt_scores_end(struct prompt_scores *p, struct err *e);

#endif
