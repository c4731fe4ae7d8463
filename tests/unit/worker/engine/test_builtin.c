#include "common/codec/sampling.h"
#include "worker/engine/builtin_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/codec/json.h"
#include "common/os/loop.h"
#include "testing.h"
#include "worker/engine/adapter.h"
#include "worker/engine/engine_pool.h"
#include "worker/engine/engine_request.h"
#include "worker/engine/engine_result.h"
#include "worker/engine/engine_target.h"
#include "worker/model/model.h"
#include "worker/tokens/tokenizer.h"

struct rig {
    struct model *model;
    struct engine_options opt;
    struct builtin *builtin;
};

static struct rig rig_open(const char *mode)
{
    struct rig r = {0};
    struct model_options o = {0};
    struct err e = {0};

    cr_assert_eq(model_load(&o, &r.model, &e), 0, "%s", e.text);
    r.opt.model = r.model;
    r.opt.stop_ids = model_info(r.model)->stop_ids;
    r.opt.n_stop_ids = model_info(r.model)->n_stop_ids;
    cr_assert_eq(builtin_new(mode, &r.opt, &r.builtin, &e), 0, "%s", e.text);
    return r;
}

static void rig_close(struct rig *r)
{
    builtin_free(r->builtin);
    model_free(r->model);
}

/* The answer's ids as text, specials written out, with how it ended in front. */
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
    q.prompt = (struct token_span){prompt.at, prompt.n};
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

/* What an attempt has told. */
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

/* A stream has an event for each token: thousands of them in one step would hold the loop. */
TEST(builtin, a_long_answer_comes_in_pieces)
{
    static const struct engine_attempt_events events = {.delta = on_delta, .done = on_done};
    struct rig r = rig_open("");
    struct loop *l = loop_new(NULL);
    struct engine_target target = {.rest = ""};
    struct token_vec prompt = {0};
    struct encoder *enc = encoder_new(model_tokenizer(r.model));
    struct sampling s = {0};
    struct engine_request q = {.session_id = STR("w0-a"), .sampling = &s};
    struct heard h = {0};
    struct buf text = {0};
    struct err e = {0};
    void *replica;

    buf_puts(&text, "<|im_start|>user\n");
    for (int i = 0; i < 2000; i++)
        buf_add_c(&text, 'x');
    buf_puts(&text, "<|im_end|>\n<|im_start|>assistant\n");
    cr_assert_eq(encoder_encode(enc, buf_str(&text), false, &prompt, &e), 0);
    q.prompt = (struct token_span){prompt.at, prompt.n};
    cr_assert_eq(engine_builtin.open(l, &target, &r.opt, &replica, &e), 0, "%s", e.text);
    (void)engine_builtin.start(replica, &q, &events, &h);
    while (!h.done)
        cr_assert_geq(loop_poll(l, -1), 0);
    cr_assert_eq(h.n, 2001);
    cr_assert_leq(h.most, 512);
    engine_builtin.close(replica);
    loop_free(l);
    buf_done(&text);
    free(prompt.at);
    encoder_free(enc);
    rig_close(&r);
}
