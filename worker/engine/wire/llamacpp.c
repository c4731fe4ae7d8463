/*
 * Kind `llamacpp`: POST /completion with token ids. Never streamed, because a stream leaves out
 * tokens that end inside a character. Samplers are switched off unless the request asks for them.
 * Logprobs come as entries (entries.h), requested after sampling ("prob"). Servers that do not know
 * that field return those of the logits alone ("logprob").
 */
#include <math.h>

#include "common/base/clock.h"
#include "common/base/vec.h"
#include "common/codec/json_number.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/extra.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/score_answer.h"
#include "worker/engine/wire/scoring.h"
#include "worker/engine/wire/wire_fields.h"
#include "worker/engine/wire/wire_reply.h"
#include "worker/engine/wire/wire_write.h"

enum {
    STOP_TYPE = FIELD_ID_WIRE,
    STOPPING_WORD,
    TRUNCATED,
    SLOT_TOKENS,
    ENTRY_ID,
    ENTRY_LOGPROB,
    ENTRY_PROB,
    TOP_ID,
    TOP_LOGPROB,
    TOP_PROB,
};

#define ENTRIES "completion_probabilities"

static const struct field fields[] = {
    FIELD("tokens", FIELD_INTS, FIELD_ID_IDS),
    FIELD("generation_settings.seed", FIELD_SCALAR, FIELD_ID_ANSWER),
    FIELD("tokens_evaluated", FIELD_SCALAR, FIELD_ID_PROMPT_TOKENS),
    FIELD("timings.cache_n", FIELD_SCALAR, FIELD_ID_CACHED),
    FIELD("stop_type", FIELD_SCALAR, STOP_TYPE),
    FIELD("stopping_word", FIELD_SCALAR, STOPPING_WORD),
    FIELD("truncated", FIELD_SCALAR, TRUNCATED),
    FIELD("tokens_cached", FIELD_SCALAR, SLOT_TOKENS),
    FIELD(ENTRIES, FIELD_MARK, FIELD_ID_ENTRIES),
    FIELD(ENTRIES "[]", FIELD_MARK, FIELD_ID_ENTRY),
    FIELD(ENTRIES "[].id", FIELD_SCALAR, ENTRY_ID),
    FIELD(ENTRIES "[].logprob", FIELD_SCALAR, ENTRY_LOGPROB),
    FIELD(ENTRIES "[].prob", FIELD_SCALAR, ENTRY_PROB),
    FIELD(ENTRIES "[].top_logprobs", FIELD_MARK, FIELD_ID_ENTRY_TOPS),
    FIELD(ENTRIES "[].top_logprobs[].id", FIELD_SCALAR, TOP_ID),
    FIELD(ENTRIES "[].top_logprobs[].logprob", FIELD_SCALAR, TOP_LOGPROB),
    FIELD(ENTRIES "[].top_probs", FIELD_MARK, FIELD_ID_ENTRY_TOPS),
    FIELD(ENTRIES "[].top_probs[].id", FIELD_SCALAR, TOP_ID),
    FIELD(ENTRIES "[].top_probs[].prob", FIELD_SCALAR, TOP_PROB),
    FIELD("error", FIELD_SCALAR, FIELD_ID_ERROR),
    FIELD("error.message", FIELD_SCALAR, FIELD_ID_ERROR_MESSAGE),
    FIELD("error.code", FIELD_SCALAR, FIELD_ID_ERROR_CODE),
    FIELD("error.type", FIELD_SCALAR, FIELD_ID_ERROR_TYPE),
};

static void write_sampling(struct json_out *o, const struct sampling *s, uint32_t seed)
{
    json_out_member_i64(o, "n_predict", s->max_tokens);
    wire_sampling(o, s);
    json_out_member_i64(o, "top_k", s->top_k > 0 ? s->top_k : 0);
    wire_given(o, "repeat_last_n", s->repeat_last_n);
    json_out_member_double(o, "typical_p", 1);
    json_out_member_double(o, "repeat_penalty", s->repetition_penalty);
    json_out_member_double(o, "dry_multiplier", 0);
    json_out_member_double(o, "xtc_probability", 0);
    json_out_member_i64(o, "mirostat", 0);
    json_out_member_double(o, "dynatemp_range", 0);
    /* Otherwise a server with --backend-sampling says 1.0 of each token that it samples. */
    json_out_member_bool(o, "backend_sampling", false);
    /* Only these, in the order that other engines use. */
    json_out_member_raw(o, "samplers",
                        STR("[\"penalties\",\"temperature\",\"top_k\",\"top_p\",\"min_p\"]"));
    json_out_member_i64(o, "seed", seed);
}

/* Returns the request's seed, which also identifies the answer, because the server returns no id.
 * Without a client's seed each request gets one of its own, which samples as well as the server's
 * choice. The largest seed means that the server chooses. */
