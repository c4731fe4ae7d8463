#include "worker/call/prompt_look.h"

#include "worker/call/call_env.h"
#include "worker/call/model_call_internal.h"
#include "worker/model/model.h"
#include "worker/parsers/parser.h"
#include "worker/request/chat_request.h"
#include "worker/session/session_call.h"
#include "worker/tokens/tokenizer.h"

enum { PROMPT_TAIL_IDS = 64 }; /* enough to hold a thought's tag */

enum thought_state prompt_thought(const struct model_call *t, struct token_span p)
{
    size_t from = p.n > PROMPT_TAIL_IDS ? p.n - PROMPT_TAIL_IDS : 0;
    struct buf tail = {0};
    enum thought_state thought;

    if (t->kinds->reasoning == REASONING_NONE)
        return THOUGHT_MAYBE;
    tokenizer_decode(model_tokenizer(t->env->model), p.at + from, p.n - from, false, &tail);
    thought = parser_thought(t->kinds->reasoning, buf_str(&tail));
    buf_done(&tail);
    return thought;
}

int prompt_may_fit(const struct model_call *t, struct err *e)
{
    size_t fewest = tokenizer_fewest(model_tokenizer(t->env->model), t->in.req->prompt);
    uint32_t max = t->call_input->context_length;

    if (max == 0 || fewest <= max)
        return 0;
    return err_set(e, ERR_CONTEXT_LENGTH,
                   "This model's maximum context length is %u tokens. However, your prompt "
                   "resulted in at least %zu tokens.",
                   max, fewest);
}
