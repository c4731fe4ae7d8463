#include "worker/plane/call/prompt_look.h"

#include "worker/plane/call/call_env.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/session/call/session_call.h"
#include "worker/text/model/model.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/request/chat_request.h"
#include "worker/text/tokens/tokenizer.h"

enum { PROMPT_TAIL_IDS = 64 }; /* enough to hold a thought's tag */

/* Number of ids that are enough for most prompts: their text, trimmed, is longer than every tag and
 * the up to three U+FFFD of a character that was cut off at the front. */
enum { PROMPT_END_IDS = 16, PROMPT_END_BYTES = PARSER_TAG_MAX + 3 * 3 };

/* Returns the text of the last n ids, at most PROMPT_TAIL_IDS. */
static struct str tail_text(const struct tokenizer *tok, struct token_parts p, size_t n,
                            struct buf *out)
{
    int32_t ids[PROMPT_TAIL_IDS];

    n = MIN_OF(n, p.n);
    token_parts_copy(p, p.n - n, n, ids);
    buf_clear(out);
    tokenizer_decode(tok, ids, n, false, out);
    return buf_str(out);
}

enum thought_state prompt_thought(const struct model_call *t, struct token_parts p)
{
    const struct tokenizer *tok = model_tokenizer(t->env->model);
    struct buf room = {0};
    struct str tail = {0};
    enum thought_state thought;

    if (t->kinds->reasoning == REASONING_NONE)
        return THOUGHT_MAYBE;
    /* A byte-level decoder gives the same text from any start. Other decoders may depend on the ids
     * before. */
    if (tokenizer_byte_level(tok))
        tail = tail_text(tok, p, PROMPT_END_IDS, &room);
    if (str_trim(tail).len < PROMPT_END_BYTES)
        tail = tail_text(tok, p, PROMPT_TAIL_IDS, &room);
    thought = parser_thought(t->kinds->reasoning, tail);
    buf_done(&room);
    return thought;
}

int prompt_may_fit(const struct model_call *t, struct err *e)
{
    size_t fewest = tokenizer_fewest(model_tokenizer(t->env->model), t->in.req->prompt);
    uint32_t max = t->call_input->context_length;

    if (max == 0 || fewest <= max)
        return 0;
    return err_context(e, (struct err_overflow){fewest, 0, max},
                       "This model's maximum context length is %u tokens. However, your prompt "
                       "resulted in at least %zu tokens.",
                       max, fewest);
}