static uint32_t seed_of(const struct sampling *s, const struct engine_request *q)
{
    if (s->has_seed)
        return (uint32_t)s->seed; /* truncated to the server's type */
    return (uint32_t)str_hash(q->session_id, clock_us() + q->call + q->answer) & INT32_MAX;
}

static void write_request(const struct remote *r, const struct engine_request *q,
                          struct wire_send *send)
{
    const struct sampling *s = q->sampling;
    struct json_out o = json_out_to(&send->body);
    const struct json *schema = sampling_schema(s);
    struct str grammar = wire_grammar(s, "ebnf");
    uint32_t seed = seed_of(s, q);

    (void)r;
    buf_clear(&send->id);
    buf_add_u64(&send->id, seed);
    send->path = "/completion";
    wire_reserve(send, q->prompt.n);
    send->stream = false;
    json_out_obj(&o);
    json_out_key(&o, "prompt");
    wire_ids(&o, q->prompt);
    write_sampling(&o, s, seed);
    json_out_member_bool(&o, "return_tokens", true);
    json_out_member_i64(&o, "n_probs", MAX_OF(q->top_logprobs, 1u));
    json_out_member_bool(&o, "post_sampling_probs", true);
    json_out_member_bool(&o, "cache_prompt", true);
    json_out_member_bool(&o, "stream", false);
    wire_value(send, &o, q, "stop", s->stop);
    wire_value(send, &o, q, "logit_bias", s->logit_bias);
    wire_value(send, &o, q, "json_schema", schema);
    if (!schema && grammar.p)
        wire_text(send, &o, q, "grammar", grammar);
    engine_extra_write(&o, s->engine_extra);
    json_out_end_obj(&o);
}

static void take_stop(struct reply *y, const struct json_scan *s)
{
    if (str_eq_c(s->text, "eos") || str_eq_c(s->text, "word"))
        y->finish = REPLY_STOP;
    else if (str_eq_c(s->text, "limit"))
        y->finish = REPLY_LENGTH;
    else
        reply_take_unknown_finish(y, s);
}

static const double PROBABILITY_MAX = 1.001; /* largest probability, allowing for rounded sums */

/* Returns the logarithm of a probability; NaN for 0, which no sampled token has, and for anything
 * that is not a probability. */
static float log_of(const struct json_scan *s)
{
    double p;

    if (s->token != JSON_TOKEN_NUMBER || json_number_double(s->text, &p) < 0 || p <= 0 ||
        p > PROBABILITY_MAX)
        return NAN;
    return (float)log(p);
}

/* Records the form of the values, which must be the same in the whole answer, because an answer has
 * one basis. */
static void note_form(struct reply *y, bool prob)
{
    enum logprob_basis basis = prob ? BASIS_PROCESSED : BASIS_RAW;

    if (y->basis_told && y->basis != basis)
        y->event.misfit = "it has both probabilities and logprobs";
    y->basis = basis;
    y->basis_told = true;
}

/* Stores the value of an entry, in either form. */
static void take_value(struct reply *y, const struct json_scan *s, bool prob)
{
    struct logprob_item *x = &vec_last(&y->entries);

    x->logprob = prob ? log_of(s) : reply_float(s);
    x->valued = true;
    note_form(y, prob);
}

/* Stores an alternative's value. Its id comes before or after it. An alternative that cannot be
 * sampled is left out by its NaN. */
static void take_top(struct reply *y, const struct json_scan *s, bool prob)
{
    note_form(y, prob);
    *vec_push(&y->event.top_logprobs) = prob ? log_of(s) : reply_float(s);
    vec_last(&y->entries).n_top++;
    while (y->event.top_ids.n < y->event.top_logprobs.n - 1)
        *vec_push(&y->event.top_ids) = -1;
}

static void take_scalar(struct reply *y, int id, const struct json_scan *s, struct str key)
{
    (void)key;
    switch (id) {
    case STOP_TYPE:
        take_stop(y, s);
        break;
    case STOPPING_WORD:
        reply_text(&y->stop_text, s);
        break;
    case TRUNCATED:
        y->truncated = s->token == JSON_TOKEN_TRUE;
        break;
    case SLOT_TOKENS:
        y->slot_tokens = reply_int(s);
        break;
    case ENTRY_ID:
        vec_last(&y->entries).id = reply_token(s);
        break;
    case ENTRY_LOGPROB:
    case ENTRY_PROB:
        take_value(y, s, id == ENTRY_PROB);
        break;
    case TOP_ID:
        *vec_push(&y->event.top_ids) = reply_token(s);
        break;
    default:
        take_top(y, s, id == TOP_PROB);
    }
}

static void end_event(struct reply *y)
{
    reply_take_entries(y);
}

