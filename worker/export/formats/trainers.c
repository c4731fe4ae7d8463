/* Formats of trainers that accept tensors: verl (TransferQueue rows), AReaL. */
#include "common/base/attrs.h"
#include "common/codec/json.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/pictures_layout.h"
#include "worker/export/build/select.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/tensors.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/record/score.h"
#include "worker/session/store/reward.h"
#include "worker/session/store/session_view.h"

/* --- scores --- */

/* Which scores every trajectory has. A column that one of them lacks is dropped for all. */
struct scored {
    bool by[SCORE_KINDS];
};

static void find_scored(struct export *x)
{
    struct scored *s = ARENA_NEW(&x->arena, struct scored);

    for (int i = 0; i < SCORE_KINDS; i++) {
        s->by[i] = true;
        for (size_t k = 0; s->by[i] && k < x->selection->tracks.n; k++) {
            const struct track *track = &x->selection->tracks.at[k];

            s->by[i] =
                !track->authors && !track->tail &&
                session_score(x->session, track->head, (enum score_what)i, x->input.n_scores);
        }
    }
    x->own = s;
}

static const struct score *score_of(const struct export *x, const struct trajectory *t,
                                    enum score_what what)
{
    const struct scored *s = x->own;

    return s->by[what] ? t->scores[what] : NULL;
}

/* Adds rows of `width` numbers, each at the position of the token before it: both trainers read
 * row i as the expectation after token i. The last row is 0.
 * NOLINTNEXTLINE(readability-function-size) */
static void add_shifted(struct export *x, const char *name, const struct trajectory *t,
                        enum tensor_type type, struct shape shape, const void *rows, uint32_t width)
{
    const char *second = (const char *)rows + (size_t)width * 4;

    tensors_add_two(x, (struct tensor_name){name, t->index}, type, shape, CELLS(RAW, second),
                    (t->total - (uint64_t)1) * width, CELLS(ZEROS, NULL));
}

/* --- verl --- */

static const char KEY_KEYS[] = "keys", KEY_TAGS[] = "tags", KEY_ROWS[] = "rows",
                  KEY_NATIVE[] = "native";

/* Decides the columns: one that a row lacks is dropped for all. Answers of other pools have no
 * row. */
static void verl_begin(struct export *x, struct buf *out)
{
    struct session_view v = session_view(x->session);

    tensors_begin(x, out);
    find_scored(x);
    x->all_logprobs = true;
    for (size_t i = 0; i < v.n_checkpoints; i++)
        x->all_logprobs =
            x->all_logprobs && (v.checkpoints[i]->hidden || checkpoint_pool(v.checkpoints[i]).len ||
                                v.checkpoints[i]->has_logprobs);
}

/* Returns the uid. The trainer groups rows by the text before the first '_' of the key. */
static struct str verl_uid(struct export *x)
{
    struct str given = x->options.uid.p ? x->options.uid : session_view(x->session).id;
    char *uid = arena_cstr(&x->scratch, given);

    for (size_t i = 0; i < given.len; i++)
        if (uid[i] == '_')
            uid[i] = '-';
    return str_of(uid, given.len);
}

static struct json_out meta_item(struct export *x, const char *key, const struct trajectory *t)
{
    struct json_out o = json_out_to(tensors_meta(x, key));

    o.comma = t->index > 0;
    if (t->index == 0)
        buf_add_c(o.b, '[');
    return o;
}

/* Writes the trajectory's members that are not arrays, as an item. */
MAY_PAUSE static void put_native(struct export *x, const char *key, const struct trajectory *t)
{
    struct json_out o = meta_item(x, key, t);

    json_out_obj(&o);
    native_write_rest(x, t, &o);
    json_out_end_obj(&o);
}

/* Writes the policy's steps that sampled the row. If no engine reported versions, writes the
 * batch's step: -1 would seem stale by the whole step number. */
static void put_steps(const struct export *x, const struct trajectory *t, struct json_out *o)
{
    int64_t otherwise = x->options.global_steps;

    json_out_member_i64(o, "min_global_steps", t->has_steps ? t->min_step : otherwise);
    json_out_member_i64(o, "max_global_steps", t->has_steps ? t->max_step : otherwise);
}

