/* miles' /samples layout: one safetensors file, with masks and logprobs over the response, and the
 * rest as UTF-8 JSON in the tensor "_samples_meta". */
#include <stdio.h>

#include "common/codec/json.h"
#include "worker/export/build/drift.h"
#include "worker/export/build/export.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/select.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/sample_parts.h"
#include "worker/export/formats/tensors.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"
#include "worker/session/store/session_view.h"
#include "worker/text/request/odds.h"

/* --- metadata for miles' dashboards and metrics --- */

/* miles builds `lifecycle` from records of calls, and `tito_session_mismatch` from a comparison by
 * segments. Here the times are those of the answers, and the mismatch is the drift of the export.
 */

static void put_turn(const struct trajectory *t, uint32_t i, struct json_out *o)
{
    const struct checkpoint *c = t->turns[i].checkpoint;
    uint64_t engine_ms = c->engine_us / 1000,
             all_ms = (c->queue_us + c->engine_us + c->gateway_us) / 1000;

    json_out_obj(o);
    json_out_member_seconds(o, "t0", c->at_ms - engine_ms);
    json_out_member_seconds(o, "t1", c->at_ms);
    json_out_member_i64(o, "turn", i + (int64_t)1);
    json_out_member_seconds(o, "req_ts", c->at_ms - all_ms);
    if (i > 0)
        json_out_member_seconds(o, "prev_t1", t->turns[i - 1].checkpoint->at_ms);
    json_out_end_obj(o);
}

/* Appends `lifecycle`: start and end of each turn, in seconds. One turn is an object, several are a
 * list. */
static void miles_put_lifecycle(const struct trajectory *t, struct json_out *o)
{
    json_out_key(o, "lifecycle");
    if (t->n_turns == 1) {
        put_turn(t, 0, o);
        return;
    }
    json_out_arr(o);
    for (uint32_t i = 0; i < t->n_turns; i++)
        put_turn(t, i, o);
    json_out_end_arr(o);
}

/* Appends `tito_session_mismatch`: how the tokens differ from a new rendering. Appends nothing if
 * that is unknown. */
