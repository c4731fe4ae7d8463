/* A completion with several prompts (batch_begin). The request (the front) is split into parts.
 * Each is an api_call with one prompt, a hash of its own and its own records in the journal. They
 * share the front's exchange and writer, and the parsed request.
 *
 *   batch_begin                  in the request's task: waits until it is known whether the same
 *                                request was answered, checks every part (counts its tokens), then
 *                                starts all, one after the other
 *       on_head, on_text ...     events of a part, with its answers' indexes shifted
 *       on_finish                kept until the last part is over, then written as one answer
 *
 * If a part fails, the whole request fails. Parts that commit nevertheless are replayed when the
 * client asks again, because each has its own hash. */
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/task.h"
#include "common/proc/ids.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/ledger/ledger.h"
#include "worker/plane/api/api_call.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/chat_request.h"

#include <stdlib.h>

struct batch_part {
    struct api_call call; /* must be first: its listener's ctx */
    struct batch *batch;
    uint32_t k;
    struct model_call *answered; /* held until its answer is sent with the others; or NULL */
    bool over;                   /* the part's answer is there */
};

struct batch {
    struct api_call *front;
    struct batch_request *shared; /* memory of the front's and the parts' requests */
    /* the front's request, for the answers of all parts; in its arena */
    struct chat_request *req;
    uint32_t n, n_parts, n_over;
    bool begun, failed, closed;
    size_t part_bytes;               /* bytes in the arenas of the checked parts */
    struct finished_answer *answers; /* n_parts * n, in the front's arena */
    struct call_usage usage;
    struct batch_part *parts;
};

static void hash_prompt(const uint64_t base[2], uint32_t k, uint64_t ret[2])
{
    ret[0] = base[0];
    ret[1] = base[1] ^ (k + 1) * 0x9e3779b97f4a7c15u;
}

/* --- life --- */

/* Releases the answers of parts, which will not be sent. */
static void release_answers(struct batch *b)
{
    for (uint32_t k = 0; k < b->n_parts; k++) {
        if (b->parts[k].answered)
            model_call_let(b->parts[k].answered);
        b->parts[k].answered = NULL;
    }
}

/* The common answer is written, or never will be. */
static void on_written(void *ctx)
{
    struct batch *b = ctx;

    release_answers(b);
    for (uint32_t k = 0; k < b->n_parts; k++) {
        struct batch_part *p = &b->parts[k];

        buf_done(&p->call.out);
        api_call_free_arena(&p->call);
    }
    if (!b->closed)
        return;
    free(b->parts);
    free(b);
}

static void leave_all(struct batch *b)
{
    for (uint32_t k = 0; k < b->n_parts; k++)
        model_call_leave(&b->parts[k].call.listener);
}

/* The client left, or the answer was sent. The batch is freed with the front (on_written). */
static void on_closed(void *ctx, bool delivered)
{
    struct batch *b = ctx;

    (void)delivered;
    leave_all(b);
    b->closed = true;
    api_call_left(b->front);
}

/* --- delivered answers --- */

/* The calls of a pending answer. */
struct receipt {
    struct service *service;
    char id[ID_TEXT_MAX];
    uint64_t hash[2];
    uint32_t n_parts;
    uint64_t numbers[];
};

/* Marks all parts' answers as arrived with the one HTTP answer. */
static void on_arrived(void *ctx, struct str key)
{
    const struct receipt *r = ctx;
    uint64_t hash[2];

    (void)key;
    for (uint32_t k = 0; k < r->n_parts; k++) {
        hash_prompt(r->hash, k, hash);
        ledger_close_delivery(r->service->calls.ledger, str_cstr(r->id), hash, r->numbers[k]);
    }
}

/* Writes the key: the hash of the whole request, and the session's id. */
static struct str write_key(const struct api_call *front, char key[EXCHANGE_NOTE_MAX])
{
    size_t len = strlen(front->id);

    memcpy(key, front->hash, sizeof(front->hash));
    memcpy(key + sizeof(front->hash), front->id, len);
    return str_of(key, sizeof(front->hash) + len);
}

/* Records which calls the HTTP answer contains, for on_arrived. */
static void announce_calls(const struct batch *b)
{
    const struct api_call *c = b->front;
    struct receipt *r = mem_zalloc(sizeof(*r) + b->n_parts * sizeof(r->numbers[0]));
    char key[EXCHANGE_NOTE_MAX];

    r->service = c->service;
    r->n_parts = b->n_parts;
    memcpy(r->id, c->id, sizeof(r->id));
    memcpy(r->hash, c->hash, sizeof(r->hash));
    for (uint32_t k = 0; k < b->n_parts; k++)
        r->numbers[k] = b->parts[k].call.number;
    exchange_note(c->x,
                  &(struct exchange_note){
                      .key = write_key(c, key), .arrived = on_arrived, .drop = free, .ctx = r});
}

/* --- events of a part --- */

