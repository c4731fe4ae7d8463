#include "common/codec/sampling.h"
#include "worker/engine/builtin/builtin_answer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/cancel.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "common/os/helpers.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "testing.h"
#include "worker/engine/pool/adapter.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/engine_target.h"
#include "worker/text/model/model.h"
#include "worker/text/tokens/tokenizer.h"

struct rig {
    struct model *model;
    struct engine_options opt;
    struct builtin *builtin;
};

static struct rig rig_of(const char *mode, const char *dir)
{
    struct rig r = {0};
    struct model_options o = {.dir = dir};
    struct err e = {0};

    cr_assert_eq(model_load(&o, &r.model, &e), 0, "%s", e.text);
    r.opt.model = r.model;
    r.opt.stop_ids = model_info(r.model)->stop_ids;
    r.opt.n_stop_ids = model_info(r.model)->n_stop_ids;
    cr_assert_eq(builtin_new(mode, &r.opt, &r.builtin, &e), 0, "%s", e.text);
    return r;
}

static struct rig rig_open(const char *mode)
{
    return rig_of(mode, NULL);
}

static void rig_close(struct rig *r)
{
    builtin_free(r->builtin);
    model_free(r->model);
}

/* Returns how the answer ended, followed by its ids as text with special tokens. */
static void ask(const struct rig *r, const struct engine_request *q, struct buf *out)
{
    static const char *const ends[] = {"stop", "stop_string", "length", "aborted"};
    struct builtin_answer a;

    buf_clear(out);
    cr_assert_eq(builtin_answer(r->builtin, q, &a, NULL), 0);
    buf_printf(out, "%s:", ends[a.finish]);
    tokenizer_decode(model_tokenizer(r->model), a.ids.at, a.ids.n, false, out);
    for (size_t j = 0; j < a.ids.n; j++)
        cr_assert_float_eq((double)a.logprobs[j],
                           -(double)(((uint64_t)a.ids.at[j] * 7 + j * 13) % 100) / 100.0, 1e-6);
    builtin_answer_done(&a);
}

static void check(const struct buf *got, const char *want)
{
    cr_assert(str_eq_c(buf_str(got), want), "got %.*s want %s", (int)got->len, got->p, want);
}

TEST(builtin, echoes_the_last_user_turn)
{
    struct rig r = rig_open("");
    struct token_vec prompt = {0};
    struct encoder *enc = encoder_new(model_tokenizer(r.model));
    struct sampling s = {0};
    struct engine_request q = {.session_id = STR("w0-a"), .sampling = &s};
    struct buf out = {0};
    struct err e = {0};

    cr_assert_eq(encoder_encode(enc,
                                STR("<|im_start|>user\nhello\nyou<|im_end|>\n"
                                    "<|im_start|>assistant\n"),
                                false, &prompt, &e),
                 0);
    q.prompt = token_parts_of(&(struct token_span){prompt.at, prompt.n});
    ask(&r, &q, &out);
    check(&out, "stop:hello\nyou<|im_end|>");
    s.max_tokens = 3;
    ask(&r, &q, &out);
    check(&out, "length:hel");
    buf_done(&out);
    free(prompt.at);
    encoder_free(enc);
    rig_close(&r);
}

static size_t encoded(struct encoder *enc, struct str text, struct token_vec *out)
{
    struct err e = {0};

    vec_clear(out);
    cr_assert_eq(encoder_encode(enc, text, false, out, &e), 0, "%s", e.text);
    return out->n;
}

