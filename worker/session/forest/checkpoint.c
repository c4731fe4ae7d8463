/*
 * Stores the tokens of a session. Those of a checkpoint are not one array: its context may begin
 * with a shared run (context_run, base), so that ids that a hundred calls share are in memory once.
 * Chains of bases have at most RUN_DEPTH_MAX runs.
 */
#include "worker/session/forest/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/record.h"
#include "worker/session/store/payload.h"
#include "worker/text/model/model.h"
#include "worker/text/request/odds.h"
#include "worker/text/tokens/span.h"

enum { RUN_DEPTH_MAX = 16 };

struct checkpoint *checkpoint_shown(struct checkpoint *t)
{
    for (; t->instead; t = t->instead)
        if (t->instead->instead)
            t->instead = t->instead->instead;
    return t;
}

/* Reads the order of worker/plane/call/told.c. */
struct str checkpoint_stop(const struct checkpoint *t)
{
    struct record_in r = record_in_of(t->told);
    struct str stop;

    for (int i = 0; i < 3; i++)
        (void)record_u(&r);
    stop = record_str(&r);
    return t->n > 0 && t->told.p && !r.bad ? stop : (struct str){0};
}

static struct str trim_start(struct str s)
{
    return str_sub(s, s.len > 0 ? (size_t)(str_trim(s).p - s.p) : 0, s.len);
}

bool message_begins_with(const struct message *m, const struct checkpoint *t, struct str *ret_added)
{
    const struct message *answer = &t->node->msg;
    struct str own = trim_start(answer->content), stop = checkpoint_stop(t);
    struct str text = trim_start(m->content);

    if (answer->calls || stop.len == 0 || !str_starts(text, own))
        return false;
    text = str_sub(text, own.len, text.len);
    *ret_added = str_sub(text, stop.len, text.len);
    return str_starts(text, stop) && ret_added->len > 0;
}

bool checkpoint_trim_added(const struct model *m, const struct checkpoint *t,
                           struct token_span last, struct arena *a, struct str *added)
{
    struct str after;

    if (model_renders_all(m) || !model_ends_at(m, last, checkpoint_stop(t), a, &after) ||
        !str_starts(*added, after))
        return false;
    *added = str_sub(*added, after.len, added->len);
    return true;
}

/* --- runs --- */

uint32_t context_run_length(const struct context_run *r)
{
    return r->base_n + r->n;
}

/* Copies the first n ids of the run and its bases. */
static void copy_run(const struct context_run *r, uint32_t n, int32_t *out)
{
    while (r && n > 0) {
        if (n > r->base_n)
            memcpy(out + r->base_n, payload_bytes(r->payload), (n - r->base_n) * sizeof(*out));
        n = MIN_OF(n, r->base_n);
        r = r->base;
    }
}

