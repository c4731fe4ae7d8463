/* Writes an answer's text: at once if it is short, else by a helper, for which a task waits.
 * Logprobs make a long text of few tokens, and n answers are written together.
 *
 *   on_finish        (api_call_answer.c) api_call_write   -> the end of a model call
 *   api_call_repeats (api_call_repeat.c) api_call_replay  -> a whole recorded answer
 *     write_answer   the dialect's writer; maybe in a helper
 *     end            the exchange gets the text
 *
 * A helper uses nothing of the exchange, so the client may leave: then the call is freed when the
 * task has ended. */
#include "common/codec/json.h"
#include "common/os/task.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/dialect/dialect.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/call/replay.h"
#include "worker/plane/call/work.h"
#include "worker/session/store/session.h"
#include "worker/session/store/session_past.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/request/asked_text.h"
#include "worker/text/request/chat_request.h"

struct api_writing {
    struct api_call *call;
    bool is_short, is_long;

    /* for the end of a model call: its answers, in answered_by's memory, or in the call's */
    const struct finished_answer *answers;
    size_t n;
    struct call_usage usage;
    struct model_call *answered_by; /* model call that is held; or NULL */

    struct recorded_call *replay; /* for a recorded answer, borrowed from its session; or NULL */
};

/* Limits for writing on the loop, half a millisecond: bytes of text, nearly each of which may
 * become two, and logprobs. Debug builds have lower limits, so that all tests use helpers. */
enum { TEXT_MAX = 256 << 10 };
#ifdef NDEBUG
enum { LOGPROBS_MAX = 1 << 10 };
#else
enum { LOGPROBS_MAX = 0 };
#endif

/* Above these limits a helper takes several milliseconds (task_work.is_long). */
enum { TEXT_LONG = 8 << 20, LOGPROBS_LONG = 8 << 10 };

/* Size of an answer. */
struct written_size {
    size_t text_bytes; /* text, or other data that takes as long; not counted beyond TEXT_LONG */
    size_t logprobs;
};

size_t api_call_echo_bytes(const struct api_call *c)
{
    return c->asked ? c->asked[ASKED_SHARED].len + c->asked[ASKED_OWN].len : 0;
}

static struct written_size size_of(const struct api_call *c, size_t tokens, size_t text_bytes)
{
    size_t each = c->req->logprobs ? 1 + (size_t)c->req->top_logprobs : 0;

    return (struct written_size){text_bytes + api_call_echo_bytes(c), tokens * each};
}

static bool is_short(struct written_size s)
{
    return s.logprobs <= LOGPROBS_MAX && s.text_bytes <= TEXT_MAX;
}

static bool is_long(struct written_size s)
{
    return s.logprobs > LOGPROBS_LONG || s.text_bytes > TEXT_LONG;
}

/* Estimates the text of the answers. The end of a stream has little text, except in Responses,
 * which repeats all of it. */
static struct written_size size_of_answers(const struct api_call *c,
                                           const struct finished_answer *answers, size_t n)
{
    size_t tokens = 0, bytes = 0;

    if (c->req->stream && !c->dialect->ends_whole)
        return (struct written_size){0};
    for (size_t i = 0; i < n && bytes <= TEXT_LONG; i++) {
        tokens += answers[i].n_logprobs;
        bytes += replay_answer_cost(answers[i].message, TEXT_LONG + 1 - bytes);
    }
    return size_of(c, tokens, bytes);
}

/* Writes the answer, perhaps in a helper. */
static int write_answer(void *writing, void *tool, struct err *e)
{
    struct api_writing *w = writing;
    struct dialect_writer *to = w->call->writer;

    if (work_note(tool, w->call->body_hash, e))
        return -1;
    if (w->replay)
        replay_tell(w->replay, to->sink, to, w->call->req->stream);
    else
        to->sink->finish(to, w->answers, w->n, &w->usage);
    return 0;
}

/* Adds the header that marks a recorded answer, before the head. */
static void add_replay_header(struct api_call *c)
{
    exchange_set_header(c->x, "Rollgate-Replayed", STR("1"));
    metrics_count(c->service->calls.page, METRIC_replays, 1);
}

/* Fails the answer, which was not delivered. Requests that wait for its result check again. */
static void fail_answer_write(struct api_call *c, const struct err *e)
{
    exchange_unnote(c->x);
    buf_clear(&c->out);
    api_call_sink.failed(c, e);
}

