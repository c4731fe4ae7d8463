/* Formats of JSON samples: slime, prime-rl, and messages for supervised training. */
#include <string.h>

#include "common/codec/json.h"
#include "worker/export/build/export.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/media_table.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory.h"
#include "worker/export/formats/sample_parts.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/score.h"
#include "worker/session/store/session_view.h"
#include "worker/text/request/odds.h"

static void samples_begin(struct export *x, struct buf *out)
{
    (void)x;
    buf_puts(out, "{\"samples\":[");
}

/* --- slime: masks and logprobs over the response region --- */

/* Writes slime's form of the sampling support: ids in ragged rows, which are empty between
 * answers. */
static void put_top_p(struct export *x, const struct trajectory *t, struct json_out *o)
{
    const struct odds_support *s = t->odds.support;

    if (!s)
        return;
    export_array(x, o, "rollout_top_p_token_ids", PIECE_JSON_I32, s->ids, s->n_ids);
    export_array(x, o, "rollout_top_p_token_offsets", PIECE_JSON_I32, sample_offsets(x, t),
                 t->n + (size_t)1);
}

MAY_PAUSE static void slime_write(struct export *x, const struct trajectory *t)
{
    struct json_out o = {&x->rope.text, t->index > 0};
    bool cut = checkpoint_truncated(t->track->head) || t->track->head != t->track->whole;

    json_out_obj(&o);
    sample_put_response(x, t, &o);
    export_array(x, &o, "tokens", PIECE_JSON_I32, t->ids, t->total);
    json_out_member_i64(&o, "response_length", t->n);
    export_array(x, &o, "loss_mask", PIECE_JSON_BITS, t->mask, t->n);
    if (t->logprobs)
        export_array(x, &o, "rollout_log_probs", PIECE_JSON_F32, t->logprobs, t->n);
    else
        json_out_member_null(&o, "rollout_log_probs");
    export_put_reward(x, "reward", &o);
    sample_put_pictures(x, t, false, &o);
    json_out_member_cstr(&o, "status", sample_status(t));
    sample_put_versions(t, &o);
    sample_put_cache(t, &o);
    native_write_experts(x, t, "rollout_routed_experts", &o);
    put_top_p(x, t, &o);
    if (t->scores[SCORE_TEACHER])
        export_array(x, &o, "teacher_log_probs", PIECE_JSON_F32,
                     t->scores[SCORE_TEACHER]->logprobs + t->n_prompt, t->n);
    json_out_member_obj(&o, "metadata");
    json_out_member_str(&o, "session_id", session_view(x->session).id);
    json_out_member_bool(&o, "truncated", cut);
    native_write_rest(x, t, &o);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
}

/* --- prime-rl: everything over the full length --- */

static void put_mask(struct export *x, const struct trajectory *t, struct json_out *o)
{
    uint8_t *full = arena_zalloc(&x->scratch, t->total);

    memcpy(full + t->n_prompt, t->mask, t->n);
    export_array(x, o, "mask", PIECE_JSON_BOOLS, full, t->total);
}

static void put_temperatures(struct export *x, const struct trajectory *t, struct json_out *o)
{
    float *v = arena_alloc(&x->scratch, t->total * sizeof(*v));

    for (uint32_t i = 0; i < t->total; i++)
        v[i] = 1;
    for (uint32_t k = 0; k < t->n_turns; k++) {
        float temperature = checkpoint_temperature(x->session, t->turns[k].checkpoint);

        for (uint32_t i = t->turns[k].start; i < t->turns[k].end; i++)
            v[t->n_prompt + i] = temperature;
    }
    export_array(x, o, "temperatures", PIECE_JSON_F32, v, t->total);
}

/* Writes the environment's name, which is the trainer's term for the origin of a task. Its
 * orchestrator puts it into the session's metadata. Unknown: null. */
static void put_env_name(const struct export *x, struct json_out *o)
{
    struct str name = json_string(json_get(session_view(x->session).metadata, "env_name"));

    json_out_key(o, "env_name");
    if (name.len > 0)
        json_out_str(o, name);
    else
        json_out_null(o);
}

/* Writes one row for each token. The last row is zero, because the last token went through no
 * layer. */
static void put_experts(struct export *x, const struct trajectory *t, struct json_out *o)
{
    struct trajectory full = *t;
    char *rows;

    if (t->experts.p) {
        size_t n = t->experts.len / t->experts_rows * t->total;

        rows = arena_zalloc(&x->scratch, n);
        memcpy(rows, t->experts.p, t->experts.len);
        full.experts = str_of(rows, n);
        full.experts_rows = t->total;
    }
    native_write_experts(x, &full, "routed_experts", o);
}

