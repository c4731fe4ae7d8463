/* fuzz: rg_worker */
/*
 * Answers of engines, however they are cut: byte 0 chooses the kind, byte 1 the form (1 an event
 * stream, 2 alternatives, 4 the pieces are taken to be cumulative, 8 incremental, 128 the client
 * wants logprobs), byte 2 the cuts, byte 3 the prompt's length; the rest is the body. The result
 * does not depend on the cuts, what was told as deltas is the answer (or nothing, where it came
 * whole), a logprob is there or is to be scored, and a refused answer says why. Messages of an
 * upstream are valid UTF-8, and their calls come one after the other, each begun by its name.
 */
#include <math.h>
#include <stdlib.h>

#include "common/base/arena.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/codec/sampling.h"
#include "common/os/loop.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/reading_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct told {
    const struct reading *r;
    size_t n;
    size_t n_calls; /* calls begun by messages */
    struct buf text;
};

static struct remote *remotes[7];

static void open_remotes(void)
{
    static const struct engine_target targets[] = {
        {.kind = "sglang"},
        {.kind = "vllm"},
        {.kind = "llamacpp"},
        {.kind = "openai"},
        {.kind = "openai", .ids_of = "vllm"},
        {.kind = "openai", .ids_of = "sglang"},
        {.kind = "vllm"},
    };
    static struct engine_target open[ARRAY_LEN(targets)];
    static const struct engine_options options = {.routed_experts = true};
    struct err e = {0};
    struct loop *loop = loop_new(&e);

    CHECK(loop);
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        const struct engine_adapter *kind = engine_adapter_find(targets[i].kind);
        void *replica = NULL;

        open[i] = targets[i];
        open[i].name = open[i].kind;
        open[i].rest = "http://127.0.0.1:9";
        CHECK(kind->open(kind, loop, &open[i], &options, &replica, &e) == 0);
        remotes[i] = replica;
    }
    remotes[6]->route = 1;
}

static void add_text(struct told *t, const struct json *text)
{
    CHECK(utf8_valid(json_string(text)));
    buf_add_str(&t->text, json_string(text));
}

static void add_message(struct told *t, const struct json *m)
{
    const struct json *call = json_at(json_get(m, "tool_calls"), 0);
    const struct json *function = json_get(call, "function");
    int64_t index = 0;

    add_text(t, json_get(m, "content"));
    add_text(t, json_get(m, "reasoning_content"));
    if (!call)
        return;
    CHECK(json_to_i64(json_get(call, "index"), &index) == 0);
    t->n_calls += json_get(function, "name") != NULL;
    CHECK(t->n_calls > 0 && (size_t)index == t->n_calls - 1);
    add_text(t, json_get(function, "arguments"));
}

static void on_delta(void *ctx, const struct engine_delta *d)
{
    struct told *t = ctx;

    if (d->message)
        add_message(t, d->message);
    if (d->ids.n == 0)
        return;
    CHECK(t->n + d->ids.n == t->r->reply.ids.n);
    CHECK(memcmp(d->ids.at, t->r->reply.ids.at + t->n, d->ids.n * sizeof(*d->ids.at)) == 0);
    t->n += d->ids.n;
}

static void check_result(struct reading *r, struct told *t)
{
    struct engine_result x;
    const struct json *rest;
    size_t told, unknown = 0;

    reading_result(r, &x);
    rest = json_get(json_at(json_get(x.openai, "choices"), 0), "messages");
    CHECK(!r->wire->text || rest);
    for (size_t i = 0; json_at(rest, i); i++)
        add_message(t, json_at(rest, i));
    told = r->events || x.finish == ENGINE_ABORTED ? x.ids.n : 0;
    CHECK(x.n_versions <= r->reply.spans.n + 1);
    CHECK(r->wire->text || t->n == (r->reply.lacks.n > 0 ? 0 : told));
    CHECK(r->wire->text || x.logprobs);
    for (size_t i = 0; x.logprobs && i < x.ids.n; i++)
        unknown += isnan(x.logprobs[i]) != 0;
    CHECK(unknown == r->reply.lacks.n);
    for (size_t i = 0; i < r->reply.lacks.n; i++)
        CHECK(isnan(x.logprobs[r->reply.lacks.at[i].at]));
}

static void expect_id(struct reading *r)
{
    struct buf id = {0};

    buf_puts(&id, "s:1.0.0.");
    reading_expect_id(r, &id);
}

