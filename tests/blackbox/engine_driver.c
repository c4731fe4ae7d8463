/*
 * Drives an engine pool without a gateway: orders as JSON lines on stdin, what the pool says as
 * JSON lines on stdout. For test_engines.py and the engine bench.
 *
 *     engine_driver --engine sglang:http://127.0.0.1:1 [--engine ...] [--NAME VALUE ...]
 *     {"op": "call", "id": 1, "session": "s", "prompt": [1, 2], "max_tokens": 9, "stream": true}
 *     {"op": "cancel", "id": 1}   {"op": "version", "version": "7"}   {"op": "pause", "mode":
 * "hold"}
 *     {"op": "state"}
 *     {"op": "pass", "id": 2, "method": "GET", "path": "/x?y", "passthrough": "read"}
 * End of input ends the program.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/base64.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "worker/engine/pool/engine.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/pool/passing.h"
#include "worker/text/tokens/span.h"

enum { ENGINES_MAX = 16 };

struct call {
    int64_t id;
    struct call *next;
    struct engine_call *engine; /* NULL: the call has ended */
    struct engine_pass_call *pass;
    struct arena arena;
};

static struct {
    struct loop *loop;
    struct engine_pool *pool;
    struct loop_io in;
    struct buf input;
    struct call *calls;
} driver;

static void say(struct buf *line)
{
    buf_add_c(line, '\n');
    for (size_t at = 0; at < line->len;) {
        ssize_t n = write(STDOUT_FILENO, line->p + at, line->len - at);

        CHECK(n > 0);
        at += (size_t)n;
    }
    buf_done(line);
}

static struct json_out event(struct buf *line, const struct call *c, const char *name)
{
    struct json_out o = json_out_to(line);

    json_out_obj(&o);
    json_out_key(&o, "event");
    json_out_cstr(&o, name);
    if (c) {
        json_out_key(&o, "id");
        json_out_i64(&o, c->id);
    }
    return o;
}

static void out_ids(struct json_out *o, struct token_span ids)
{
    json_out_key(o, "ids");
    json_out_arr(o);
    for (size_t i = 0; i < ids.n; i++)
        json_out_i64(o, ids.at[i]);
    json_out_end_arr(o);
}

static void out_logprobs(struct json_out *o, const float *p, size_t n)
{
    json_out_key(o, "logprobs");
    if (!p) {
        json_out_null(o);
        return;
    }
    json_out_arr(o);
    for (size_t i = 0; i < n; i++)
        json_out_double(o, (double)p[i]);
    json_out_end_arr(o);
}

static void out_top(struct json_out *o, const struct engine_top *t, size_t n)
{
    json_out_key(o, "top");
    json_out_arr(o);
    for (size_t i = 0; t && i < n; i++) {
        json_out_arr(o);
        json_out_i64(o, t[i].id);
        json_out_double(o, (double)t[i].logprob);
        json_out_end_arr(o);
    }
    json_out_end_arr(o);
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct buf line = {0};
    struct json_out o = event(&line, ctx, "delta");

    out_ids(&o, d->ids);
    out_logprobs(&o, d->logprobs, d->ids.n);
    if (d->message) {
        json_out_key(&o, "message");
        json_out_value(&o, d->message);
    }
    json_out_end_obj(&o);
    say(&line);
}

static void out_experts(struct json_out *o, const struct engine_result *r)
{
    char *text = mem_alloc(base64_encoded_len(r->experts.len) + 1);

    base64_encode(r->experts.p, r->experts.len, text);
    json_out_key(o, "experts");
    json_out_str(o, str_of(text, base64_encoded_len(r->experts.len)));
    json_out_key(o, "experts_from");
    json_out_i64(o, r->experts_from);
    json_out_key(o, "experts_rows");
    json_out_i64(o, r->experts_rows);
    free(text);
}

