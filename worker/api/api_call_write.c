/* An answer's text: written on the spot when it is short, else by a helper. Logprobs make a long
 * text of few tokens, and n answers are written at once.
 *
 *   on_finish        (api_call_answer.c) api_call_write   -> the end of a model call
 *   api_call_repeats (api_call_repeat.c) api_call_replay  -> all of a recorded one
 *     write_answer   the dialect's writer; maybe in a helper
 *     end            the exchange gets what was written
 *
 * A helper touches nothing of the exchange, so the client may leave: then the call is freed when
 * the helper lets go (api_call_free). */
#include "common/base/cancel.h"
#include "common/codec/json.h"
#include "common/os/loop.h"
#include "common/proc/metrics.h"
#include "common/serve/exchange.h"
#include "worker/api/api_call.h"
#include "worker/call/replay.h"
#include "worker/dialect/dialect.h"
#include "worker/request/answer_sink.h"
#include "worker/request/asked_text.h"
#include "worker/request/chat_request.h"
#include "worker/session/session.h"
#include "worker/session/session_past.h"

struct api_writing {
    struct long_work work;
    struct api_call *call;

    /* the end of a model call: its answers, in told_by's memory, or in the call's */
    const struct finished_answer *answers;
    size_t n;
    struct call_usage usage;
    struct model_call *told_by; /* held; or NULL */

    /* or a recorded one, borrowed from its session */
    struct recorded_call *replay;
    struct session *session; /* pinned; or NULL */
};

/* What the loop writes, in half a millisecond: so many bytes of text, where nearly each may be
 * written as two, and so many logprobs. Debug builds leave more of these to helpers, so that all
 * tests see it. */
enum { TEXT_MAX = 256 << 10 };
#ifdef NDEBUG
enum { LOGPROBS_MAX = 1 << 10 };
#else
enum { LOGPROBS_MAX = 0 };
#endif

/* A helper takes several milliseconds for more (long_work.is_long). */
enum { TEXT_LONG = 8 << 20, LOGPROBS_LONG = 8 << 10 };

/* What there is to write. */
struct written_size {
    size_t text_bytes; /* or what takes as long; counted to more than TEXT_LONG */
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

/* The end of a stream has little in it, but for Responses, which tells all of it once more. */
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

/* Maybe in a helper. */
static int write_answer(struct long_work *work, struct work_tools *tools, struct err *e)
{
    struct api_writing *w = CONTAINER_OF(work, struct api_writing, work);
    struct dialect_writer *to = w->call->writer;

    if (work_note(tools, work->body_hash, e))
        return -1;
    if (w->replay)
        replay_tell(w->replay, to->sink, to, w->call->req->stream);
    else
        to->sink->finish(to, w->answers, w->n, &w->usage);
    return cancel_wanted() ? cancel_fail(e) : 0;
}

/* Of a recorded answer, before its head. */
static void tell_replayed(struct api_call *c)
{
    exchange_set_header(c->x, "Rollgate-Replayed", STR("1"));
    metrics_count(c->service->calls.page, METRIC_replays, 1);
}

/* What an answer is made of and the call does not own. */
struct borrowed {
    struct session_store *store;
    struct model_call *told_by;
    struct session *session;
};

/* w goes with its call. */
static struct borrowed borrowed_of(const struct api_writing *w)
{
    return (struct borrowed){w->call->service->calls.store, w->told_by, w->session};
}

static void let_go(struct borrowed b)
{
    if (b.told_by)
        model_call_let(b.told_by);
    if (b.session)
        session_unpin(b.store, b.session);
}

/* Whoever waits to know what became of it asks again; it was not delivered. */
static void fail(struct api_call *c, const struct err *e, bool stuck)
{
    exchange_unnote(c->x);
    if (stuck) {
        api_call_fail_stuck(c, e);
        return;
    }
    buf_clear(&c->out);
    api_call_sink.failed(c, e);
}

/* The request may lie in what is borrowed, so that goes last; what is stuck keeps all that it
 * reads, and where it writes. */
static void end(struct api_writing *w, const struct err *e)
{
    struct api_call *c = w->call;
    struct borrowed b = borrowed_of(w);
    bool stuck = w->work.stuck;
    struct err why = {0};

    if (e)
        why = *e;
    else if (w->replay && api_call_refuse_unread(c, &why) == 0) /* others may wait since it was */
        tell_replayed(c);                                       /* asked for */
    if (!stuck)
        c->writing = NULL;
    if (why.kind == ERR_NONE)
        api_call_end(c);
    else
        fail(c, &why, stuck);
    if (!stuck)
        let_go(b);
}

static void on_written(struct long_work *work, const struct err *e)
{
    end(CONTAINER_OF(work, struct api_writing, work), e);
}

/* The client left, and the helper has let go. */
static void on_dropped(struct long_work *work)
{
    struct api_writing *w = CONTAINER_OF(work, struct api_writing, work);
    struct borrowed b = borrowed_of(w);
    struct api_call *c = w->call;

    c->writing = NULL;
    api_call_free(c);
    let_go(b);
}

bool api_call_written(const struct api_call *c)
{
    return !c->writing || !(c->writing->work.helped || c->writing->work.stuck);
}

void api_call_drop_writing(struct api_call *c)
{
    work_drop(&c->writing->work);
}

static struct api_writing *writing_new(struct api_call *c)
{
    struct api_writing *w = ARENA_NEW(&c->arena, struct api_writing);

