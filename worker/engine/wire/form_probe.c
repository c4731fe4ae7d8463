/*
 * A bias of 100 makes one token certain: the letter a. With it a single answer shows which fields
 * were obeyed:
 *
 *   question   fields besides the bias             an obedient answer
 *   STOP       stop "aa", 4 tokens                 aa
 *   ENDS       stop id a, min_tokens 2, 6 tokens   two others, then a
 *   ALLOWED    allowed_token_ids a, 2 tokens       aa (without the bias)
 *   WORDS      bad_words a, 2 tokens               two others
 *   FORMAT     regex aaa, 8 tokens                 aaa (without the bias), maybe a stop id
 */
#include "worker/engine/wire/form_probe.h"

#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/attempt.h"
#include "worker/text/model/model.h"
#include "worker/text/tokens/tokenizer.h"

#define LETTER "a"

enum form_question {
    ASK_FIELDS,
    ASK_STOP,
    ASK_ENDS,
    ASK_ALLOWED,
    ASK_WORDS,
    ASK_FORMAT,
    QUESTIONS
};

struct form_probe {
    struct sampling sampling;
    struct engine_request req;
    struct arena arena; /* memory of the values in sampling */
    void *attempt;
    enum form_question question;
    int32_t letter; /* the token LETTER; -1: the vocabulary lacks it, or is unknown */
};

/* Any id is possible, and every vocabulary has the first one. */
static const int32_t prompt[] = {0};

static void forget(struct remote *r)
{
    arena_done(&r->form->arena);
    free(r->form);
    r->form = NULL;
}

/* --- the questions --- */

static int32_t find_letter(const struct model *m)
{
    uint32_t size = m ? model_info(m)->vocab_size : 0;

    for (int32_t id = 0; (uint32_t)id < size; id++) {
        if (str_eq_c(tokenizer_text(model_tokenizer(m), id), LETTER) &&
            tokenizer_plain(model_tokenizer(m), &id, 1) > 0)
            return id;
    }
    return -1;
}

/* Returns the value in the text, in which %d is replaced by the letter's id. */
static const struct json *value_of(struct form_probe *p, const char *text)
{
    struct str all = str_cstr(text);
    size_t at = str_find(all, STR("%d"), 0);
    struct buf whole = {0};
    const struct json *v = NULL;
    struct err e = {0};

    buf_add_str(&whole, str_sub(all, 0, at));
    if (at < all.len)
        buf_printf(&whole, "%d%.*s", p->letter, (int)(all.len - at - 2), all.p + at + 2);
    (void)json_parse(&p->arena, arena_str(&p->arena, buf_str(&whole)), &v, &e);
    buf_done(&whole);
    return v;
}

static void write_question(struct form_probe *p)
{
    static const struct {
        int64_t max_tokens;
        const char *bias, *stop, *stop_ids, *least, *allowed, *words, *grammar;
    } all[QUESTIONS] = {
        [ASK_FIELDS] = {.max_tokens = 1},
        [ASK_STOP] = {.max_tokens = 4, .bias = "{\"%d\": 100}", .stop = "[\"" LETTER LETTER "\"]"},
        [ASK_ENDS] = {.max_tokens = 6, .bias = "{\"%d\": 100}", .stop_ids = "[%d]", .least = "2"},
        [ASK_ALLOWED] = {.max_tokens = 2, .allowed = "[%d]"},
        [ASK_WORDS] = {.max_tokens = 2, .bias = "{\"%d\": 100}", .words = "[\"" LETTER "\"]"},
        [ASK_FORMAT] = {.max_tokens = 8,
                        .grammar =
                            "{\"type\": \"regex\", \"regex\": \"" LETTER LETTER LETTER "\"}"},
    };

    const struct {
        const char *text;
        const struct json **to;
    } values[] = {
        {all[p->question].bias, &p->sampling.logit_bias},
        {all[p->question].stop, &p->sampling.stop},
        {all[p->question].stop_ids, &p->sampling.stop_token_ids},
        {all[p->question].least, &p->sampling.min_tokens},
        {all[p->question].allowed, &p->sampling.allowed_token_ids},
        {all[p->question].words, &p->sampling.bad_words},
        {all[p->question].grammar, &p->sampling.grammar},
    };

    p->sampling = (struct sampling)SAMPLING_DEFAULTS;
    p->sampling.max_tokens = all[p->question].max_tokens;
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        *values[i].to = values[i].text ? value_of(p, values[i].text) : NULL;
}