static void on_done(void *ctx, const struct engine_result *r)
{
    static const char *const finishes[] = {"stop", "stop_string", "length", "aborted"};
    struct call *c = ctx;
    struct buf line = {0};
    struct json_out o = event(&line, c, "done");

    c->engine = NULL;
    json_out_key(&o, "finish");
    json_out_cstr(&o, finishes[r->finish]);
    json_out_key(&o, "stop_id");
    json_out_i64(&o, r->stop_id);
    json_out_key(&o, "stop_text");
    json_out_str(&o, r->stop_text);
    out_ids(&o, r->ids);
    out_logprobs(&o, r->logprobs, r->ids.n);
    out_top(&o, r->top, r->ids.n * r->n_top);
    json_out_key(&o, "basis");
    json_out_cstr(&o, logprob_basis_name(r->basis));
    json_out_key(&o, "scored");
    json_out_i64(&o, r->scored);
    json_out_key(&o, "cached_tokens");
    json_out_i64(&o, r->cached_tokens);
    json_out_key(&o, "versions");
    json_out_arr(&o);
    for (size_t i = 0; i < r->n_versions; i++) {
        json_out_arr(&o);
        json_out_str(&o, r->versions[i].version);
        json_out_i64(&o, r->versions[i].start);
        json_out_i64(&o, r->versions[i].end);
        json_out_end_arr(&o);
    }
    json_out_end_arr(&o);
    if (r->experts.p)
        out_experts(&o, r);
    json_out_key(&o, "replica");
    json_out_cstr(&o, r->replica);
    json_out_key(&o, "retries");
    json_out_i64(&o, r->retries);
    json_out_key(&o, "resumes");
    json_out_i64(&o, r->resumes);
    json_out_key(&o, "total_us");
    json_out_i64(&o, (int64_t)r->total_us);
    if (r->prompt_ids.n > 0) {
        json_out_key(&o, "prompt_ids");
        json_out_arr(&o);
        for (size_t i = 0; i < r->prompt_ids.n; i++)
            json_out_i64(&o, r->prompt_ids.at[i]);
        json_out_end_arr(&o);
    }
    if (r->openai) {
        json_out_key(&o, "openai");
        json_out_value(&o, r->openai);
    }
    json_out_end_obj(&o);
    say(&line);
}

static void on_failed(void *ctx, const struct err *e)
{
    struct call *c = ctx;
    struct buf line = {0};
    struct json_out o = event(&line, c, "failed");

    c->engine = NULL;
    c->pass = NULL;
    json_out_key(&o, "status");
    json_out_i64(&o, err_status(e));
    json_out_key(&o, "code");
    json_out_cstr(&o, err_code(e));
    json_out_key(&o, "retry");
    json_out_bool(&o, err_retry(e));
    json_out_key(&o, "text");
    json_out_cstr(&o, e->text);
    json_out_end_obj(&o);
    say(&line);
}

static const struct engine_events events = {
    .delta = on_delta, .done = on_done, .failed = on_failed};

static void on_pass_head(void *ctx, int status, struct str content_type)
{
    struct buf line = {0};
    struct json_out o = event(&line, ctx, "head");

    json_out_key(&o, "status");
    json_out_i64(&o, status);
    json_out_key(&o, "type");
    json_out_str(&o, content_type);
    json_out_end_obj(&o);
    say(&line);
}

static void on_pass_body(void *ctx, struct str bytes)
{
    struct buf line = {0};
    struct json_out o = event(&line, ctx, "body");

    json_out_key(&o, "text");
    json_out_str(&o, bytes);
    json_out_end_obj(&o);
    say(&line);
}

static void on_pass_done(void *ctx)
{
    struct buf line = {0};
    struct json_out o = event(&line, ctx, "passed");

    ((struct call *)ctx)->pass = NULL;
    json_out_end_obj(&o);
    say(&line);
}

static const struct engine_pass_events pass_events = {on_pass_head, on_pass_body, on_pass_done,
                                                      on_failed};

static int64_t int_of(const struct json *v, const char *key, int64_t otherwise)
{
    int64_t n;

    return json_to_i64(json_get(v, key), &n) == 0 ? n : otherwise;
}

