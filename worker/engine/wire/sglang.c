/* Kind `sglang`: POST /generate, ids in, ids and logprobs out. */
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/extra.h"
#include "worker/engine/pool/ready_texts.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/wire_fields.h"
#include "worker/engine/wire/wire_reply.h"
#include "worker/engine/wire/wire_write.h"

enum {
    FINISH_MATCHED = FIELD_ID_WIRE,
    FINISH_MESSAGE,
    FINISH_STATUS,
    VERSION,
    DP_RANK,
    RETRACTIONS,
};

static const struct field fields[] = {
    FIELD("output_ids", FIELD_INTS, FIELD_ID_IDS),
    FIELD("prompt_token_ids", FIELD_INTS, FIELD_ID_PROMPT_ECHO),
    FIELD("meta_info.id", FIELD_SCALAR, FIELD_ID_ANSWER),
    FIELD("meta_info.output_token_logprobs", FIELD_TRIPLES, FIELD_ID_TRIPLES),
    FIELD("meta_info.output_top_logprobs[]", FIELD_TRIPLES, FIELD_ID_TOPS),
    FIELD("meta_info.routed_experts", FIELD_BASE64, FIELD_ID_EXPERTS),
    FIELD("meta_info.indexer_topk", FIELD_BASE64, FIELD_ID_INDEXER),
    FIELD("meta_info.indexer_topk_num_layers", FIELD_SCALAR, FIELD_ID_INDEXER_LAYERS),
    FIELD("meta_info.output_token_sampling_mask[]", FIELD_INTS, FIELD_ID_SUPPORT),
    FIELD("meta_info.output_token_sampling_logprobs[]", FIELD_SCALAR, FIELD_ID_SUPPORT_SAMPLED),
    FIELD("meta_info.output_token_sampling_logprobs[][]", FIELD_SCALAR, FIELD_ID_SUPPORT_LOGPROB),
    FIELD("meta_info.prompt_tokens", FIELD_SCALAR, FIELD_ID_PROMPT_TOKENS),
    FIELD("meta_info.cached_tokens", FIELD_SCALAR, FIELD_ID_CACHED),
    FIELD("meta_info.dp_rank", FIELD_SCALAR, DP_RANK),
    FIELD("meta_info.num_retractions", FIELD_SCALAR, RETRACTIONS),
    FIELD("meta_info.completion_tokens", FIELD_SCALAR, FIELD_ID_COMPLETION_TOKENS),
    FIELD("meta_info.finish_reason", FIELD_SCALAR, FIELD_ID_FINISH),
    FIELD("meta_info.finish_reason.type", FIELD_SCALAR, FIELD_ID_FINISH),
    FIELD("meta_info.finish_reason.matched", FIELD_SCALAR, FINISH_MATCHED),
    FIELD("meta_info.finish_reason.message", FIELD_SCALAR, FINISH_MESSAGE),
    FIELD("meta_info.finish_reason.status_code", FIELD_SCALAR, FINISH_STATUS),
    FIELD("meta_info.spec_verify_ct", FIELD_MARK, FIELD_ID_SPECULATES),
    FIELD("meta_info.weight_version", FIELD_SCALAR, VERSION),
    FIELD("meta_info.weight_versions[].version", FIELD_SCALAR, FIELD_ID_SPAN_VERSION),
    FIELD("meta_info.weight_versions[].start", FIELD_SCALAR, FIELD_ID_SPAN_START),
    FIELD("meta_info.weight_versions[].end", FIELD_SCALAR, FIELD_ID_SPAN_END),
    FIELD("error", FIELD_SCALAR, FIELD_ID_ERROR),
    FIELD("error.message", FIELD_SCALAR, FIELD_ID_ERROR_MESSAGE),
    FIELD("error.code", FIELD_SCALAR, FIELD_ID_ERROR_CODE),
    FIELD("error.type", FIELD_SCALAR, FIELD_ID_ERROR_TYPE),
};

/* Writes a schema as a string that contains its JSON. */
static void write_schema(struct wire_send *send, struct json_out *o, const struct engine_request *q,
                         const struct json *schema)
{
    const struct ready_text *ready = ready_texts_of(q->ready, schema);
    struct buf text = {0};

    json_out_key(o, "json_schema");
    if (ready) {
        wire_json(send, o, ready->quoted);
        return;
    }
    json_write(&text, schema);
    json_out_str(o, buf_str(&text));
    buf_done(&text);
}

