/*
 * Documents are small here, so they are read as trees. vLLM returns ids, new ones in each chunk,
 * and logprobs under the choice. SGLang returns [logprob, id] triples in meta_info: all so far or
 * only new ones, which the count of tokens shows. Counts, ids and logprobs are checked at the end,
 * when nothing more can come. An upstream without ids is an error only if they were requested.
 */
#include "worker/engine/wire/upstream_ids.h"

#include <math.h>

#include "common/base/limits.h"
#include "common/base/vec.h"
#include "common/codec/surrogates.h"
#include "worker/engine/wire/wire_reply.h"

static int fail_ids(struct err *e, const char *what)
{
    return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %s", what);
}

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
        return fail_ids(e, "a token id is no such number");
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
        return fail_ids(e, "tokens that it had sent are others now");
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
        size_t at = y->version_text.len;

        surrogates_add_whole(json_text(json_get(v, "version")), &y->version_text);
        *vec_push(&y->spans) = (struct reply_span){
            at, y->version_text.len - at, int_of(json_get(v, "start")), int_of(json_get(v, "end"))};
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
        return fail_ids(e, "it tells its tokens twice");
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

int upstream_ids_take(struct reply *y, const struct json *doc, struct err *e)
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
        return fail_ids(e, "it has no logprobs");
    if (y->logprobs.n > 0 && y->logprobs.n != y->ids.n)
        return fail_ids(e, "the numbers of tokens and logprobs differ");
    for (size_t i = 0; i < y->logprobs.n; i++) {
        const char *fault = logprob_fault(y->logprobs.at[i]);

        if (fault)
            return fail_ids(e, fault);
    }
    return 0;
}

/* Ends the answer. */
int upstream_ids_end(struct reply *y, bool asked_ids, bool asked_logprobs, struct err *e)
{
    const struct reply_event *v = &y->event;

    if (asked_ids && (y->ids.n == 0 || y->prompt_ids.n == 0))
        return fail_ids(e, "it has no token ids");
    if (y->ids.n == 0) {
        vec_clear(&y->spans); /* the tokens of these spans were not returned */
        return 0;
    }
    for (size_t i = 0, n = y->logprobs.n == 0 ? v->logprobs.n : 0; i < n; i++)
        *vec_push(&y->logprobs) = v->logprobs.at[i];
    if (check_logprobs(y, asked_logprobs, e) < 0)
        return -1;
    if (v->completion_tokens >= 0 && v->completion_tokens != (int64_t)y->ids.n)
        return fail_ids(e, "its token count is not the number of its tokens");
    if (v->prompt_tokens >= 0 && y->prompt_ids.n > 0 &&
        v->prompt_tokens != (int64_t)y->prompt_ids.n)
        return fail_ids(e, "its prompt's count is not the number of its ids");
    return 0;
}
