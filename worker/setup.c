/* Makes the options of each room from the settings (setup.h): one function a room, so that no room
 * knows struct config. Called at the start, and again at a reload for what may change. */

#include "worker/setup.h"

#include <stdio.h>

#include "common/journal/journal.h"
#include "common/proc/config.h"
#include "common/proc/heritage.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_set.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_rules.h"
#include "worker/residency/residency.h"
#include "worker/session/store/session.h"
#include "worker/text/model/model.h"
#include "worker/text/parsers/kinds.h"
#include "worker/text/request/request_limits.h"

/* A finalized session that was not read for this time is evicted; the journal keeps it. */
enum { EVICT_AFTER_MS = 60 * 1000 };

/* Time that a replaced worker may take to exit. */
enum { JOURNAL_WAIT_MS = 5000 };

/* Adds the time limit of other work, because fetched data is also read and hashed. */
uint64_t setup_fetch_limit(const struct config *c)
{
    return c->helper_timeout_ms
               ? (uint64_t)c->media_fetch_timeout_ms + (uint64_t)c->helper_timeout_ms
               : 0;
}

/* Sets the model's folder, and the operator's settings about it. */
struct model_options setup_model(const struct config *c)
{
    static const char *const tool_images[] = {
        [TOOL_IMAGES_AUTO] = "auto",
        [TOOL_IMAGES_INLINE] = "inline",
        [TOOL_IMAGES_USER] = "user",
    };

    return (struct model_options){
        .dir = c->model,
        .chat_template_file = c->chat_template,
        .served_name = c->served_model_name,
        .tool_parser = c->tool_parser,
        .reasoning_parser = c->reasoning_parser,
        .tito_family = c->tito_family,
        .tool_images = tool_images[c->tool_images],
        .context_length = (uint32_t)c->context_length,
    };
}

void setup_warn(const struct config *c, const struct model *m, struct buf *warnings)
{
    const struct model_info *info = model_info(m);

    for (size_t i = 0; i < c->engine.n && !c->model; i++) {
        if (engine_takes_ids(c->engine.at[i]))
            buf_printf(warnings,
                       "--model: not set, so %s is asked with ids of the built-in tokenizer "
                       "(vocabulary %u)\n",
                       c->engine.at[i], info->vocab_size);
    }
    if (!c->routed_experts)
        return;
    if (info->moe_layers == 0 || info->moe_topk == 0)
        buf_puts(warnings, "--routed-experts: no trajectory will have any: the model's config.json "
                           "does not say how many layers there are (num_hidden_layers) and how "
                           "many experts a token takes (num_experts_per_tok)\n");
    if (c->engine.n == 0 && !c->engine_source)
        buf_puts(warnings, "--routed-experts: the built-in engine tells none\n");
    for (size_t i = 0; i < c->engine.n; i++) {
        const char *kind = engine_kind_without(c->engine.at[i], "routed_experts");

        if (kind)
            buf_printf(warnings, "--routed-experts: engines of kind %s tell none: %s\n", kind,
                       c->engine.at[i]);
    }
}

/* Makes the defaults, which a session may override. */
struct session_defaults setup_sessions(const struct config *c, bool all_text)
{
    static const char *const histories[] = {
        [HISTORY_TREE] = "tree",
        [HISTORY_CHAINS] = "chains",
        [HISTORY_LINEAR] = "linear",
        [HISTORY_TIMELINES] = "timelines",
    };
    static const char *const matchers[] = {
        [MATCHER_CANONICAL] = "canonical",
        [MATCHER_STRICT] = "strict",
        [MATCHER_LOOSE_TOOL_CALL] = "loose_tool_call",
        [MATCHER_ROLE_CONTENT_ONLY] = "role_content_only",
    };

