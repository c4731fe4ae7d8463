/* Reads requests of POST /v1/completions. A prompt is a string or a list of token ids. A list of
 * prompts makes n_prompts prompts, each of which the api layer sends as a model call of its own.
 * Prompts are used unchanged: no template, no roles. */
#include "common/base/limits.h"
#include "worker/dialect/request_fields.h"

#include "worker/dialect/request_members.h"
#include "worker/dialect/writers.h"
#include "worker/text/request/request_limits.h"

enum { LOGPROBS_MAX = 20 };

/* Reads a prompt of token ids. The call checks later whether the model has them. */
static int read_prompt_ids(struct arena *a, const struct json *list, const char *path,
                           struct completion_prompt *ret, struct err *e)
{
    int32_t *ids = arena_calloc(a, list->n, sizeof(*ids));
    uint32_t most = 0;
    char at[FIELD_PATH_MAX];

    for (uint32_t i = 0; i < list->n; i++) {
        int64_t id;

        if (json_to_i64(&list->items[i], &id) != 0 || id < 0 || id > INT32_MAX)
            return err_field(e, path_at(at, "%s", path), "%s[%u] must be a token id", path, i);
        ids[i] = (int32_t)id;
        most = ids[i] > ids[most] ? i : most;
    }
    *ret = (struct completion_prompt){.ids = {ids, list->n}, .ids_most = most};
    return 0;
}

/* Reads one prompt: text or ids, not empty. */
static int read_single_prompt(struct arena *a, const struct json *v, const char *path,
                              struct completion_prompt *ret, struct err *e)
{
    if (!json_is(v, JSON_STRING) && !json_is(v, JSON_ARRAY))
        return err_field(e, path, "%s must be a string or a list of token ids", path);
    if (v->n == 0)
        return err_field(e, path, "%s must not be empty", path);
    if (v->kind == JSON_ARRAY)
        return read_prompt_ids(a, v, path, ret, e);
    *ret = (struct completion_prompt){.text = json_string(v)};
    return 0;
}

/* Reads one prompt or a list of prompts. */
static int read_prompt(struct arena *a, const struct json *body, struct chat_request *req,
                       struct err *e)
{
    const struct json *v = json_get(body, "prompt");
    struct completion_prompt one = {0}, *all;
    char path[FIELD_PATH_MAX];

    req->n_prompts = 1;
    if (json_is_null(v))
        return err_field(e, "prompt", "prompt is missing");
    if (v->kind != JSON_ARRAY || v->n == 0 || v->items[0].kind == JSON_NUMBER) {
        if (read_single_prompt(a, v, "prompt", &one, e))
            return -1;
        chat_request_take_prompt(req, &one);
        return 0;
    }
    if (v->n * (uint64_t)req->n > FIELD_N_MAX)
        return err_field(e, "prompt",
                         "prompt has %u prompts with %u answers each; at most %d answers", v->n,
                         req->n, FIELD_N_MAX);
    if (request_limits_batch(body, v->n, e))
        return -1;
    all = arena_calloc(a, v->n, sizeof(*all));
    for (uint32_t i = 0; i < v->n; i++)
        if (read_single_prompt(a, &v->items[i], path_at(path, "prompt[%u]", i), &all[i], e))
            return -1;
    req->n_prompts = v->n;
    req->prompts = all;
    chat_request_take_prompt(req, all);
    return 0;
}

/* Rejects members that would change the answer but are not supported. */
static int reject_unsupported(const struct json *body, const struct chat_request *req,
                              struct err *e)
{
    bool echo = false;
    uint32_t best_of = req->n;
    struct str suffix = {0};

    if (field_bool(body, "echo", &echo, e) || field_str(body, "suffix", &suffix, e) ||
        field_u32(body, "best_of", 1, FIELD_N_MAX, &best_of, e))
        return -1;
    if (echo)
        return err_field(e, "echo", "echo is not supported: the prompt is not repeated");
    if (suffix.len)
        return err_field(e, "suffix", "suffix is not supported");
    if (best_of != req->n)
        return err_field(e, "best_of", "best_of must equal n");
    return 0;
}

/* Parses a request. Reads n before the prompt, because their product is limited. logprobs is a
 * number here: the number of alternatives per token. */
static int completions_parse(struct arena *a, const struct json *body,
                             const struct dialect_headers *headers, const struct dialect_past *past,
                             struct chat_request *ret, struct err *e)
{
    (void)past;
    if (request_begin(a, body, headers, ret, e) ||
        field_u32(body, "n", 1, FIELD_N_MAX, &ret->n, e) || read_prompt(a, body, ret, e) ||
        request_sampling(a, body, IN_COMPLETIONS, ret, e) ||
        request_format(a, json_get(body, "response_format"), "response_format", ret, e) ||
        reject_unsupported(body, ret, e) ||
        field_u32(body, "logprobs", 0, LOGPROBS_MAX, &ret->top_logprobs, e) ||
        chat_read_stream_options(body, ret, e))
        return -1;
    ret->logprobs = !json_is_null(json_get(body, "logprobs"));
    return 0;
}

const struct dialect dialect_completions = {.name = "completions",
                                            .id_head = "cmpl-",
                                            .members = IN_COMPLETIONS,
                                            .parse = completions_parse,
                                            .writer = completions_writer_new,
                                            .error = openai_write_error};
