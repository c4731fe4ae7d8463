/*
 * struct sampling: every sampling parameter of one model call. All are explicit, because engines'
 * defaults differ: 128 new tokens in SGLang, 16 in vLLM completions, no limit in llama.cpp. Filled
 * by a dialect, merged with the session's trusted defaults before a call (worker/plane/call), sent
 * by the engine adapters. JSON values are borrowed from the call's arena.
 */
#ifndef RG_CODEC_SAMPLING_H
#define RG_CODEC_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/arena.h"
#include "common/base/err.h"

struct buf;
struct json;
struct json_out;

/* Member of sampling_params that sessions may have next to the parameters, and requests may not. */
#define SAMPLING_ENGINE_EXTRA "engine_extra"

struct sampling {
    double temperature;        /* 1.0 */
    double top_p;              /* 1.0 */
    double min_p;              /* 0.0 */
    double presence_penalty;   /* 0.0 */
    double frequency_penalty;  /* 0.0 */
    double repetition_penalty; /* 1.0 */
    int64_t top_k;             /* -1: off */
    int64_t max_tokens;        /* 0: what is left of context and budgets */
    int64_t seed;              /* valid when has_seed */
    bool has_seed;
    bool ignore_eos;
    const struct json *stop;           /* array of strings, or NULL */
    const struct json *stop_token_ids; /* array of integers, or NULL */
    const struct json *min_tokens;     /* an integer; NULL: not given */
    const struct json
        *repeat_last_n; /* an integer or NULL: tokens that llama.cpp's penalties look back at */
    const struct json *max_thinking_tokens; /* an integer or NULL: the engine ends a thought after
                                               that many tokens */
    const struct json *allowed_token_ids;   /* array of integers, or NULL */
    const struct json *bad_words;           /* array of strings, or NULL */
    const struct json *logit_bias;          /* object id -> bias, or NULL */
    /* The largest id of each of these lists, where there is one. */
    int64_t stop_id_most, allowed_id_most, bias_id_most;
    uint32_t given;                  /* sampling_bit of each parameter that was set */
    const struct json *engine_extra; /* the trainer's, for the engine's request; or NULL */
    const struct json *grammar;      /* {"type":"json_schema","json_schema":{...}} and kin, NULL */
};

#define SAMPLING_DEFAULTS                                                        \
    {                                                                            \
        .temperature = 1.0, .top_p = 1.0, .repetition_penalty = 1.0, .top_k = -1 \
    }

/* The one name of a parameter that clients spell in several ways (max_completion_tokens ->
 * max_tokens, stop_sequences -> stop); other names as they are. */
struct str sampling_name(struct str name);

/* Whether sampling_set knows the name. */
bool sampling_known(struct str name);

/* The parameter's bit in sampling.given; 0: the name is unknown. */
uint32_t sampling_bit(struct str name);

/* Returns every known name, other spellings included, by number; NULL after the last. */
const char *sampling_name_at(size_t i);

/* Writes the JSON schema of the values that a known name takes. */
void sampling_write_schema(struct str name, struct json_out *o);

/* Appends all names, for an error's text: "temperature, top_p, ...". */
void sampling_names(struct buf *out);

/* Checks type and range and sets the parameter; null leaves it as it is. v is borrowed. On error
 * ERR_INVALID with e->param = the name as given. */
int sampling_set(struct arena *a, struct sampling *s, struct str name, const struct json *v,
                 struct err *e);

/* Returns the value of the i-th parameter that not every engine has, or NULL if it is not set;
 * *name is NULL after the last. */
const struct json *sampling_extra(const struct sampling *s, size_t i, const char **name);

/* Whether tokens are sampled from the softmax of the model's logits as they are. */
bool sampling_changes_nothing(const struct sampling *s);

/* Whether logits are changed in a way that depends on more than themselves: penalties, biases, a
 * grammar; fields of the engine's own may do so. */
bool sampling_bends_logits(const struct sampling *s);

/* The JSON schema that the answer has to follow (an object schema for "json_object"), or NULL. */
const struct json *sampling_schema(const struct sampling *s);

#endif
