/* Formats with a row for every turn: SkyRL's step-wise samples and NeMo Gym's token records. */
#include "common/codec/json.h"
#include "worker/export/build/export_format.h"
#include "worker/export/build/export_reward.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/store/session_view.h"
#include "worker/text/model/model.h"

static void put_turn(const struct trajectory *t, const struct trajectory_turn *turn,
                     struct json_out *o)
{
    json_out_member_obj(o, "turn");
    native_write_turn_members(t, turn, o);
    json_out_end_obj(o);
}

struct rows {
    bool comma;    /* a row precedes the next one */
    uint8_t *told; /* nemo-gym: written checkpoints, by id */
};

/* --- SkyRL: a step is a turn after the whole prompt of its call --- */

static void steps_begin(struct export *x, struct buf *out)
{
    x->own = ARENA_NEW(&x->arena, struct rows);
    buf_puts(out, "{\"steps\":[");
}

/* Writes the id of the steps of one trajectory. No two trajectories of a group have the same. */
static void put_trajectory_id(const struct export *x, const struct trajectory *t,
                              struct json_out *o)
{
    int64_t rollout = x->options.session_index, size = session_view(x->session).group_size;

    json_out_member_obj(o, "trajectory_id");
    json_out_member_str(o, "instance_id",
                        x->options.uid.p ? x->options.uid : session_view(x->session).id);
    json_out_member_i64(o, "repetition_id",
                        rollout + (int64_t)t->index * MAX_OF(size, rollout + 1));
    json_out_end_obj(o);
}

/* Writes the rewards: everything is on the last token of the last step. */
static void put_rewards(struct export *x, uint32_t n, bool last, struct json_out *o)
{
    float *rewards;
    double reward;

    if (!export_reward(x, &reward)) {
        json_out_member_null(o, "rewards");
        return;
    }
    rewards = arena_calloc(&x->scratch, n + (size_t)1, sizeof(*rewards));
    if (last && n > 0)
        rewards[n - 1] = (float)reward;
    export_array(x, o, "rewards", PIECE_JSON_F32, rewards, n);
}

static void put_step(struct export *x, uint32_t i, struct json_out *o)
{
    const struct trajectory *t = &x->t;
    const struct trajectory_turn *turn = &t->turns[i];
    uint32_t n = turn->end - turn->start;
    bool last = i + 1 == t->n_turns;

    json_out_obj(o);
    export_array(x, o, "prompt_token_ids", PIECE_JSON_I32, t->ids, t->n_prompt + turn->start);
    export_array(x, o, "response_ids", PIECE_JSON_I32, t->ids + t->n_prompt + turn->start, n);
    export_array(x, o, "loss_mask", PIECE_JSON_BITS, t->mask + turn->start, n);
    if (t->logprobs)
        export_array(x, o, "rollout_logprobs", PIECE_JSON_F32, t->logprobs + turn->start, n);
    else
        json_out_member_null(o, "rollout_logprobs");
    put_rewards(x, n, last, o);
    json_out_member_str(o, "stop_reason", turn->checkpoint->finish_reason);
    put_trajectory_id(x, t, o);
    json_out_member_bool(o, "is_last_step", last);
    put_turn(t, turn, o);
    json_out_end_obj(o);
}

/* Writes turn i as a row. */
typedef void (*row_fn)(struct export *x, uint32_t i, struct json_out *o);

MAY_PAUSE static void write_rows(struct export *x, row_fn put)
{
    struct rows *rows = x->own;
    struct json_out o = {&x->rope.text, rows->comma};

    for (uint32_t i = 0; i < x->t.n_turns && export_pause(x); i++)
        put(x, i, &o);
    rows->comma = o.comma;
}

MAY_PAUSE static void steps_write(struct export *x, const struct trajectory *t)
{
    (void)t;
    write_rows(x, put_step);
}

const struct format format_skyrl = {.needs_reward = true,
                                    .passes = 1,
                                    .begin = steps_begin,
                                    .write = steps_write,
                                    .end = native_write_end};

/* --- NeMo Gym: a record is a call, even if several trajectories contain it --- */

enum { TOKEN_ENTRY_VERSION = 1 };

static void records_begin(struct export *x, struct buf *out)
{
    struct rows *rows = ARENA_NEW(&x->arena, struct rows);

    rows->told = arena_zalloc(&x->arena, session_view(x->session).n_checkpoints + 1);
    x->own = rows;
    buf_puts(out, "{\"records\":[");
}

/* Writes the answer as one item of the Responses kind, in the form in which Gym keeps chat
 * answers. */
static void put_output_items(const struct checkpoint *checkpoint, struct json_out *o)
{
    const struct json *m = checkpoint->message;

    json_out_member_arr(o, "output_items");
    json_out_obj(o);
    json_out_member_cstr(o, "type", "message");
    for (uint32_t i = 0; m && i < m->n; i++)
        json_out_member_of(o, json_string(&m->members[i].key), &m->members[i].value);
    json_out_end_obj(o);
    json_out_end_arr(o);
    json_out_member_i64(o, "token_item_index", 0);
}

static void put_record(struct export *x, const struct trajectory *t,
                       const struct trajectory_turn *turn, struct json_out *o)
{
    const int32_t *ids = t->ids + t->n_prompt + turn->start;
    uint32_t n = turn->end - turn->start;

    json_out_obj(o);
    json_out_member_i64(o, "schema_version", TOKEN_ENTRY_VERSION);
    json_out_member_str(o, "rollout_id", session_view(x->session).id);
    json_out_member_str(o, "model_call_id", turn->checkpoint->response_id);
    json_out_member_cstr(o, "model", x->input.model ? model_info(x->input.model)->name : "");
    export_array(x, o, "prompt_token_ids", PIECE_JSON_I32, t->ids, t->n_prompt + turn->start);
    export_array(x, o, "generation_token_ids", PIECE_JSON_I32, ids, n);
    export_array(x, o, "generation_log_probs", PIECE_JSON_F32, t->logprobs + turn->start, n);
    json_out_member_null(o, "routed_experts");
    put_output_items(turn->checkpoint, o);
    json_out_member_seconds(o, "created_at", turn->checkpoint->at_ms);
    export_put_reward(x, "reward", o);
    put_turn(t, turn, o);
    json_out_end_obj(o);
}

/* Writes a call that is in no earlier trajectory. */
static void put_new_record(struct export *x, uint32_t i, struct json_out *o)
{
    const struct trajectory_turn *turn = &x->t.turns[i];
    struct rows *rows = x->own;

    if (!turn->trained || rows->told[turn->checkpoint->id])
        return;
    rows->told[turn->checkpoint->id] = 1;
    put_record(x, &x->t, turn, o);
}

MAY_PAUSE static void records_write(struct export *x, const struct trajectory *t)
{
    (void)t;
    write_rows(x, put_new_record);
}

const struct format format_nemo_gym = {.needs_reward = true,
                                       .needs_logprobs = true,
                                       .passes = 1,
                                       .begin = records_begin,
                                       .write = records_write,
                                       .end = native_write_end};
