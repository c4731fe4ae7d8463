/*
 * Kind `openai`: POST /v1/chat/completions upstream. The client's request is unchanged except for
 * `stream` and `n`. Text in, text out; ids and logprobs are used if the upstream returns them.
 */
#include <math.h>

#include "common/base/limits.h"
#include "common/base/vec.h"
#include "common/codec/surrogates.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/error_words.h"
#include "worker/engine/wire/overflow.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/upstream_finish.h"
#include "worker/engine/wire/upstream_text.h"
#include "worker/engine/wire/wire_reply.h"
#include "worker/engine/wire/wire_write.h"

/* --- ids and logprobs of an upstream --- */

/* Token ids, logprobs and weight versions that an upstream chat API may return: vLLM's
 * prompt_token_ids and token_ids (return_token_ids), SGLang's meta_info (return_meta_info) and
 * prompt_token_ids, or its sglext (return_output_ids_in_sglext). Read from parsed documents into a
 * struct reply. Pure.
 *
 * Documents are small here, so they are read as trees. vLLM returns ids, new ones in each chunk,
 * and logprobs under the choice. SGLang returns [logprob, id] triples in meta_info: all so far or
 * only new ones, which the count of tokens shows. Counts, ids and logprobs are checked at the end,
 * when nothing more can come. An upstream without ids is an error only if they were requested. */

static int64_t int_of(const struct json *v)
{
    int64_t n;

    return json_to_i64(v, &n) == 0 ? n : -1;
}

static float float_of(const struct json *v)
{
    double d;

    return json_to_double(v, &d) == 0 ? (float)d : NAN;
}

static int add_id(struct json_ints *to, const struct json *v, struct err *e)
{
    int64_t id = int_of(v);

    if (id < 0 || id > INT32_MAX)
        return reply_invalid(e, "a token id is no such number");
    *vec_push(to) = (int32_t)id;
    return 0;
}

static int add_ids(struct json_ints *to, const struct json *list, struct err *e)
{
    for (size_t i = 0; json_at(list, i); i++) {
        if (add_id(to, json_at(list, i), e) < 0)
            return -1;
    }
    return 0;
}

/* Reads the prompt, which comes once or with every chunk. */
static int read_prompt_list(struct reply *y, const struct json *list, struct err *e)
{
    if (!json_is(list, JSON_ARRAY))
        return 0;
    vec_clear(&y->prompt_ids);
    return add_ids(&y->prompt_ids, list, e);
}

/* Reports whether the list starts with all known triples, so that it has everything so far. */
static bool repeats_triples(const struct reply *y, const struct json *list)
{
    for (size_t i = 0; i < y->ids.n; i++) {
        if (int_of(json_at(json_at(list, i), 1)) != y->ids.at[i])
            return false;
    }
    return true;
}

/* Reads [[logprob, id, ...], ...]: all so far, or the new ones; the count decides. */
static int read_triples(struct reply *y, const struct json *list, int64_t total, struct err *e)
{
    bool all = total == (int64_t)list->n || (total != (int64_t)(list->n + y->ids.n) &&
                                             list->n >= y->ids.n && repeats_triples(y, list));

    if (all && !repeats_triples(y, list))
        return reply_invalid(e, "tokens that it had sent are others now");
    for (size_t i = all ? y->ids.n : 0; i < list->n; i++) {
        if (add_id(&y->ids, json_at(&list->items[i], 1), e) < 0)
            return -1;
        *vec_push(&y->logprobs) = float_of(json_at(&list->items[i], 0));
    }
    return 0;
}

/* Reads one span above the limit and no more: the answer will be refused (ENGINE_VERSIONS_MAX). */
static void read_spans(struct reply *y, const struct json *list)
{
    y->event.has_spans = true;
    vec_clear(&y->spans);
    buf_clear(&y->version_text);
    for (size_t i = 0; json_at(list, i) && i <= ENGINE_VERSIONS_MAX; i++) {
        const struct json *v = json_at(list, i);
        struct str version = json_text(json_get(v, "version"));
        size_t at = y->version_text.len;

        surrogates_add_whole(version, &y->version_text);
        *vec_push(&y->spans) = (struct reply_span){
            .text_at = at,
            .text_len = version.p ? y->version_text.len - at : SIZE_MAX,
            .start = int_of(json_get(v, "start")),
            .end = int_of(json_get(v, "end")),
        };
    }
}

static void read_version(struct reply *y, const struct json *from)
{
    struct str version = json_text(json_get(from, "weight_version"));
    const struct json *spans = json_get(from, "weight_versions");

    if (version.p) {
        buf_clear(&y->version);
        surrogates_add_whole(version, &y->version);
    }
    if (json_is(spans, JSON_ARRAY))
        read_spans(y, spans);
}

