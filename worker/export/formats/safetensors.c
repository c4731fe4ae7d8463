/* The native export as one safetensors file: arrays as tensors, everything else as JSON text in
 * the header's metadata ("trajectories": one object each, "summary"). */
#include "common/codec/json.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_view.h"

static const char KEY_ROWS[] = "trajectories";

void tensors_note_rest(struct export *x, const struct trajectory *t)
{
    struct json_out o = json_out_to(tensors_meta(x, KEY_ROWS));

    o.comma = t->index > 0;
    if (t->index == 0)
        buf_add_c(o.b, '[');
    json_out_obj(&o);
    json_out_member_str(&o, "session_id", session_view(x->session).id);
    json_out_member_i64(&o, "trajectory_index", (int64_t)t->index);
    if (x->options.uid.p)
        json_out_member_str(&o, "uid", x->options.uid);
    if (t->version_texts) {
        json_out_member_arr(&o, "response_versions");
        for (uint32_t i = 0; i < t->n; i++)
            json_out_str(&o, t->version_texts[i].p ? t->version_texts[i] : STR("-1"));
        json_out_end_arr(&o);
    }
    native_write_rest(x, t, &o);
    json_out_end_obj(&o);
    tensors_escape_meta(x);
}

static void put_experts(struct export *x, const struct trajectory *t)
{
    struct shape s = SHAPE3(t->experts_rows, t->experts_layers, t->experts_topk);
    enum tensor_type type = TENSOR_I32;

    if (t->experts_item == 1)
        type = TENSOR_U8;
    else if (t->experts_item == 2)
        type = TENSOR_I16;
    if (t->experts.p)
        tensors_add(x, "routed_experts", t->index, type, s, CELLS(RAW, t->experts.p));
}

/* Adds the arrays of a trajectory that were asked for, under their own names. */
static void tensors_put_arrays(struct export *x, const struct trajectory *t)
{
    for (unsigned i = 0; i < t->n_arrays; i++) {
        const struct trajectory_array *v = &t->arrays[i];
        struct shape s = {{v->shape[0], v->shape[1], v->shape[2]}, v->dims};

        tensors_add(x, v->name, t->index, v->floats ? TENSOR_F32 : TENSOR_I32, s,
                    CELLS(RAW, v->cells));
    }
}

MAY_PAUSE static void safetensors_write(struct export *x, const struct trajectory *t)
{
    struct shape n = SHAPE1(t->n);

    if (tensors_sizing(x))
        tensors_note_rest(x, t);
    tensors_add(x, "prompt_ids", t->index, TENSOR_I64, SHAPE1(t->n_prompt),
                CELLS(WIDE_I32, t->ids));
    tensors_add(x, "response_ids", t->index, TENSOR_I64, n, CELLS(WIDE_I32, t->ids + t->n_prompt));
    tensors_add(x, "response_mask", t->index, TENSOR_U8, n, CELLS(RAW, t->mask));
    if (t->logprobs)
        tensors_add(x, "response_logprobs", t->index, TENSOR_F32, n, CELLS(RAW, t->logprobs));
    if (t->versions)
        tensors_add(x, "response_versions", t->index, TENSOR_I64, n, CELLS(RAW, t->versions));
    put_experts(x, t);
    tensors_put_arrays(x, t);
    media_put_spans(x, t);
}

void tensors_note_end(struct export *x)
{
    struct json_out o = json_out_to(tensors_meta(x, "summary"));

    buf_puts(tensors_meta(x, KEY_ROWS), export_branches(x) ? "]" : "[]");
    native_write_summary(x, &o);
    buf_add_str(tensors_meta(x, "session_id"), session_view(x->session).id);
    buf_puts(tensors_meta(x, "phase"), session_phase_name(x->session));
}

MAY_PAUSE static void safetensors_end(struct export *x, struct buf *out)
{
    if (tensors_sizing(x))
        tensors_note_end(x);
    media_put_files(x);
    tensors_end(x, out);
}

const struct format format_safetensors = {.indexer = true,
                                          .passes = TENSOR_PASSES,
                                          .begin = tensors_begin,
                                          .write = safetensors_write,
                                          .end = safetensors_end,
                                          .drop = tensors_drop};
