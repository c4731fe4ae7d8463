/*
 * Kind `vllm`: POST /inference/v1/generate (route 0) or, if it is missing, POST /v1/completions
 * with token ids (route 1). Answers of both routes differ only in names, so one table reads them.
 */
#include "common/base/log.h"
#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/extra.h"
#include "worker/engine/wire/kind_probe.h"
#include "worker/engine/wire/npy.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/wire_fields.h"
#include "worker/engine/wire/wire_reply.h"
#include "worker/engine/wire/wire_write.h"

enum { ROUTE_GENERATE, ROUTE_COMPLETIONS, ROUTES };

enum {
    STOP_REASON = FIELD_ID_WIRE,
    ENTRY_ID,    /* generate: a number such as 7 */
    ENTRY_NAME,  /* generate, before September 2026: "token_id:7" */
    TOKEN_NAME,  /* completions: "token_id:7" */
    TOP_LOGPROB, /* generate: logprob of an alternative; its id comes before or after it */
    TOP_ID,
    TOP_NAME,
    TOP_NAMED, /* completions: {"token_id:7": -0.1} */
};

static const struct field fields[] = {
    FIELD("request_id", FIELD_SCALAR, FIELD_ID_ANSWER),
    FIELD("id", FIELD_SCALAR, FIELD_ID_ANSWER),
    FIELD("choices[].token_ids", FIELD_INTS, FIELD_ID_IDS),
    FIELD("choices[].prompt_token_ids", FIELD_INTS, FIELD_ID_PROMPT_ECHO),
    FIELD("prompt_token_ids", FIELD_INTS, FIELD_ID_PROMPT_ECHO),
    FIELD("choices[].finish_reason", FIELD_SCALAR, FIELD_ID_FINISH),
    FIELD("choices[].stop_reason", FIELD_SCALAR, STOP_REASON),
    FIELD("choices[].routed_experts", FIELD_BASE64, FIELD_ID_EXPERTS),
    FIELD("choices[].sampling_mask[]", FIELD_INTS, FIELD_ID_SUPPORT),
    FIELD("choices[].sampling_mask_logprobs[]", FIELD_FLOATS, FIELD_ID_SUPPORT_LOGPROBS),
    FIELD("choices[].logprobs.content[]", FIELD_MARK, FIELD_ID_POSITION),
    FIELD("choices[].logprobs.content[].logprob", FIELD_SCALAR, FIELD_ID_LOGPROB),
    FIELD("choices[].logprobs.content[].token_id", FIELD_SCALAR, ENTRY_ID),
    FIELD("choices[].logprobs.content[].token", FIELD_SCALAR, ENTRY_NAME),
    FIELD("choices[].logprobs.content[].top_logprobs[]", FIELD_MARK, FIELD_ID_TOP),
    FIELD("choices[].logprobs.content[].top_logprobs[].logprob", FIELD_SCALAR, TOP_LOGPROB),
    FIELD("choices[].logprobs.content[].top_logprobs[].token_id", FIELD_SCALAR, TOP_ID),
    FIELD("choices[].logprobs.content[].top_logprobs[].token", FIELD_SCALAR, TOP_NAME),
    FIELD("choices[].logprobs.token_logprobs", FIELD_FLOATS, FIELD_ID_LOGPROBS),
    FIELD("choices[].logprobs.tokens[]", FIELD_SCALAR, TOKEN_NAME),
    FIELD("choices[].logprobs.top_logprobs[]", FIELD_MARK, FIELD_ID_POSITION),
    FIELD("choices[].logprobs.top_logprobs[].*", FIELD_SCALAR, TOP_NAMED),
    FIELD("metrics.speculative_decoding", FIELD_MARK, FIELD_ID_SPECULATES),
    FIELD("choices[].weight_versions[].version", FIELD_SCALAR, FIELD_ID_SPAN_VERSION),
    FIELD("choices[].weight_versions[].start", FIELD_SCALAR, FIELD_ID_SPAN_START),
    FIELD("choices[].weight_versions[].end", FIELD_SCALAR, FIELD_ID_SPAN_END),
    FIELD("usage.completion_tokens", FIELD_SCALAR, FIELD_ID_COMPLETION_TOKENS),
    FIELD("usage.prompt_tokens_details.cached_tokens", FIELD_SCALAR, FIELD_ID_CACHED),
    FIELD("usage.prompt_tokens", FIELD_SCALAR, FIELD_ID_PROMPT_TOKENS),
    FIELD("error", FIELD_SCALAR, FIELD_ID_ERROR),
    FIELD("error.message", FIELD_SCALAR, FIELD_ID_ERROR_MESSAGE),
    FIELD("error.code", FIELD_SCALAR, FIELD_ID_ERROR_CODE),
    FIELD("error.type", FIELD_SCALAR, FIELD_ID_ERROR_TYPE),
};