/* Checks the echo of a text that is the second user message, in ChatML. */
static void echo_is(const struct rig *r, struct encoder *enc, const char *sent, const char *want)
{
    struct sampling s = {0};
    struct engine_request q = {.session_id = STR("w0-a"), .sampling = &s};
    struct token_span parts[3];
    struct token_vec prompt = {0}, ids = {0};
    struct builtin_answer a;
    struct buf text = {0};
    size_t n;

    buf_printf(&text,
               "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n"
               "<|im_start|>assistant\n",
               sent);
    n = encoded(enc, buf_str(&text), &prompt);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        parts[i] = (struct token_span){prompt.at + i * n / 3, (i + 1) * n / 3 - i * n / 3};
    q.prompt = (struct token_parts){parts, ARRAY_LEN(parts), n};
    cr_assert_eq(builtin_answer(r->builtin, &q, &a, NULL), 0);
    cr_assert_eq(a.ids.n, encoded(enc, str_cstr(want), &ids) + 1, "of '%s'", sent);
    cr_assert(ids.n == 0 || memcmp(a.ids.at, ids.at, ids.n * sizeof(*ids.at)) == 0, "of '%s'",
              sent);
    cr_assert_eq(a.ids.at[ids.n], r->opt.stop_ids[0]);
    builtin_answer_done(&a);
    vec_done(&ids);
    vec_done(&prompt);
    buf_done(&text);
}

static void echoes_are_as_encoded(const char *dir)
{
    static const struct {
        const char *sent, *want;
    } texts[] = {
        {"hello", "hello"},
        {"12: Two words, and 3 more.", "12: Two words, and 3 more."},
        {"one\ntwo\n\nthree", "one\ntwo\n\nthree"},
        {" led by a space", " led by a space"},
        {"\nled by a line", "\nled by a line"},
        {"\tled by a tab", "\tled by a tab"},
        {"a space behind ", "a space behind"},
        {"a stop and spaces behind.   ", "a stop and spaces behind."},
        {"a line and spaces behind.\n  ", "a line and spaces behind."},
        {"a tab and a space behind\t ", "a tab and a space behind"},
        {"1 ", "1"},
        {"  ", "user"},
        {"lines behind\n\n", "lines behind"},
        {"with <|im_start|> in it", "with  in it"},
        {"\xc3\xa4rger \xe2\x80\x94 \xf0\x9f\x99\x82",
         "\xc3\xa4rger \xe2\x80\x94 \xf0\x9f\x99\x82"},
        {"...", "..."},
    };
    struct rig r = rig_of("echo", dir);
    struct encoder *enc = encoder_new(model_tokenizer(r.model));

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        echo_is(&r, enc, texts[i].sent, texts[i].want);
    encoder_free(enc);
    rig_close(&r);
}

TEST(builtin, an_echo_is_the_same_ids_as_its_text)
{
    static const char *const dirs[] = {RG_TEST_DATA "/models/chatml-drift",
                                       RG_SHARED "/data/models/qwen3"};

    echoes_are_as_encoded(NULL);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        if (access(dirs[i], R_OK) == 0)
            echoes_are_as_encoded(dirs[i]);
    }
}

TEST(builtin, reads_scripts_by_call_number)
{
    char path[] = "/tmp/rg-script-XXXXXX";
    char mode[64];
    int fd = mkstemp(path);
    const char *text = "[\"one STOP two\", {\"text\": \"cut\", \"finish\": \"length\"}, "
                       "{\"ids\": [104, 105, 257, 120]}]";
    struct sampling s = {0};
    struct engine_request q = {.session_id = STR("w0-a"), .sampling = &s};
    struct json stop_item = json_make_string(STR("STOP"));
    struct json stops = {.kind = JSON_ARRAY, .n = 1, .items = &stop_item};
    struct buf out = {0};
    struct rig r;

    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    (void)snprintf(mode, sizeof(mode), "script:%s", path);
    r = rig_open(mode);
    (void)unlink(path);
    ask(&r, &q, &out);
    check(&out, "stop:one STOP two<|im_end|>");
    s.stop = &stops;
    ask(&r, &q, &out);
    check(&out, "stop_string:one STOP");
    q.call = 1;
    ask(&r, &q, &out);
    check(&out, "length:cut");
    for (q.call = 2; q.call < 5; q.call++) {
        ask(&r, &q, &out);
        check(&out, "stop:hi<|im_end|>");
    }
    buf_done(&out);
    rig_close(&r);
}