static void set_sampling(struct call *c, struct sampling *s, const struct json *v)
{
    struct err e;

    *s = (struct sampling)SAMPLING_DEFAULTS;
    s->max_tokens = 100;
    for (size_t i = 0; i < v->n; i++) {
        struct str name = json_string(&v->members[i].key);

        if (sampling_known(name))
            CHECK(sampling_set(&c->arena, s, name, &v->members[i].value, &e) == 0);
    }
}

static void start_call(struct call *c, const struct json *v)
{
    const struct json *ids = json_get(v, "prompt");
    int32_t *prompt = arena_calloc(&c->arena, ids ? ids->n : 0, sizeof(*prompt));
    struct token_span *one = ARENA_NEW(&c->arena, struct token_span);
    struct sampling *sampling = arena_alloc(&c->arena, sizeof(*sampling));
    struct engine_request r = {
        .session_id = json_string(json_get(v, "session")),
        .call = (uint64_t)int_of(v, "call", c->id),
        .top_logprobs = (uint32_t)int_of(v, "top", 0),
        .stream = json_is_true(json_get(v, "stream")),
        .experts_from = (uint32_t)int_of(v, "experts_from", 0),
        .chat_body = json_get(v, "chat_body"),
    };

    for (size_t i = 0; ids && i < ids->n; i++) {
        int64_t id = 0;

        CHECK(json_to_i64(&ids->items[i], &id) == 0);
        prompt[i] = (int32_t)id;
    }
    *one = (struct token_span){prompt, ids ? ids->n : 0};
    r.prompt = token_parts_of(one);
    set_sampling(c, sampling, v);
    r.sampling = sampling;
    c->engine = engine_start(driver.pool, &r, &events, c);
}

static void start_pass(struct call *c, const struct json *v)
{
    struct str target = json_string(json_get(v, "path"));
    size_t query_at = str_find(target, STR("?"), 0);
    struct engine_pass p = {
        .session_id = json_string(json_get(v, "session")),
        .method = arena_cstr(&c->arena, json_string(json_get(v, "method"))),
        .path = str_sub(target, 0, query_at),
        .query = query_at == SIZE_MAX ? (struct str){0} : str_sub(target, query_at + 1, SIZE_MAX),
        .setting = arena_cstr(&c->arena, json_string(json_get(v, "passthrough"))),
        .content_type = json_string(json_get(v, "type")),
        .body = json_string(json_get(v, "body")),
    };
    struct err e;

    c->pass = engine_pass(driver.pool, &p, &pass_events, c, &e);
    if (!c->pass)
        on_failed(c, &e);
}

static void cancel_call(int64_t id)
{
    for (struct call *c = driver.calls; c; c = c->next) {
        if (c->id != id)
            continue;
        engine_cancel(c->engine);
        if (c->pass)
            engine_pass_cancel(c->pass);
        c->engine = NULL;
        c->pass = NULL;
    }
}

static void on_drained(void *ctx)
{
    struct buf line = {0};
    struct json_out o = event(&line, ctx, "drained");

    json_out_end_obj(&o);
    say(&line);
}

static void set_pause(struct str mode)
{
    enum engine_pause p = str_eq_c(mode, "hold")    ? ENGINE_HOLD
                          : str_eq_c(mode, "drain") ? ENGINE_DRAIN
                                                    : ENGINE_RUN;

    engine_pool_pause(driver.pool, p, p == ENGINE_DRAIN ? on_drained : NULL, NULL);
}

static void tell_state(void)
{
    struct buf line = {0}, replicas = {0};
    struct json_out o = event(&line, NULL, "state");

    engine_pool_write(driver.pool, &replicas);
    json_out_key(&o, "replicas");
    json_out_raw(&o, buf_str(&replicas));
    json_out_key(&o, "inflight");
    json_out_i64(&o, (int64_t)engine_pool_inflight(driver.pool));
    json_out_key(&o, "ready");
    json_out_bool(&o, engine_pool_ready(driver.pool));
    json_out_end_obj(&o);
    say(&line);
    buf_done(&replicas);
}

