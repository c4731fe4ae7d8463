/* Records facts about an engine from its answers: the data that they should have and do not. */
#include "common/base/log.h"
#include "common/net/http_client.h"
#include "worker/engine/pool/engine_pool.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/wire/attempt.h"
#include "worker/engine/wire/wire_reply.h"

/* Records missing experts. Some servers leave them out of streams only; these are asked for whole
 * answers from then on. */
static void note_experts(struct remote *r, const struct reply *y, bool events)
{
    bool stream = events && r->wire->experts_in_pieces;

    if (!r->options->routed_experts || y->ids.n == 0 || y->finish == REPLY_ABORT || r->wire->text)
        return;
    if (y->has_experts)
        r->experts_lost = stream ? EXPERTS_COME : r->experts_lost;
    else if (r->experts_lost == EXPERTS_COME || !stream) {
        enum experts_lost lost = stream ? EXPERTS_LOST_BY_STREAMS : EXPERTS_LOST;

        if (r->experts_lost != lost)
            log_warn(NULL, "an engine tells no routed experts", LOG_T("engine", r->target->name),
                     LOG_T("of", stream ? "streams: it is asked for whole answers" : "any answer"));
        r->experts_lost = lost;
    }
}

/* Returns the fields of its kind that the answer does not have. */
static unsigned lacks_by_kind(const struct remote *r, const struct engine_request *q,
                              const struct reply *y)
{
    unsigned lacks = 0;

    if (!r->wire->tells_all && !q->all_fields)
        return 0;
    if (y->spans.n == 0 && !r->tells_weights)
        lacks |= LACKS_VERSION;
    if (y->cached < 0)
        lacks |= LACKS_CACHED;
    if (q->all_fields && y->event.completion_tokens < 0)
        lacks |= LACKS_USAGE;
    return lacks;
}

/* Records what a whole answer should have and has not. */
static void note_lacks(struct remote *r, const struct engine_request *q, const struct reply *y,
                       bool events)
{
    unsigned lacks;
    bool streams_lose = events && r->wire->experts_in_pieces;

    if (r->wire->text || y->ids.n == 0 || y->finish == REPLY_ABORT)
        return;
    lacks = lacks_by_kind(r, q, y);
    if (!engine_adapter_lists(r->adapter->cannot_tell, "routed_experts") &&
        (r->options->routed_experts || q->all_fields) && !y->has_experts && !streams_lose)
        lacks |= LACKS_EXPERTS;
    if (q->support && !support_known(&y->support, y->ids.n))
        lacks |= LACKS_SUPPORT;
    if (q->indexer.wanted && !y->has_indexer && r->wire->tells_all)
        lacks |= LACKS_INDEXER;
    if (q->top_logprobs > 0 && y->n_named_tops == 0 && !y->lowered)
        lacks |= LACKS_TOPS;
    if (r->wire->tells_all && remote_rank_of(r, q) >= 0 && y->dp_rank != remote_rank_of(r, q))
        lacks |= LACKS_RANK;
    if (r->wire->routes > 1 && r->route > 0)
        lacks |= LACKS_ROUTE;
    remote_note_lacks(r, lacks);
}

void remote_note_answer(struct remote *r, const struct engine_request *q, const struct reply *y,
                        enum logprob_basis basis, bool events)
{
    if (remote_tells_basis(r) && !y->lowered)
        r->given = basis;
    note_experts(r, y, events);
    note_lacks(r, q, y, events);
}

static unsigned echo_bit(const struct remote *r, bool events)
{
    return 1u << (r->route * 2 + events);
}

bool remote_echoes(const struct remote *r, bool events)
{
    return r->echoes & echo_bit(r, events);
}

void remote_note_echo(struct remote *r, bool events, bool echoed)
{
    if (echoed)
        r->echoes |= echo_bit(r, events);
}

void remote_note_stray(struct remote *r, struct str session_id, struct str id)
{
    struct log_scope scope = {.session = session_id};

    log_warn(&scope, "an engine's answer is for another request: idle connections are closed",
             LOG_T("engine", r->target->name), LOG_S("id", str_sub(id, 0, 300)));
    r->echoes = 0;
    http_client_close_idle(r->client);
}

void remote_note_spans(struct remote *r, const struct reply *y)
{
    if (y->ids.n > 0)
        r->tells_spans = y->spans.n > 0;
}

void remote_note_versionless(const struct remote *r, struct str before, struct str after)
{
    log_warn(NULL, "an answer's weight version is not known", LOG_T("engine", r->target->name),
             LOG_S("before", before), LOG_S("after", after));
}

void remote_note_scoring(struct remote *r, const struct reply *y)
{
    if (!r->scores)
        log_warn(NULL, "an engine leaves logprobs out: they are asked for one by one",
                 LOG_T("engine", r->target->name), LOG_U("tokens", y->ids.n),
                 LOG_U("left_out", y->lacks.n));
    r->scores = true;
}

void remote_note_score_refused(const struct remote *r, int64_t status, struct str text)
{
    log_warn(NULL, "an engine refuses to score a token", LOG_T("engine", r->target->name),
             LOG_I("status", status), LOG_S("text", str_sub(text, 0, 300)));
}

/* Returns the fields that the engine ignores, according to its settings or its front. */
static unsigned lacks_by_facts(const struct remote *r)
{
    const struct engine_facts *f = &r->facts;
    unsigned lacks = f->ignores_seeds ? LACKS_SEED : 0;

    if (!f->says_rust || !r->wire->tells_all)
        return lacks;
    lacks |= LACKS_SALT;
    lacks |= f->by_session ? 0 : LACKS_SESSION;
    lacks |= f->by_priority ? 0 : LACKS_PRIORITY;
    lacks |= f->budgets ? 0 : LACKS_THINKING;
    lacks |= f->lora == LORA_TAKEN ? 0 : LACKS_ADAPTER;
    return lacks;
}

void remote_note_front(struct remote *r)
{
    if (r->facts.says_rust)
        log_info(NULL, "an engine is behind a Rust front: it is asked what it ignores",
                 LOG_T("engine", r->target->name));
    remote_note_lacks(r, lacks_by_facts(r));
}

void remote_note_facts(const struct remote *r)
{
    if (r->facts.context_length > 0 || r->facts.mode != REPLY_UNKNOWN)
        log_info(NULL, "engine told its settings", LOG_T("engine", r->target->name),
                 LOG_U("context_length", r->facts.context_length),
                 LOG_T("stream", r->facts.mode == REPLY_UNKNOWN      ? "unknown"
                                 : r->facts.mode == REPLY_CUMULATIVE ? "cumulative"
                                                                     : "incremental"));
    if (r->facts.half)
        log_info(NULL,
                 "an engine is one half of a split of prefill and decode: with a half of the other "
                 "kind in its set it takes calls, alone it refuses each, unless it is their router",
                 LOG_T("engine", r->target->name), LOG_T("half", r->facts.half));
}

bool remote_asks_experts(const struct remote *r)
{
    return r->options->routed_experts;
}

void remote_patience(const struct remote *r, struct http_request *h)
{
    h->total_timeout_ms = r->options->timeout_ms;
    h->idle_timeout_ms = r->options->idle_timeout_ms;
}

void remote_note_hung(void)
{
    log_error(NULL, "an engine's work does not end, its thread is given up");
}
