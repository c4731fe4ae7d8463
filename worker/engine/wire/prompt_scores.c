/*
 * The two kinds have different formats. SGLang returns a row of [logprob, id] for the prompt and
 * one row of alternatives for each position. vLLM returns an object for each position whose keys
 * are ids, including the prompt's own id. Both are read into flat arrays (entry_ids,
 * entry_logprobs, and the end of each position). At the end sort_entries() sorts each position's
 * entries and finds its own.
 *
 * The answer must repeat the ids that were sent: an engine that rendered them again would score a
 * different prompt. The first id has nothing before it and gets 0.
 */
#include "worker/engine/wire/prompt_scores.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/wire_reply.h"
#include "worker/engine/wire/wire_write.h"

enum { TOLD = 1, TOPS, POSITION, ENTRY };

static const struct field sglang_fields[] = {
    FIELD("meta_info.input_token_logprobs", FIELD_TRIPLES, TOLD),
    FIELD("meta_info.input_top_logprobs[]", FIELD_TRIPLES, TOPS),
};

/* The key of an entry is the id, so its members are "PATH.ID.logprob". */
#define OF_GENERATE "prompt_logprobs[]."
#define OF_COMPLETIONS "choices[].prompt_logprobs[]."

static const struct field vllm_fields[] = {
    FIELD("prompt_logprobs[]", FIELD_MARK, POSITION),
    FIELD(OF_GENERATE "*", FIELD_SCALAR, ENTRY),
    FIELD("choices[].prompt_logprobs[]", FIELD_MARK, POSITION),
    FIELD(OF_COMPLETIONS "*", FIELD_SCALAR, ENTRY),
};

static int fail_scores(struct err *e, const char *what)
{
    return err_set(e, ERR_ENGINE_INVALID, "the scorer's answer is invalid: %s", what);
}

/* --- the request --- */

static void write_sglang(const struct prompt_scores *p, struct json_out *o)
{
    json_out_key(o, "input_ids");
    wire_ids(o, token_parts_of(&p->ids));
    json_out_member_raw(o, "sampling_params", STR("{\"max_new_tokens\":0,\"temperature\":0}"));
    json_out_member_bool(o, "return_logprob", true);
    json_out_member_i64(o, "logprob_start_len", 0);
    json_out_member_i64(o, "top_logprobs_num", p->top_k);
    json_out_member_bool(o, "return_text_in_logprobs", false);
}

/* Writes the request. vLLM must sample at least one token, which is ignored. */
static void write_vllm(const struct prompt_scores *p, bool completions, struct json_out *o)
{
    json_out_key(o, completions ? "prompt" : "token_ids");
    wire_ids(o, token_parts_of(&p->ids));
    if (!completions)
        json_out_member_obj(o, "sampling_params");
    json_out_member_i64(o, "max_tokens", 1);
    json_out_member_i64(o, "temperature", 0);
    json_out_member_i64(o, "prompt_logprobs", p->top_k);
    if (!completions) {
        json_out_member_bool(o, "detokenize", false);
        json_out_end_obj(o);
    }
}

void prompt_scores_write(const struct prompt_scores *p, unsigned route, struct wire_send *send)
{
    struct json_out o = json_out_to(&send->body);

    json_out_obj(&o);
    if (p->kind == SCORER_SGLANG) {
        send->path = "/generate";
        write_sglang(p, &o);
    } else {
        send->path = route == 0 ? "/inference/v1/generate" : "/v1/completions";
        write_vllm(p, route > 0, &o);
    }
    json_out_member_bool(&o, "stream", false);
    if (p->lora.len > 0)
        json_out_member_str(&o, p->kind == SCORER_SGLANG ? "lora_path" : "model", p->lora);
    json_out_end_obj(&o);
}

/* --- reading --- */

/* Ends the present position with the entries so far. */
static void end_position(struct prompt_scores *p)
{
    if (p->entry_ends.n > 0)
        vec_last(&p->entry_ends) = (int32_t)p->entry_ids.n;
}

static void on_scalar(void *ctx, int id, const struct json_scan *s, struct str key)
{
    struct prompt_scores *p = ctx;
    struct str path = buf_str(&p->fields.path), name;
    uint64_t token;

    (void)id;
    if (!str_eq_c(key, "logprob") || p->entry_ends.n == 0)
        return;
    path = str_sub(path, str_find(path, STR("[]."), str_starts(path, STR("choices")) ? 10 : 0) + 3,
                   SIZE_MAX);
    name = str_sub(path, 0, path.len - strlen(".logprob"));
    *vec_push(&p->entry_ids) =
        path.len > 8 && str_to_u64(name, INT32_MAX, &token) == 0 ? (int32_t)token : -1;
    *vec_push(&p->entry_logprobs) = reply_float(s);
    end_position(p);
}