/* Reports whether the kind has the fields of the question. */
static bool has_fields(const struct remote *r, enum form_question q)
{
    const struct engine_adapter *a = r->adapter;

    if (q == ASK_ALLOWED || q == ASK_WORDS)
        return !engine_adapter_lists(a->cannot_take, "allowed_token_ids");
    /* A vLLM with a reasoning parser applies a grammar only after the thought. */
    return q != ASK_FORMAT || r->wire->tells_all;
}

/* --- the answers --- */

static size_t count_letters(const struct form_probe *p, struct token_span ids, size_t *ret_first)
{
    size_t n = 0;

    *ret_first = ids.n;
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.at[i] != p->letter)
            continue;
        *ret_first = MIN_OF(*ret_first, i);
        n++;
    }
    return n;
}

static bool is_three_letters(const struct remote *r, struct token_span ids)
{
    const struct tokenizer *tk = model_tokenizer(r->options->model);
    struct buf text = {0};
    bool ret;

    for (size_t i = 0; i < ids.n; i++) {
        if (!tokenizer_is_added(tk, ids.at[i]))
            buf_add_str(&text, tokenizer_text(tk, ids.at[i]));
    }
    ret = str_eq_c(buf_str(&text), LETTER LETTER LETTER);
    buf_done(&text);
    return ret;
}

/* Returns the fields that the answer shows to be ignored. */
static unsigned judge(const struct remote *r, struct token_span ids)
{
    const struct form_probe *p = r->form;
    size_t first, letters = count_letters(p, ids, &first);

    switch (p->question) {
    case ASK_STOP:
        if (letters < ids.n)
            return LACKS_BIAS;
        return ids.n > 2 ? LACKS_STOP : 0;
    case ASK_ENDS:
        if (first + 1 < ids.n) /* then nothing is known about min_tokens, which bans stop ids */
            return LACKS_STOP_IDS;
        return first < 2 ? LACKS_MIN_TOKENS : 0;
    case ASK_ALLOWED:
        return letters < ids.n ? LACKS_ALLOWED_IDS : 0;
    case ASK_WORDS:
        return letters > 0 ? LACKS_BAD_WORDS : 0;
    case ASK_FORMAT:
        return is_three_letters(r, ids) ? 0 : LACKS_FORMAT;
    default:
        return 0; /* remote_note_answer has checked its fields */
    }
}

static void ask(struct remote *r);

static void on_delta(void *ctx, const struct engine_delta *d)
{
    (void)ctx, (void)d; /* no deltas come, because a whole answer was requested */
}

static void on_done(void *ctx, const struct engine_result *res)
{
    struct remote *r = ctx;
    struct form_probe *p = r->form;
    unsigned lacks = judge(r, res->ids);

    remote_note_lacks(r, lacks);
    do
        p->question++;
    while (p->question < QUESTIONS && !has_fields(r, p->question));
    /* Without the bias no answer is certain. */
    if (!r->facts.says_rust || p->letter < 0 || lacks & LACKS_BIAS || p->question >= QUESTIONS) {
        forget(r);
        return;
    }
    ask(r);
}

static void on_failed(void *ctx, const struct err *e, enum engine_failure how)
{
    struct remote *r = ctx;

    (void)how;
    log_info(NULL, "an engine did not show what its answers have", LOG_T("engine", r->target->name),
             LOG_T("why", e->text));
    forget(r);
}

static const struct engine_attempt_events events = {on_delta, on_done, on_failed};

static void ask(struct remote *r)
{
    static const struct token_span one = {prompt, 1};
    struct form_probe *p = r->form;

    write_question(p);
    p->req = (struct engine_request){
        .session_id = STR("form-probe"), .prompt = token_parts_of(&one), .sampling = &p->sampling};
    if (p->question == ASK_FIELDS && r->facts.says_rust) {
        p->sampling.top_k = 2; /* a support without a bound is refused */
        p->req.all_fields = p->req.support = p->req.indexer.wanted = true;
        p->req.top_logprobs = 1;
    }
    p->attempt = remote_start(r, &p->req, &events, r);
}

void form_probe_begin(struct remote *r)
{
    if (r->form)
        return;
    r->form = mem_zalloc(sizeof(*r->form));
    r->form->letter = r->facts.says_rust ? find_letter(r->options->model) : -1;
    ask(r);
}

void form_probe_cancel(struct remote *r)
{
    if (!r->form)
        return;
    remote_cancel(r->form->attempt);
    forget(r);
}