/* --- requests --- */

/* Writes a grammar. A server that knows of thoughts applies it only after them; one that does not
 * applies it at once. The grammar for the former works for both. */
static void write_grammar(struct wire_send *send, struct json_out *o,
                          const struct engine_request *q)
{
    static const char *const keys[][2] = {
        {"regex", "regex"}, {"ebnf", "grammar"}, {"structural_tag", "structural_tag"}};
    const struct sampling *s = q->sampling;
    const struct json *schema = sampling_schema(s);
    struct str behind = json_string(json_get(s->grammar, "behind_thought"));

    if (!s->grammar)
        return;
    json_out_member_obj(o, "structured_outputs");
    wire_value(send, o, q, "json", schema);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct str text = wire_grammar(s, keys[i][0]);

        if (text.p)
            wire_text(send, o, q, keys[i][1], behind.p ? behind : text);
    }
    json_out_end_obj(o);
}

static void write_sampling(struct wire_send *send, struct json_out *o,
                           const struct engine_request *q, const struct remote *r)
{
    const struct engine_options *opt = remote_options(r);
    const struct sampling *s = q->sampling;

    json_out_member_i64(o, "max_tokens", s->max_tokens);
    wire_sampling(o, s);
    json_out_member_i64(o, "top_k", s->top_k > 0 ? s->top_k : 0);
    json_out_member_double(o, "repetition_penalty", s->repetition_penalty);
    json_out_member_i64(o, "logprobs", q->top_logprobs);
    wire_given(o, "min_tokens", s->min_tokens);
    wire_value(send, o, q, "allowed_token_ids", s->allowed_token_ids);
    wire_value(send, o, q, "bad_words", s->bad_words);
    if (remote_gives_budget(r, q))
        wire_given(o, "thinking_token_budget", s->max_thinking_tokens);
    wire_value(send, o, q, "stop", s->stop);
    wire_stop_ids(o, "stop_token_ids", q, opt);
    if (s->has_seed)
        json_out_member_i64(o, "seed", s->seed);
    wire_bias(send, o, q);
    write_grammar(send, o, q);
}

/* Writes pictures. The server expands the placeholders, and returns the ids with its first
 * document. Parts are flat, unlike those of a chat: both fronts read `url` next to `type`, and
 * nothing deeper. */