static int complete(struct reply *y, const struct engine_request *q, struct err *e)
{
    int64_t evaluated = (int64_t)(q->prompt.n + y->ids.n) - 1; /* all but the last sampled token */

    if (y->finish == REPLY_STOP && y->stop_text.len == 0 && y->ids.n > 0)
        y->stop_id = vec_last(&y->ids); /* "eos": any id that the server considers an end */
    /* "limit" with all tokens in the slot means that there was no space for more. Otherwise the
     * server has dropped part of the prompt to make space (--context-shift), so the answer is not
     * to the prompt that was sent. */
    if (y->truncated &&
        (y->finish != REPLY_LENGTH || (y->slot_tokens > 0 && y->slot_tokens < evaluated)))
        return err_set(e, ERR_ENGINE_INVALID, "the engine truncated the prompt");
    return 0;
}

/* --- left-out logprobs --- */

/* Uses a bias, which affects samplers but not the reported logprobs of the logits. */
static void write_score(const struct score_ask *ask, struct wire_send *send)
{
    struct json_out o = json_out_to(&send->body);

    send->path = "/completion";
    json_out_obj(&o);
    json_out_key(&o, "prompt");
    wire_ids(&o, token_parts_of(&ask->prompt));
    json_out_member_i64(&o, "n_predict", 1);
    json_out_member_arr(&o, "logit_bias");
    json_out_arr(&o);
    json_out_i64(&o, ask->force);
    json_out_i64(&o, 1000);
    json_out_end_arr(&o);
    json_out_end_arr(&o);
    json_out_member_i64(&o, "n_probs", ask->n_probs);
    json_out_member_i64(&o, "seed", ask->seed);
    json_out_member_double(&o, "temperature", 1);
    json_out_member_raw(&o, "samplers", STR("[\"temperature\"]"));
    json_out_member_bool(&o, "return_tokens", true);
    json_out_member_bool(&o, "post_sampling_probs", false);
    json_out_member_bool(&o, "cache_prompt", true);
    json_out_member_bool(&o, "stream", false);
    engine_extra_write(&o, ask->sampling->engine_extra); /* such as a LoRA adapter */
    json_out_end_obj(&o);
}

static const struct field score_fields[] = {
    FIELD("generation_settings.seed", FIELD_SCALAR, SCORE_FIELD_SEED),
    FIELD("tokens[]", FIELD_SCALAR, SCORE_FIELD_TOKEN),
    FIELD(ENTRIES "[]", FIELD_MARK, SCORE_FIELD_ENTRY),
    FIELD(ENTRIES "[].id", FIELD_SCALAR, SCORE_FIELD_ID),
    FIELD(ENTRIES "[].logprob", FIELD_SCALAR, SCORE_FIELD_LOGPROB),
    FIELD(ENTRIES "[].top_logprobs[]", FIELD_MARK, SCORE_FIELD_TOP),
    FIELD(ENTRIES "[].top_logprobs[].id", FIELD_SCALAR, SCORE_FIELD_TOP_ID),
    FIELD(ENTRIES "[].top_logprobs[].logprob", FIELD_SCALAR, SCORE_FIELD_TOP_LOGPROB),
};

/* Reads the context of one slot. */
static void take_info(const struct json *info, struct engine_facts *ret)
{
    int64_t slots = 0;

    remote_take_context(json_get(json_get(info, "default_generation_settings"), "n_ctx"), ret);
    if (json_to_i64(json_get(info, "total_slots"), &slots) == 0 && slots > 0 &&
        slots <= UINT16_MAX) {
        ret->kv_unit = ret->context_length; /* a slot holds one session, and reserves that much */
        ret->kv_capacity = ret->kv_unit * (uint64_t)slots;
    }
}

static const struct wire wire = {
    .info = "/props",
    .take_info = take_info,
    .fields = fields,
    .n_fields = ARRAY_LEN(fields),
    .write = write_request,
    .scalar = take_scalar,
    .end_event = end_event,
    .complete = complete,
    .write_score = write_score,
    .score_fields = score_fields,
    .n_score_fields = ARRAY_LEN(score_fields),
    .basis = BASIS_PROCESSED,
};

#define OURS                                                                                       \
    "prompt n_predict n_cmpl n typical_p repeat_penalty dry_multiplier xtc_probability "           \
    "mirostat dynatemp_range backend_sampling samplers return_tokens n_probs post_sampling_probs " \
    "cache_prompt stream "                                                                         \
    "json_schema grammar input_prefix input_suffix multimodal_data response_fields logprobs "      \
    "sampling_params"

const struct engine_adapter engine_llamacpp = {
    REMOTE_FUNCTIONS,
    .kind = "llamacpp",
    .wire = &wire,
    .cannot_enforce = "regex structural_tag",
    .extra = {true, false, OURS, NULL},
    .asks_basis = BASIS_PROCESSED,
    .cannot_tell = "sampling_support indexer_topk routed_experts",
    .cannot_take = "stop_token_ids min_tokens allowed_token_ids bad_words "
                   "max_thinking_tokens",
    .reads = "GET /health, GET /v1/health, POST /tokenize, POST /detokenize, "
             "POST /apply-template"};
