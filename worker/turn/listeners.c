/* Who hears of a turn: one HTTP answer as a rule, several after a join. */
#include "common/base/check.h"
#include "worker/turn/turn_internal.h"

enum { NONSTREAM_SPACE_MS = 30000 };

static void on_keepalive(struct loop_timer *timer);

static void arm(struct turn_listener *l, bool first)
{
    struct turn_env *env = l->turn->env;
    uint64_t ms = env->keepalive_ms;

    if (!l->stream) {
        ms = env->nonstream_keepalive_ms;
        if (ms > 0 && !first)
            ms = MIN_OF(ms, NONSTREAM_SPACE_MS);
    }
    if (ms > 0)
        loop_timer_set(env->loop, &l->keepalive, ms, on_keepalive);
}

static void on_keepalive(struct loop_timer *timer)
{
    struct turn_listener *l = CONTAINER_OF(timer, struct turn_listener, keepalive);

    arm(l, false);
    l->sink->keepalive(l->ctx);
}

void listeners_add(struct turn *t, struct turn_listener *l)
{
    l->turn = t;
    l->next = t->listeners;
    t->listeners = l;
    arm(l, true);
}

void listeners_drop(struct turn *t, struct turn_listener *l)
{
    struct turn_listener **at = &t->listeners;

    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    loop_timer_stop(t->env->loop, &l->keepalive);
    l->turn = NULL;
}

/* A delta goes to those who stream; it counts as a sign of life. */
#define EACH_STREAM(call)                                             \
    do {                                                              \
        struct turn *t_ = ctx;                                        \
        struct turn_listener *next_;                                  \
        for (struct turn_listener *l = t_->listeners; l; l = next_) { \
            next_ = l->next;                                          \
            if (!l->stream)                                           \
                continue;                                             \
            arm(l, false);                                            \
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

static void to_logprobs(void *ctx, uint32_t index, const struct turn_logprob *lp, size_t n)
{
    EACH_STREAM(l->sink->logprobs(l->ctx, index, lp, n));
}

static void to_head(void *ctx, const struct turn_head *h)
{
    struct turn *t = ctx;
    struct turn_listener *next;

    for (struct turn_listener *l = t->listeners; l; l = next) {
        next = l->next;
        l->sink->head(l->ctx, h);
    }
}

const struct turn_sink listeners_sink = {
    .head = to_head,
    .text = to_text,
    .reasoning = to_reasoning,
    .tool_begin = to_tool_begin,
    .tool_args = to_tool_args,
    .tool_end = to_tool_end,
    .logprobs = to_logprobs,
};

void listeners_repeat(struct turn *t, struct turn_listener *l)
{
    if (!t->head_sent)
        return;
    l->sink->head(l->ctx, &t->head);
    for (uint32_t i = 0; l->stream && i < t->n_runs; i++) {
        struct turn_run *r = &t->runs[i];

        if (r->lp_sent > 0)
            l->sink->logprobs(l->ctx, i, r->lp, r->lp_sent);
        if (r->decoding)
            answer_repeat(&r->answer, l->sink, l->ctx);
    }
}

void listeners_fail(struct turn *t, const struct err *e)
{
    while (t->listeners) {
        struct turn_listener *l = t->listeners;

        listeners_drop(t, l);
        l->sink->failed(l->ctx, e);
    }
}

void listeners_finish(struct turn *t, const struct turn_answer *answers, size_t n)
{
    while (t->listeners) {
        struct turn_listener *l = t->listeners;

        listeners_drop(t, l);
        l->sink->finish(l->ctx, answers, n, &t->usage);
    }
}