static void write_grammar(struct wire_send *send, struct json_out *o,
                          const struct engine_request *q)
{
    static const char *const kinds[] = {"regex", "ebnf", "structural_tag"};
    const struct json *schema = sampling_schema(q->sampling);

    if (schema)
        write_schema(send, o, q, schema);
    for (size_t i = 0; i < ARRAY_LEN(kinds) && !schema; i++) {
        struct str text = wire_grammar(q->sampling, kinds[i]);

        if (text.p)
            wire_text(send, o, q, kinds[i], text);
    }
}

/* Writes only names that the server knows: an unknown one is an internal error there. */
static void write_sampling(struct wire_send *send, struct json_out *o,
                           const struct engine_request *q, const struct engine_options *opt)
{
    const struct sampling *s = q->sampling;

    json_out_member_obj(o, "sampling_params");
    json_out_member_i64(o, "max_new_tokens", s->max_tokens);
    wire_sampling(o, s);
    json_out_member_i64(o, "top_k", s->top_k > 0 ? s->top_k : -1);
    json_out_member_double(o, "repetition_penalty", s->repetition_penalty);
    json_out_member_bool(o, "skip_special_tokens", false);
    wire_given(o, "min_new_tokens", s->min_tokens);
    wire_value(send, o, q, "stop", s->stop);
    wire_stop_ids(o, "stop_token_ids", q, opt);
    if (s->has_seed)
        json_out_member_i64(o, "sampling_seed", s->seed);
    wire_bias(send, o, q);
    write_grammar(send, o, q);
    engine_extra_write_inner(o, s->engine_extra);
    json_out_end_obj(o);
}

/* Writes pictures. The prompt is in collapsed form: the server expands the placeholders itself, and
 * returns the ids if the answer is not a stream (there every event would repeat them). A server
 * that decodes JPEG on the GPU cannot compute how many tokens a picture has, and makes different
 * ids of the whole prompt. A byte after the picture's end prevents that. */
static void write_images(struct wire_send *s, struct json_out *o, const struct engine_request *q)
{
    if (q->n_images == 0)
        return;
    json_out_member_arr(o, "image_data");
    for (size_t i = 0; i < q->n_images; i++)
        wire_data_url(s, o, &q->images[i], str_eq_c(q->images[i].format, "jpeg"));
    json_out_end_arr(o);
    if (s->stream)
        return;
    json_out_member_bool(o, "return_prompt_token_ids", true);
}

/* Asks for the data of each token in addition to its logprob. */
static void write_rows(struct json_out *o, const struct engine_request *q, bool experts)
{
    if (experts) {
        json_out_member_bool(o, "return_routed_experts", true);
        json_out_member_i64(o, "routed_experts_start_len", q->experts_from);
    }
    if (q->indexer.wanted)
        json_out_member_bool(o, "return_indexer_topk", true);
    if (q->support) {
        json_out_member_bool(o, "return_sampling_mask", true);
        json_out_member_cstr(o, "sampling_logprobs_mode", "support");
    }
}

/* Writes how the two halves find each other. The prefill half knows which of its ranks it uses. */
static void write_pairing(struct json_out *o, const struct engine_pairing *pair, const char *half)
{
    json_out_member_str(o, "bootstrap_host", pair->host);
    json_out_member_i64(o, "bootstrap_port", pair->port);
    json_out_member_i64(o, "bootstrap_room", (int64_t)pair->room);
    if (pair->rank >= 0 && half && strcmp(half, "decode") == 0)
        json_out_member_i64(o, "disagg_prefill_dp_rank", pair->rank);
}

static void write_request(const struct remote *r, const struct engine_request *q,
                          struct wire_send *send)
{
    const struct engine_options *opt = remote_options(r);
    const struct engine_facts *facts = remote_facts(r);
    struct json_out o = json_out_to(&send->body);
    int64_t rank = remote_rank_of(r, q);