static void verl_tag(struct export *x, const struct trajectory *t, struct str uid)
{
    struct json_out o = meta_item(x, KEY_TAGS, t);

    json_out_obj(&o);
    json_out_member_cstr(&o, "status", "success");
    if (x->options.global_steps >= 0)
        json_out_member_i64(&o, "global_steps", x->options.global_steps);
    put_steps(x, t, &o);
    json_out_member_i64(&o, "prompt_len", t->n_prompt);
    json_out_member_i64(&o, "response_len", t->n);
    json_out_member_i64(&o, "seq_len", t->total);
    json_out_member_str(&o, "uid", uid);
    if (native_reason(t))
        json_out_member_cstr(&o, "materialization_reason", native_reason(t));
    json_out_end_obj(&o);
}

/* Writes the further numbers of the reward: metrics by which the trainer filters and validates.
 * `finished` is not one (see mask_unfinished). */
static void put_reward_extra(const struct export *x, struct json_out *o)
{
    const struct reward *r = x->told;

    json_out_member_obj(o, "reward_extra_info");
    for (size_t i = 0; i < r->members.n; i++) {
        if (str_eq_c(r->members.at[i].key, "reward") || str_eq_c(r->members.at[i].key, "finished"))
            continue;
        json_out_key_str(o, r->members.at[i].key);
        json_out_raw(o, r->members.at[i].json);
    }
    json_out_end_obj(o);
}

/* Writes reward_extra_info twice: verl reads it inside of extra_fields, uni-agent next to it. */
static void put_extra_fields(struct export *x, const struct trajectory *t, struct json_out *o)
{
    json_out_member_obj(o, "extra_fields");
    if (!t->has_steps && x->options.global_steps >= 0)
        put_steps(x, t, o);
    native_write_extra_members(t, o);
    put_reward_extra(x, o);
    json_out_end_obj(o);
}

/* Matches names of the row's own columns, which a column of the data set cannot replace. */
static bool is_own_column(struct str name)
{
    static const char *const own[] = {
        "uid",        "session_id",         "global_steps",     "min_global_steps",
        "raw_prompt", "multi_modal_inputs", "multi_modal_data", "max_global_steps",
        "num_turns",  "reward_score",       "extra_fields",     "reward_extra_info"};

    return str_is_one_of(name, own, ARRAY_LEN(own));
}

/* Writes columns that are not tensors: the row's own, then those of the data set, which are in the
 * session's metadata. For text sessions multi-modal inputs are an empty object. */
static void verl_columns(struct export *x, const struct trajectory *t, struct json_out *o)
{
    const struct json *data = session_view(x->session).metadata;
    /* the trajectory's JSON has the prompt's text */
    const struct buf *native = tensors_meta(x, KEY_NATIVE);

    json_out_member_arr(o, "raw_prompt");
    if (x->prompt_bytes > 0)
        json_out_raw(o, str_of(native->p + x->prompt_at, x->prompt_bytes));
    json_out_end_arr(o);
    json_out_member_obj(o, "multi_modal_inputs");
    json_out_end_obj(o);
    json_out_member_i64(o, "num_turns", t->verl_num_turns);
    export_put_reward(x, "reward_score", o);
    put_reward_extra(x, o);
    put_extra_fields(x, t, o);
    for (uint32_t i = 0; data && i < data->n; i++) {
        struct str name = json_string(&data->members[i].key);

        if (is_own_column(name))
            continue;
        json_out_member_of(o, name, &data->members[i].value);
    }
}

MAY_PAUSE static void verl_notes(struct export *x, const struct trajectory *t)
{
    struct str uid = verl_uid(x);
    struct json_out o = meta_item(x, KEY_KEYS, t);

    json_out_str(&o, arena_printf(&x->scratch, "%.*s_%u_%zu", (int)uid.len, uid.p,
                                  x->options.session_index, t->index));
    verl_tag(x, t, uid);
    o = meta_item(x, KEY_ROWS, t);
    put_native(x, KEY_NATIVE, t);
    json_out_obj(&o);
    json_out_member_str(&o, "uid", uid);
    json_out_member_i64(&o, "session_id", x->options.session_index);
    if (x->options.global_steps >= 0)
        json_out_member_i64(&o, "global_steps", x->options.global_steps);
    put_steps(x, t, &o);
    verl_columns(x, t, &o);
    json_out_end_obj(&o);
    tensors_escape_meta(x);
}

/* Writes positions. Models that place pictures in rows and columns need four numbers for each id,
 * even of texts. */