static void miles_put_mismatch(const struct drift *d, struct json_out *o)
{
    char detail[80];

    if (!d->audited)
        return;
    json_out_member_arr(o, "tito_session_mismatch");
    if (d->count > 0) {
        (void)snprintf(detail, sizeof(detail), "%u differences, the first at token %u", d->count,
                       d->position);
        json_out_obj(o);
        json_out_member_str(o, "type", str_cstr(drift_kind_name(d->first)));
        json_out_member_i64(o, "segment_index", -1);
        json_out_member_str(o, "expected_text", STR(""));
        json_out_member_str(o, "actual_text", STR(""));
        json_out_member_str(o, "detail", str_cstr(detail));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

/* --- samples --- */

static const char KEY_META[] = "meta", META_HEAD[] = "{\"samples\":[";

struct miles {
    struct sample_ids ids;
    struct drift drift; /* drift of the last sample */
    uint32_t trim;      /* largest trim of a checkpoint */
};

/* Matches keys of a sample's metadata that the caller cannot replace. */
static bool is_ours(struct str key)
{
    return str_eq_c(key, "leaf") || str_eq_c(key, "extra_fields") || str_eq_c(key, "lifecycle") ||
           str_eq_c(key, "accumulated_token_ids") || str_eq_c(key, "tito_session_mismatch");
}

static void put_metadata(struct export *x, const struct trajectory *t, struct json_out *o)
{
    const struct json *given = x->options.metadata;
    const struct checkpoint *head = t->track->head;

    json_out_member_obj(o, "metadata");
    for (uint32_t i = 0; given && i < given->n; i++) {
        struct str key = json_string(&given->members[i].key);

        if (is_ours(key))
            continue;
        json_out_member_of(o, key, &given->members[i].value);
    }
    json_out_member_obj(o, "leaf");
    json_out_member_i64(o, "node_id", head->id);
    json_out_key(o, "parent");
    if (head->parent)
        json_out_i64(o, head->parent->id);
    else
        json_out_null(o);
    json_out_member_arr(o, "path_node_ids");
    for (uint32_t i = 0; i < t->n_turns; i++)
        json_out_i64(o, t->turns[i].checkpoint->id);
    json_out_end_arr(o);
    json_out_member_str(o, "response_id", head->response_id);
    json_out_end_obj(o);
    miles_put_lifecycle(t, o);
    miles_put_mismatch(&t->drift, o);
    json_out_key(o, "extra_fields");
    native_write_extra(x, t, o);
    json_out_end_obj(o);
}

MAY_PAUSE static void collect_sample(struct export *x, const struct trajectory *t)
{
    struct json_out o = json_out_to(tensors_meta(x, KEY_META));

    ((struct miles *)x->own)->drift = t->drift;
    buf_puts(o.b, t->index == 0 ? META_HEAD : ",");
    json_out_obj(&o);
    sample_put_response(x, t, &o);
    json_out_member_i64(&o, "response_length", t->n);
    json_out_member_cstr(&o, "status", sample_status(t));
    sample_put_versions(t, &o);
    sample_put_cache(t, &o);
    put_metadata(x, t, &o);
    sample_put_pictures(x, t, media_inline(x), &o);
    export_put_reward(x, "reward", &o); /* perhaps null: a reader of version 2 needs the key */
    json_out_member_arr(&o, "nulls");
    if (!t->logprobs)
        json_out_cstr(&o, "rollout_log_probs");
    if (!t->experts.p)
        json_out_cstr(&o, "rollout_routed_experts");
    if (!t->indexer.block.p)
        json_out_cstr(&o, "rollout_indexer_topk");
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    tensors_escape_meta(x);
}

/* Widens experts to int32, which miles requires. */
static int32_t *wide_experts(struct export *x, const struct trajectory *t)
{
    size_t n = t->experts.len / t->experts_item;
    int32_t *v = arena_alloc(&x->scratch, n * sizeof(*v));

    for (size_t i = 0; i < n; i++) {
        const char *p = t->experts.p + i * t->experts_item;

        if (t->experts_item == 1)
            v[i] = (uint8_t)*p;
        else if (t->experts_item == 2)
            v[i] = (int16_t)((uint8_t)p[0] | (uint8_t)p[1] << 8);
        else
            memcpy(&v[i], p, sizeof(*v));
    }
    return v;
}

/* miles' sampling mask has a row for every response token. The row of a token that was not sampled
 * is the token itself. */
struct miles_mask {
    int32_t *ids;
    float *logprobs;
    int64_t *offsets;
    size_t n_ids;
};

static struct miles_mask mask_of(struct export *x, const struct trajectory *t)
{
    const struct odds_support *s = t->odds.support;
    size_t most = s->n_ids + t->n, from = 0;
    struct miles_mask m = {.ids = arena_alloc(&x->scratch, most * sizeof(int32_t)),
                           .logprobs = arena_calloc(&x->scratch, most, sizeof(float)),
                           .offsets = arena_calloc(&x->scratch, t->n + (size_t)1, 8)};

    for (uint32_t i = 0; i < t->n; i++) {
        size_t n = (size_t)s->counts[i];

        if (n == 0)
            m.ids[m.n_ids++] = t->ids[t->n_prompt + i];
        memcpy(m.ids + m.n_ids, s->ids + from, n * sizeof(int32_t));
        if (s->logprobs)
            memcpy(m.logprobs + m.n_ids, s->logprobs + from, n * sizeof(float));
        from += n;
        m.n_ids += n;
        m.offsets[i + 1] = (int64_t)m.n_ids;
    }
    return m;
}

static void put_odds(struct export *x, const struct trajectory *t)
{
    const struct trajectory_odds *o = &t->odds;
    struct shape tops = SHAPE2(t->n, o->n_top);
    struct miles_mask m;

    if (o->n_top > 0) {
        tensors_add(x, "rollout_topk_token_ids", t->index, TENSOR_I32, tops,
                    CELLS(RAW, o->top_ids));
        tensors_add(x, "rollout_topk_log_probs", t->index, TENSOR_F32, tops,
                    CELLS(RAW, o->top_logprobs));
    }
    if (!o->support)
        return;
    m = mask_of(x, t);
    tensors_add(x, "rollout_sampling_mask_ids", t->index, TENSOR_I32, SHAPE1(m.n_ids),
                CELLS(RAW, m.ids));
    tensors_add(x, "rollout_sampling_mask_offsets", t->index, TENSOR_I64,
                SHAPE1(t->n + (uint64_t)1), CELLS(RAW, m.offsets));
    if (o->support->logprobs)
        tensors_add(x, "rollout_sampling_mask_log_probs", t->index, TENSOR_F32, SHAPE1(m.n_ids),
                    CELLS(RAW, m.logprobs));
}

/* Writes the teacher's logprobs of the response. */
static void put_teacher(struct export *x, const struct trajectory *t)
{
    const struct score *teacher = t->scores[SCORE_TEACHER];

    if (teacher)
        tensors_add(x, "teacher_log_probs", t->index, TENSOR_F32, SHAPE1(t->n),
                    CELLS(RAW, teacher->logprobs + t->n_prompt));
}

MAY_PAUSE static void miles_write(struct export *x, const struct trajectory *t)
{
    struct shape n = SHAPE1(t->n);

    if (tensors_sizing(x))
        collect_sample(x, t);
    tensors_add(x, "tokens", t->index, TENSOR_I64, SHAPE1(t->total), CELLS(WIDE_I32, t->ids));
    tensors_add(x, "loss_mask", t->index, TENSOR_U8, n, CELLS(RAW, t->mask));
    if (t->logprobs)
        tensors_add(x, "rollout_log_probs", t->index, TENSOR_F64, n, CELLS(WIDE_F32, t->logprobs));
    if (t->experts.p)
        tensors_add(x, "rollout_routed_experts", t->index, TENSOR_I32,
                    SHAPE3(t->experts_rows, t->experts_layers, t->experts_topk),
                    CELLS(RAW, tensors_want(x, TENSOR_I32) ? wide_experts(x, t) : NULL));
    if (t->indexer.block.p)
        tensors_add(x, "rollout_indexer_topk", t->index, TENSOR_I32,
                    SHAPE3(t->indexer.rows, t->indexer.layers, t->indexer.topk),
                    CELLS(RAW, t->indexer.block.p));
    put_odds(x, t);
    put_teacher(x, t);
    if (media_inline(x))
        media_put_spans(x, t);
}

MAY_PAUSE static void put_session_metadata(struct export *x, struct json_out *o)
{
    const struct miles *own = x->own;

    json_out_member_obj(o, "session_metadata");
    json_out_member_arr(o, "accumulated_token_ids");
    sample_put_ids(x, &own->ids, o->b);
    json_out_end_arr(o);
    json_out_member_i64(o, "max_trim_tokens", own->trim);
    if (x->selection->tracks.n > 0)
        miles_put_mismatch(&own->drift, o);
    if (x->selection->unchosen)
        json_out_member_i64(o, "branches_left_out", (int64_t)x->selection->unchosen);
    if (export_has_no_calls(x) || export_lacks_reward(x) || x->unsupported || x->unindexed ||
        x->unrouted || x->recomputed || session_has_losses(x->session))
        native_write_warnings(x, o);
    json_out_end_obj(o);
}

/* Writes the end of the metadata, after the samples. */
MAY_PAUSE static void end_meta(struct export *x)
{
    struct json_out o = json_out_to(tensors_meta(x, KEY_META));

    if (x->selection->tracks.n == 0)
        buf_puts(o.b, META_HEAD);
    buf_add_c(o.b, ']');
    o.comma = true;
    put_session_metadata(x, &o);
    json_out_key(&o, "empty_reason");
    if (x->selection->tracks.n)
        json_out_null(&o);
    else
        json_out_cstr(&o, x->selection->dropped.n > x->selection->textual ? "all_truncated"
                                                                          : "no_records");
    json_out_end_obj(&o);
}

/* Checks the rows like miles, which does not accept a sample with a gap in the replay. */
static int check_rows(const struct trajectory *t, enum rows_kind kind, const char *what,
                      struct err *e)
{
    const struct checkpoint *with = NULL, *without = NULL;

    for (uint32_t i = 0; i < t->n_turns; i++) {
        const struct checkpoint *checkpoint = t->turns[i].checkpoint;
        const struct checkpoint_rows *r = checkpoint_rows(checkpoint, kind);

        if (r->has && r->n && r->layers && r->topk)
            with = checkpoint;
        else if (!(r->has && r->n) && !without)
            without = checkpoint;
    }
    if (!with)
        return 0;
    without = without ? without : with;
    return err_set(e, ERR_UNASSEMBLABLE,
                   "the sample cannot be assembled: %s not cover it (turn %u of %u, %.*s)", what,
                   without->depth, t->track->head->depth, (int)without->response_id.len,
                   without->response_id.p);
}

static int miles_check(const struct export *x, const struct trajectory *t, struct err *e)
{
    if (!x->options.strict || !t->own)
        return 0;
    if (!t->experts.p && check_rows(t, ROWS_EXPERTS, "routed experts do", e) != 0)
        return -1;
    return t->has_indexer ? 0 : check_rows(t, ROWS_INDEXER, "indexer top-k does", e);
}

MAY_PAUSE static void miles_end(struct export *x, struct buf *out)
{
    if (tensors_sizing(x))
        end_meta(x);
    media_put_files(x);
    tensors_add_meta(x, "_samples_meta");
    tensors_end(x, out);
}

static void miles_begin(struct export *x, struct buf *out)
{
    struct session_view v = session_view(x->session);
    struct miles *own;

    tensors_begin(x, out);
    tensors_forget_meta(x);
    own = ARENA_NEW(&x->arena, struct miles);
    x->own = own;
    sample_ids_begin(x->session, &own->ids);
    for (size_t i = 0; i < v.n_checkpoints; i++)
        own->trim = MAX_OF(own->trim, v.checkpoints[i]->trim);
}

const struct format format_miles = {.needs_reward = true,
                                    .indexer = true,
                                    .passes = TENSOR_PASSES,
                                    .begin = miles_begin,
                                    .check = miles_check,
                                    .write = miles_write,
                                    .end = miles_end,
                                    .drop = tensors_drop};