    static const enum session_truncated truncated[] = {
        [ON_TRUNCATED_AUTO] = TRUNCATED_AUTO,
        [ON_TRUNCATED_CONTINUE] = TRUNCATED_CONTINUE,
        [ON_TRUNCATED_BRANCH] = TRUNCATED_BRANCH,
        [ON_TRUNCATED_REFUSE] = TRUNCATED_REFUSE,
    };
    struct session_defaults d;

    session_defaults_init(&d);
    d.history = histories[c->history == HISTORY_TREE && all_text ? HISTORY_TIMELINES : c->history];
    d.message_matcher = matchers[c->message_matcher];
    d.rollback_last_assistant = c->rollback_last_assistant;
    d.idempotent_retry = c->idempotent_retry;
    d.ignore_cch = c->ignore_cch;
    d.branch_on_rewrite = c->on_template_rewrite == REWRITE_BRANCH;
    d.audit_every = (uint64_t)c->audit_every;
    d.on_truncated = truncated[c->on_truncated];
    d.refuse_completed = c->after_complete == AFTER_COMPLETE_REFUSE;
    d.max_nodes = (uint32_t)c->max_nodes;
    d.ttl_ms = (uint64_t)c->session_ttl_ms;
    d.tombstone_ttl_ms = (uint64_t)c->tombstone_ttl_ms;
    d.export_retention_ms = (uint64_t)c->export_retention_ms;
    d.evict_after_ms = c->durability == DURABILITY_NONE ? 0 : EVICT_AFTER_MS;
    d.ignore_tools = c->ignore_tools;
    d.keeps_due = c->sink.n > 0;
    d.rows_apart = str_cstr(c->fleet).len > 0 && !c->fleet_rows;
    d.timeline_compare_level = c->timeline_compare_level == COMPARE_TOKEN ? "token" : "text";
    return d;
}

/* Makes the engines' home: those of --engine, else those that a source lists, else the built-in
 * one. */
struct engine_home setup_engine_home(const struct heritage *h)
{
    static const char *const builtin[] = {"builtin:echo"}, *const told[] = {ENGINE_SET_NONE};
    const struct config *c = h->config;
    bool none = c->engine.n == 0;

    return (struct engine_home){
        .state_dir = h->state_dir,
        .settings = none ? (c->engine_source ? told : builtin) : (const char *const *)c->engine.at,
        .n = none ? 1 : c->engine.n,
    };
}

struct engine_options setup_engines(const struct config *c, const struct model *m)
{
    const struct model_info *info = model_info(m);

    return (struct engine_options){
        .model = m,
        .stop_ids = info->stop_ids,
        .n_stop_ids = info->n_stop_ids,
        .vocab_size = info->vocab_size,
        .any_text = !c->model,
        .context_length = info->context_length,
        .max_inflight = (uint32_t)c->engine_max_inflight,
        .max_queue = (uint32_t)c->max_queue,
        .max_session_queue = (uint32_t)c->max_session_queue,
        .retries = (uint32_t)c->engine_retries,
        .retry_5xx = c->engine_retry_5xx,
        .routed_experts = c->routed_experts,
        .indexer_max = (uint64_t)c->indexer_topk_max,
        .kv_per_version = c->kv_per_version,
        .media_drift = c->media_drift == MEDIA_DRIFT_ALLOW,
        .kv_admission = (uint32_t)c->kv_admission,
        .kv_session_tokens = (uint64_t)c->kv_session_tokens,
        .kv_hold_ms = (uint64_t)c->kv_hold_ms,
        .kv_lease_idle_ms = (uint64_t)c->kv_lease_idle_ms,
        .error_texts = c->engine_error_texts,
        .resume_aborts = c->on_engine_abort == ENGINE_ABORT_RESUME,
        .insecure_tls = c->engine_insecure_tls,
        .ca_file = c->engine_ca_file,
        .timeout_ms = (uint64_t)c->engine_timeout_ms,
        .idle_timeout_ms = (uint64_t)c->engine_idle_timeout_ms,
        .connect_timeout_ms = (uint64_t)c->engine_connect_timeout_ms,
        .queue_timeout_ms = (uint64_t)c->queue_timeout_ms,
        .health_interval_ms = (uint64_t)c->engine_health_interval_ms,
        .health_timeout_ms = (uint64_t)c->engine_health_timeout_ms,
    };
}

