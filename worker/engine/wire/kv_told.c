/* A line is NAME{label="value",...} NUMBER, with or without labels; other lines are skipped. Ranks
 * of one copy of the model (tensor and pipeline parallel) each report the same tokens, so only the
 * first of them counts. Copies (data parallel, vLLM's engines) are summed. */
#include "worker/engine/wire/kv_told.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "worker/engine/pool/adapter.h"

enum { NUMBER_MAX = 64, LINE_MAX_BYTES = 64 << 10 };

static const double tokens_max = 1e15;

/* A parsed line. */
struct told_line {
    struct str name, labels; /* labels: without the braces */
    double value;
};

/* Reads a number that can be a number of tokens; -1: it cannot. */
static double token_number(struct str s)
{
    char text[NUMBER_MAX], *end;
    double v;

    if (s.len == 0 || s.len >= sizeof(text))
        return -1;
    memcpy(text, s.p, s.len);
    text[s.len] = '\0';
    v = strtod(text, &end);
    return *end || !isfinite(v) || v < 0 || v > tokens_max ? -1 : v;
}

/* Returns the value of a label; absent: there is none of that name. */
static struct str label_value(struct str labels, const char *name)
{
    size_t at = 0;

    while (at < labels.len) {
        size_t eq = str_find(labels, STR("=\""), at);
        size_t end = str_find(labels, STR("\""), MIN_OF(eq, labels.len) + 2);

        if (eq >= labels.len || end >= labels.len)
            break;
        if (str_eq_c(str_trim(str_sub(labels, at, eq - at)), name))
            return str_sub(labels, eq + 2, end - eq - 2);
        at = end + 1;
        at += at < labels.len && labels.p[at] == ',';
    }
    return (struct str){0};
}

static bool first_rank(struct str labels, const char *name)
{
    struct str rank = label_value(labels, name);

    return !rank.p || str_eq_c(rank, "0");
}

static bool split_line(struct str line, struct told_line *ret)
{
    size_t brace = str_find(line, STR("{"), 0), close = str_find(line, STR("} "), 0);
    size_t blank = str_find(line, STR(" "), 0);
    struct str rest;

    *ret = (struct told_line){0};
    if (brace < blank) {
        if (close >= line.len || close < brace)
            return false;
        ret->labels = str_sub(line, brace + 1, close - brace - 1);
        blank = close + 1;
    }
    if (blank >= line.len)
        return false;
    ret->name = str_sub(line, 0, MIN_OF(brace, blank));
    rest = str_trim(str_sub(line, blank, line.len - blank));
    ret->value = token_number(str_sub(rest, 0, MIN_OF(str_find(rest, STR(" "), 0), rest.len)));
    return ret->value >= 0 && first_rank(ret->labels, "tp_rank") &&
           first_rank(ret->labels, "pp_rank");
}

static double capacity_of(struct str labels)
{
    double tokens = token_number(label_value(labels, "kv_cache_size_tokens"));
    double blocks = token_number(label_value(labels, "num_gpu_blocks"));
    double each = token_number(label_value(labels, "block_size"));

    if (tokens > 0)
        return tokens;
    return blocks > 0 && each > 0 ? blocks * each : 0;
}

static void apply_line(const struct told_line *s, struct kv_told *t)
{
    if (str_eq_c(s->name, "sglang:max_total_num_tokens")) {
        t->capacity += s->value;
    } else if (str_eq_c(s->name, "sglang:num_used_tokens")) {
        t->used += s->value;
    } else if (str_eq_c(s->name, "vllm:cache_config_info")) {
        t->blocks += capacity_of(s->labels);
    } else if (str_eq_c(s->name, "vllm:kv_cache_usage_perc")) {
        t->usage += s->value;
        t->n_usage++;
    } else if (str_eq_c(s->name, "vllm:gpu_cache_usage_perc")) {
        t->old_usage += s->value;
        t->n_old_usage++;
    }
}

static double vllm_used(const struct kv_told *t)
{
    if (t->n_usage > 0)
        return t->blocks * t->usage / t->n_usage;
    return t->n_old_usage > 0 ? t->blocks * t->old_usage / t->n_old_usage : 0;
}

/* Reports whether a line may count. Most lines have other names: buckets of histograms. */
static bool may_count(struct str line)
{
    return str_starts(line, STR("sglang:max_total")) || str_starts(line, STR("sglang:num_used")) ||
           str_starts(line, STR("vllm:cache_config")) ||
           str_starts(line, STR("vllm:kv_cache_usage")) ||
           str_starts(line, STR("vllm:gpu_cache_usage"));
}

static void read_line_of(struct kv_told *t, struct str line)
{
    struct told_line s;

    line = str_trim(line);
    if (!t->passed_over && line.len <= LINE_MAX_BYTES && may_count(line) && split_line(line, &s))
        apply_line(&s, t);
    t->passed_over = false;
    buf_clear(&t->line);
}

/* Keeps the beginning of a line, or its continuation. */
static void keep_line_start(struct kv_told *t, struct str bytes)
{
    t->passed_over = t->passed_over || t->line.len + bytes.len > LINE_MAX_BYTES;
    if (t->passed_over)
        buf_clear(&t->line);
    else
        buf_add_str(&t->line, bytes);
}

void kv_told_feed(struct kv_told *t, struct str bytes)
{
    for (size_t at = 0; at < bytes.len;) {
        size_t end = str_find(bytes, STR("\n"), at);
        struct str part = str_sub(bytes, at, MIN_OF(end, bytes.len) - at);

        if (end >= bytes.len) {
            keep_line_start(t, part);
            return;
        }
        if (t->line.len > 0 || t->passed_over) {
            keep_line_start(t, part);
            part = buf_str(&t->line);
        }
        read_line_of(t, part);
        at = end + 1;
    }
}

void kv_told_end(struct kv_told *t, struct engine_kv *ret)
{
    double capacity, used;

    read_line_of(t, buf_str(&t->line));
    capacity = MIN_OF(t->capacity > 0 ? t->capacity : t->blocks, tokens_max);
    used = t->capacity > 0 ? t->used : vllm_used(t);
    ret->capacity = (uint64_t)capacity;
    ret->used = (uint64_t)MIN_OF(used, capacity);
}

void kv_told_done(struct kv_told *t)
{
    buf_done(&t->line);
}
