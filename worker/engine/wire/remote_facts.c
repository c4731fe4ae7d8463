/* The abilities of a replica (remote.h): by its kind, by its reports, and by what its answers
 * lacked. The basis of logprobs is the one in the setting, else the one in an answer, else the
 * kind's usual one. */
#include <string.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/remote.h"

bool remote_tells_basis(const struct remote *r)
{
    return r->adapter->asks_basis != BASIS_UNKNOWN;
}

enum logprob_basis remote_basis(const void *replica)
{
    const struct remote *r = replica;
    const char *told = remote_tells_basis(r) ? NULL : r->target->logprobs;

    for (enum logprob_basis b = BASIS_RAW; told && b <= BASIS_PROCESSED; b++) {
        if (strcmp(told, logprob_basis_name(b)) == 0)
            return b;
    }
    return r->given != BASIS_UNKNOWN ? r->given : r->wire->basis;
}

bool remote_streams_lose_experts(const struct remote *r)
{
    return r->experts_lost == EXPERTS_LOST_BY_STREAMS;
}

bool remote_budgets(const void *replica)
{
    const struct remote *r = replica;

    return r->wire->budget == WIRE_BUDGET_TRIED
               ? !r->refuses_budgets
               : r->wire->budget != WIRE_BUDGET_NONE && r->facts.budgets;
}

enum engine_lora remote_lora(const void *replica)
{
    const struct remote *r = replica;

    if (!r->wire->may_ignore_lora)
        return LORA_TAKEN;
    return !r->informed ? LORA_UNTOLD : r->facts.lora == LORA_NONE ? LORA_NONE : LORA_TAKEN;
}

int64_t remote_budget_of(const struct engine_request *q)
{
    int64_t budget;

    return json_to_i64(q->sampling->max_thinking_tokens, &budget) == 0 ? budget : -1;
}

bool remote_gives_budget(const struct remote *r, const struct engine_request *q)
{
    return q->sampling->max_thinking_tokens && q->thinks && remote_budgets(r) &&
           !(r->refused_budget >= 0 && r->refused_budget == remote_budget_of(q)) &&
           !(r->wire->budget == WIRE_BUDGET_TOLD && q->sampling->grammar);
}

/* Returns the number of ranks that the engine reports, or else that of the setting. */
static uint32_t ranks_of(const struct remote *r)
{
    return r->refuses_ranks ? 0 : r->facts.ranks ? r->facts.ranks : r->target->dp_ranks;
}

int64_t remote_rank_of(const struct remote *r, const struct engine_request *q)
{
    const struct json *extra = q->sampling->engine_extra;

    if (ranks_of(r) < 2 || json_get(extra, "routed_dp_rank") ||
        json_get(extra, "data_parallel_rank"))
        return -1;
    return (int64_t)(str_hash(q->session_id, 0) % ranks_of(r));
}

uint32_t remote_context(const void *replica)
{
    return ((const struct remote *)replica)->facts.context_length;
}

static const char *const lack_names[] = {
#define X(name, text) text,
#include "common/proc/engine_lacks.def"
#undef X
};

/* Logs the names of these lacks, if there are any. */
static void log_lacks(const struct remote *r, unsigned lacks, const char *message)
{
    struct buf names = {0};

    for (size_t i = 0; i < ARRAY_LEN(lack_names); i++) {
        if (lacks & (1u << i))
            buf_printf(&names, "%s%s", names.len ? ", " : "", lack_names[i]);
    }
    if (names.len)
        log_warn(NULL, message, LOG_T("engine", r->target->name), LOG_S("fields", buf_str(&names)));
    buf_done(&names);
}

void remote_note_lacks(struct remote *r, unsigned lacks)
{
    unsigned new = lacks & ~r->lacks;

    log_lacks(r, new &LACKS_OF_ANSWERS,
              "an engine's answers lack what its kind tells: another server, or an older one");
    log_lacks(r, new & ~(LACKS_OF_ANSWERS | LACKS_ROUTE), "an engine ignores fields of requests");
    r->lacks |= lacks;
}

uint32_t remote_lacks(const void *replica)
{
    return ((const struct remote *)replica)->lacks;
}

void remote_note_ignored(void *replica, const char *field)
{
    for (size_t i = 0; i < ARRAY_LEN(lack_names); i++) {
        if (strcmp(lack_names[i], field) == 0)
            remote_note_lacks(replica, 1u << i);
    }
}

void remote_describe(const void *replica, struct json_out *o)
{
    const struct remote *r = replica;

    const struct {
        const char *name;
        bool has;
    } all[] = {
        {"session_id", r->facts.by_session},
        {"priority", r->facts.by_priority || r->target->priority},
        {"max_thinking_tokens", remote_budgets(r)},
        {"weight_info", r->tells_weights},
        {"adapter", r->facts.lora == LORA_TAKEN},
        {"dp_rank", ranks_of(r) > 1},
        {"prefill_half", r->facts.half && strcmp(r->facts.half, "prefill") == 0},
        {"decode_half", r->facts.half && strcmp(r->facts.half, "decode") == 0},
    };

    json_out_member_arr(o, "has");
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i].has)
            json_out_cstr(o, all[i].name);
    }
    json_out_end_arr(o);
    json_out_member_arr(o, "lacks");
    for (size_t i = 0; i < ARRAY_LEN(lack_names); i++) {
        if (r->lacks & (1u << i))
            json_out_cstr(o, lack_names[i]);
    }
    json_out_end_arr(o);
}

void remote_read_info(struct remote *r, struct str text)
{
    struct arena arena = {0};
    const struct json *v = NULL;
    struct err e = {0};

    if (json_parse(&arena, text, &v, &e) == 0)
        r->wire->take_info(v, &r->facts);
    else if (text.len == ENGINE_INFO_MAX)
        log_warn(NULL, "an engine's settings are too long to be read",
                 LOG_T("engine", r->target->name), LOG_I("most_bytes", ENGINE_INFO_MAX));
    arena_done(&arena);
}

void remote_take_context(const struct json *v, struct engine_facts *ret)
{
    int64_t n = 0;

    if (json_to_i64(v, &n) == 0 && n > 0 && n <= INT32_MAX)
        ret->context_length = (uint32_t)n;
}

bool remote_has_v1(const struct remote *r)
{
    struct str url = str_cstr(r->target->rest);

    return str_ends(url, STR("/v1")) || str_ends(url, STR("/v1/"));
}