static void write_images(struct wire_send *s, struct json_out *o, const struct engine_request *q)
{
    if (q->n_images == 0)
        return;
    json_out_member_arr(o, "content_parts");
    for (size_t i = 0; i < q->n_images; i++) {
        json_out_obj(o);
        json_out_member_cstr(o, "type", "image_url");
        json_out_key(o, "url");
        wire_data_url(s, o, &q->images[i], false);
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
    json_out_member_bool(o, "return_token_ids", true);
}

/* Asks for experts from a row on. An older server ignores that and returns all rows; experts_check
 * detects it. */
static void write_experts(struct json_out *o, const struct engine_request *q,
                          const struct engine_options *opt)
{
    if (!opt->routed_experts || q->experts_from == 0) /* all rows, which is the server's default */
        return;
    json_out_member_i64(o, "routed_experts_prompt_start", q->experts_from);
}

static void write_generate(struct wire_send *s, struct json_out *o, const struct engine_request *q,
                           const struct remote *r)
{
    struct buf rid = {0};

    remote_rid(&rid, q);
    json_out_member_str(o, "request_id", buf_str(&rid));
    json_out_key(o, "token_ids");
    wire_ids(o, q->prompt);
    write_images(s, o, q);
    json_out_member_obj(o, "sampling_params");
    write_sampling(s, o, q, r);
    /* Without text, stop strings would not work. */
    json_out_member_bool(o, "detokenize", q->sampling->stop != NULL);
    write_experts(o, q, remote_options(r));
    engine_extra_write_inner(o, q->sampling->engine_extra);
    json_out_end_obj(o);
    buf_done(&rid);
}

static void write_completions(struct wire_send *s, struct json_out *o,
                              const struct engine_request *q, const struct remote *r)
{
    json_out_key(o, "prompt");
    wire_ids(o, q->prompt);
    write_sampling(s, o, q, r);
    json_out_member_bool(o, "return_token_ids", true);
    json_out_member_bool(o, "return_tokens_as_token_ids", true);
    json_out_key(o, "return_weight_versions"); /* route 1 always returns them */
    json_out_bool(o, true);
    json_out_member_bool(o, "skip_special_tokens", false);
    write_experts(o, q, remote_options(r));
    engine_extra_write_inner(o, q->sampling->engine_extra);
}

/* By default the server's logprobs are those before temperature; nothing in its answers shows
 * it. */
static void warn_of_raw_logprobs(const struct remote *r, const struct engine_request *q)
{
    static bool warned;

    if (warned || remote_basis(r) == BASIS_PROCESSED ||
        (q->sampling->temperature > 0.999 && q->sampling->temperature < 1.001))
        return;
    warned = true;
    log_warn(NULL, "vllm: logprobs are those of temperature 1 unless the server runs with "
                   "--logprobs-mode processed_logprobs and the engine is set up with "
                   "logprobs=processed");
}

static void write_request(const struct remote *r, const struct engine_request *q,
                          struct wire_send *send)
{
    struct json_out o = json_out_to(&send->body);

    warn_of_raw_logprobs(r, q);
    if (remote_options(r)->routed_experts &&
        (remote_route(r) == ROUTE_COMPLETIONS || remote_streams_lose_experts(r)))
        send->stream = false; /* streams of this route never have experts */
    wire_reserve(send, q->prompt.n);
    json_out_obj(&o);
    if (remote_route(r) == ROUTE_GENERATE) {
        send->path = "/inference/v1/generate";
        write_generate(send, &o, q, r);
    } else {
        send->path = "/v1/completions";
        write_completions(send, &o, q, r);
    }
    json_out_member_bool(&o, "stream", send->stream);
    if (send->stream) { /* otherwise a stream has no number of cached tokens */
        json_out_member_raw(&o, "stream_options", STR("{\"include_usage\":true}"));
    }
    if (q->lora.len > 0) { /* an adapter is a model of its own */
        json_out_member_str(&o, "model", q->lora);
    }
    wire_scheduling(&o, q, "cache_salt", remote_target(r)->priority ? -1 : 0);
    engine_extra_write(&o, q->sampling->engine_extra);
    json_out_end_obj(&o);
}

/* --- answers --- */

/* Returns the id in "token_id:7", or -1. */
static int32_t id_of(struct str name)
{
    uint64_t id;

    if (!str_starts(name, STR("token_id:")) ||
        str_to_u64(str_sub(name, 9, name.len), INT32_MAX, &id) < 0)
        return -1;
    return (int32_t)id;
}

/* Stores the id of the entry that is being read. An id has priority over a name, which may be the
 * token's text. */
static void store_entry_id(struct reply *y, int32_t id, bool name)
{
    struct json_ints *ids = &y->event.logprob_ids;

    while (ids->n < y->event.top_positions)
        *vec_push(ids) = -1;
    if (ids->n > 0 && (!name || vec_last(ids) < 0))
        vec_last(ids) = id;
}

/* Stores a member of the alternative that is being read. generate lists the sampled token first,
 * even if it is not one of the best. The last of the best is cut off then. */
static void store_top_member(struct reply *y, int id, const struct json_scan *s)
{
    struct reply_event *v = &y->event;

    if (id == TOP_LOGPROB)
        vec_last(&v->top_logprobs) = reply_float(s);
    else if (id == TOP_ID)
        vec_last(&v->top_ids) = reply_token(s);
    else if (vec_last(&v->top_ids) < 0)
        vec_last(&v->top_ids) = id_of(s->text);
}

static void take_named(struct reply *y, const struct json_scan *s, struct str key)
{
    reply_begin_top(y);
    vec_last(&y->event.top_ids) = id_of(key);
    vec_last(&y->event.top_logprobs) = reply_float(s);
}

static void take_scalar(struct reply *y, int id, const struct json_scan *s, struct str key)
{
    struct reply_event *v = &y->event;

    switch (id) {
    case STOP_REASON:
        if (s->token == JSON_TOKEN_STRING)
            reply_text(&y->stop_text, s);
        else
            y->stop_id = reply_int(s);
        break;
    case ENTRY_ID:
        store_entry_id(y, reply_token(s), false);
        break;
    case ENTRY_NAME:
        store_entry_id(y, id_of(s->text), true);
        break;
    case TOKEN_NAME:
        *vec_push(&v->logprob_ids) = id_of(s->text);
        break;
    case TOP_NAMED:
        take_named(y, s, key);
        break;
    default:
        store_top_member(y, id, s);
    }
}

static void end_event(struct reply *y)
{
    struct reply_event *v = &y->event;

    while (v->logprob_ids.n < v->logprobs.n)
        *vec_push(&v->logprob_ids) = -1;
    v->has_logprob_ids = v->logprobs.n > 0;
    reply_end_position(y);
}

static int complete(struct reply *y, const struct engine_request *q, struct err *e)
{
    size_t whole = q->prompt.n + y->ids.n - 1;
    const struct npy_last *last;

    if (!y->has_experts)
        return 0;
    last = &y->npy->last;
    if (npy_end(y->npy, &y->experts, e))
        return -1;
    buf_done(&y->experts);
    y->experts = y->npy->items;
    y->npy->items = (struct buf){0};
    if (last->rows == whole || last->rows + q->experts_from == whole)
        /* a cumulative stream: the last file has all rows of those before */
        y->experts_from = last->at;
    return 0;
}

/* Aborts by the name that the server returned, or else by ours (its Rust front returns only ours).
 * Route 1 has no name of ours, and an empty list would abort all requests. A server in development
 * mode, which alone answers /weight_info, has the first path. Others have the second path if they
 * have route 0, or neither. */
static void write_abort(const struct remote *r, struct str rid, struct str returned,
                        struct wire_send *s)
{
    struct json_out o = json_out_to(&s->body);
    struct buf name = {0};

    s->path = remote_tells_weights(r) ? "/abort_requests" : "/inference/v1/abort_requests";
    if (!returned.p)
        buf_puts(&name, "generate-tokens-");
    buf_add_str(&name, returned.p ? returned : rid);
    json_out_obj(&o);
    json_out_member_arr(&o, "request_ids");
    json_out_str(&o, buf_str(&name));
    json_out_end_arr(&o);
    json_out_end_obj(&o);
    buf_done(&name);
}

/* Reads the list of models; the server has one. */
static void take_info(const struct json *info, struct engine_facts *ret)
{
    const struct json *model = json_at(json_get(info, "data"), 0);

    ret->other_kind = kind_of_models(info, "vllm");
    remote_take_context(json_get(model, "max_model_len"), ret);
}

static const struct wire wire = {
    .info = "/v1/models",
    .take_info = take_info,
    .version = "/version",
    .rust_member = "rust_frontend_version",
    .weights = "/weight_info",
    .kv = "/metrics",
    .fields = fields,
    .n_fields = ARRAY_LEN(fields),
    .stream_mode = REPLY_INCREMENTAL,
    .rank_header = "x-data-parallel-rank: ",
    .sends_request_id = true,
    .write = write_request,
    .scalar = take_scalar,
    .end_event = end_event,
    .complete = complete,
    .abort = write_abort,
    .aborts_by_first_route = true,
    .budget = WIRE_BUDGET_TRIED,
    .basis = BASIS_RAW, /* default of the server */
    .echoes_images = true,
    .experts_in_pieces = true,
    .silent_abort = true,
    .routes = ROUTES,
};

/* One list of all names, because on route 1 all members are on one level. */
#define OURS                                                                                     \
    "request_id token_ids sampling_params stream stream_options prompt prompt_embeds "           \
    "max_tokens logprobs structured_outputs detokenize routed_experts_prompt_start n best_of "   \
    "use_beam_search truncate_prompt_tokens return_token_ids return_tokens_as_token_ids "        \
    "prompt_logprobs logprob_token_ids return_prompt_text "                                      \
    "return_weight_versions content_parts features skip_special_tokens echo suffix output_kind " \
    "flat_logprobs "                                                                             \
    "kv_transfer_params"

const struct engine_adapter engine_vllm = {
    REMOTE_FUNCTIONS,
    .kind = "vllm",
    .wire = &wire,
    .options = "priority dp-ranks",
    .scores = SCORER_VLLM,
    .takes_images = true,
    .lora_field = "model",
    .cannot_take = "repeat_last_n",
    .cannot_tell = "indexer_topk",
    .extra = {true, true, OURS, OURS},
    .version_path = "/update_weight_version",
    .reads = "GET /health, GET /ping, GET /version, GET /load, POST /tokenize, "
             "POST /detokenize",
};
