#include "worker/plane/call/prepare_input.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/clock.h"
#include "common/base/vec.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call.h"
#include "worker/session/call/session_call.h"
#include "worker/text/model/model.h"
#include "worker/text/request/asked_text.h"
#include "worker/text/request/chat.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/tokens/tokenizer.h"

/* Checks that the model has all ids of the prompt, because some engines refuse an unknown id and
 * others sample from it. The parser of the prompt has read all ids, perhaps in a helper, and kept
 * the largest, which the error names. */
static int known_ids(const struct call_env *env, const struct chat_request *req, struct err *e)
{
    struct token_span ids = req->prompt_ids;
    uint32_t told = model_info(env->model)->vocab_size;
    uint32_t size = told > 0 ? told : (uint32_t)INT32_MAX;

    if (ids.n == 0 || (uint32_t)ids.at[req->prompt_ids_most] < size)
        return 0;
    return err_field(e, "prompt", "prompt[%u] is %d; this model's ids are 0 to %u",
                     req->prompt_ids_most, ids.at[req->prompt_ids_most], size - 1);
}

bool prepare_is_text(const struct chat_request *req)
{
    return !req->chat->messages && req->prompt.p;
}

/* Encodes special tokens, too. */
int prepare_encode(struct encoder *encoder, struct arena *a, const struct chat_request *req,
                   struct token_span *ret, struct err *e)
{
    struct token_vec ids = {0};
    int32_t *copy;

    if (encoder_encode(encoder, req->prompt, true, &ids, e)) {
        vec_done(&ids);
        return -1;
    }
    copy = arena_alloc(a, MAX_OF(ids.n, 1) * sizeof(*copy));
    if (ids.n > 0)
        memcpy(copy, ids.at, ids.n * sizeof(*copy));
    *ret = (struct token_span){copy, ids.n};
    vec_done(&ids);
    return 0;
}

/* The values live in the request's arena. */
int prepare_input(struct call_env *env, const struct engine_pool *engines,
                  const struct call_input *in, const struct sampling *sampling,
                  struct session_call_input *ret, struct err *e)
{
    const struct chat_request *req = in->req;
    const char *pool = engine_pool_name(engines);

    *ret = (struct session_call_input){
        .chat = req->chat->messages ? req->chat : NULL,
        .label = req->label,
        .parent_label = req->parent_label,
        .dropped_fields = req->dropped.names,
        .body_hash = {in->body_hash[0], in->body_hash[1]},
        .key = req->idempotency_key,
        .max_tokens = sampling->max_tokens,
        .temperature = (float)sampling->temperature,
        .pool = pool ? str_cstr(pool) : (struct str){0},
        .context_length = pool ? 0 : call_context_length(env), /* unknown for a different model */
        .now_ms = clock_wall_ms(),
        .text = req->chat->messages && engine_pool_all_text(engines),
        .raw = req->prompt_ids,
    };
    if (in->asked) {
        ret->asked = in->asked[ASKED_SHARED];
        ret->asked_brief = in->asked[ASKED_BRIEF];
        ret->instructions = in->asked[ASKED_INSTRUCTIONS];
    }
    return known_ids(env, req, e);
}