static void verl_positions(struct export *x, const struct trajectory *t)
{
    if (images_have_axes(x))
        tensors_add(x, "position_ids", t->index, TENSOR_I64, SHAPE2(4, t->total),
                    CELLS(RAW, tensors_want(x, TENSOR_I64) ? images_axes(x, t) : NULL));
    else
        tensors_add(x, "position_ids", t->index, TENSOR_I64, SHAPE1(t->total),
                    CELLS(COUNT_I64, NULL));
}

static void verl_longs(struct export *x, const struct trajectory *t)
{
    struct shape prompt = SHAPE1(t->n_prompt), response = SHAPE1(t->n), all = SHAPE1(t->total);
    struct cells mask = CELLS(WIDE_U8, t->mask);
    size_t i = t->index;

    if (x->options.mask_unfinished && x->unfinished)
        mask = CELLS(ZEROS, NULL);
    tensors_add(x, "prompts", i, TENSOR_I64, prompt, CELLS(WIDE_I32, t->ids));
    tensors_add(x, "responses", i, TENSOR_I64, response, CELLS(WIDE_I32, t->ids + t->n_prompt));
    tensors_add(x, "input_ids", i, TENSOR_I64, all, CELLS(WIDE_I32, t->ids));
    tensors_add(x, "attention_mask", i, TENSOR_I64, all, CELLS(ONES_I64, NULL));
    verl_positions(x, t);
    tensors_add(x, "response_mask", i, TENSOR_I64, response, mask);
    tensors_add(x, "loss_mask", i, TENSOR_I64, response, mask);
}

/* Writes the experts; zeros for tokens that have none. */
static void verl_experts(struct export *x, const struct trajectory *t)
{
    struct shape s = SHAPE3(t->total, t->experts_layers, t->experts_topk);
    enum tensor_type type = TENSOR_I32;

    if (!t->experts.p)
        return;
    if (t->experts_item == 1)
        type = TENSOR_U8;
    else if (t->experts_item == 2)
        type = TENSOR_I16;
    tensors_add_two(x, (struct tensor_name){"routed_experts", t->index}, type, s,
                    CELLS(RAW, t->experts.p), t->experts.len / t->experts_item, CELLS(ZEROS, NULL));
}

/* Writes the scores if the reward is known, at the last token. Without the column the trainer's
 * reward worker fills it. */
static void verl_scores(struct export *x, const struct trajectory *t)
{
    float *score = ARENA_NEW(&x->scratch, float);
    double reward;

    if (!export_reward(x, &reward))
        return;
    *score = (float)reward;
    tensors_add_two(x, (struct tensor_name){"rm_scores", t->index}, TENSOR_F32, SHAPE1(t->n),
                    CELLS(ZEROS, NULL), t->n ? t->n - (uint64_t)1 : 0, CELLS(RAW, score));
}

/* Writes the logprobs of other engines. Distillation needs the k best of a teacher over the whole
 * length, or, with k = 1, the tokens themselves. The KL term needs the reference's logprobs of the
 * response. */
static void verl_other_engines(struct export *x, const struct trajectory *t)
{
    const struct score *teacher = score_of(x, t, SCORE_TEACHER);
    const struct score *reference = score_of(x, t, SCORE_REFERENCE);
    uint32_t k = teacher ? MAX_OF(teacher->top_k, 1) : 0;
    struct shape rows = SHAPE2(t->total, k);

    if (teacher) {
        bool top = teacher->top_k > 0;
        const void *ids = top ? teacher->top_ids : t->ids;
        const void *logprobs = top ? teacher->top_logprobs : teacher->logprobs;

        add_shifted(x, "teacher_ids", t, TENSOR_I32, rows, ids, k);
        add_shifted(x, "teacher_logprobs", t, TENSOR_F32, rows, logprobs, k);
    }
    if (reference)
        tensors_add(x, "ref_log_prob", t->index, TENSOR_F32, SHAPE1(t->n),
                    CELLS(RAW, reference->logprobs + t->n_prompt));
}

MAY_PAUSE static void verl_write(struct export *x, const struct trajectory *t)
{
    if (tensors_sizing(x))
        verl_notes(x, t);
    verl_longs(x, t);
    if (x->all_logprobs)
        tensors_add(x, "rollout_log_probs", t->index, TENSOR_F32, SHAPE1(t->n),
                    CELLS(RAW, t->logprobs));
    verl_scores(x, t);
    verl_other_engines(x, t);
    verl_experts(x, t);
    media_put_spans(x, t);
}

