/* Tokens in this form have texts but no ids. */
#include "worker/text/request/chat_logprobs.h"

#include "common/base/arena.h"
#include "common/codec/json.h"
#include "worker/text/request/answer_sink.h"

static struct token_logprob logprob_of(const struct json *v, struct arena *a)
{
    struct str token = json_string(json_get(v, "token"));
    double d = 0;

    (void)json_to_double(json_get(v, "logprob"), &d);
    return (struct token_logprob){.id = -1, .logprob = (float)d, .bytes = arena_str(a, token)};
}

static size_t tops_of(const struct json *lp, const struct json **ret)
{
    const struct json *top = json_get(lp, "top_logprobs");

    *ret = top;
    return json_is(top, JSON_ARRAY) ? top->n : 0;
}

size_t chat_logprobs_cost(const struct json *lp)
{
    const struct json *top;

    return 1 + tops_of(lp, &top);
}

void chat_logprobs_read(const struct json *lps, size_t n, struct token_logprob *ret,
                        struct arena *a)
{
    for (size_t i = 0; i < n; i++) {
        const struct json *top;
        size_t n_top = tops_of(&lps[i], &top);
        struct token_logprob *alt = arena_alloc(a, n_top * sizeof(*alt));

        ret[i] = logprob_of(&lps[i], a);
        ret[i].top = alt;
        ret[i].n_top = 0;
        for (size_t k = 0; k < n_top; k++) {
            if (!json_is(json_get(&top->items[k], "logprob"), JSON_NULL))
                alt[ret[i].n_top++] = logprob_of(&top->items[k], a);
        }
    }
}