    send->path = "/generate";
    wire_reserve(send, q->prompt.n);
    json_out_obj(&o);
    json_out_member_str(&o, "rid", buf_str(&send->id));
    json_out_key(&o, "input_ids");
    wire_ids(&o, q->prompt);
    write_images(send, &o, q);
    write_sampling(send, &o, q, opt);
    json_out_member_bool(&o, "return_logprob", true);
    json_out_member_i64(&o, "logprob_start_len", -1);
    json_out_member_i64(&o, "top_logprobs_num", q->top_logprobs);
    json_out_member_bool(&o, "return_text_in_logprobs", false);
    json_out_member_bool(&o, "stream", send->stream);
    write_rows(&o, q, opt->routed_experts || q->all_fields);
    if (q->lora.len > 0)
        json_out_member_str(&o, "lora_path", q->lora);
    wire_scheduling(&o, q, "extra_key", !facts->by_priority ? 0 : facts->low_first ? -1 : 1);
    if (rank >= 0)
        json_out_member_i64(&o, "routed_dp_rank", rank);
    if (q->pair)
        write_pairing(&o, q->pair, facts->half);
    if (facts->by_session)
        json_out_member_str(&o, "session_id", q->session_id);
    if (remote_gives_budget(r, q)) {
        wire_given(&o, "max_thinking_tokens", q->sampling->max_thinking_tokens);
        json_out_member_bool(&o, "require_reasoning", true);
    }
    engine_extra_write(&o, q->sampling->engine_extra);
    json_out_end_obj(&o);
}

static void take_scalar(struct reply *y, int id, const struct json_scan *s, struct str key)
{
    (void)key;
    switch (id) {
    case FINISH_MATCHED:
        y->stop_id = reply_int(s);
        if (s->token == JSON_TOKEN_STRING)
            reply_text(&y->stop_text, s);
        break;
    case FINISH_MESSAGE:
        reply_text(&y->message, s);
        break;
    case FINISH_STATUS:
        y->status = reply_int(s);
        break;
    case VERSION:
        reply_text(&y->version, s);
        break;
    case RETRACTIONS:
        y->recomputed = reply_int(s) > 0;
        break;
    default:
        y->dp_rank = reply_int(s);
    }
}

static int complete(struct reply *y, const struct engine_request *q, struct err *e)
{
    if (q->sampling->grammar)
        /* a finished grammar reports its last token as "matched", which is not a stop */
        y->stop_id = -1;
    if (y->finish == REPLY_STOP && str_eq_c(buf_str(&y->stop_text), "NaN happened"))
        return err_set(e, ERR_ENGINE_INVALID, "the engine's logits were NaN");
    return 0;
}

static void write_abort(const struct remote *r, struct str rid, struct str returned,
                        struct wire_send *s)
{
    struct json_out o = json_out_to(&s->body);

    (void)r, (void)returned;
    s->path = "/abort_request";
    json_out_obj(&o);
    json_out_member_str(&o, "rid", rid);
    json_out_end_obj(&o);
}

static void write_end_session(struct str session_id, struct wire_send *s)
{
    struct json_out o = json_out_to(&s->body);

    s->path = "/close_session";
    json_out_obj(&o);
    json_out_member_str(&o, "session_id", session_id);
    json_out_end_obj(&o);
}

/* Returns whether the server accepts adapters. One that has adapters from its start may not report
 * it. */
static enum engine_lora lora_of(const struct json *enabled, const struct json *paths)
{
    if (json_is_true(enabled) ||
        ((json_is(paths, JSON_ARRAY) || json_is(paths, JSON_OBJECT)) && paths->n > 0))
        return LORA_TAKEN;
    return enabled || paths ? LORA_NONE : LORA_UNTOLD;
}

static uint32_t ranks_of(const struct json *info)
{
    int64_t ranks = 1;

    if (json_to_i64(json_get(info, "dp_size"), &ranks) || ranks < 1 || ranks > UINT16_MAX)
        ranks = 1;
    return (uint32_t)ranks;
}

/* Returns the capacity of all its data-parallel ranks, each of which has a cache; 0: not
 * reported. */
static uint64_t kv_capacity_of(const struct json *info)
{
    int64_t tokens = 0;

    if (json_to_i64(json_get(info, "max_total_num_tokens"), &tokens) || tokens <= 0 ||
        tokens > INT32_MAX)
        return 0;
    return (uint64_t)tokens * ranks_of(info);
}

/* Returns its half. Such a server computes its half only of requests that their router has sent to
 * both halves. */
static const char *half_of(const struct json *info)
{
    static const char *const halves[] = {"prefill", "decode"};
    struct str mode = json_string(json_get(info, "disaggregation_mode"));
    size_t i = str_index(mode, halves, ARRAY_LEN(halves));

    return i < ARRAY_LEN(halves) ? halves[i] : NULL;
}

static uint16_t bootstrap_port_of(const struct json *info)
{
    int64_t port = 0;

    if (json_to_i64(json_get(info, "disaggregation_bootstrap_port"), &port) || port <= 0 ||
        port > UINT16_MAX)
        return 8998; /* default of the server */
    return (uint16_t)port;
}