static void close_list(struct export *x, const char *key)
{
    buf_puts(tensors_meta(x, key), export_branches(x) ? "]" : "[]");
}

MAY_PAUSE static void verl_end(struct export *x, struct buf *out)
{
    if (tensors_sizing(x)) {
        struct json_out o = json_out_to(tensors_meta(x, "summary"));

        close_list(x, KEY_KEYS);
        close_list(x, KEY_TAGS);
        close_list(x, KEY_ROWS);
        close_list(x, KEY_NATIVE);
        native_write_summary(x, &o);
    }
    media_put_files(x);
    tensors_end(x, out);
}

const struct format format_verl = {.needs_reward = true,
                                   .passes = TENSOR_PASSES,
                                   .begin = verl_begin,
                                   .write = verl_write,
                                   .end = verl_end,
                                   .drop = tensors_drop};

/* --- AReaL: batch dimension 1, full length --- */

/* Writes tensors over the whole length. The prompt's part is 0 (loss_mask, logprobs) or -1
 * (versions). */
static void areal_words(struct export *x, const struct trajectory *t)
{
    struct shape full = SHAPE2(1, t->total);
    struct cells none = CELLS(ZEROS, NULL), old = CELLS(MINUS_ONES, NULL);
    size_t i = t->index;

    tensors_add_two(x, (struct tensor_name){"loss_mask", i}, TENSOR_I32, full, none, t->n_prompt,
                    CELLS(WORDS_U8, t->mask));
    tensors_add_two(x, (struct tensor_name){"logprobs", i}, TENSOR_F32, full, none, t->n_prompt,
                    t->logprobs ? CELLS(RAW, t->logprobs) : none);
    tensors_add_two(x, (struct tensor_name){"versions", i}, TENSOR_I32, full, old, t->n_prompt,
                    t->versions ? CELLS(WORDS_I64, t->versions) : old);
}

static void areal_reward(struct export *x, const struct trajectory *t)
{
    float *cell = ARENA_NEW(&x->scratch, float);
    double reward;

    if (!export_reward(x, &reward))
        return;
    *cell = (float)reward;
    tensors_add(x, "rewards", t->index, TENSOR_F32, SHAPE1(1), CELLS(RAW, cell));
}

static void areal_begin(struct export *x, struct buf *out)
{
    tensors_begin(x, out);
    find_scored(x);
}

static void areal_other_engines(struct export *x, const struct trajectory *t)
{
    static const char *const names[SCORE_KINDS] = {
        [SCORE_TEACHER] = "teacher_logp", [SCORE_REFERENCE] = "ref_logp"};

    for (int i = 0; i < SCORE_KINDS; i++) {
        const struct score *s = names[i] ? score_of(x, t, (enum score_what)i) : NULL;

        if (s)
            add_shifted(x, names[i], t, TENSOR_F32, SHAPE2(1, t->total), s->logprobs, 1);
    }
}

MAY_PAUSE static void areal_write(struct export *x, const struct trajectory *t)
{
    struct shape full = SHAPE2(1, t->total);

    if (tensors_sizing(x)) {
        x->unversioned = x->unversioned || !t->versions;
        put_native(x, KEY_ROWS, t);
        tensors_escape_meta(x);
    }
    tensors_add(x, "input_ids", t->index, TENSOR_I64, full, CELLS(WIDE_I32, t->ids));
    areal_words(x, t);
    areal_reward(x, t);
    areal_other_engines(x, t);
    tensors_add(x, "attention_mask", t->index, TENSOR_BOOL, full, CELLS(ONES_U8, NULL));
    media_put_spans(x, t);
}

MAY_PAUSE static void areal_end(struct export *x, struct buf *out)
{
    if (tensors_sizing(x)) {
        struct json_out o = json_out_to(tensors_meta(x, "summary"));

        close_list(x, KEY_ROWS);
        native_write_summary(x, &o);
    }
    media_put_files(x);
    tensors_end(x, out);
}

const struct format format_areal = {.needs_reward = true,
                                    .needs_logprobs = true,
                                    .passes = TENSOR_PASSES,
                                    .begin = areal_begin,
                                    .write = areal_write,
                                    .end = areal_end,
                                    .drop = tensors_drop};