static int run(struct reading *r, struct told *told, struct str body, size_t step)
{
    struct err e = {0};
    int rc = READING_MORE;

    for (size_t at = 0; at < body.len && rc == READING_MORE; at += step)
        rc = reading_feed(r, str_sub(body, at, step), &e);
    if (rc == READING_MORE)
        rc = reading_end(r, &e);
    CHECK(rc >= 0 || (e.kind == ERR_ENGINE_INVALID && e.text[0]));
    CHECK((rc == READING_LACKS) ==
          (rc >= 0 && rc != READING_TOLD && rc != READING_STRAY && r->reply.lacks.n > 0));
    if (rc == READING_MORE || rc == READING_LACKS)
        check_result(r, told);
    return rc;
}

static void compare(const struct reply *a, const struct reply *b)
{
    CHECK(a->finish == b->finish && a->stop_id == b->stop_id);
    CHECK(a->ids.n == b->ids.n && a->logprobs.n == b->logprobs.n);
    CHECK(a->ids.n == 0 || memcmp(a->ids.at, b->ids.at, a->ids.n * sizeof(*a->ids.at)) == 0);
    CHECK(a->prompt_ids.n == b->prompt_ids.n && a->tops.n == b->tops.n);
    CHECK(str_eq(buf_str(&a->experts), buf_str(&b->experts)));
    CHECK(a->has_indexer == b->has_indexer && a->indexer_layers == b->indexer_layers);
    CHECK(str_eq(buf_str(&a->indexer), buf_str(&b->indexer)) && a->indexer.len <= 16);
    CHECK(a->indexer_window.seen == b->indexer_window.seen &&
          a->indexer_window.over == b->indexer_window.over);
    CHECK(a->support.lost == b->support.lost && a->support.ids.n == b->support.ids.n);
}

/* Of a client that wants the logprobs of messages, which may be told in steps. */
static const struct json *chat_body(void)
{
    static struct arena arena;
    static const struct json *body;
    struct err e = {0};

    if (!body)
        CHECK(json_parse(&arena, STR("{\"logprobs\":true}"), &body, &e) == 0);
    return body;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int32_t prompt[256];
    const struct sampling sampling = {.max_tokens = 64};
    struct engine_request q = {.sampling = &sampling};
    struct told of_whole = {0}, of_cut = {0};
    struct reading *whole, *cut;
    enum reply_mode mode;
    const struct remote *r;
    struct str body;
    int rc;

    if (size < 4)
        return 0;
    if (!remotes[0])
        open_remotes();
    r = remotes[data[0] % ARRAY_LEN(remotes)];
    q.stream = data[1] & 1;
    q.top_logprobs = data[1] & 2 ? 2 : 0;
    q.support = data[1] & 16;
    q.chat_body = data[1] & 128 ? chat_body() : NULL;
    q.indexer = (struct indexer_ask){
        .wanted = data[1] & 32, .from = data[1] & 64 ? 2 : 0, .row_bytes = 4, .max_bytes = 16};
    q.prompt = token_parts_of(&(struct token_span){prompt, data[3]});
    body = str_of((const char *)data + 4, size - 4);
    of_whole.r = whole = reading_new(r, r->wire, &q, on_delta, &of_whole);
    of_cut.r = cut = reading_new(r, r->wire, &q, on_delta, &of_cut);
    reading_expect_events(whole, q.stream);
    reading_expect_events(cut, q.stream);
    mode = data[1] & 4 ? REPLY_CUMULATIVE : data[1] & 8 ? REPLY_INCREMENTAL : REPLY_UNKNOWN;
    reading_expect(whole, mode, BASIS_UNKNOWN, true);
    reading_expect(cut, mode, BASIS_UNKNOWN, true);
    expect_id(whole);
    expect_id(cut);
    reading_expect_echo(whole, data[2] & 16);
    reading_expect_echo(cut, data[2] & 16);
    rc = run(whole, &of_whole, body, MAX_OF(body.len, (size_t)1));
    CHECK(run(cut, &of_cut, body, data[2] % 16 + 1) == rc);
    if (rc == READING_MORE || rc == READING_LACKS)
        compare(&whole->reply, &cut->reply);
    CHECK(str_eq(buf_str(&of_whole.text), buf_str(&of_cut.text)));
    buf_done(&of_whole.text);
    buf_done(&of_cut.text);
    reading_free(whole);
    reading_free(cut);
    return 0;
}
