/* Sends the events of a call to its listeners: usually one HTTP answer, several after a join. */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/os/loop.h"
#include "common/os/task.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/call_listeners.h"
#include "worker/plane/call/model_call_internal.h"
#include "worker/plane/call/sample.h"
#include "worker/plane/call/sampled_answer.h"
#include "worker/text/request/chat_request.h"

enum { NONSTREAM_SPACE_MS = 30000 };

struct listener_beat {
    struct call_listener *listener;
    struct loop_timer timer;
};

static void on_keepalive(struct loop_timer *timer);

/* Sets the time of the next keepalive: for a stream after each silence, for any other answer once
 * and then at most every NONSTREAM_SPACE_MS. */
static void set_keepalive(struct call_listener *l, bool first)
{
    struct call_env *env = l->model_call->env;
    uint64_t ms = env->keepalive_ms;

    if (!l->stream) {
        ms = env->nonstream_keepalive_ms;
        if (ms > 0 && !first)
            ms = MIN_OF(ms, NONSTREAM_SPACE_MS);
    }
    if (ms > 0)
        loop_timer_set(env->loop, &l->beat->timer, ms, on_keepalive);
}

static void on_keepalive(struct loop_timer *timer)
{
    struct call_listener *l = CONTAINER_OF(timer, struct listener_beat, timer)->listener;

    set_keepalive(l, false);
    l->sink->keepalive(l->ctx);
}

size_t call_listeners_count(const struct model_call *t)
{
    size_t n = 0;

    for (const struct call_listener *l = t->listeners; l; l = l->next)
        n++;
    return n;
}

void call_listeners_add(struct model_call *t, struct call_listener *l)
{
    l->model_call = t;
    l->beat = mem_zalloc(sizeof(*l->beat));
    l->beat->listener = l;
    l->next = t->listeners;
    t->listeners = l;
    set_keepalive(l, true);
}

/* Detaches the listener, which gets no further events. Wakes the call if it waits for a listener
 * that is catching up. */
void call_listeners_drop(struct model_call *t, struct call_listener *l)
{
    struct call_listener **at = &t->listeners;

    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    loop_timer_stop(t->env->loop, &l->beat->timer);
    free(l->beat);
    l->beat = NULL;
    l->model_call = NULL;
    if (l->behind)
        model_call_wake(t);
}

/* Reports whether the listener gets new deltas of this answer now. If not, it gets them later,
 * together with the earlier ones. */
static bool gets_deltas(const struct call_listener *l, uint32_t index)
{
    return l->stream && !(l->behind && index >= l->at_sample);
}

/* Sends a delta to the listeners that stream. The delta counts as a keepalive. */
#define EACH_STREAM(call)                                             \
    do {                                                              \
        struct model_call *t_ = ctx;                                  \
        struct call_listener *next_;                                  \
        for (struct call_listener *l = t_->listeners; l; l = next_) { \
            next_ = l->next;                                          \
            if (!gets_deltas(l, index))                               \
                continue;                                             \
            set_keepalive(l, false);                                  \
            call;                                                     \
        }                                                             \
    } while (0)

static void to_text(void *ctx, uint32_t index, struct str delta)
{
    EACH_STREAM(l->sink->text(l->ctx, index, delta));
}

static void to_reasoning(void *ctx, uint32_t index, struct str delta)
{
    EACH_STREAM(l->sink->reasoning(l->ctx, index, delta));
}

static void to_sealed(void *ctx, uint32_t index, struct str seal, bool signs_text)
{
    EACH_STREAM(if (l->sink->sealed) l->sink->sealed(l->ctx, index, seal, signs_text));
}

static void to_tool_begin(void *ctx, uint32_t index, uint32_t tool, struct str id, struct str name)
{
    EACH_STREAM(l->sink->tool_begin(l->ctx, index, tool, id, name));
}

static void to_tool_args(void *ctx, uint32_t index, uint32_t tool, struct str delta)
{
    EACH_STREAM(l->sink->tool_args(l->ctx, index, tool, delta));
}