    w->call = c;
    w->work.run = write_answer;
    w->work.done = on_written;
    w->work.drop = on_dropped;
    w->work.body_hash = c->reading.body_hash;
    c->writing = w;
    return w;
}

static void begin(struct api_writing *w, struct written_size size)
{
    struct api_call *c = w->call;
    struct err e = {0};
    enum work_state state;

    w->work.is_long = is_long(size);
    state = work_begin(&c->service->calls, &w->work, str_cstr(c->id), is_short(size), &e);
    if (state != WORK_HELPED)
        on_written(&w->work, state == WORK_FAILED ? &e : NULL);
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
    w = writing_new(c);
    w->answers = answers;
    w->n = n;
    w->usage = *usage;
    w->told_by = c->listener.told_by;
    if (w->told_by)
        model_call_hold(w->told_by);
    begin(w, size);
}

/* A part of a batch has no writer: its answers are kept until the others are there. */
static void tell_part(struct api_call *c, const struct recorded_call *r)
{
    tell_replayed(c);
    replay_tell(r, c->listener.sink, c->listener.ctx, c->listener.stream);
}

/* --- a recorded answer --- */

/* What of it has left memory comes back, a part in each turn. */
struct api_recall {
    struct api_call *call;
    struct loop_task part;
    struct recall *recall;
};

void api_call_drop_recall(struct api_call *c)
{
    if (!c->recall)
        return;
    loop_task_cancel(c->service->calls.loop, &c->recall->part);
    session_past_let(&c->recall->recall);
    c->recall = NULL;
}

/* It goes out where the answer would, which may be noted already: that was not delivered then. */
static void refuse(struct api_call *c, const struct err *e)
{
    if (c->writer && c->noted)
        exchange_unnote(c->x);
    c->listener.sink->failed(c->listener.ctx, e);
}

/* What it tells is there. */
static bool replay(struct api_call *c, struct session *s, uint64_t number)
{
    struct err e = {0};
    struct recorded_call *r =
        replay_gather(&c->service->calls, s, &c->arena, number, c->req->logprobs, &e);
    struct api_writing *w;

    api_call_drop_recall(c); /* it is copied */
    if (!r && e.kind == ERR_NONE)
        return false;
    if (!r) {
        refuse(c, &e);
    } else if (!c->writer) {
        tell_part(c, r);
    } else {
        c->number = number;
        api_call_note_answer(c);
        w = writing_new(c);
        w->replay = r;
        w->session = s;
        session_pin(s);
        begin(w, size_of(c, replay_tokens(r), replay_cost(r, TEXT_LONG + 1)));
    }
    return true;
}

static void on_part(struct loop_task *t)
{
    struct api_recall *x = CONTAINER_OF(t, struct api_recall, part);
    struct api_call *c = x->call;
    struct call_env *env = &c->service->calls;
    struct session *s = c->awaiting;
    struct err e = {0};
    bool ended = false;
    int rc;

    if (session_find(env->store, str_cstr(c->id), &ended) == s)
        rc = session_past_recall(&x->recall, s, c->number, &e);
    else
        rc = err_set(&e, ERR_SESSION_ENDED, "the session has ended");
    if (rc == 1) {
        loop_task_post_behind(env->loop, t, on_part);
        return;
    }
    session_pin(s); /* the answer may be told, and the call freed, at once */
    api_call_awaited(c);
    if (rc < 0) {
        api_call_drop_recall(c);
        refuse(c, &e);
    } else {
        (void)replay(c, s, c->number); /* the call is there: it was read */
    }
    session_unpin(env->store, s);
}

/* Returns 0 if all is there, 1 if on_part goes on; -1. Another request must not find the answer
 * lost while it is read back for this one: it is noted before. */
static int read_back(struct api_call *c, struct session *s, uint64_t number, struct err *e)
{
    struct recall *r = NULL;
    int rc = session_past_recall(&r, s, number, e);

    if (rc < 0)
        session_past_let(&r);
    if (!r)
        return rc;
    c->recall = ARENA_NEW(&c->arena, struct api_recall);
    *c->recall = (struct api_recall){.call = c, .recall = r};
    if (rc == 0)
        return 0;
    c->number = number;
    api_call_note_answer(c);
    api_call_hold_session(c);
    loop_task_post_behind(c->service->calls.loop, &c->recall->part, on_part);
    return 1;
}

/* A part of a batch, which notes nothing, reads all of its own at once. */
bool api_call_replay(struct api_call *c, struct session *s, uint64_t number)
{
    struct err e = {0};
    int rc = c->req->logprobs && c->writer ? read_back(c, s, number, &e) : 0;

    if (rc == 0)
        return replay(c, s, number);
    if (rc < 0)
        c->listener.sink->failed(c->listener.ctx, &e);
    return true;
}