/* Reads the settings. Newer servers have incremental_streaming_output, older ones stream_output.
 * max_model_len is the model's limit, context_length that of the server's start. */
static void take_info(const struct json *info, struct engine_facts *ret)
{
    const struct json *incremental = json_get(info, "incremental_streaming_output");
    const struct json *old = json_get(info, "stream_output");

    if (json_get(info, "vllm_config")) /* a vLLM in development mode has this path, too */
        ret->other_kind = "vllm";
    if (json_is_true(incremental) || json_is_true(old))
        ret->mode = REPLY_INCREMENTAL;
    else if (json_is(incremental, JSON_BOOL) || json_is(old, JSON_BOOL))
        ret->mode = REPLY_CUMULATIVE;
    ret->by_session = json_is_true(json_get(info, "enable_session_radix_cache"));
    ret->by_priority = json_is_true(json_get(info, "enable_priority_scheduling"));
    ret->low_first = json_is_true(json_get(info, "schedule_low_priority_values_first"));
    ret->budgets = json_is_true(json_get(info, "enable_strict_thinking"));
    ret->half = half_of(info);
    ret->bootstrap_port = bootstrap_port_of(info);
    ret->ranks = ranks_of(info);
    ret->kv_capacity = kv_capacity_of(info);
    ret->lora = lora_of(json_get(info, "enable_lora"), json_get(info, "lora_paths"));
    /* Its Rust front reports this since September 2026. Older ones have a different name for the
     * length. */
    ret->says_rust = str_eq_c(json_string(json_get(info, "frontend")), "rust");
    ret->rust_front = ret->says_rust ||
                      (json_get(info, "max_context_length") && !json_get(info, "context_length"));
    if (ret->rust_front && ret->lora == LORA_UNTOLD)
        /* this front has no field for adapters, and would ignore their names */
        ret->lora = LORA_NONE;
    ret->ignores_seeds = json_is(json_get(info, "enable_deterministic_inference"), JSON_BOOL) &&
                         !json_is_true(json_get(info, "enable_deterministic_inference"));
    remote_take_context(json_get(info, "max_context_length"), ret);
    remote_take_context(json_get(info, "max_model_len"), ret);
    remote_take_context(json_get(info, "context_length"), ret);
}

static const struct wire wire = {
    .fields = fields,
    .n_fields = ARRAY_LEN(fields),
    .kv = "/metrics",
    .info = "/server_info",
    .take_info = take_info,
    .write = write_request,
    .scalar = take_scalar,
    .complete = complete,
    .abort = write_abort,
    .end_session = write_end_session,
    .may_ignore_lora = true,
    .budget = WIRE_BUDGET_TOLD,
    .tells_all = true,
    .basis = BASIS_TEMPERATURE,
    .asks_of_support = BASIS_PROCESSED,
};

#define OURS                                                                                       \
    "rid input_ids sampling_params return_logprob logprob_start_len top_logprobs_num "             \
    "return_text_in_logprobs stream return_routed_experts routed_experts_start_len text "          \
    "return_sampling_mask sampling_logprobs_mode return_prompt_token_ids input_embeds image_data " \
    "video_data audio_data session_params "                                                        \
    "session_id require_reasoning return_indexer_topk return_hidden_states return_entropy "        \
    "return_flat_raw_output_top_logprobs return_outputs_via_store token_ids_logprob "              \
    "bootstrap_host bootstrap_port bootstrap_room bootstrap_pair_key disagg_prefill_dp_rank"
#define OURS_INNER \
    "max_new_tokens skip_special_tokens sampling_seed json_schema regex ebnf structural_tag n"

const struct engine_adapter engine_sglang = {
    REMOTE_FUNCTIONS,
    .kind = "sglang",
    .wire = &wire,
    .scores = SCORER_SGLANG,
    .takes_images = true,
    .lora_field = "lora_path",
    .cannot_take = "repeat_last_n allowed_token_ids bad_words",
    .extra = {true, true, OURS, OURS_INNER},
    .version_path = "/update_weight_version",
    /* the default would abort running requests */
    .version_rest = ",\"abort_all_requests\":false",
    .reads = "GET /health, GET /ping, GET /model_info, GET /get_model_info, "
             "GET /get_weight_version, GET /weight_version, POST /tokenize, "
             "POST /v1/tokenize, POST /detokenize, POST /v1/detokenize",
};
