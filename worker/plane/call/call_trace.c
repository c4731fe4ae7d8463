/*
 * Writes the spans of calls (call_trace.h). The end of a session's last call, from which the tool
 * gap is computed, is kept here and not in the session: it is no part of the session's record and
 * is lost with the process. When there are more than GAPS_MAX sessions, the one that has been quiet
 * for longest is forgotten first.
 */
#include "worker/plane/call/call_trace.h"

#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/proc/ids.h"
#include "worker/plane/call/call_env.h"
#include "worker/plane/call/prepare_input.h"
#include "worker/plane/call/sample.h"
#include "worker/text/request/chat_request.h"
#include "worker/trace/span_exporter.h"
#include "worker/trace/trace_span.h"

enum { GAPS_MAX = 65536 };

/* The last call of a session, for the gap until its next call. */
struct session_gap {
    struct list_item item; /* in tracer->quiet, while no call of the session runs */
    struct str id;         /* session id, stored behind the struct */
    unsigned running;      /* number of the session's running calls */
    uint64_t ended_us;     /* end of the session's last call */
};

struct call_tracer {
    struct span_exporter *exporter;
    struct map gaps;
    struct list_head quiet; /* sessions without a running call, the longest quiet one first */
    size_t n_quiet;
    struct buf span; /* buffer for the span that is being written */
};

struct call_trace {
    struct call_tracer *tracer;
    struct session_gap *gap;
    uint64_t gap_us; /* begin of the tool gap; 0: unknown */
    bool has_parent;
    struct trace_context parent, own; /* the client's span, and this call's span */
    struct str state;                 /* the client's tracestate; absent: none */
    uint64_t at_us[CALL_MARKS];
    uint8_t (*engines)[SPAN_ID_BYTES]; /* span id of each engine call, one for each sample */
};

struct call_tracer *call_tracer_new(struct span_exporter *x)
{
    struct call_tracer *c = mem_zalloc(sizeof(*c));

    c->exporter = x;
    return c;
}

void call_tracer_free(struct call_tracer *c)
{
    struct map_slot *slot;
    size_t at = 0;

    if (!c)
        return;
    while ((slot = map_next(&c->gaps, &at)))
        free(slot->value);
    map_done(&c->gaps);
    buf_done(&c->span);
    free(c);
}

/* --- tool gaps --- */

static struct session_gap *gap_new(struct call_tracer *c, struct str id)
{
    struct session_gap *g = mem_zalloc(sizeof(*g) + id.len);

    memcpy(g + 1, id.p, id.len);
    g->id = str_of((const char *)(g + 1), id.len);
    (void)map_set(&c->gaps, g->id, g);
    return g;
}

/* Handles the start of a session's call. Returns in *ret_us the end of the session's last call, if
 * no call of the session runs. */
static struct session_gap *gap_leave(struct call_tracer *c, struct str id, uint64_t *ret_us)
{
    struct session_gap *g = map_get(&c->gaps, id);

    if (!g) {
        g = gap_new(c, id);
    } else if (g->running == 0) {
        list_remove(&g->item);
        c->n_quiet--;
        *ret_us = g->ended_us;
    }
    g->running++;
    return g;
}

/* Handles the end of a session's call. */
static void gap_enter(struct call_tracer *c, struct session_gap *g, uint64_t now_us)
{
    struct session_gap *oldest;

    g->ended_us = now_us;
    if (--g->running > 0)
        return;
    list_append(&c->quiet, &g->item);
    oldest = LIST_FIRST_OF(&c->quiet, struct session_gap, item);
    if (++c->n_quiet <= GAPS_MAX || !oldest)
        return;
    list_remove(&oldest->item);
    c->n_quiet--;
    (void)map_take(&c->gaps, oldest->id);
    free(oldest);
}

/* --- while the call runs --- */

void call_trace_begin(struct model_call *t)
{
    struct call_tracer *tracer = t->env->tracer;
    struct call_trace *c;

    if (!tracer)
        return;
    c = ARENA_NEW(&t->arena, struct call_trace);
    c->tracer = tracer;
    c->has_parent = trace_parent_read(t->in.traceparent, &c->parent) == 0;
    if (c->has_parent) {
        c->own = c->parent;
        c->state = trace_state_valid(t->in.tracestate) ? t->in.tracestate : (struct str){0};
    } else {
        trace_of_session(t->in.session_id, c->own.trace_id);
        c->own.flags = TRACE_SAMPLED;
    }
    ids_random(t->env->ids, c->own.span_id, SPAN_ID_BYTES);
    c->gap = gap_leave(tracer, t->in.session_id, &c->gap_us);
    t->trace = c;
}

void call_trace_note(struct call_trace *c, enum call_mark mark)
{
    c->at_us[mark] = clock_us();
}

struct str call_trace_headers(struct model_call *t, uint32_t i)
{
    struct call_trace *c = t->trace;
    struct trace_context engine;
    char parent[TRACE_PARENT_LEN + 1];