TEST(builtin, random_answers_differ_by_call_and_repeat_by_seed)
{
    struct rig r = rig_open("random:7");
    struct sampling s = {0};
    struct engine_request q = {.session_id = STR("w0-a"), .sampling = &s};
    struct buf a = {0};
    struct buf b = {0};

    ask(&r, &q, &a);
    ask(&r, &q, &b);
    cr_assert(str_eq(buf_str(&a), buf_str(&b)));
    q.call = 1;
    ask(&r, &q, &b);
    cr_assert_not(str_eq(buf_str(&a), buf_str(&b)));
    buf_done(&a);
    buf_done(&b);
    rig_close(&r);
}

TEST(builtin, engine_arguments_come_apart)
{
    struct arena a = {0};
    struct engine_target t;
    struct err e = {0};

    cr_assert_eq(
        engine_target_parse(&a, "builtin:script:/x,y.json,delay_ms=5,tokens_per_s=2.5", &t, &e), 0);
    cr_assert_str_eq(t.kind, "builtin");
    cr_assert_str_eq(t.rest, "script:/x,y.json");
    cr_assert_eq(t.delay_ms, 5);
    cr_assert_float_eq(t.tokens_per_s, 2.5, 1e-9);
    cr_assert_eq(engine_target_parse(&a, "builtin", &t, &e), 0);
    cr_assert_eq(engine_target_parse(&a, "builtin:echo,weight=much", &t, &e), -1);
    cr_assert_eq(engine_target_parse(&a, "alien:http://x", &t, &e), -1);
    cr_assert_eq(e.kind, ERR_CONFIG);
    arena_done(&a);
}

/* What an attempt has reported. */
struct heard {
    size_t n, most;
    bool done;
};

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct heard *h = ctx;

    h->n += d->ids.n;
    h->most = MAX_OF(h->most, d->ids.n);
}

static void on_done(void *ctx, const struct engine_result *r)
{
    struct heard *h = ctx;

    cr_assert_eq(r->ids.n, h->n);
    h->done = true;
}

/* Makes an answer of 2001 tokens. Returns the most tokens that arrived at once. */
static size_t comes_by(bool stream)
{
    static const struct engine_attempt_events events = {.delta = on_delta, .done = on_done};
    struct rig r = rig_open("");
    struct loop *l = loop_new(NULL);
    struct engine_target target = {.rest = ""};
    struct token_vec prompt = {0};
    struct encoder *enc = encoder_new(model_tokenizer(r.model));
    struct sampling s = {0};
    struct engine_request q = {.session_id = STR("w0-a"), .sampling = &s, .stream = stream};
    struct heard h = {0};
    struct buf text = {0};
    struct err e = {0};
    void *replica;

    buf_puts(&text, "<|im_start|>user\n");
    for (int i = 0; i < 2000; i++)
        buf_add_c(&text, 'x');
    buf_puts(&text, "<|im_end|>\n<|im_start|>assistant\n");
    cr_assert_eq(encoder_encode(enc, buf_str(&text), false, &prompt, &e), 0);
    q.prompt = token_parts_of(&(struct token_span){prompt.at, prompt.n});
    cr_assert_eq(engine_builtin.open(&engine_builtin, l, &target, &r.opt, &replica, &e), 0, "%s",
                 e.text);
    (void)engine_builtin.start(replica, &q, &events, &h);
    while (!h.done)
        cr_assert_geq(loop_poll(l, -1), 0);
    cr_assert_eq(h.n, 2001);
    engine_builtin.close(replica);
    loop_free(l);
    buf_done(&text);
    free(prompt.at);
    encoder_free(enc);
    rig_close(&r);
    return h.most;
}

/* A stream has an event for each token. Thousands of them in one step would block the loop. */
TEST(builtin, a_long_stream_comes_in_pieces)
{
    cr_assert_leq(comes_by(true), 512);
    cr_assert_eq(comes_by(false), 2001);
}

