/*
 * Order matters: the texts for a prompt that is too long (overflow.h), for an id that is still in
 * use, and for NaN are checked before the statuses, because they come with a plain 400.
 * llama-server's texts while it loads are checked before them, too. Errors that a client can mend
 * keep their 4xx and the engine's text, cut to 300 bytes. Errors between gateway and engine become
 * errors of the engine, without its text.
 */
#include "worker/engine/wire/refusal.h"

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/codec/surrogates.h"
#include "worker/engine/wire/overflow.h"

enum { WORDS_MAX = 300 }; /* most bytes of an engine's text that are passed on */

static bool mentions_text(struct str text, const char *what)
{
    return str_find(text, str_cstr(what), 0) != SIZE_MAX;
}

/* Reports whether a refusal with that status is about the prompt's length. A 500 is only if its
 * text has no other meaning. */
static bool is_overflow(int64_t status, struct str text, struct err_overflow *ret)
{
    bool refused = status == 400 || status == 413 || status == 422;

    return (refused || status == 500) && overflow_in_words(text, !refused, ret);
}

/* Sets an error with the text of OpenAI's API before the engine's own. */
static void fail_overflow(struct err_overflow o, struct str text, int len, struct err *e)
{
    if (o.prompt > o.max && o.max > 0)
        (void)err_context(e, o,
                          "This model's maximum context length is %llu tokens. However, your "
                          "messages resulted in %llu tokens. (engine: %.*s)",
                          (unsigned long long)o.max, (unsigned long long)o.prompt, len, text.p);
    else
        (void)err_context(e, o, "This model's maximum context length is exceeded. (engine: %.*s)",
                          len, text.p);
}

enum engine_failure refusal_of(int64_t status, struct str text, struct err *e)
{
    struct err_overflow overflow;
    int len = (int)utf8_cut(text, WORDS_MAX);

    if (status == 400 && mentions_text(text, "Duplicate request ID")) {
        (void)err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine still has a request of this id");
        return ENGINE_ASK_ANEW;
    }
    if (status == 400 && mentions_text(text, "bootstrap room")) {
        (void)err_set(e, ERR_ENGINE_UNAVAILABLE,
                      "the engine is one half of a split of prefill and decode: %.*s", len, text.p);
        return ENGINE_NO_ANSWER;
    }
    if (status == 400 && mentions_text(text, "not JSON compliant")) { /* vLLM cannot write NaN */
        (void)err_set(e, ERR_ENGINE_INVALID, "the engine's logprobs are NaN or infinite");
        return ENGINE_SAID_5XX;
    }
    if (is_overflow(status, text, &overflow)) {
        fail_overflow(overflow, text, len, e);
        return ENGINE_BROKE;
    }
    if (status == 503 &&
        (mentions_text(text, "Loading model") || mentions_text(text, "model is loading"))) {
        (void)err_set(e, ERR_ENGINE_UNAVAILABLE, "the engine is loading its model");
        return ENGINE_NOT_READY;
    }
    if (status == 429) {
        (void)err_set(e, ERR_OVERLOADED, "engine: %.*s", len, text.p);
        return ENGINE_FULL;
    }
    /* Keys and paths concern gateway and engine; the agent cannot mend them. */
    if (status == 401 || status == 403 || status == 404 || status == 405 || status == 407) {
        (void)err_set(e, ERR_ENGINE_INVALID, "the engine refuses the gateway: %d", (int)status);
        return ENGINE_BROKE;
    }
    if (status >= 400 && status < 500) {
        (void)err_set(e, ERR_ENGINE_REFUSED, "engine: %.*s", len, text.p);
        e->status = (int)status;
        return ENGINE_BROKE;
    }
    if (status <
        /* not an answer to the request; redirects are not followed, because the ids would go
         * elsewhere */
        400) {
        (void)err_set(e, ERR_ENGINE_INVALID, "the engine answers with status %d", (int)status);
        return ENGINE_BROKE;
    }
    (void)err_set(e, status == 500 ? ERR_ENGINE_INVALID : ERR_ENGINE_UNAVAILABLE,
                  "the engine failed: %d", (int)status);
    return ENGINE_SAID_5XX;
}

/* Copies the text without NUL bytes, at which an error's text would end. */
static struct str clean_words(struct arena *a, struct str words)
{
    struct buf out = {0};
    struct str ret;

    surrogates_add_whole(words, &out);
    for (size_t i = 0; i < out.len; i++)
        if (out.p[i] == '\0')
            out.p[i] = ' ';
    ret = arena_str(a, buf_str(&out));
    buf_done(&out);
    return ret;
}

struct str refusal_text(struct arena *a, struct str body)
{
    static const char *const names[] = {"message", "detail", "error"};
    const struct json *v, *inner;
    struct err e;

    if (json_parse(a, body, &v, &e) < 0)
        return utf8_valid(body) ? body : STR("(not text)");
    if (json_is(v, JSON_ARRAY) && v->n == 1)
        v = json_at(v, 0); /* Gemini has it in a list */
    inner = json_get(v, "error");
    if (json_is(inner, JSON_OBJECT))
        v = inner;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct str text = json_string(json_get(v, names[i]));

        if (text.p)
            return clean_words(a, overflow_message(a, v, text));
    }
    return body;
}