static int read_choice_ids(struct reply *y, const struct json *choice, struct err *e)
{
    const struct json *meta = json_get(choice, "meta_info");
    const struct json *triples = json_get(meta, "output_token_logprobs");
    const struct json *content = json_get(json_get(choice, "logprobs"), "content");

    read_version(y, meta);
    read_version(y, choice);
    if (read_prompt_list(y, json_get(choice, "prompt_token_ids"), e) < 0 ||
        read_prompt_list(y, json_get(meta, "prompt_token_ids"), e) < 0)
        return -1;
    for (size_t i = 0; json_at(content, i); i++)
        *vec_push(&y->event.logprobs) = float_of(json_get(json_at(content, i), "logprob"));
    if (json_is(triples, JSON_ARRAY))
        return read_triples(y, triples, int_of(json_get(meta, "completion_tokens")), e);
    return add_ids(&y->ids, json_get(choice, "token_ids"), e);
}

/* Reads SGLang's sglext: all ids at once, with the whole answer or in a stream's last chunk, which
 * has no choices. */
static int read_sglext(struct reply *y, const struct json *ext, struct err *e)
{
    const struct json *lists = json_get(ext, "output_ids");

    if (read_prompt_list(y, json_get(ext, "input_ids"), e) < 0)
        return -1;
    if (!json_is(lists, JSON_ARRAY))
        return 0;
    if (y->ids.n > 0)
        return reply_invalid(e, "it tells its tokens twice");
    return add_ids(&y->ids, json_at(lists, 0), e);
}

/* Drops spans of an earlier document, which covered only the tokens at that time. A list that
 * covers fewer tokens than its own document is refused later (pool_answers.c). */
static void drop_overtaken_spans(struct reply *y, size_t known)
{
    if (!y->event.has_spans && known > 0 && y->ids.n > known && y->spans.n > 0 &&
        vec_last(&y->spans).end == (int64_t)known)
        vec_clear(&y->spans);
}

static int read_ids_member(struct reply *y, const struct json *doc, struct err *e)
{
    if (read_prompt_list(y, json_get(doc, "prompt_token_ids"), e) < 0 ||
        read_sglext(y, json_get(doc, "sglext"), e) < 0)
        return -1;
    return read_choice_ids(y, json_at(json_get(doc, "choices"), 0), e);
}

/* Reads the data of a chunk or of the whole answer. Returns -1 with ERR_ENGINE_INVALID if it has a
 * wrong form. */
static int upstream_ids_take(struct reply *y, const struct json *doc, struct err *e)
{
    const struct json *usage = json_get(doc, "usage");
    size_t known = y->ids.n;

    y->event.has_spans = false;
    if (json_is(usage, JSON_OBJECT)) {
        y->event.prompt_tokens = int_of(json_get(usage, "prompt_tokens"));
        y->event.completion_tokens = int_of(json_get(usage, "completion_tokens"));
    }
    read_version(y, json_get(doc, "metadata"));
    read_version(y, json_get(doc, "sglext"));
    if (read_ids_member(y, doc, e) < 0)
        return -1;
    drop_overtaken_spans(y, known);
    return 0;
}

/* Checks that each token has one number, or that there are no numbers. */
static int check_logprobs(const struct reply *y, bool asked, struct err *e)
{
    if (y->logprobs.n == 0 && asked)
        return reply_invalid(e, "it has no logprobs");
    if (y->logprobs.n > 0 && y->logprobs.n != y->ids.n)
        return reply_invalid(e, "the numbers of tokens and logprobs differ");
    for (size_t i = 0; i < y->logprobs.n; i++) {
        const char *fault = logprob_fault(y->logprobs.at[i]);

        if (fault)
            return reply_invalid_logprob(e, fault, i, y->ids.at[i], y->logprobs.at[i]);
    }
    return 0;
}

/* Ends the answer and checks counts. If no ids came, y->ids and y->logprobs are empty; y->logprobs
 * also if no logprobs came. Returns -1 with ERR_ENGINE_INVALID, which names the mismatch, or the
 * requested data that is missing. Ends the answer. */