/* --- long answers --- */

/* The replacement of builtin_answer_beside, which the linker inserts, waits while this is set. */
static atomic_bool held;

int __real_builtin_answer_beside(const struct builtin *b, const struct engine_request *r,
                                 struct builtin_answer *ret, struct err *e);
int __wrap_builtin_answer_beside(const struct builtin *b, const struct engine_request *r,
                                 struct builtin_answer *ret, struct err *e);

int __wrap_builtin_answer_beside(const struct builtin *b, const struct engine_request *r,
                                 struct builtin_answer *ret, struct err *e)
{
    while (atomic_load(&held) && !cancel_wanted())
        (void)usleep(500);
    return __real_builtin_answer_beside(b, r, ret, e);
}

/* What was reported at the end. */
struct ended {
    struct buf ids;
    size_t n;
    enum engine_finish finish;
    struct buf stop;
    bool failed;
};

static void on_ended(void *ctx, const struct engine_result *r)
{
    struct ended *e = ctx;

    buf_add(&e->ids, r->ids.at, r->ids.n * sizeof(*r->ids.at));
    e->n = r->ids.n;
    buf_add_str(&e->stop, r->stop_text);
    e->finish = r->finish;
}

static void on_no_answer(void *ctx, const struct err *e, enum engine_failure how)
{
    struct ended *end = ctx;

    cr_assert_eq(e->kind, ERR_ENGINE_INVALID);
    cr_assert_eq(how, ENGINE_BROKE);
    end->failed = true;
}

static void no_delta(void *ctx, const struct engine_delta *d)
{
    (void)ctx;
    (void)d;
}

enum { PROMPT = 5000 };

/* Encodes a chat with one user message of PROMPT characters. */
static void encode_long_prompt(const struct rig *r, struct token_vec *prompt)
{
    struct encoder *enc = encoder_new(model_tokenizer(r->model));
    struct buf text = {0};
    struct err e = {0};

    buf_puts(&text, "<|im_start|>user\n");
    for (int i = 0; i < PROMPT; i++)
        buf_add_c(&text, (char)('a' + i % 26));
    buf_puts(&text, "<|im_end|>\n<|im_start|>assistant\n");
    cr_assert_eq(encoder_encode(enc, buf_str(&text), false, prompt, &e), 0);
    encoder_free(enc);
    buf_done(&text);
}

/* Makes one long echo. The JSON texts of its sampling are freed before the helper runs. how: 0 on
 * the loop, 1 on a helper, 2 on a helper whose time runs out, 3 the call is cancelled. */
static void one_echo(const char *stop, const char *stop_ids, int64_t max_tokens, int how,
                     struct ended *ret)
{
    static const struct engine_attempt_events events = {no_delta, on_ended, on_no_answer};
    struct rig r = rig_open("");
    struct loop *l = loop_new(NULL);
    struct engine_target target = {.rest = ""};
    struct tasks *tasks = tasks_new(l);
    struct helpers *h = NULL;
    struct token_vec prompt = {0};
    struct arena a = {0};
    struct sampling s = {.max_tokens = max_tokens};
    struct engine_request q = {.session_id = STR("w0-a"), .sampling = &s};
    struct err e = {0};
    void *replica, *attempt;