static void put_base64(struct export *x, struct json_out *o, const char *key, const void *p,
                       size_t bytes)
{
    json_out_key(o, key);
    if (!p) {
        json_out_null(o);
        return;
    }
    o->comma = true;
    buf_add_c(o->b, '"');
    rope_add(&x->rope, PIECE_BASE64, p, bytes);
    buf_add_c(o->b, '"');
}

/* Writes its SamplingMask: a count for each token of prompt and response, 0 where nothing was
 * sampled. */
static void put_sampling_mask(struct export *x, const struct trajectory *t, struct json_out *o)
{
    const struct odds_support *s = t->odds.support;
    int32_t *counts;

    if (!s)
        return;
    counts = arena_calloc(&x->scratch, t->total, sizeof(*counts));
    memcpy(counts + t->n_prompt, s->counts, t->n * sizeof(*counts));
    json_out_member_obj(o, "sampling_mask");
    put_base64(x, o, "ids", s->ids, s->n_ids * sizeof(int32_t));
    put_base64(x, o, "counts", counts, t->total * sizeof(*counts));
    put_base64(x, o, "logprobs", s->logprobs, s->n_ids * sizeof(float));
    json_out_end_obj(o);
}

/* Writes 1 for each token of an image, else 0. */
static void put_token_types(struct export *x, const struct trajectory *t, struct json_out *o)
{
    uint8_t *types = arena_zalloc(&x->scratch, t->total);

    for (uint32_t i = 0; i < t->n_images; i++)
        memset(types + t->images[i].offset, 1, t->images[i].length);
    export_array(x, o, "mm_token_type_ids", PIECE_JSON_BITS, types, t->total);
}

static void put_refs(struct export *x, const struct trajectory *t, struct json_out *o)
{
    json_out_member_obj(o, "mm_refs");
    json_out_member_arr(o, "images");
    for (uint32_t i = 0; i < t->n_images; i++) {
        json_out_obj(o);
        json_out_key(o, "url");
        media_put_url(x, &t->images[i], o);
        json_out_member_i64(o, "offset", t->images[i].offset);
        json_out_member_i64(o, "length", t->images[i].length);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}

MAY_PAUSE static void prime_rl_write(struct export *x, const struct trajectory *t)
{
    struct json_out o = {&x->rope.text, t->index > 0};
    float *full = arena_calloc(&x->scratch, t->total, sizeof(*full));
    const struct score *reference =
        t->scores[SCORE_REFERENCE] ? t->scores[SCORE_REFERENCE] : t->scores[SCORE_TEACHER];

    memcpy(full + t->n_prompt, t->logprobs, t->n * sizeof(*full));
    json_out_obj(&o);
    export_array(x, &o, "token_ids", PIECE_JSON_I32, t->ids, t->total);
    put_mask(x, t, &o);
    export_array(x, &o, "logprobs", PIECE_JSON_F32, full, t->total);
    put_temperatures(x, t, &o);
    put_env_name(x, &o);
    put_experts(x, t, &o);
    put_sampling_mask(x, t, &o);
    if (reference)
        export_array(x, &o, "ref_logprobs", PIECE_JSON_F32, reference->logprobs, t->total);
    if (t->n_images > 0)
        put_token_types(x, t, &o);
    if (t->n_images > 0 && x->options.media != MEDIA_NONE)
        put_refs(x, t, &o);
    export_put_reward(x, "reward", &o);
    json_out_member_obj(&o, "metadata");
    json_out_member_str(&o, "session_id", session_view(x->session).id);
    native_write_rest(x, t, &o);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
}

const struct format format_slime = {.needs_reward = true,
                                    .passes = 1,
                                    .begin = samples_begin,
                                    .write = slime_write,
                                    .end = native_write_end};

const struct format format_prime_rl = {.needs_reward = true,
                                       .needs_logprobs = true,
                                       .passes = 1,
                                       .begin = samples_begin,
                                       .write = prime_rl_write,
                                       .end = native_write_end};

/* --- openai-messages: one line a trajectory --- */

MAY_PAUSE static void messages_write(struct export *x, const struct trajectory *t)
{
    struct json_out o = json_out_to(&x->rope.text);
    const struct message_node *node = t->track->head->node;

    json_out_obj(&o);
    json_out_member_arr(&o, "messages");
    for (uint32_t i = 0; i < t->messages->n && export_pause(x); i++)
        json_out_value(&o, &t->messages->items[i]);
    json_out_end_arr(&o);
    if (node && node->env->tools)
        json_out_member_value(&o, "tools", node->env->tools);
    session_put_loss_list(x->session, &o);
    json_out_end_obj(&o);
    buf_add_c(o.b, '\n');
}

const struct format format_openai_messages = {
    .passes = 1, .text_too = true, .no_media = true, .write = messages_write};