static void on_target(void *ctx, int id, struct field_target *t)
{
    struct prompt_scores *p = ctx;

    *t = id == TOLD ? (struct field_target){.ints = &p->told, .floats = &p->logprobs}
                    : (struct field_target){.ints = &p->entry_ids, .floats = &p->entry_logprobs};
}

static void on_bulk(void *ctx, int id, size_t items, bool null)
{
    struct prompt_scores *p = ctx;

    (void)items;
    (void)null;
    if (id == TOLD)
        return;
    *vec_push(&p->entry_ends) = 0;
    end_position(p);
}

static const struct field_sink sink = {on_scalar, on_target, on_bulk};

void prompt_scores_init(struct prompt_scores *p, enum scorer_kind kind, struct token_span ids,
                        uint32_t top_k)
{
    *p = (struct prompt_scores){.kind = kind, .ids = ids, .top_k = top_k};
    if (kind == SCORER_SGLANG)
        fields_init(&p->fields, sglang_fields, ARRAY_LEN(sglang_fields), &sink, p);
    else
        fields_init(&p->fields, vllm_fields, ARRAY_LEN(vllm_fields), &sink, p);
}

void prompt_scores_done(struct prompt_scores *p)
{
    fields_done(&p->fields);
    vec_done(&p->logprobs);
    vec_done(&p->top_logprobs);
    vec_done(&p->top_ids);
    vec_done(&p->told);
    vec_done(&p->entry_ids);
    vec_done(&p->entry_ends);
    vec_done(&p->entry_logprobs);
}

int prompt_scores_feed(struct prompt_scores *p, struct str bytes, struct err *e)
{
    struct err why = {0};
    int rc;

    if (p->complete)
        return str_trim(bytes).len == 0 ? 0 : fail_scores(e, "bytes behind its JSON");
    rc = fields_feed(&p->fields, bytes, &why);
    if (rc < 0)
        return fail_scores(e, why.text);
    p->complete = rc > 0;
    return 0;
}

/* --- the end --- */

struct entry {
    int32_t id;
    float logprob;
};

static int best_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return (x->logprob < y->logprob) - (x->logprob > y->logprob);
}

/* Keeps the best of the n entries at `from`. */
static void keep_best(struct prompt_scores *p, size_t from, size_t n)
{
    struct entry *all = mem_calloc(n + 1, sizeof(*all));
    size_t known = 0;

    for (size_t i = from; i < from + n; i++)
        if (p->entry_ids.at[i] >= 0 && !isnan(p->entry_logprobs.at[i]) &&
            !logprob_stands_in(p->entry_logprobs.at[i]))
            all[known++] = (struct entry){p->entry_ids.at[i], p->entry_logprobs.at[i]};
    qsort(all, known, sizeof(*all), best_first);
    for (size_t k = 0; k < p->top_k; k++) {
        *vec_push(&p->top_ids) = k < known ? all[k].id : -1;
        *vec_push(&p->top_logprobs) = k < known ? all[k].logprob : -INFINITY;
    }
    free(all);
}

/* Finds the logprob of the id itself, which for vLLM is among the entries of its position. */
static void find_own(struct prompt_scores *p, size_t from, size_t n, int32_t id)
{
    float own = NAN;

    for (size_t i = from; i < from + n; i++)
        if (p->entry_ids.at[i] == id)
            own = p->entry_logprobs.at[i];
    *vec_push(&p->logprobs) = own;
    *vec_push(&p->told) = id;
}

static int sort_entries(struct prompt_scores *p, struct err *e)
{
    size_t from = 0, n = p->ids.n;
    bool entries = p->kind == SCORER_VLLM || p->top_k > 0;

    if (entries && p->entry_ends.n != n)
        return fail_scores(e, "its alternatives are of another number of tokens");
    for (size_t i = 0; entries && i < n; i++) {
        size_t to = (size_t)p->entry_ends.at[i];

        if (p->kind == SCORER_VLLM)
            find_own(p, from, to - from, p->ids.at[i]);
        keep_best(p, from, i == 0 ? 0 : to - from);
        from = to;
    }
    return 0;
}

int prompt_scores_end(struct prompt_scores *p, struct err *e)
{
    if (!p->complete)
        return fail_scores(e, "it ends inside its JSON");
    if (sort_entries(p, e))
        return -1;
    if (p->logprobs.n != p->ids.n || p->told.n != p->ids.n)
        return fail_scores(e, "it has logprobs of another number of tokens");
    for (size_t i = 0; i < p->ids.n; i++) {
        if (p->told.at[i] != p->ids.at[i])
            return fail_scores(e, "it is for another prompt");
        if (i > 0 && !isfinite(p->logprobs.at[i]))
            return fail_scores(e, "a logprob is missing or out of range");
        if (i > 0 && logprob_fault(p->logprobs.at[i]))
            return fail_scores(e, logprob_fault(p->logprobs.at[i]));
    }
    if (p->ids.n > 0)
        p->logprobs.at[0] = 0;
    return 0;
}