static void to_tool_end(void *ctx, uint32_t index, uint32_t tool)
{
    EACH_STREAM(l->sink->tool_end(l->ctx, index, tool));
}

static void to_logprobs(void *ctx, uint32_t index, const struct token_logprob *lp, size_t n)
{
    EACH_STREAM(l->sink->logprobs(l->ctx, index, lp, n));
}

/* Sends the head to all listeners, also to those that do not stream. */
static void to_head(void *ctx, const struct answer_head *h)
{
    struct model_call *t = ctx;
    struct call_listener *next;

    for (struct call_listener *l = t->listeners; l; l = next) {
        next = l->next;
        l->sink->head(l->ctx, h);
    }
}

const struct answer_sink call_listeners_sink = {
    .head = to_head,
    .text = to_text,
    .reasoning = to_reasoning,
    .tool_begin = to_tool_begin,
    .tool_args = to_tool_args,
    .tool_end = to_tool_end,
    .logprobs = to_logprobs,
    .sealed = to_sealed,
};

/* --- repeating earlier events to a new listener --- */

/* Work of one step, about a millisecond: the number of logprobs or of REPEAT_UNITs of text. Each
 * answer adds REPEAT_ANSWER. */
enum { REPEAT_MAX = 1 << 10, REPEAT_ANSWER = 1 << 6 };

/* Repeats logprobs of the next answer. Returns false if more are left. */
static bool repeat_logprobs(const struct sample *r, struct call_listener *l, size_t *room)
{
    const struct token_logprob *next;
    size_t n;

    if (l->at_logprob == r->lp_sent)
        return true;
    next = r->lp + l->at_logprob;
    n = sample_lp_within(next, r->lp_sent - l->at_logprob, *room);
    l->sink->logprobs(l->ctx, l->at_sample, next, n);
    l->at_logprob += n;
    for (size_t i = 0; i < n; i++)
        *room -= MIN_OF(*room, 1 + (size_t)next[i].n_top);
    return l->at_logprob == r->lp_sent;
}

/* Repeats a few more events for a listener that is catching up. */
static void repeat_events(const struct model_call *t, struct call_listener *l)
{
    size_t room = REPEAT_MAX;

    if (l->unheaded)
        l->sink->head(l->ctx, &t->head);
    l->unheaded = false;
    if (!l->stream) {
        l->behind = false;
        return;
    }
    while (room > 0 && l->at_sample < t->n_samples) {
        const struct sample *r = &t->samples[l->at_sample];

        if (!repeat_logprobs(r, l, &room))
            return;
        if (r->answer && !sampled_answer_repeat(r->answer, &l->at, &room, l->sink, l->ctx))
            return;
        room -= MIN_OF(room, REPEAT_ANSWER);
        l->at_sample++;
        l->at_logprob = 0;
        l->at = (struct repeat_place){0};
    }
    l->behind = l->at_sample < t->n_samples;
}

bool call_listeners_behind(const struct model_call *t)
{
    for (const struct call_listener *l = t->listeners; l; l = l->next)
        if (l->behind)
            return true;
    return false;
}

/* The listener may leave while the function pauses, and the call may be freed then. */
void call_listeners_repeat(struct model_call *t, struct call_listener *l)
{
    if (!t->head_sent)
        return;
    l->unheaded = l->behind = true;
    repeat_events(t, l);
    while (l->model_call == t && l->behind) {
        if (task_pause(NULL) || l->model_call != t)
            return;
        repeat_events(t, l);
    }
    if (l->model_call == t)
        model_call_wake(t);
}

/* Fails listeners, the newest first. */
void call_listeners_fail(struct model_call *t, const struct err *e, size_t most)
{
    for (; t->listeners && most > 0; most--) {
        struct call_listener *l = t->listeners;

        call_listeners_drop(t, l);
        l->sink->failed(l->ctx, e);
    }
}

void call_listeners_finish(struct model_call *t, const struct finished_answer *answers, size_t n)
{
    while (t->listeners) {
        struct call_listener *l = t->listeners;

        call_listeners_drop(t, l);
        l->answered_by = t;
        l->sink->finish(l->ctx, answers, n, &t->usage);
    }
}
