/* POST /v1/completions: text or token-id prompt, one per call. */
#include "worker/api/fields.h"

#include "common/base/attrs.h"
#include "worker/api/writers.h"

static const char *const sampling_fields[] = {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "logit_bias",
    "ignore_eos",
    "stop_token_ids",
    "max_tokens",
};

enum { LOGPROBS_MAX = 20 };

static int read_ids(struct arena *a, const struct json *list, struct chat_request *req,
                    struct err *e)
{
    int32_t *ids = arena_calloc(a, list->n, sizeof(*ids));

    for (uint32_t i = 0; i < list->n; i++) {
        int64_t id;

        if (json_to_i64(&list->items[i], &id) != 0 || id < 0 || id > INT32_MAX)
            return err_field(e, "prompt", "prompt[%u] must be a token id", i);
        ids[i] = (int32_t)id;
    }
    req->prompt_ids = (struct token_span){ids, list->n};
    return 0;
}

static int read_prompt(struct arena *a, const struct json *v, struct chat_request *req,
                       struct err *e)
{
    if (json_is_null(v))
        return err_field(e, "prompt", "prompt is missing");
    if (v->kind == JSON_ARRAY && v->n == 1 && v->items[0].kind != JSON_NUMBER)
        v = &v->items[0];
    if (v->kind == JSON_STRING) {
        if (v->n == 0)
            return err_field(e, "prompt", "prompt must not be empty");
        req->prompt = json_string(v);
        return 0;
    }
    if (v->kind != JSON_ARRAY)
        return err_field(e, "prompt", "prompt must be a string or a list of token ids");
    if (v->n == 0)
        return err_field(e, "prompt", "prompt must not be empty");
    if (v->items[0].kind != JSON_NUMBER)
        return err_field(e, "prompt", "prompt has %u prompts, but a call takes 1 (n answers to it)",
                         v->n);
    return read_ids(a, v, req, e);
}

/* What would change the answer and cannot be honoured. */
static int refuse_others(const struct json *body, const struct chat_request *req, struct err *e)
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

static int completions_parse(struct arena *a, const struct json *body,
                             const struct dialect_headers *headers, const struct dialect_past *past,
                             struct chat_request *ret, struct err *e)
{
    (void)past;
    if (request_begin(a, body, headers, ret, e) ||
        read_prompt(a, json_get(body, "prompt"), ret, e) ||
        request_sampling(a, body, sampling_fields, ARRAY_LEN(sampling_fields), ret, e) ||
        request_format(a, json_get(body, "response_format"), "response_format", ret, e) ||
        field_u32(body, "n", 1, FIELD_N_MAX, &ret->n, e) || refuse_others(body, ret, e) ||
        field_u32(body, "logprobs", 0, LOGPROBS_MAX, &ret->top_logprobs, e) ||
        chat_read_stream_options(body, ret, e))
        return -1;
    ret->logprobs = !json_is_null(json_get(body, "logprobs"));
    return 0;
}

const struct dialect dialect_completions = {.name = "completions",
                                            .parse = completions_parse,
                                            .writer = completions_writer_new,
                                            .error = openai_write_error};
