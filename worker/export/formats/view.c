/*
 * The viewer's data of a branch: a file of tensors with ids, mask, logprobs and alternatives. In
 * addition to the native JSON the metadata has three members. `vocabulary`: for every id in the
 * file its text, or its bytes as base64 if they are not whole characters, and whether it is
 * special. `drift`: the first differences from the template's rendering with its ids. `tools`: the
 * tools offered from a turn on, each list once.
 */

#include "common/base/utf8.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "worker/export/build/drift.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/export/formats/view_turns.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/text/model/model.h"
#include "worker/text/tokens/tokenizer.h"

struct vocabulary {
    uint8_t *seen; /* by id: the id occurs in the file */
    size_t n;
    bool opened, comma;
    float *
        *reported; /* by trajectory: a trainer's logprobs at the time of the first pass, or NULL */
};

static void put_base64(struct json_out *o, struct str bytes)
{
    struct buf text = {0};

    base64_append(&text, bytes.p, bytes.len);
    json_out_member_str(o, "b", buf_str(&text));
    buf_done(&text);
}

static void put_id(const struct model *m, int32_t id, struct json_out *o)
{
    struct str bytes = tokenizer_text(model_tokenizer(m), id);
    struct buf name = {0};

    buf_printf(&name, "%d", (int)id);
    json_out_key_str(o, buf_str(&name));
    json_out_obj(o);
    if (bytes.p && utf8_valid(bytes)) {
        json_out_member_str(o, "t", bytes);
    } else if (bytes.p) {
        put_base64(o, bytes);
    }
    if (model_is_special(m, id))
        json_out_member_i64(o, "s", 1);
    json_out_end_obj(o);
    buf_done(&name);
}

static void open_vocabulary(struct export *x)
{
    struct vocabulary *v = x->own;

    if (!v->opened)
        buf_add_c(tensors_meta(x, "vocabulary"), '{');
    v->opened = true;
}

static void note_ids(const struct model *m, struct vocabulary *v, const int32_t *ids, size_t n,
                     struct json_out *o)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= v->n || v->seen[ids[i]])
            continue;
        v->seen[ids[i]] = 1;
        put_id(m, ids[i], o);
    }
}

/* Returns how many ids of the rendering a difference contains. */
static size_t count_kept_ids(const struct drift_place *p)
{
    return MIN_OF(p->n_wanted, (size_t)DRIFT_WANTED_MAX);
}

/* Records the ids of a trajectory. For a session of a different tokenizer nothing is known, so the
 * object stays empty. */
static void note_vocabulary(struct export *x, const struct trajectory *t)
{
    const struct model *m = x->input.model;
    struct vocabulary *v = x->own;
    struct json_out o = json_out_to(tensors_meta(x, "vocabulary"));

    open_vocabulary(x);
    o.comma = v->comma;
    if (m) {
        note_ids(m, v, t->ids, t->total, &o);
        note_ids(m, v, t->odds.top_ids, (size_t)t->n * t->odds.n_top, &o);
        for (size_t i = 0; t->drift.places && i < t->drift.places->n; i++)
            note_ids(m, v, t->drift.places->at[i].wanted, count_kept_ids(&t->drift.places->at[i]),
                     &o);
    }
    v->comma = o.comma;
}

static void put_drift_place(const struct drift_place *p, struct json_out *o)
{
    json_out_obj(o);
    json_out_member_str(o, "kind", str_cstr(drift_kind_name(p->kind)));
    json_out_member_i64(o, "position", p->position);
    json_out_member_i64(o, "n", p->n);
    json_out_member_arr(o, "want");
    for (size_t i = 0; i < count_kept_ids(p); i++)
        json_out_i64(o, p->wanted[i]);
    json_out_end_arr(o);
    json_out_member_bool(o, "cut", count_kept_ids(p) < p->n_wanted);
    json_out_end_obj(o);
}

static void put_drift_places(struct export *x, const struct trajectory *t)
{
    struct json_out o = json_out_to(tensors_meta(x, "drift"));

    json_out_arr(&o);
    for (size_t i = 0; t->drift.places && i < t->drift.places->n; i++)
        put_drift_place(&t->drift.places->at[i], &o);
    json_out_end_arr(&o);
}

static void view_begin(struct export *x, struct buf *out)
{
    struct vocabulary *v = ARENA_NEW(&x->arena, struct vocabulary);
    const struct tokenizer *t = x->input.model ? model_tokenizer(x->input.model) : NULL;

    tensors_begin(x, out);
    if (t)
        v->n = tokenizer_vocab_size(t);
    v->seen = arena_zalloc(&x->arena, v->n + 1);
    v->reported = arena_calloc(&x->arena, export_branches(x) + 1, sizeof(*v->reported));
    x->own = v;
}

MAY_PAUSE static void view_write(struct export *x, const struct trajectory *t)
{
    struct vocabulary *v = x->own;
    struct shape n = SHAPE1(t->n);

    if (tensors_sizing(x)) {
        tensors_note_rest(x, t);
        note_vocabulary(x, t);
        if (t->index == 0) {
            put_drift_places(x, t);
            view_write_tools(x, t);
            view_write_versions(x, t);
        }
        v->reported[t->index] = view_collect_logprobs(x, t);
    }
    tensors_add(x, "ids", t->index, TENSOR_I32, SHAPE1(t->total), CELLS(RAW, t->ids));
    tensors_add(x, "response_mask", t->index, TENSOR_U8, n, CELLS(RAW, t->mask));
    if (t->logprobs)
        tensors_add(x, "response_logprobs", t->index, TENSOR_F32, n, CELLS(RAW, t->logprobs));
    if (v->reported[t->index])
        tensors_add(x, "response_trainer_logprobs", t->index, TENSOR_F32, n,
                    CELLS(RAW, v->reported[t->index]));
    if (t->odds.n_top) {
        struct shape tops = SHAPE2(t->n, t->odds.n_top);

        tensors_add(x, "response_top_ids", t->index, TENSOR_I32, tops, CELLS(RAW, t->odds.top_ids));
        tensors_add(x, "response_top_logprobs", t->index, TENSOR_F32, tops,
                    CELLS(RAW, t->odds.top_logprobs));
    }
}

MAY_PAUSE static void view_end(struct export *x, struct buf *out)
{
    if (tensors_sizing(x)) {
        open_vocabulary(x);
        buf_add_c(tensors_meta(x, "vocabulary"), '}');
        if (export_branches(x) == 0)
            buf_puts(tensors_meta(x, "reported_versions"), "[]");
        tensors_note_end(x);
    }
    tensors_end(x, out);
}

const struct format format_view = {.passes = TENSOR_PASSES,
                                   .text_too = true,
                                   .drift_places = true,
                                   .begin = view_begin,
                                   .write = view_write,
                                   .end = view_end,
                                   .drop = tensors_drop};
