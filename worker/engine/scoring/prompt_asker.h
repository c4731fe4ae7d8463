/* struct prompt_asker: an engine that is asked for the logprobs of prompts (prompt_scores.h), with
 * one HTTP request for each. Nothing is repeated here, except on vLLM's older route if the newer is
 * missing. */
#ifndef RG_ENGINE_PROMPT_ASKER_H
#define RG_ENGINE_PROMPT_ASKER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/str.h"
#include "worker/text/tokens/span.h"

struct engine_options;
struct engine_target;
struct err;
struct loop;
struct prompt_asker;
struct prompt_attempt;
struct score_result;

struct prompt_question {
    struct str session_id;
    struct token_span ids;
    uint32_t top_k;
    struct str lora; /* empty: no adapter */
};

/* Exactly one of these is called, never from inside prompt_ask. passing: a further attempt may
 * succeed. */
struct prompt_events {
    void (*done)(void *ctx, const struct score_result *r);
    void (*failed)(void *ctx, const struct err *e, bool passing);
};

/* Makes an asker. t and o must outlive it. Fails with ERR_CONFIG. */
int prompt_asker_new(struct loop *loop, const struct engine_target *t,
                     const struct engine_options *o, struct prompt_asker **ret, struct err *e);
/* Frees a. No attempt may be running. Accepts NULL. */
void prompt_asker_free(struct prompt_asker *a);

/* Sends the question. Its data must exist until the attempt has ended. */
struct prompt_attempt *prompt_ask(struct prompt_asker *a, const struct prompt_question *q,
                                  const struct prompt_events *events, void *ctx);
void prompt_ask_cancel(struct prompt_attempt *p);

#endif