static void order(struct str line)
{
    struct call *c = mem_zalloc(sizeof(*c));
    const struct json *v;
    struct err e;
    struct str op;

    line = arena_str(&c->arena, line);
    CHECK(json_parse(&c->arena, line, &v, &e) == 0);
    op = json_string(json_get(v, "op"));
    c->id = int_of(v, "id", 0);
    c->next = driver.calls;
    driver.calls = c;
    if (str_eq_c(op, "call"))
        start_call(c, v);
    else if (str_eq_c(op, "pass"))
        start_pass(c, v);
    else if (str_eq_c(op, "cancel"))
        cancel_call(c->id);
    else if (str_eq_c(op, "version"))
        engine_pool_set_version(driver.pool, json_string(json_get(v, "version")));
    else if (str_eq_c(op, "pause"))
        set_pause(json_string(json_get(v, "mode")));
    else
        tell_state();
}

static void on_input(struct loop_io *io, unsigned got)
{
    char text[65536];
    ssize_t n;

    (void)got;
    while ((n = read(io->fd, text, sizeof(text))) > 0)
        buf_add(&driver.input, text, (size_t)n);
    for (;;) {
        const char *end = driver.input.len ? memchr(driver.input.p, '\n', driver.input.len) : NULL;

        if (!end)
            break;
        order(str_of(driver.input.p, (size_t)(end - driver.input.p)));
        buf_consume(&driver.input, (size_t)(end - driver.input.p) + 1);
    }
    if (n == 0)
        loop_stop(driver.loop);
}

static void set_option(struct engine_options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        uint64_t *ms;
        uint32_t *count;
        bool *flag;
    } all[] = {
        {"--timeout", &o->timeout_ms, NULL, NULL},
        {"--idle-timeout", &o->idle_timeout_ms, NULL, NULL},
        {"--connect-timeout", &o->connect_timeout_ms, NULL, NULL},
        {"--queue-timeout", &o->queue_timeout_ms, NULL, NULL},
        {"--health-interval", &o->health_interval_ms, NULL, NULL},
        {"--health-timeout", &o->health_timeout_ms, NULL, NULL},
        {"--max-inflight", NULL, &o->max_inflight, NULL},
        {"--max-queue", NULL, &o->max_queue, NULL},
        {"--max-session-queue", NULL, &o->max_session_queue, NULL},
        {"--retries", NULL, &o->retries, NULL},
        {"--vocab", NULL, &o->vocab_size, NULL},
        {"--retry-5xx", NULL, NULL, &o->retry_5xx},
        {"--routed-experts", NULL, NULL, &o->routed_experts},
        {"--resume-aborts", NULL, NULL, &o->resume_aborts},
        {"--insecure-tls", NULL, NULL, &o->insecure_tls},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        uint64_t n = strtoull(value, NULL, 10);

        if (strcmp(all[i].name, name) != 0)
            continue;
        if (all[i].ms)
            *all[i].ms = n;
        else if (all[i].count)
            *all[i].count = (uint32_t)n;
        else
            *all[i].flag = n != 0;
    }
}

int main(int argc, char **argv)
{
    const char *engines[ENGINES_MAX];
    struct engine_options o = {.engines = engines,
                               .max_inflight = 512,
                               .retries = 2,
                               .resume_aborts = true,
                               .timeout_ms = 60000,
                               .connect_timeout_ms = 3000};
    struct err e;

    log_setup("driver", LOG_DEBUG, LOG_TEXT);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--engine") == 0)
            engines[o.n_engines++] = argv[i + 1];
        else if (strcmp(argv[i], "--ca-file") == 0)
            o.ca_file = argv[i + 1];
        else
            set_option(&o, argv[i], argv[i + 1]);
    }
    driver.loop = loop_new(&e);
    if (engine_pool_new(driver.loop, &o, &driver.pool, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 2;
    }
    (void)fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    CHECK(loop_add(driver.loop, &driver.in, STDIN_FILENO, LOOP_IN | LOOP_LEVEL, on_input, &e) == 0);
    loop_run(driver.loop);
    loop_del(driver.loop, &driver.in);
    engine_pool_free(driver.pool);
    loop_free(driver.loop);
    while (driver.calls) {
        struct call *c = driver.calls;

        driver.calls = c->next;
        arena_done(&c->arena);
        free(c);
    }
    buf_done(&driver.input);
    return 0;
}
