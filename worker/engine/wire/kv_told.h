/*
 * What SGLang's and vLLM's metrics, in Prometheus' text, tell of their KV cache (struct engine_kv):
 *
 *   sglang:max_total_num_tokens, sglang:num_used_tokens    of each data-parallel rank
 *   vllm:cache_config_info{block_size, num_gpu_blocks or kv_cache_size_tokens}   of each engine
 *   vllm:kv_cache_usage_perc, before 2025 vllm:gpu_cache_usage_perc              0 to 1
 */
#ifndef RG_WIRE_KV_TOLD_H
#define RG_WIRE_KV_TOLD_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/str.h"

struct engine_kv;

/* The text as it comes, of which a line is held at most. Zeroed: nothing has come. */
struct kv_told {
    struct buf line;       /* an unfinished one */
    bool passed_over;      /* it is longer than any that counts */
    double capacity, used; /* figures of SGLang */
    double blocks;         /* vLLM's capacity */
    double usage, old_usage;
    unsigned n_usage, n_old_usage;
};

/* Reads the next bytes. */
void kv_told_feed(struct kv_told *t, struct str bytes);

/* Ends the text: fills capacity and used; 0 if the text lacks them. `used` is at most the capacity.
 */
void kv_told_end(struct kv_told *t, struct engine_kv *ret);

void kv_told_done(struct kv_told *t);

#endif