/* Writes the head of the answer when the first part begins. */
static void on_head(void *ctx, const struct answer_head *h)
{
    struct batch_part *p = ctx;
    struct api_call *c = p->batch->front;

    p->call.number = h->call;
    if (p->batch->failed || p->batch->begun)
        return;
    api_call_sink.head(c, h);
    p->batch->begun = true;
}

static void on_text(void *ctx, uint32_t index, struct str delta)
{
    struct batch_part *p = ctx;

    if (!p->batch->failed)
        api_call_sink.text(p->batch->front, p->k * p->batch->n + index, delta);
}

static void on_reasoning(void *ctx, uint32_t index, struct str delta)
{
    on_text(ctx, index, delta);
}

/* Never called: a completion is only text. */
static void on_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name)
{
    (void)ctx, (void)index, (void)tool, (void)id, (void)name;
}

static void on_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str delta)
{
    (void)ctx, (void)index, (void)tool, (void)delta;
}

static void on_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    (void)ctx, (void)index, (void)tool;
}

static void on_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp, size_t n)
{
    struct batch_part *p = ctx;

    if (!p->batch->failed)
        api_call_sink.logprobs(p->batch->front, p->k * p->batch->n + index, lp, n);
}

/* Sends a keep-alive. All parts share a client, so only the first one that runs does so. */
static void on_keepalive(void *ctx)
{
    struct batch_part *p = ctx;
    uint32_t k = 0;

    while (p->batch->parts[k].over)
        k++;
    if (!p->batch->failed && k == p->k)
        api_call_sink.keepalive(p->batch->front);
}

/* Longer texts are not copied. */
enum { TEXT_HELD = 64 << 10 };

static struct str text_of(const struct finished_answer *t)
{
    return json_string(json_get(t->message, "content"));
}

/* Reports whether logprobs and long texts should stay in the call, which is held then. */
static bool wants_pinned_answers(const struct finished_answer *answers, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += text_of(&answers[i]).len;
    return answers[0].n_logprobs > 0 || bytes > TEXT_HELD;
}

/* Keeps a part's answer until the others have theirs. Logprobs of a recorded answer are in the
 * part's own arena. */
static void keep_answer_of(struct batch_part *p, const struct finished_answer *t)
{
    struct arena *a = &p->batch->front->arena;
    struct finished_answer *kept = &p->batch->answers[p->k * p->batch->n + t->index];
    struct str text = p->answered ? text_of(t) : arena_str(a, text_of(t));

    *kept = (struct finished_answer){
        .index = p->k * p->batch->n + t->index,
        .finish_reason = arena_str(a, t->finish_reason),
        .message = batch_message(a, text),
        .logprobs = t->logprobs,
        .n_logprobs = t->n_logprobs,
    };
}

/* All parts are over: writes the whole answer. */
static void announce_and_finish(struct batch *b)
{
    struct api_call *c = b->front;

    announce_calls(b);
    c->noted = true;
    api_call_sink.finish(c, b->answers, (size_t)b->n_parts * b->n, &b->usage);
}

/* Keeps the part's answers and adds its usage. */
static void on_finish(void *ctx, const struct finished_answer *answers, size_t n,
                      const struct call_usage *usage)
{
    struct batch_part *p = ctx;
    struct batch *b = p->batch;

    if (b->failed)
        return;
    if (wants_pinned_answers(answers, n))
        p->answered = p->call.listener.answered_by;
    if (p->answered)
        model_call_hold(p->answered);
    for (size_t i = 0; i < n; i++)
        keep_answer_of(p, &answers[i]);
    b->usage.prompt_tokens += usage->prompt_tokens;
    b->usage.cached_tokens += usage->cached_tokens;
    b->usage.completion_tokens += usage->completion_tokens;
    b->usage.reasoning_tokens += usage->reasoning_tokens;
    p->over = true;
    if (++b->n_over == b->n_parts)
        announce_and_finish(b);
}

/* Handles one failed part, which fails all. A retry gets the answers that the others commit. */
static void on_failed(void *ctx, const struct err *e)
{
    struct batch_part *p = ctx;
    struct batch *b = p->batch;

    if (b->failed)
        return;
    b->failed = true;
    leave_all(b);
    release_answers(b);
    api_call_sink.failed(b->front, e);
}

static const struct answer_sink part_sink = ANSWER_SINK_ON;

/* --- begin --- */

/* Makes the part's api_call from the front, for one prompt. */
static void make_prompt_call(struct batch_part *p)
{
    const struct api_call *front = p->batch->front;
    struct api_call *c = &p->call;

    c->service = front->service;
    c->x = front->x;
    c->front = p->batch->front;
    c->anew = front->anew;
    c->arena.sum = &c->service->calls.request_bytes;
    c->dialect = front->dialect;
    c->dialect_label = front->dialect_label;
    memcpy(c->request_id, front->request_id, sizeof(c->request_id));
    c->id = front->id;
    hash_prompt(front->hash, p->k, c->hash);
    c->body_hash = front->body_hash;
    c->body = front->body;
    c->req = batch_part_request(p->batch->shared, p->k, &c->arena);
    c->listener = (struct call_listener){.sink = &part_sink, .ctx = p, .stream = c->req->stream};
}

