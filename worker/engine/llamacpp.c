/*
 * Kind `llamacpp`: POST /completion with token ids. Never streamed: a stream leaves out tokens that
 * end inside a character. Samplers are neutralised but for what the request asks.
 */
#include "common/base/vec.h"
#include "worker/engine/remote.h"
#include "worker/engine/wire_write.h"

enum {
    STOP_TYPE = FIELD_ID_WIRE,
    STOPPING_WORD,
    TRUNCATED,
    PREDICTED,
    SAMPLED_ID,
    TOP_ID,
    TOP_LOGPROB,
};

static const struct field fields[] = {
    FIELD("tokens", FIELD_INTS, FIELD_ID_IDS),
    FIELD("tokens_evaluated", FIELD_SCALAR, FIELD_ID_PROMPT_TOKENS),
    FIELD("stop_type", FIELD_SCALAR, STOP_TYPE),
    FIELD("stopping_word", FIELD_SCALAR, STOPPING_WORD),
    FIELD("truncated", FIELD_SCALAR, TRUNCATED),
    FIELD("completion_probabilities[]", FIELD_MARK, FIELD_ID_POSITION),
    FIELD("completion_probabilities[].id", FIELD_SCALAR, SAMPLED_ID),
    FIELD("completion_probabilities[].logprob", FIELD_SCALAR, FIELD_ID_LOGPROB),
    FIELD("completion_probabilities[].top_logprobs[].id", FIELD_SCALAR, TOP_ID),
    FIELD("completion_probabilities[].top_logprobs[].logprob", FIELD_SCALAR, TOP_LOGPROB),
    FIELD("error", FIELD_SCALAR, FIELD_ID_ERROR),
    FIELD("error.message", FIELD_SCALAR, FIELD_ID_ERROR_MESSAGE),
    FIELD("error.code", FIELD_SCALAR, FIELD_ID_ERROR_CODE),
};

static void write_sampling(struct json_out *o, const struct sampling *s)
{
    json_out_key(o, "n_predict");
    json_out_i64(o, s->max_tokens);
    wire_sampling(o, s);
    json_out_key(o, "top_k");
    json_out_i64(o, s->top_k > 0 ? s->top_k : 0);
    json_out_key(o, "typical_p");
    json_out_double(o, 1);
    json_out_key(o, "repeat_penalty");
    json_out_double(o, s->repetition_penalty);
    json_out_key(o, "dry_multiplier");
    json_out_double(o, 0);
    json_out_key(o, "xtc_probability");
    json_out_double(o, 0);
    json_out_key(o, "mirostat");
    json_out_i64(o, 0);
    /* These alone, in the order that other engines use. */
    json_out_key(o, "samplers");
    json_out_raw(o, STR("[\"penalties\",\"temperature\",\"top_k\",\"top_p\",\"min_p\"]"));
    json_out_key(o, "seed");
    json_out_i64(o, s->has_seed ? s->seed : -1);
}

static void write_request(const struct remote *r, const struct engine_request *q,
                          struct wire_send *send)
{
    const struct sampling *s = &q->sampling;
    struct json_out o = json_out_to(&send->body);
    const struct json *schema = sampling_schema(s);
    struct str grammar = wire_grammar(s, "ebnf");

    (void)r;
    send->path = "/completion";
    send->stream = false;
    json_out_obj(&o);
    json_out_key(&o, "prompt");
    wire_ids(&o, q->prompt);
    write_sampling(&o, s);
    json_out_key(&o, "return_tokens");
    json_out_bool(&o, true);
    json_out_key(&o, "n_probs");
    json_out_i64(&o, MAX_OF(q->top_logprobs, 1u));
    json_out_key(&o, "cache_prompt");
    json_out_bool(&o, true);
    json_out_key(&o, "stream");
    json_out_bool(&o, false);
    wire_stops(&o, "stop", s);
    if (s->logit_bias) {
        json_out_key(&o, "logit_bias");
        json_out_value(&o, s->logit_bias);
    }
    if (schema) {
        json_out_key(&o, "json_schema");
        json_out_value(&o, schema);
    } else if (grammar.p) {
        json_out_key(&o, "grammar");
        json_out_str(&o, grammar);
    }
    json_out_end_obj(&o);
}

static void take_stop(struct reply *y, const struct json_scan *s)
{
    if (str_eq_c(s->text, "eos") || str_eq_c(s->text, "word"))
        y->finish = REPLY_STOP;
    else if (str_eq_c(s->text, "limit"))
        y->finish = REPLY_LENGTH;
    else
        y->finish = REPLY_BROKEN;
}

static void take_scalar(struct reply *y, int id, const struct json_scan *s, struct str key)
{
    struct reply_event *v = &y->event;

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
    case SAMPLED_ID:
        *vec_push(&v->logprob_ids) = (int32_t)reply_int(s);
        break;
    case TOP_ID:
        if (y->n_top > 0)
            *vec_push(&v->top_ids) = (int32_t)reply_int(s);
        break;
    default:
        if (y->n_top > 0)
            *vec_push(&v->top_logprobs) = reply_float(s);
    }
}

static void end_event(struct reply *y)
{
    y->event.has_logprob_ids = y->event.logprob_ids.n == y->event.logprobs.n;
    reply_end_position(y);
}

static int complete(struct reply *y, const struct engine_request *q, struct err *e)
{
    (void)q;
    /* The server dropped part of the prompt to make room: not what was asked for. */
    return y->truncated ? err_set(e, ERR_ENGINE_INVALID, "the engine truncated the prompt") : 0;
}

/* The context of one slot. */
static void take_info(const struct json *info, struct engine_facts *ret)
{
    remote_take_context(json_get(json_get(info, "default_generation_settings"), "n_ctx"), ret);
}

static const struct wire wire = {
    .kind = "llamacpp",
    .info = "/props",
    .take_info = take_info,
    .fields = fields,
    .n_fields = ARRAY_LEN(fields),
    .health = "/health",
    .write = write_request,
    .scalar = take_scalar,
    .end_event = end_event,
    .complete = complete,
    .routes = 1,
};

REMOTE_ADAPTER(llamacpp, "llamacpp", &wire, .cannot_enforce = "regex structural_tag",
               .reads = "GET /health, GET /v1/health, POST /tokenize, POST /detokenize, "
                        "POST /apply-template");