    if (!c)
        return (struct str){0};
    if (!c->engines)
        c->engines = arena_calloc(&t->arena, t->n_samples, sizeof(*c->engines));
    ids_random(t->env->ids, c->engines[i], SPAN_ID_BYTES);
    engine = c->own;
    memcpy(engine.span_id, c->engines[i], SPAN_ID_BYTES);
    trace_parent_write(&engine, parent);
    if (!c->state.p)
        return arena_printf(&t->arena, "traceparent: %s\r\n", parent);
    return arena_printf(&t->arena, "traceparent: %s\r\ntracestate: %.*s\r\n", parent,
                        (int)c->state.len, c->state.p);
}

/* --- writing spans --- */

/* Values that all spans of a call share. */
struct call_spans {
    const struct model_call *call;
    const struct call_trace *trace;
    struct buf *out;
    uint64_t end_us; /* end of the call, on clock_us */
    /* difference between clock_us and the wall clock; the same for all spans, so that they nest */
    uint64_t ahead_ns;
};

/* Clamps a time to the duration of the call. */
static uint64_t clamp_us(const struct call_spans *s, uint64_t us)
{
    return MIN_OF(MAX_OF(us, s->call->started_us), s->end_us);
}

static void send_span(const struct call_spans *s, struct str error)
{
    span_close(s->out, error);
    span_exporter_add(s->trace->tracer->exporter, s->out);
}

/* Starts the span of a part of the call. The caller adds attributes and sends the span. */
static void open_step(const struct call_spans *s, const char *name, enum span_kind kind,
                      uint64_t from_us, uint64_t to_us)
{
    struct span span = {.at = s->trace->own, .state = s->trace->state, .name = str_cstr(name)};

    ids_random(s->call->env->ids, span.at.span_id, SPAN_ID_BYTES);
    memcpy(span.parent, s->trace->own.span_id, SPAN_ID_BYTES);
    span.kind = kind;
    span.start_ns = clamp_us(s, from_us) * 1000 + s->ahead_ns;
    span.end_ns = MAX_OF(span.start_ns, clamp_us(s, to_us) * 1000 + s->ahead_ns);
    span_open(s->out, &span);
}

/* Returns the time of a mark, or the call's end if the call did not reach the mark. */
static uint64_t mark_us(const struct call_spans *s, enum call_mark mark)
{
    return s->trace->at_us[mark] ? s->trace->at_us[mark] : s->end_us;
}

static bool is_ok(const struct model_call *t)
{
    return str_eq_c(str_cstr(t->outcome), "ok");
}

/* Returns the type of the call's error if the call failed in this step. */
static struct str error_of(const struct model_call *t, bool was_last)
{
    return was_last && !is_ok(t) ? str_cstr(t->outcome) : (struct str){0};
}

static void put_plain(const struct call_spans *s, const char *name, uint64_t from_us,
                      enum call_mark to)
{
    open_step(s, name, SPAN_INTERNAL, from_us, mark_us(s, to));
    send_span(s, error_of(s->call, s->trace->at_us[to] == 0));
}

static void open_engine(const struct call_spans *s, uint32_t i, uint64_t from_us, uint64_t to_us)
{
    struct span span = {.at = s->trace->own,
                        .state = s->trace->state,
                        .name = STR("engine"),
                        .kind = SPAN_CLIENT,
                        .start_ns = clamp_us(s, from_us) * 1000 + s->ahead_ns,
                        .end_ns = clamp_us(s, to_us) * 1000 + s->ahead_ns};

    memcpy(span.at.span_id, s->trace->engines[i], SPAN_ID_BYTES);
    memcpy(span.parent, s->trace->own.span_id, SPAN_ID_BYTES);
    span_open(s->out, &span);
}

/* Writes the spans of the queue and of the engine for one sample. For a sample that did not finish
 * only the sum of both is known. Both times are measured from a moment before the mark, so they are
 * clamped to the moment when all answers were complete. */
static void put_sample(const struct call_spans *s, uint32_t i)
{
    const struct sample *r = &s->call->samples[i];
    uint64_t asked = s->trace->at_us[CALL_ASKED], answered = mark_us(s, CALL_ANSWERED);
    uint64_t begun = MIN_OF(asked + r->queue_us, answered);
    bool choices = s->call->n_samples > 1;

    if (r->done) {
        open_step(s, "queue", SPAN_INTERNAL, asked, begun);
        if (choices)
            span_number(s->out, "rollgate.choice", i);
        send_span(s, (struct str){0});
    }
    open_engine(s, i, begun, r->done ? MIN_OF(begun + r->engine_us, answered) : s->end_us);
    if (choices)
        span_number(s->out, "rollgate.choice", i);
    if (r->done)
        span_number(s->out, "gen_ai.usage.output_tokens",
                    r->upstream ? r->completion_tokens : (int64_t)r->n_ids);
    send_span(s, error_of(s->call, !r->done));
}