static int upstream_ids_end(struct reply *y, bool asked_ids, bool asked_logprobs, struct err *e)
{
    const struct reply_event *v = &y->event;

    if (asked_ids && (y->ids.n == 0 || y->prompt_ids.n == 0))
        return reply_invalid(e, "it has no token ids");
    if (y->ids.n == 0) {
        vec_clear(&y->spans); /* the tokens of these spans were not returned */
        return 0;
    }
    for (size_t i = 0, n = y->logprobs.n == 0 ? v->logprobs.n : 0; i < n; i++)
        *vec_push(&y->logprobs) = v->logprobs.at[i];
    if (check_logprobs(y, asked_logprobs, e) < 0)
        return -1;
    if (v->completion_tokens >= 0 && v->completion_tokens != (int64_t)y->ids.n)
        return reply_invalid(e, "its token count is not the number of its tokens");
    if (v->prompt_tokens >= 0 && y->prompt_ids.n > 0 &&
        v->prompt_tokens != (int64_t)y->prompt_ids.n)
        return reply_invalid(e, "its prompt's count is not the number of its ids");
    return 0;
}

/* --- the engine kind --- */

/* Fields that ask for ids, and for the logprobs that belong to them. SGLang's meta_info does not
 * stream, its sglext does. */
static const char *const asks_vllm[] = {"return_token_ids", "return_weight_versions", "logprobs",
                                        NULL};
static const char *const asks_sglang[] = {"return_meta_info", "return_prompt_token_ids", "logprobs",
                                          NULL};
static const char *const asks_sglext[] = {"return_input_ids_in_sglext",
                                          "return_output_ids_in_sglext", "logprobs", NULL};
static const char *const asks_nothing[] = {NULL};

static const char *const *asks_of(const struct remote *r)
{
    const char *ids_of = remote_target(r)->ids_of;

    if (!ids_of)
        return asks_nothing;
    if (strcmp(ids_of, "sglext") == 0)
        return asks_sglext;
    return strcmp(ids_of, "vllm") == 0 ? asks_vllm : asks_sglang;
}

static bool is_among(struct str key, const char *const *names)
{
    for (; *names; names++) {
        if (str_eq_c(key, *names))
            return true;
    }
    return false;
}

/* Returns the text that was written before (engine_request.h) and for which the body has null;
 * absent if the member has none. */
static struct str text_of(const struct engine_request *q, struct str key)
{
    for (size_t i = 0; i < q->n_chat_texts; i++)
        if (str_eq(q->chat_texts[i].name, key))
            return q->chat_texts[i].text;
    return (struct str){0};
}

/* Writes the request's fields in their order; ours replace theirs. The model is the upstream's own
 * name for it: a pool's name is unknown there. */
static void write_request(const struct remote *r, const struct engine_request *q,
                          struct wire_send *send)
{
    static const char *const ours[] = {"stream", "stream_options", "n", "rid", NULL};
    const char *const *asks = asks_of(r);
    const struct engine_target *t = remote_target(r);
    const char *model = t->model ? t->model : t->pool;
    struct json_out o = json_out_to(&send->body);

    /* Addresses of such servers usually include /v1. */
    send->path = remote_has_v1(r) ? "/chat/completions" : "/v1/chat/completions";
    send->stream = send->stream && asks != asks_sglang;
    json_out_obj(&o);
    if (model)
        json_out_member_cstr(&o, "model", model);
    for (size_t i = 0; json_is(q->chat_body, JSON_OBJECT) && i < q->chat_body->n; i++) {
        const struct json_member *m = &q->chat_body->members[i];
        struct str key = json_string(&m->key);

        if (is_among(key, ours) || is_among(key, asks) || (model && str_eq_c(key, "model")))
            continue;
        json_out_key_str(&o, key);
        if (json_is(&m->value, JSON_NULL) && text_of(q, key).p)
            wire_json(send, &o, text_of(q, key));
        else
            json_out_value(&o, &m->value);
    }
    for (size_t i = 0; asks[i]; i++)
        json_out_member_bool(&o, asks[i], true);
    if (asks == asks_sglang || asks == asks_sglext)
        json_out_member_str(&o, "rid", buf_str(&send->id)); /* SGLang reads only this one */
    json_out_member_bool(&o, "stream", send->stream);
    if (send->stream) {
        json_out_member_raw(&o, "stream_options", STR("{\"include_usage\":true}"));
    }
    json_out_end_obj(&o);
}

/* Reads the finish. An upstream that stops part way cannot be asked for the rest, because it
 * accepts no ids. */
static int read_finish(struct reply *y, const struct json *word, struct err *e)
{
    static const enum reply_finish finishes[] = {
        [UPSTREAM_STOP] = REPLY_STOP,     [UPSTREAM_LENGTH] = REPLY_LENGTH,
        [UPSTREAM_CALLS] = REPLY_STOP,    [UPSTREAM_FILTERED] = REPLY_STOP,
        [UPSTREAM_ABORTED] = REPLY_ABORT, [UPSTREAM_REPEATS] = REPLY_LENGTH,
    };
    struct str text = json_string(word), shown = reply_shown(text);
    enum upstream_finish means = upstream_finish_read(text);

    if (!json_is_null(word) && !json_is(word, JSON_STRING))
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: choices[0].finish_reason must be a string");
    if (means == UPSTREAM_UNKNOWN)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: choices[0].finish_reason is \"%.*s\", "
                       "which says neither stop nor length",
                       (int)shown.len, shown.p);
    if (means == UPSTREAM_RUNNING)
        return 0;
    y->finish = finishes[means];
    y->repeats = means == UPSTREAM_REPEATS;
    if (y->finish == REPLY_ABORT && y->status <= 0)
        y->status = 503;
    return 0;
}

