/*
 * struct kv_told: reads the state of the KV cache (struct engine_kv) from the metrics of SGLang and
 * vLLM in Prometheus' text format:
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

/* State of reading; it holds at most one line of the text. Zeroed: at the start. */
struct kv_told {
    struct buf line;       /* an incomplete line */
    bool passed_over;      /* the line is longer than any line that counts */
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
