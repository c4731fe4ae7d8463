/*
 * Writes and reads the data as a row of varints and strings in a fixed order
 * (worker/session/record/record.h has the codec):
 *
 *   created_s  cached_tokens  reasoning_tokens  stop_text  tops  asked
 *
 * checkpoint_stop reads `stop_text`, too. `tops` is a text within the row, absent if no
 * alternatives were sent: for each token their number, then id and float32 of each. Their bytes are
 * not stored, because the tokenizer has them. An incomplete text is read as empty, never in part:
 * the replay then contains only ids and message.
 */
#include "worker/plane/call/told.h"

#include "common/base/arena.h"
#include "worker/session/record/record.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/tokens/tokenizer.h"

bool told_has_tops(const struct finished_answer *answer)
{
    for (size_t i = 0; i < answer->n_logprobs; i++)
        if (answer->logprobs[i].n_top > 0)
            return true;
    return false;
}

size_t told_write_tops(struct buf *tops, const struct finished_answer *answer, size_t from,
                       size_t most)
{
    size_t n = 0;

    for (; from < answer->n_logprobs && n < most; from++) {
        const struct token_logprob *lp = &answer->logprobs[from];

        record_put_u(tops, lp->n_top);
        for (uint32_t k = 0; k < lp->n_top; k++) {
            record_put_u(tops, (uint32_t)lp->top[k].id);
            record_put_floats(tops, &lp->top[k].logprob, 1);
        }
        n += 1 + (size_t)lp->n_top;
    }
    return from;
}

/* Must write the order that told_read expects. */
void told_write(struct buf *out, const struct answer_head *head, const struct call_usage *usage,
                const struct finished_answer *answer, struct str tops, struct str asked)
{
    enum { BESIDES = 64 };

    (void)buf_reserve(out, tops.len + answer->stop_text.len + asked.len + BESIDES);
    record_put_u(out, head->created_s);
    record_put_u(out, usage->cached_tokens);
    record_put_u(out, usage->reasoning_tokens);
    record_put_str(out, answer->stop_text);
    record_put_str(out, tops);
    record_put_str(out, asked);
}

bool told_read(struct str text, struct told *ret)
{
    struct record_in r = record_in_of(text);

    *ret = (struct told){0};
    if (!text.p)
        return false;
    ret->created_s = record_u(&r);
    ret->cached_tokens = record_u32(&r);
    ret->reasoning_tokens = record_u32(&r);
    ret->stop_text = record_str(&r);
    ret->tops = record_str(&r);
    ret->asked = record_str(&r);
    if (r.bad)
        *ret = (struct told){0};
    return !r.bad;
}

/* Reads one alternative. Its bytes are from the tokenizer. */
static struct token_logprob read_top(struct record_in *r, const struct tokenizer *tk)
{
    struct token_logprob top = {.id = (int32_t)record_u32(r)};
    const char *raw = record_floats(r, 1);

    if (raw)
        memcpy(&top.logprob, raw, sizeof(top.logprob));
    top.bytes = tokenizer_text(tk, top.id);
    return top;
}

/* Does nothing for an answer without alternatives. */
void told_tops(const struct told *t, struct arena *a, const struct tokenizer *tk,
               struct token_logprob *lp, size_t n)
{
    struct record_in r = record_in_of(t->tops);

    for (size_t i = 0; t->tops.p && i < n; i++) {
        uint32_t n_top = record_u32(&r);
        struct token_logprob *top;

        if (r.bad || n_top > (size_t)(r.end - r.p))
            return;
        top = arena_calloc(a, n_top, sizeof(*top));
        for (uint32_t k = 0; k < n_top; k++)
            top[k] = read_top(&r, tk);
        lp[i].top = top;
        lp[i].n_top = n_top;
    }
}