/* Returns how many leading ids are equal: compares by blocks, then id by id. */
static uint32_t common(const int32_t *a, const int32_t *b, uint32_t n)
{
    uint32_t i = 0;

    while (i + 64 <= n && memcmp(a + i, b + i, 64 * sizeof(*a)) == 0)
        i += 64;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Like context_run_common, for the run's first `limit` ids. */
static uint32_t common_within(const struct context_run *r, uint32_t limit, struct token_span ids)
{
    uint32_t got = 0, want = MIN_OF(limit, r->base_n);

    if (r->base)
        got = common_within(r->base, want, ids);
    if (got < want || limit <= r->base_n || ids.n <= got)
        return got;
    return got + common((const int32_t *)(const void *)payload_bytes(r->payload), ids.at + got,
                        (uint32_t)MIN_OF(MIN_OF(limit - got, r->n), ids.n - got));
}

uint32_t context_run_common(const struct context_run *r, struct token_span ids)
{
    return common_within(r, context_run_length(r), ids);
}

/* Skips bases that contribute no ids of their own, so that chains of bases stay short. */
static const struct context_run *own_base(const struct context_run *base, uint32_t n)
{
    while (base && n <= base->base_n)
        base = base->base;
    return base;
}

bool context_run_extends(const struct context_run *base, uint32_t n)
{
    base = own_base(base, n);
    return !base || base->depth < RUN_DEPTH_MAX;
}

void forest_run(struct forest *f, struct context_run *r, const struct context_run *base,
                uint32_t base_n, uint32_t n)
{
    base = own_base(base, base_n);
    CHECK(!base || base->depth < RUN_DEPTH_MAX);
    *r = (struct context_run){
        .base = base, .base_n = base_n, .n = n, .depth = base ? base->depth + 1 : 0};
    f->tokens += n;
}

/* --- checkpoints --- */

const int32_t *checkpoint_ids(const struct checkpoint *t)
{
    return (const int32_t *)(const void *)(payload_bytes(t->payload) + t->at);
}

const float *checkpoint_logprobs(const struct checkpoint *t)
{
    return t->has_logprobs ? (const float *)(const void *)(payload_bytes(t->payload) + t->at) + t->n
                           : NULL;
}

/* Returns the address of the part of the answer that follows the sampled ids, the logprobs and so
 * many bytes. */
static const char *part(const struct checkpoint *t, size_t behind)
{
    return payload_bytes(t->payload) + t->at + (size_t)t->n * (t->has_logprobs ? 8 : 4) + behind;
}

size_t checkpoint_rows_here(const struct checkpoint *t, enum rows_kind kind)
{
    const struct checkpoint_rows *r = checkpoint_rows(t, kind);

    return r->apart ? 0 : payload_padded(r->len);
}

void checkpoint_block_copy(const struct checkpoint *t, enum rows_kind kind, size_t n, char *out)
{
    const struct checkpoint_rows *r = checkpoint_rows(t, kind);
    size_t behind = kind == ROWS_EXPERTS
                        ? 0
                        : checkpoint_rows_here(t, ROWS_EXPERTS) + payload_padded(t->odds_len);

    CHECK(n <= r->len);
    if (n > 0)
        memcpy(out, r->apart ? payload_bytes(r->apart) : part(t, behind), n);
}

const char *checkpoint_lacks_experts(const struct checkpoint *t)
{
    const struct checkpoint_rows *r = checkpoint_rows(t, ROWS_EXPERTS);

    if (r->lost)
        return "routed experts stayed on the node that had the session before (--fleet-rows off)";
    if (!r->has)
        return r->from > 0 ? "routed experts were asked for, and the engine told none" : NULL;
    if (r->n > 0 && (r->layers == 0 || r->topk == 0))
        return "routed experts cannot be exported: the model's config.json does not say how many "
               "layers there are and how many experts a token takes";
    return NULL;
}

const char *checkpoint_lost_indexer(const struct checkpoint *t)
{
    return checkpoint_rows(t, ROWS_INDEXER)->lost
               ? "indexer top-k stayed on the node that had the session before (--fleet-rows off)"
               : NULL;
}

void checkpoint_write_warnings(const struct checkpoint *t, struct json_out *o)
{
    const char *experts = checkpoint_lacks_experts(t), *indexer = checkpoint_lost_indexer(t);

    if (!experts && !indexer)
        return;
    json_out_member_arr(o, "warnings");
    if (experts)
        json_out_cstr(o, experts);
    if (indexer)
        json_out_cstr(o, indexer);
    json_out_end_arr(o);
}

void checkpoint_put_latency(const struct checkpoint *t, struct json_out *o)
{
    json_out_member_obj(o, "latency_ms");
    json_out_member_double(o, "queue", (double)t->queue_us / 1000);
    json_out_member_double(o, "engine", (double)t->engine_us / 1000);
    json_out_member_double(o, "gateway", (double)t->gateway_us / 1000);
    json_out_end_obj(o);
}

bool checkpoint_odds(const struct checkpoint *t, struct odds *ret)
{
    size_t behind = checkpoint_rows_here(t, ROWS_EXPERTS);

    return t->odds_len > 0 && odds_read(str_of(part(t, behind), t->odds_len), t->n, ret) == 0;
}

/* never 0, which means none */
uint64_t ids_hash(uint64_t h, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint32_t)ids[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h ? h : 1;
}

/* The ids are the contexts and answers from the root down to t. */
void checkpoint_copy(const struct checkpoint *t, int32_t *out)
{
    uint32_t limit = t->total;

    while (t) {
        uint32_t start = checkpoint_start(t);
        uint32_t before = start - t->n_context;

        if (limit > start)
            memcpy(out + start, checkpoint_ids(t), (limit - start) * sizeof(*out));
        if (limit > before)
            copy_run(&t->context, MIN_OF(limit, start) - before, out + before);
        limit = MIN_OF(limit, before);
        t = t->parent;
    }
}

/* Puts the first n ids of the run and its bases before `end`. Returns the first part. */
static struct token_span *put_run(const struct context_run *r, uint32_t n, struct token_span *end)
{
    for (; r && n > 0; r = r->base) {
        if (n > r->base_n)
            *--end = (struct token_span){(const int32_t *)(const void *)payload_bytes(r->payload),
                                         n - r->base_n};
        n = MIN_OF(n, r->base_n);
    }
    return end;
}

/* Each checkpoint points to its parent, which in an idle session costs a cache miss each time.
 * Because most checkpoints were made one after the other, the parents are prefetched. */
enum { FETCHED_AHEAD = 16 };

/* Goes through the path like checkpoint_copy. */
struct token_span *checkpoint_parts(const struct forest *f, const struct checkpoint *t,
                                    struct arena *a, size_t *ret_n)
{
    uint32_t limit = t->total;
    size_t most = 0;
    struct token_span *all, *first;

    for (const struct checkpoint *u = t; u; u = u->parent) {
        struct checkpoint **at = &f->checkpoints.at[u->id];

        if (u->id >= FETCHED_AHEAD) {
            __builtin_prefetch(at[-FETCHED_AHEAD]);
            __builtin_prefetch(at[-FETCHED_AHEAD / 2]->payload);
        }
        most += 2 + u->context.depth;
    }
    all = arena_alloc(a, (most + 1) * sizeof(*all));
    first = all + most;
    for (; t; t = t->parent) {
        uint32_t start = checkpoint_start(t), before = start - t->n_context;

        if (limit > start)
            *--first = (struct token_span){checkpoint_ids(t), limit - start};
        if (limit > before)
            first = put_run(&t->context, MIN_OF(limit, start) - before, first);
        limit = MIN_OF(limit, before);
    }
    *ret_n = (size_t)(all + most - first);
    return first;
}

/* Copies the run's ids in [from, to) to their positions in `out`, which begins with position
 * `from`. */
static void run_copy_part(const struct context_run *r, uint32_t from, uint32_t to, int32_t *out)
{
    for (; r && from < to; r = r->base) {
        uint32_t own = MAX_OF(from, r->base_n);

        if (to > own) {
            const int32_t *ids = (const int32_t *)(const void *)payload_bytes(r->payload);

            memcpy(out + (own - from), ids + (own - r->base_n), (to - own) * sizeof(*out));
        }
        to = MIN_OF(to, r->base_n);
    }
}

void checkpoint_copy_part(const struct checkpoint *t, uint32_t from, uint32_t n, int32_t *out)
{
    uint32_t to = from + n;

    for (; t && from < to; t = t->parent) {
        uint32_t start = checkpoint_start(t), before = start - t->n_context;
        uint32_t answer = MAX_OF(from, start), context = MAX_OF(from, before);

        if (to > answer)
            memcpy(out + (answer - from), checkpoint_ids(t) + (answer - start),
                   (to - answer) * sizeof(*out));
        if (MIN_OF(to, start) > context)
            run_copy_part(&t->context, context - before, MIN_OF(to, start) - before,
                          out + (context - from));
        to = MIN_OF(to, before);
    }
}

bool checkpoint_begins(const struct checkpoint *t, const int32_t *ids, size_t n)
{
    int32_t *stored;
    bool same;

    if (t->text || t->total > n)
        return false;
    stored = mem_calloc(t->total + (size_t)1, sizeof(*stored));
    checkpoint_copy(t, stored);
    same = memcmp(stored, ids, t->total * sizeof(*stored)) == 0;
    free(stored);
    return same;
}

struct str checkpoint_pool(const struct checkpoint *t)
{
    return t->node ? t->node->env->pool : (struct str){0};
}

struct checkpoint **checkpoint_path(struct checkpoint *t, struct arena *a)
{
    struct checkpoint **path = arena_calloc(a, t->depth, sizeof(struct checkpoint *));

    for (; t; t = t->parent)
        path[t->depth - 1] = t;
    return path;
}