/* Reads what ended the answer: vLLM's stop_reason, SGLang's matched_stop; a string or a token's
 * id. */
static void take_matched(struct reply *y, const struct json *choice)
{
    static const char *const names[] = {"stop_reason", "matched_stop"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct json *v = json_get(choice, names[i]);

        (void)json_to_i64(v, &y->stop_id);
        if (json_is(v, JSON_STRING)) {
            buf_clear(&y->stop_text);
            surrogates_add_whole(json_string(v), &y->stop_text);
        }
    }
}

/* Returns the error of a document: a member, or the document itself, as in older vLLM. */
static const struct json *error_of(const struct json *doc)
{
    const struct json *error = json_get(doc, "error");

    if (!json_is_null(error))
        return error;
    return str_eq_c(json_string(json_get(doc, "object")), "error") ? doc : NULL;
}

/* Reads an error, which may be an object or only a text. */
static void take_error(struct reply *y, const struct json *error)
{
    struct arena a = {0};
    struct str text = json_string(error);

    y->failed = true;
    y->status = error_words_read(error);
    y->retry_after_s = error_words_wait(error);
    buf_set(&y->message,
            text.p ? text : overflow_message(&a, error, json_string(json_get(error, "message"))));
    arena_done(&a);
}

/* Handles an answer that ends with a failure: reads the upstream's reason, or the finish word
 * itself. */
static int take_failure(struct reply *y, const struct json *choice, struct err *e)
{
    const struct json *error = json_get(choice, "error");
    struct str word = json_string(json_get(choice, "finish_reason"));

    if (json_is_null(error))
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine failed: choices[0].finish_reason is \"%.*s\"",
                       (int)MIN_OF(word.len, (size_t)64), word.p);
    take_error(y, error);
    return 0;
}

static int take_doc(struct reply *y, struct upstream_text *t, const struct json *doc,
                    const struct upstream_out *out, struct engine_delta *d, struct err *e)
{
    const struct json *choice = json_at(json_get(doc, "choices"), 0);
    const struct json *lps = json_get(json_get(choice, "logprobs"), "content");
    const struct json *error = error_of(doc), *finish = json_get(choice, "finish_reason");

    if (error) {
        take_error(y, error);
        return 0;
    }
    if (upstream_finish_read(json_string(finish)) == UPSTREAM_FAILED)
        return take_failure(y, choice, e);
    buf_set(&y->answer_id, json_text(json_get(doc, "id")));
    if (upstream_ids_take(y, doc, e) < 0 || upstream_text_check_tops(lps, e) < 0 ||
        upstream_text_add(t, doc, out, e) < 0)
        return -1;
    if (json_is(lps, JSON_ARRAY)) {
        d->chat_lps = lps->items;
        d->n_chat_lps = lps->n;
    }
    take_matched(y, choice);
    return read_finish(y, finish, e);
}

static int end_text(const struct remote *r, struct reply *y, const struct engine_request *q,
                    struct err *e)
{
    bool ids = asks_of(r) != asks_nothing;

    return upstream_ids_end(y, ids, ids || json_is_true(json_get(q->chat_body, "logprobs")), e);
}

static const struct wire wire = {
    .write = write_request,
    .sends_request_id = true,
    .text = take_doc,
    .text_end = end_text,
};

#define OURS                                                                                 \
    "model messages tools tool_choice parallel_tool_calls functions function_call logprobs " \
    "top_logprobs stream stream_options n chat_template_kwargs return_token_ids "            \
    "return_weight_versions rid request_id "                                                 \
    "return_meta_info return_prompt_token_ids prompt input_ids "                             \
    "return_input_ids_in_sglext return_output_ids_in_sglext continue_final_message "         \
    "add_generation_prompt sampling_params"

const struct engine_adapter engine_openai = {
    REMOTE_FUNCTIONS,
    .kind = "openai",
    .wire = &wire,
    .passes_request = true,
    .cannot_tell = "sampling_support indexer_topk top_logprobs routed_experts",
    .reads = "GET /health",
    .extra = {true, false, OURS, NULL},
};
