/*
 * What SGLang's and vLLM's metrics, in Prometheus' text, tell of their KV cache (struct engine_kv):
 *
 *   sglang:max_total_num_tokens, sglang:num_used_tokens    of each data-parallel rank
 *   vllm:cache_config_info{block_size, num_gpu_blocks or kv_cache_size_tokens}   of each engine
 *   vllm:kv_cache_usage_perc, before 2025 vllm:gpu_cache_usage_perc              0 to 1
 */
#ifndef RG_WIRE_KV_TOLD_H
#define RG_WIRE_KV_TOLD_H

#include "common/base/str.h"

struct engine_kv;

/* Fills capacity and used; 0 where the text does not tell. `used` is at most the capacity. */
void kv_told_read(struct str text, struct engine_kv *ret);

#endif