/* Refuses what can be refused before any part runs. */
static int check_refusals(const struct batch_part *p, size_t n, const struct err *counted,
                          struct err *e)
{
    uint32_t context = call_context_length(&p->call.service->calls);

    if (counted && counted->kind == ERR_INVALID)
        return err_field(e, "prompt", "prompt[%u]: %s", p->k, counted->text);
    if (counted && counted->kind == ERR_CONTEXT_LENGTH)
        return err_context(e, counted->overflow, "prompt[%u]: %s", p->k, counted->text);
    if (counted)
        return err_set(e, counted->kind, "prompt[%u]: %s", p->k, counted->text);
    if (context > 0 && n >= context)
        return err_context(e, (struct err_overflow){n, 1, context},
                           "This model's maximum context length is %u tokens. However, prompt[%u] "
                           "has %zu tokens.",
                           context, p->k, n);
    return 0;
}

/* Returns the memory of the request so far, without its body. */
static size_t bytes_of(const struct batch *b)
{
    return b->front->arena.held_bytes + batch_shared_bytes(b->shared) + b->part_bytes;
}

/* Makes the part and counts its tokens. */
MAY_PAUSE static int check_one_prompt(struct batch *b, struct batch_part *p)
{
    struct api_call *c = &p->call;
    struct call_input in;
    struct err counted = {0}, e = {0};
    size_t n = 0;
    int rc;

    make_prompt_call(p);
    in = (struct call_input){.session_id = arena_str(&c->arena, str_cstr(c->id)),
                             .req = c->req,
                             .body = c->body,
                             .body_hash = {c->hash[0], c->hash[1]},
                             .body_bytes = exchange_closed_body(b->front->x).len,
                             .shared_bytes = bytes_of(b),
                             .work_hash = c->body_hash};
    rc = call_count_tokens(&c->service->calls, &c->arena, &in, &n, &counted);
    b->part_bytes += c->arena.held_bytes;
    if (b->closed || counted.kind == ERR_CANCELLED)
        return -1;
    if (check_refusals(p, n, rc ? &counted : NULL, &e) == 0)
        return 0;
    on_failed(p, &e);
    return -1;
}

MAY_PAUSE static void start_prompt(const struct batch *b, struct batch_part *p)
{
    struct api_call *c = &p->call;

    c->shared_bytes = bytes_of(b) - c->arena.held_bytes;
    api_call_start(c);
    task_on_lost(api_call_on_lost, b->front);
}

/* Checks all parts, then begins all. Other tasks run between if it takes long. */
MAY_PAUSE static void serve_prompts(struct batch *b)
{
    for (uint32_t k = 0; k < b->n_parts; k++)
        if (check_one_prompt(b, &b->parts[k]) || task_pause(NULL))
            return;
    for (uint32_t k = 0; k < b->n_parts && !b->failed && !b->closed; k++) {
        start_prompt(b, &b->parts[k]);
        if (task_pause(NULL))
            return;
    }
}

/* Makes the batch, with memory for the answers of all parts. */
static struct batch *batch_new(struct api_call *front)
{
    struct batch *b = mem_zalloc(sizeof(*b));

    b->front = front;
    b->shared = batch_share(front);
    front->written = on_written;
    front->written_ctx = b;
    b->n = front->req->n;
    b->n_parts = front->req->n_prompts;
    b->req = ARENA_NEW(&front->arena, struct chat_request);
    *b->req = *front->req;
    b->req->n = b->n * b->n_parts;
    b->answers = arena_calloc(&front->arena, b->req->n, sizeof(*b->answers));
    b->parts = mem_calloc(b->n_parts, sizeof(*b->parts));
    for (uint32_t k = 0; k < b->n_parts; k++) {
        b->parts[k].batch = b;
        b->parts[k].k = k;
    }
    return b;
}

/* Waits until it is known whether pending answers to the same request have arrived. */
MAY_PAUSE static int await_known(struct batch *b)
{
    char text[EXCHANGE_NOTE_MAX];
    struct str key = write_key(b->front, text);

    for (;;) {
        int waited;

        exchange_check_delivery(b->front->x, key);
        if (!exchange_under_way(b->front->x, key))
            return 0;
        waited = api_call_await(b->front);
        if (waited < 0)
            return -1;
        if (waited == 0)
            break;
    }
    b->front->anew = !api_call_marked(b->front);
    return 0;
}

/* The front's writer writes for all parts. */
void batch_begin(struct api_call *front)
{
    struct batch *b = batch_new(front);

    front->writer = front->dialect->writer(&front->arena, b->req, front->body, &front->out);
    exchange_watch(front->x, on_closed, b);
    if (exchange_finishing(front->x)) /* until all its parts have begun */
        exchange_finish(front->x, b->n_parts);
    if (await_known(b) == 0)
        serve_prompts(b);
}