/* Each worker index has a folder. Returns -1 if its path is too long. */
int setup_journal(const struct heritage *h, uint32_t index, char *dir, size_t size,
                  struct journal_options *ret)
{
    static const enum journal_durability levels[] = {
        [DURABILITY_NONE] = JOURNAL_NONE,
        [DURABILITY_PROCESS] = JOURNAL_PROCESS,
        [DURABILITY_POWER] = JOURNAL_POWER,
    };

    int n = snprintf(dir, size, "%s/worker-%u", h->state_dir, index);

    if (n < 0 || (size_t)n >= size)
        return -1;
    *ret = (struct journal_options){
        .dir = dir,
        .durability = levels[h->config->durability],
        .segment_bytes = (uint64_t)h->config->journal_segment_bytes,
        .wait_ms = JOURNAL_WAIT_MS,
        .last_word = session_last_word,
        .metrics = h->page,
    };
    return 0;
}

/* Sets the kinds of parsers by the names that were set for the model or found in it. */
static void setup_parsers(struct call_env *env, const struct model_info *info)
{
    env->rules->formats.tool = TOOL_NONE;
    env->rules->formats.reasoning = REASONING_NONE;
    if (info->tool_parser)
        (void)tool_kind_named(str_cstr(info->tool_parser), &env->rules->formats.tool);
    if (info->reasoning_parser)
        (void)reasoning_kind_named(str_cstr(info->reasoning_parser),
                                   &env->rules->formats.reasoning);
}

/* Sets everything about model calls that a reload may change. */
void setup_calls(struct call_env *env, const struct config *c, const struct model *m)
{
    const struct model_info *info = model_info(m);

    env->context_length = info->context_length;
    env->model_known = c->model != NULL;
    env->strict_logprobs = c->strict_logprobs;
    env->answers_conflicts = c->linear_conflict == LINEAR_CONFLICT_ANSWER;
    env->serial_calls = c->serial_calls;
    env->media_drift = c->media_drift == MEDIA_DRIFT_ALLOW;
    env->keepalive_ms = (uint64_t)c->keepalive_ms;
    env->nonstream_keepalive_ms = (uint64_t)c->nonstream_keepalive_ms;
    env->rejoin_window_ms = (uint64_t)c->rejoin_window_ms;
    env->residency->limit = (uint64_t)c->max_worker_memory;
    env->ledger->session_bytes = (uint64_t)c->max_session_recorded_bytes;
    env->max_inflight = (uint32_t)c->max_inflight;
    env->rules->limits = (struct request_limits){
        .memory_bytes = (uint64_t)c->max_request_memory,
        .growth = (uint32_t)c->max_request_growth,
        .recorded_bytes = (uint64_t)c->max_metadata_bytes,
        .schema_bytes = (uint64_t)c->max_schema_bytes,
        .tools = (uint32_t)c->max_tools,
        .stops = (uint32_t)c->max_stops,
        .messages = (uint32_t)c->max_messages,
        .vocabulary = c->model ? info->vocab_size : 0,
    };
    env->rules->images = (struct image_rules){
        .vision = env->media ? info->vision : NULL,
        .image_bytes = (uint64_t)c->max_image_bytes,
        .images = (uint32_t)c->max_images,
        .fetches = env->web != NULL,
    };
    env->web_ca_file = c->media_fetch_ca_file;
    env->fetch_timeout_ms = (uint64_t)c->media_fetch_timeout_ms;
    call_fetchers_limit(env, setup_fetch_limit(c));
    env->max_session_inflight = (uint32_t)c->max_session_inflight;
    env->finish_on_disconnect = c->on_disconnect == DISCONNECT_FINISH;
    setup_parsers(env, info);
}