static void put_gap(const struct call_spans *s)
{
    struct span span = {.at = s->trace->own,
                        .remote_parent = s->trace->has_parent,
                        .state = s->trace->state,
                        .name = STR("tool gap"),
                        .kind = SPAN_INTERNAL};

    if (s->trace->gap_us == 0)
        return;
    ids_random(s->call->env->ids, span.at.span_id, SPAN_ID_BYTES);
    if (s->trace->has_parent)
        memcpy(span.parent, s->trace->parent.span_id, SPAN_ID_BYTES);
    span.start_ns = s->trace->gap_us * 1000 + s->ahead_ns;
    span.end_ns = s->call->started_us * 1000 + s->ahead_ns;
    span_open(s->out, &span);
    span_text(s->out, "gen_ai.conversation.id", s->call->in.session_id);
    send_span(s, (struct str){0});
}

/* --- the span of the call --- */

static void put_answers(const struct call_spans *s)
{
    const struct model_call *t = s->call;
    struct arena a = {0};
    struct str *reasons = arena_calloc(&a, t->n_samples, sizeof(*reasons));

    for (uint32_t i = 0; i < t->n_samples; i++)
        reasons[i] = t->samples[i].out.finish_reason;
    span_text(s->out, "gen_ai.response.id", t->samples[0].response_id);
    span_texts(s->out, "gen_ai.response.finish_reasons", reasons, t->n_samples);
    span_number(s->out, "gen_ai.usage.output_tokens", t->usage.completion_tokens);
    span_number(s->out, "gen_ai.usage.cache_read.input_tokens", t->usage.cached_tokens);
    arena_done(&a);
}

static void put_request(const struct call_spans *s, struct str operation)
{
    const struct model_call *t = s->call;
    const struct chat_request *req = t->in.req;

    span_text(s->out, "gen_ai.operation.name", operation);
    span_text(s->out, "gen_ai.provider.name", STR("rollgate"));
    span_text(s->out, "gen_ai.request.model", span_name(req->model));
    span_text(s->out, "gen_ai.conversation.id", t->in.session_id);
    if (req->label.len > 0)
        span_text(s->out, "gen_ai.agent.name", span_name(req->label));
    if (req->n > 1)
        span_number(s->out, "gen_ai.request.choice.count", req->n);
    if (t->asked_tokens > 0)
        span_number(s->out, "gen_ai.request.max_tokens", t->asked_tokens);
    span_text(s->out, "rollgate.dialect", str_cstr(t->in.dialect));
    span_text(s->out, "rollgate.request_id", t->in.scope->request);
    span_bool(s->out, "rollgate.stream", req->stream);
}

static void put_call(const struct call_spans *s)
{
    const struct model_call *t = s->call;
    struct str operation = prepare_is_text(t->in.req) ? STR("text_completion") : STR("chat");
    struct str model = span_name(t->in.req->model);
    struct span span = {.at = s->trace->own,
                        .remote_parent = s->trace->has_parent,
                        .state = s->trace->state,
                        .kind = SPAN_SERVER,
                        .start_ns = t->started_us * 1000 + s->ahead_ns,
                        .end_ns = s->end_us * 1000 + s->ahead_ns};
    struct buf name = {0};

    buf_printf(&name, "%.*s %.*s", (int)operation.len, operation.p, (int)model.len, model.p);
    span.name = buf_str(&name);
    if (s->trace->has_parent)
        memcpy(span.parent, s->trace->parent.span_id, SPAN_ID_BYTES);
    span_open(s->out, &span);
    put_request(s, operation);
    if (t->call >= 0) {
        span_number(s->out, "rollgate.call", t->call);
        span_text(s->out, "rollgate.cause", str_cstr(t->cause));
        span_number(s->out, "rollgate.reused_tokens", t->reused_tokens);
        span_number(s->out, "gen_ai.usage.input_tokens", t->usage.prompt_tokens);
    }
    if (s->trace->at_us[CALL_COMMITTED])
        put_answers(s);
    send_span(s, error_of(t, true));
    buf_done(&name);
}

static void put_all(const struct call_spans *s)
{
    const uint64_t *at = s->trace->at_us;

    put_gap(s);
    put_plain(s, "render", s->call->started_us, CALL_RENDERED);
    for (uint32_t i = 0; at[CALL_ASKED] && s->trace->engines && i < s->call->n_samples; i++)
        put_sample(s, i);
    if (at[CALL_ANSWERED])
        put_plain(s, "parse", at[CALL_ANSWERED], CALL_COMMITTED);
    if (at[CALL_COMMITTED]) {
        open_step(s, "commit", SPAN_INTERNAL, at[CALL_COMMITTED], s->end_us);
        send_span(s, error_of(s->call, true));
    }
    put_call(s);
}

void call_trace_end(struct model_call *t)
{
    struct call_trace *c = t->trace;
    struct call_spans s = {.call = t, .trace = c, .out = &c->tracer->span, .end_us = clock_us()};

    s.ahead_ns = (clock_read_us(CLOCK_REALTIME) - s.end_us) * 1000;
    if (c->own.flags & TRACE_SAMPLED)
        put_all(&s);
    gap_enter(c->tracer, c->gap, s.end_us);
    t->trace = NULL;
}
