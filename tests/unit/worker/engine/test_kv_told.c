/* Reads the state of a KV cache from metrics in Prometheus' format. */
#include "common/base/buf.h"
#include "testing.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/wire/kv_told.h"

struct kv_case {
    const char *text;
    uint64_t capacity, used;
};

static const struct kv_case kv_cases[] = {
    {"", 0, 0},
    {"# HELP sglang:max_total_num_tokens x\nother 3\n", 0, 0},
    {"sglang:max_total_num_tokens 5000\nsglang:num_used_tokens 1200\n", 5000, 1200},
    {"sglang:num_used_tokens{tp_rank=\"0\"} 7.0\r\nsglang:max_total_num_tokens{tp_rank=\"0\"} 8e3",
     8000, 7},
    {"sglang:max_total_num_tokens{dp_rank=\"0\",tp_rank=\"0\"} 100\n"
     "sglang:max_total_num_tokens{dp_rank=\"0\",tp_rank=\"1\"} 100\n"
     "sglang:max_total_num_tokens{dp_rank=\"1\",tp_rank=\"0\",pp_rank=\"1\"} 100\n"
     "sglang:max_total_num_tokens{dp_rank=\"1\",tp_rank=\"0\",pp_rank=\"0\"} 100\n",
     200, 0},
    {"sglang:max_total_num_tokens{model_name=\"a b,c\"} 100 1690000000\n", 100, 0},
    {"sglang:max_total_num_tokens NaN\nsglang:num_used_tokens -1\n", 0, 0},
    {"sglang:max_total_num_tokens 10\nsglang:num_used_tokens 30\n", 10, 10},
    {"sglang:max_total_num_tokens{x=\"y\" 10\n", 0, 0},
    {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"573\",num_gpu_blocks_override="
     "\"None\"} "
     "1.0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n",
     9168, 4584},
    {"vllm:cache_config_info{block_size=\"16\",kv_cache_size_tokens=\"1000\",num_gpu_blocks=\"9\"} "
     "1\n"
     "vllm:gpu_cache_usage_perc 0.25\n",
     1000, 250},
    {"vllm:cache_config_info{engine=\"0\",block_size=\"16\",num_gpu_blocks=\"10\"} 1\n"
     "vllm:cache_config_info{engine=\"1\",block_size=\"16\",num_gpu_blocks=\"10\"} 1\n"
     "vllm:kv_cache_usage_perc{engine=\"0\"} 1\nvllm:kv_cache_usage_perc{engine=\"1\"} 0\n"
     "vllm:gpu_cache_usage_perc 1\n",
     320, 160},
    {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n", 0, 0},
    {"vllm:cache_config_info{block_size=\"16} 1\n", 0, 0},
};

TEST(kv_told, capacity_and_use_of_each_kind)
{
    for (size_t i = 0; i < sizeof(kv_cases) / sizeof(kv_cases[0]); i++) {
        const struct kv_case *c = &kv_cases[i];
        struct kv_told t = {0};
        struct engine_kv kv = {.unit = 3};

        kv_told_feed(&t, str_cstr(c->text));
        kv_told_end(&t, &kv);
        kv_told_done(&t);
        cr_expect_eq(kv.capacity, c->capacity, "%s: %llu", c->text,
                     (unsigned long long)kv.capacity);
        cr_expect_eq(kv.used, c->used, "%s: %llu", c->text, (unsigned long long)kv.used);
        cr_expect_eq(kv.unit, 3, "it is not told there");
    }
}

TEST(kv_told, in_pieces_and_behind_long_lines)
{
    static const char lead[] = "vllm:kv_cache_usage_perc{x=\"";
    struct buf text = {0};

    for (size_t i = 0; i < sizeof(kv_cases) / sizeof(kv_cases[0]); i++) {
        const struct kv_case *c = &kv_cases[i];
        struct str all = str_cstr(c->text);

        for (size_t step = 1; step < all.len; step += 3) {
            struct kv_told t = {0};
            struct engine_kv kv = {0};

            for (size_t at = 0; at < all.len; at += step)
                kv_told_feed(&t, str_sub(all, at, step));
            kv_told_end(&t, &kv);
            kv_told_done(&t);
            cr_expect_eq(kv.capacity, c->capacity, "%s by %zu", c->text, step);
            cr_expect_eq(kv.used, c->used, "%s by %zu", c->text, step);
        }
    }
    buf_puts(&text, lead);
    for (size_t i = 0; i < 100000; i++)
        buf_add_c(&text, 'x');
    buf_puts(&text, "\"} 1\nsglang:max_total_num_tokens 10\n");
    for (size_t step = 1000; step <= text.len; step *= 10) {
        struct kv_told t = {0};
        struct engine_kv kv = {0};

        for (size_t at = 0; at < text.len; at += step) {
            kv_told_feed(&t, str_sub(buf_str(&text), at, step));
            cr_expect_leq(t.line.cap, 128 << 10, "a line is held at most: %zu", t.line.cap);
        }
        kv_told_end(&t, &kv);
        kv_told_done(&t);
        cr_expect_eq(kv.capacity, 10);
        cr_expect_eq(t.n_usage, 0, "it is too long");
    }
    buf_done(&text);
}