    *ret = (struct ended){0};
    encode_long_prompt(&r, &prompt);
    q.prompt = token_parts_of(&(struct token_span){prompt.at, prompt.n});
    cr_assert_eq(json_parse(&a, arena_str(&a, str_cstr(stop)), &s.stop, &e), 0);
    cr_assert_eq(json_parse(&a, arena_str(&a, str_cstr(stop_ids)), &s.stop_token_ids, &e), 0);
    if (how > 0) {
        cr_assert_eq(
            helpers_new(l,
                        &(struct helpers_options){.threads = 2, .limit_ms = how == 2 ? 500 : 60000},
                        &h, &e),
            0, "%s", e.text);
        tasks_use_helpers(tasks, &(struct task_helpers){.h = h});
        r.opt.tasks = tasks;
        atomic_store(&held, true);
    }
    cr_assert_eq(engine_builtin.open(&engine_builtin, l, &target, &r.opt, &replica, &e), 0, "%s",
                 e.text);
    attempt = engine_builtin.start(replica, &q, &events, ret);
    cr_assert_eq(tasks_count(tasks), how > 0);
    if (how > 0) { /* memory of the call is not read */
        memset(prompt.at, 0, prompt.n * sizeof(*prompt.at));
        arena_done(&a);
        s.stop = s.stop_token_ids = NULL;
    }
    if (how >= 3)
        engine_builtin.cancel(attempt);
    atomic_store(&held, how == 2);
    while (tasks_count(tasks) > 0 || (how < 3 && ret->n == 0 && !ret->failed))
        cr_assert_geq(loop_poll(l, -1), 0);
    cr_assert_eq(helpers_free(h), 0);
    tasks_finish(tasks, true);
    tasks_free(tasks);
    engine_builtin.close(replica);
    free(prompt.at);
    arena_done(&a);
    loop_free(l);
    rig_close(&r);
}

static void ended_done(struct ended *e)
{
    buf_done(&e->ids);
    buf_done(&e->stop);
}

TEST(builtin, a_helper_makes_the_answer_that_the_loop_would_make)
{
    static const struct {
        const char *stop, *stop_ids;
        int64_t max_tokens;
        size_t n;
    } cases[] = {
        {"[]", "[]", 0, PROMPT + 1}, {"[\"xyzab\",\"no\"]", "[]", 0, 15}, {"[]", "[1,101]", 0, 5},
        {"[]", "[]", 4500, 4500},    {"null", "null", -1, PROMPT + 1},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ended loop, helper;

        one_echo(cases[i].stop, cases[i].stop_ids, cases[i].max_tokens, 0, &loop);
        one_echo(cases[i].stop, cases[i].stop_ids, cases[i].max_tokens, 1, &helper);
        cr_assert_eq(loop.n, cases[i].n, "%zu: %zu", i, loop.n);
        cr_assert(str_eq(buf_str(&loop.ids), buf_str(&helper.ids)));
        cr_assert(str_eq(buf_str(&loop.stop), buf_str(&helper.stop)));
        cr_assert_eq(loop.finish, helper.finish);
        ended_done(&loop);
        ended_done(&helper);
    }
}

/* Work that takes a helper several milliseconds is marked as long, and leaves one helper for
 * others. */
TEST(builtin, what_is_long_by_its_size)
{
    static const struct {
        size_t n;
        bool helped, several;
    } cases[] = {
        {4096, false, false}, {4097, true, false}, {16384, true, false}, {16385, true, true}};
    struct rig r = rig_open("");

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct sampling s = {0};
        int32_t *ids = mem_calloc(cases[i].n, sizeof(*ids));
        struct engine_request q = {.session_id = STR("a"), .sampling = &s};

        for (size_t k = 0; k < cases[i].n; k++)
            ids[k] = 'a';
        q.prompt = token_parts_of(&(struct token_span){ids, cases[i].n});
        cr_expect_eq(builtin_is_long(r.builtin, &q), cases[i].helped, "%zu", cases[i].n);
        cr_expect_eq(builtin_takes_long(r.builtin, &q), cases[i].several, "%zu", cases[i].n);
        free(ids);
    }
    rig_close(&r);
}

TEST(builtin, a_helper_that_fails_or_a_call_that_is_cancelled)
{
    struct ended e;

    one_echo("[]", "[]", 0, 2, &e);
    cr_assert(e.failed && e.ids.len == 0);
    one_echo("[]", "[]", 0, 3, &e);
    cr_assert(!e.failed && e.ids.len == 0);
}