/* Handles a hung thread: everything that it reads and writes is leaked. */
static void on_lost(void *writing)
{
    const struct api_writing *w = writing;
    struct api_call *c = w->call;
    struct err e = {0};

    work_report_hung(c->body_hash, &e);
    if (c->left)
        return;
    exchange_unnote(c->x);
    api_call_fail_stuck(c, &e);
}

MAY_PAUSE static void write_and_end(struct api_writing *w)
{
    struct api_call *c = w->call;
    struct task_work work = {.fn = write_answer,
                             .ctx = w,
                             .lane = str_cstr(c->id),
                             .is_short = w->is_short,
                             .is_long = w->is_long};
    struct err e = {0};
    int rc;

    task_on_lost(on_lost, w);
    rc = task_offload(&work, &e);
    if (c->left || e.kind == ERR_CANCELLED)
        return;
    if (rc == 0 && w->replay) {
        rc = api_call_refuse_unread(c, &e); /* further bytes may wait by now */
        if (rc == 0)
            add_replay_header(c);
    }
    if (rc == 0)
        api_call_end(c);
    else
        fail_answer_write(c, &e);
}

/* Writes an answer as a task. The answer's events may refer to the request, so they are freed
 * last. */
static void run_writing(void *ctx)
{
    /* a copy, because the end of the answer frees it */
    struct api_writing w = *(struct api_writing *)ctx;

    w.call->writing = task_running;
    write_and_end(&w);
    api_call_end_writing(w.call);
    if (w.answered_by)
        model_call_let(w.answered_by);
}

void api_call_write(struct api_call *c, const struct finished_answer *answers, size_t n,
                    const struct call_usage *usage)
{
    struct written_size size = size_of_answers(c, answers, n);
    struct api_writing *w;

    if (is_short(size)) {
        c->writer->sink->finish(c->writer, answers, n, usage);
        api_call_end(c);
        return;
    }
    w = ARENA_NEW(&c->arena, struct api_writing);
    *w = (struct api_writing){.call = c,
                              .is_long = is_long(size),
                              .answers = answers,
                              .n = n,
                              .usage = *usage,
                              .answered_by = c->listener.answered_by};
    if (w->answered_by)
        model_call_hold(w->answered_by);
    (void)task_start(c->service->calls.tasks, str_cstr(c->id), run_writing, w);
}

/* Keeps the answers of a call in a batch, which has no writer, until the other calls have
 * theirs. */
static void keep_replayed(struct api_call *c, const struct recorded_call *r)
{
    add_replay_header(c);
    replay_tell(r, c->listener.sink, c->listener.ctx, c->listener.stream);
}

/* --- a recorded answer --- */

/* Answers an error instead. If the answer was noted already, it counts as not delivered. */
static void refuse_answer(struct api_call *c, const struct err *e)
{
    if (c->front->left || e->kind == ERR_CANCELLED)
        return;
    if (c->writer && c->noted)
        exchange_unnote(c->x);
    c->listener.sink->failed(c->listener.ctx, e);
}

MAY_PAUSE static void replay_answer(struct api_call *c, struct recorded_call *r)
{
    struct written_size size;
    struct api_writing w = {.call = c, .replay = r};

    if (!c->writer) {
        keep_replayed(c, r);
        return;
    }
    size = size_of(c, replay_tokens(r), replay_cost(r, TEXT_LONG + 1));
    w.is_short = is_short(size);
    w.is_long = is_long(size);
    write_and_end(&w);
}

/* The session is pinned (api_call.held). The answer is noted before it is read back, so that no
 * other request finds it lost meanwhile. */
bool api_call_replay(struct api_call *c, struct session *s, uint64_t number)
{
    struct recorded_call *r;
    struct err e = {0};

    c->number = number;
    if (c->writer)
        api_call_announce_answer(c);
    r = replay_gather(&c->service->calls, s, &c->arena, number, c->req->logprobs, &e);
    if (!r && e.kind == ERR_NONE) {
        if (c->noted)
            exchange_unnote(c->x);
        c->noted = false;
        return false;
    }
    if (r)
        replay_answer(c, r);
    else
        refuse_answer(c, &e);
    return true;
}
