/* Formats of JSON samples: slime, prime-rl, and messages for supervised training. */
#include "worker/export/format.h"
#include "worker/export/numbers.h"

static void put_i64(struct json_out *o, const char *key, int64_t v)
{
    json_out_key(o, key);
    json_out_i64(o, v);
}

static struct buf *raw_value(struct json_out *o, const char *key)
{
    json_out_key(o, key);
    o->comma = true;
    return o->b;
}

static void samples_begin(struct export *x, struct buf *out)
{
    (void)x;
    buf_puts(out, "{\"samples\":[");
}

static void samples_end(struct export *x, struct buf *out)
{
    struct json_out o = json_out_to(out);

    buf_puts(out, "],\"summary\":");
    native_write_summary(x, &o);
    buf_add_c(out, '}');
}

static void put_reward(struct export *x, struct json_out *o)
{
    bool known;
    double reward = trajectory_reward(x->session, &known);

    json_out_key(o, "reward");
    if (known)
        json_out_double(o, reward);
    else
        json_out_null(o);
}

/* --- slime: masks and logprobs over the response region --- */

static void slime_one(struct export *x, const struct trajectory *t, struct buf *out)
{
    struct json_out o = {out, t->index > 0};
    bool cut = turn_truncated(t->track->head) || t->track->head != t->track->whole;

    json_out_obj(&o);
    numbers_i32(raw_value(&o, "tokens"), t->ids, t->total);
    put_i64(&o, "response_length", t->n);
    numbers_u8(raw_value(&o, "loss_mask"), t->mask, t->n);
    if (t->logprobs) {
        numbers_f32(raw_value(&o, "rollout_log_probs"), t->logprobs, t->n);
    } else {
        json_out_key(&o, "rollout_log_probs");
        json_out_null(&o);
    }
    put_reward(x, &o);
    json_out_key(&o, "status");
    json_out_cstr(&o, cut ? "truncated" : "completed");
    json_out_key(&o, "metadata");
    json_out_obj(&o);
    json_out_key(&o, "session_id");
    json_out_str(&o, x->session->id);
    json_out_key(&o, "truncated");
    json_out_bool(&o, cut);
    native_write_rest(x, t, &o);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
}

/* --- prime-rl: everything over the full length --- */

static void put_mask(const struct trajectory *t, struct json_out *o)
{
    json_out_key(o, "mask");
    json_out_arr(o);
    for (uint32_t i = 0; i < t->total; i++)
        json_out_bool(o, i >= t->n_prompt && t->mask[i - t->n_prompt]);
    json_out_end_arr(o);
}

static void put_temperatures(struct export *x, const struct trajectory *t, struct json_out *o)
{
    float *v = arena_alloc(&x->scratch, t->total * sizeof(*v));

    for (uint32_t i = 0; i < t->total; i++)
        v[i] = 1;
    for (uint32_t k = 0; k < t->n_turns; k++) {
        float temperature = x->session->forest.calls.at[t->turns[k].turn->call].temperature;

        for (uint32_t i = t->turns[k].start; i < t->turns[k].end; i++)
            v[t->n_prompt + i] = temperature;
    }
    numbers_f32(raw_value(o, "temperatures"), v, t->total);
}

static void prime_rl_one(struct export *x, const struct trajectory *t, struct buf *out)
{
    struct json_out o = {out, t->index > 0};
    float *full = arena_calloc(&x->scratch, t->total, sizeof(*full));

    for (uint32_t i = 0; t->logprobs && i < t->n; i++)
        full[t->n_prompt + i] = t->logprobs[i];
    json_out_obj(&o);
    numbers_i32(raw_value(&o, "token_ids"), t->ids, t->total);
    put_mask(t, &o);
    if (t->logprobs) {
        numbers_f32(raw_value(&o, "logprobs"), full, t->total);
    } else {
        json_out_key(&o, "logprobs");
        json_out_null(&o);
    }
    put_temperatures(x, t, &o);
    put_reward(x, &o);
    json_out_key(&o, "metadata");
    json_out_obj(&o);
    json_out_key(&o, "session_id");
    json_out_str(&o, x->session->id);
    native_write_rest(x, t, &o);
    json_out_end_obj(&o);
    json_out_end_obj(&o);
}

const struct format format_slime = {.name = "slime",
                                    .content_type = "application/json",
                                    .passes = 1,
                                    .begin = samples_begin,
                                    .one = slime_one,
                                    .end = samples_end};

const struct format format_prime_rl = {.name = "prime-rl",
                                       .content_type = "application/json",
                                       .passes = 1,
                                       .begin = samples_begin,
                                       .one = prime_rl_one,
                                       .end = samples_end};

/* --- openai-messages: one line a trajectory --- */

static void messages_one(struct export *x, const struct trajectory *t, struct buf *out)
{
    struct json_out o = json_out_to(out);
    const struct node *node = t->track->head->node;

    (void)x;
    json_out_obj(&o);
    json_out_key(&o, "messages");
    json_out_value(&o, t->messages);
    if (node && node->gate->tools) {
        json_out_key(&o, "tools");
        json_out_value(&o, node->gate->tools);
    }
    json_out_end_obj(&o);
    buf_add_c(out, '\n');
}

const struct format format_openai_messages = {.name = "openai-messages",
                                              .content_type = "application/jsonl",
                                              .passes = 1,
                                              .one = messages_one};
