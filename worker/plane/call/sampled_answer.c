/* Makes events from the ids of a sample (sampled_answer.h). Ids pass through four stages as they
 * arrive:
 *
 *   ids -> held back if they may end the turn -> detok -> stop strings -> parser -> events
 *
 * Each stage may hold something back. An end id that does not end the turn becomes text
 * (decide_held_ids). The first bytes of a character wait for the rest, text that may begin a stop
 * string waits, and the parser waits for the rest of a mark. sampled_answer_finish releases
 * everything in the same order. The ids themselves never change: they are recorded as the engine
 * returned them. */

#include "worker/plane/call/sampled_answer.h"

#include "common/base/arena.h"
#include "common/base/limits.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/plane/call/model_call.h"
#include "worker/text/parsers/parser.h"
#include "worker/text/request/answer_sink.h"
#include "worker/text/tokens/span.h"
#include "worker/text/tokens/tokenizer.h"

enum {
    PIECE_MAX = 4096,     /* bytes of decoded text that are collected for the parser */
    ID_USUAL = 5,         /* bytes of text that an id usually has */
    PLAIN_MOST = 32,      /* ids that are fed at once */
    HISTORY_CALLS = 4096, /* tool calls of a history whose ids are read */
};

/* Makes space for the n-th tool call, and returns it. */
static struct sampled_call *call_at(struct sampled_answer *a, int n)
{
    while (a->n_calls <= (size_t)n) {
        if (a->n_calls == a->cap_calls) {
            a->cap_calls = a->cap_calls ? a->cap_calls * 2 : 4;
            a->calls = mem_realloc_array(a->calls, a->cap_calls, sizeof(*a->calls));
        }
        a->calls[a->n_calls++] = (struct sampled_call){0};
    }
    return &a->calls[n];
}

static void feed_call_id(struct sampled_answer *a, struct str id)
{
    if (id.p)
        (void)map_set(a->taken_ids, id, a);
}

/* Collects the ids of the history's tool calls and of this answer's. If the history has more calls
 * than are read, every id counts as taken. */
static void know_ids(struct sampled_answer *a)
{
    size_t n = 0;

    a->taken_ids = mem_zalloc(sizeof(*a->taken_ids));
    for (size_t i = 0; json_at(a->opt.history, i) && n <= HISTORY_CALLS; i++) {
        const struct json *calls = json_get(json_at(a->opt.history, i), "tool_calls");

        for (size_t k = 0; json_at(calls, k) && n <= HISTORY_CALLS; k++, n++)
            feed_call_id(a, json_string(json_get(json_at(calls, k), "id")));
    }
    a->all_taken = n > HISTORY_CALLS;
    for (size_t i = 0; i < a->n_calls; i++)
        feed_call_id(a, buf_str(&a->calls[i].id));
}

/* Reports whether a tool call of the history or of this answer has that id, because models start to
 * count at 0 again. */
static bool id_taken(struct sampled_answer *a, struct str id)
{
    if (!a->taken_ids)
        know_ids(a);
    return a->all_taken || map_get(a->taken_ids, id) != NULL;
}

/* Begins a tool call whose name is known. The call gets the model's own id if no other call has it
 * and a client may send it back, else a new one. */
static void call_begin(struct sampled_answer *a, const struct parse_event *ev)
{
    bool own = ev->id.p && ev->id.len <= REQUEST_CALL_TEXT_MAX && !id_taken(a, ev->id);
    struct sampled_call *c = call_at(a, ev->call);
    char fresh[64];

    if (own) {
        buf_add_str(&c->id, ev->id);
        feed_call_id(a, buf_str(&c->id));
    } else {
        a->opt.fresh_id(a->opt.fresh_ctx, fresh, sizeof(fresh));
        buf_puts(&c->id, fresh);
    }
    buf_add_str(&c->name, ev->text);
    a->opt.sink->tool_begin(a->opt.sink_ctx, a->opt.index, (uint32_t)ev->call, buf_str(&c->id),
                            buf_str(&c->name));
}

/* Counts a tool call that is not sent. */
static void record_withheld(struct sampled_answer *a, size_t call)
{
    a->withheld = MAX_OF(a->withheld, call + 1 - a->opt.max_calls);
}

/* Reports whether the event belongs to a tool call beyond those that the client allows. The ids
 * stay as sampled. The message omits the call, because the client sends back a message without
 * it. */
static bool withhold_event(struct sampled_answer *a, const struct parse_event *ev)
{
    bool of_call =
        ev->kind == PARSE_CALL_BEGIN || ev->kind == PARSE_CALL_ARGS || ev->kind == PARSE_CALL_END;

    if (!of_call || (size_t)ev->call < a->opt.max_calls)
        return false;
    record_withheld(a, (size_t)ev->call);
    return true;
}

struct str sampled_answer_stop(const struct sampled_answer *a)
{
    return a->stop.hit;
}

size_t sampled_answer_bytes(const struct sampled_answer *a)
{
    size_t n = a->text.len + a->reasoning.len;

    for (size_t i = 0; i < a->n_calls; i++)
        n += a->calls[i].name.len + a->calls[i].args.len;
    return n;
}

void sampled_answer_warn(struct sampled_answer *a, struct str text)
{
    if (a->warning.len > 0)
        buf_add_c(&a->warning, ' ');
    buf_add_str(&a->warning, text);
}

/* Handles an event of the parser: keeps it for the message and sends it to the sink. */
static void on_event(void *ctx, const struct parse_event *ev)
{
    struct sampled_answer *a = ctx;
    const struct answer_sink *sink = a->opt.sink;
    uint32_t index = a->opt.index;

    if (withhold_event(a, ev))
        return;
    if (ev->kind != PARSE_SOURCE && ev->kind != PARSE_WARNING)
        a->thinking = ev->kind == PARSE_REASONING;
    switch (ev->kind) {
    case PARSE_TEXT:
        buf_add_str(&a->text, ev->text);
        sink->text(a->opt.sink_ctx, index, ev->text);
        break;
    case PARSE_REASONING:
        buf_add_str(&a->reasoning, ev->text);
        sink->reasoning(a->opt.sink_ctx, index, ev->text);
        break;
    case PARSE_CALL_BEGIN:
        call_begin(a, ev);
        break;
    case PARSE_CALL_ARGS:
        buf_add_str(&call_at(a, ev->call)->args, ev->text);
        sink->tool_args(a->opt.sink_ctx, index, (uint32_t)ev->call, ev->text);
        break;
    case PARSE_CALL_END:
        call_at(a, ev->call)->ended = true;
        sink->tool_end(a->opt.sink_ctx, index, (uint32_t)ev->call);
        break;
    case PARSE_WARNING:
        sampled_answer_warn(a, ev->text);
        break;
    case PARSE_SOURCE:
        break;
    }
}

/* Reports whether an id of plain text may end the turn. */
static bool ends_by_text(const struct sampled_answer_options *o)
{
    for (size_t i = 0; i < o->n_stop_ids; i++)
        if (tokenizer_plain(o->tokenizer, &o->stop_ids[i], 1) > 0)
            return true;
    return false;
}

void sampled_answer_init(struct sampled_answer *a, const struct sampled_answer_options *o)
{
    *a = (struct sampled_answer){.opt = *o,
                                 .held_id = -1,
                                 .thinking = o->parser->thought == THOUGHT_OPEN,
                                 .one_by_one = ends_by_text(o)};
    a->detok = detok_new(o->tokenizer, false);
    a->parser = parser_new(o->parser, (struct parse_sink){on_event, a});
    stop_text_init(&a->stop, o->stops);
}

/* Frees the stages from ids to events. A complete answer needs only their results while it waits
 * for its record. */
static void free_stages(struct sampled_answer *a)
{
    detok_free(a->detok);
    parser_free(a->parser);
    a->detok = NULL;
    a->parser = NULL;
    a->steady = NULL;
    buf_done(&a->piece);
    buf_done(&a->clean);
}

void sampled_answer_done(struct sampled_answer *a)
{
    free_stages(a);
    stop_text_done(&a->stop);
    buf_done(&a->text);
    buf_done(&a->reasoning);
    buf_done(&a->warning);
    for (size_t i = 0; i < a->n_calls; i++) {
        buf_done(&a->calls[i].id);
        buf_done(&a->calls[i].name);
        buf_done(&a->calls[i].args);
    }
    free(a->calls);
    if (a->taken_ids)
        map_done(a->taken_ids);
    free(a->taken_ids);
    free(a->seals);
    if (a->seals_arena)
        arena_done(a->seals_arena);
    free(a->seals_arena);
}

/* Reports whether the id ends the model's turn. */
static bool ends_turn(const struct sampled_answer *a, int32_t id)
{
    size_t from = 0, to = a->opt.n_stop_ids;

    while (from < to) {
        size_t mid = from + (to - from) / 2;

        if (a->opt.stop_ids[mid] < id)
            from = mid + 1;
        else
            to = mid;
    }
    return from < a->opt.n_stop_ids && a->opt.stop_ids[from] == id;
}

/* Passes the decoded piece to the stop strings and the parser. */
static void flush_piece(struct sampled_answer *a)
{
    if (a->piece.len == 0)
        return;
    if (!a->stop.tree) {
        parser_feed(a->parser, buf_str(&a->piece));
        buf_clear(&a->piece);
        a->steady = parser_steady(a->parser);
        return;
    }
    buf_clear(&a->clean);
    stop_text_feed(&a->stop, buf_str(&a->piece), &a->clean);
    buf_clear(&a->piece);
    if (a->clean.len > 0)
        parser_feed(a->parser, buf_str(&a->clean));
    a->steady = NULL; /* because the stop strings hold back text that the parser has not seen */
}

/* Reports whether only the bytes of a->steady, if set, can change whether the answer is thought or
 * text. */
static bool goes_on(const struct sampled_answer *a)
{
    return a->steady || a->opt.parser->reasoning == REASONING_NONE;
}

/* Returns the index of the piece's first byte from `from` on that may change that. The parser must
 * get that byte before the next id is counted. Returns the piece's length if there is none. */
static size_t first_turn(const struct sampled_answer *a, size_t from)
{
    if (a->opt.parser->reasoning == REASONING_NONE || parser_bytes_none(a->steady))
        return a->piece.len;
    while (from < a->piece.len && !parser_bytes_has(a->steady, a->piece.p[from]))
        from++;
    return from;
}

static bool is_mark(const struct sampled_answer *a, int32_t id)
{
    return parser_reads(a->opt.parser, tokenizer_piece(a->opt.tokenizer, id));
}

static size_t text_len(const struct sampled_answer *a, int32_t id)
{
    return tokenizer_text(a->opt.tokenizer, id).len;
}

static void feed_id(struct sampled_answer *a, int32_t id)
{
    if (a->thinking && !a->stop.hit.p)
        a->reasoning_tokens++;
    if (a->opt.keep_special || !tokenizer_is_special(a->opt.tokenizer, id) || is_mark(a, id))
        detok_feed(a->detok, id, &a->piece);
}

/* Reports whether the id may end the turn. */
static bool may_end(const struct sampled_answer *a, int32_t id)
{
    return ends_turn(a, id) || (tokenizer_is_added(a->opt.tokenizer, id) && !is_mark(a, id));
}

/* Decides about the ids held back at the end: they become text if neither the gateway nor the
 * engine knows them as end of a turn. */
static void decide_held_ids(struct sampled_answer *a, int32_t end_id)
{
    if (a->held_id >= 0 && a->held_id != end_id && !ends_turn(a, a->held_id))
        feed_id(a, a->held_id);
    a->held_id = -1;
}

/* If there are stop strings, passes on the text of the first n ids: stop strings are searched id by
 * id. */
static void flush_stops(struct sampled_answer *a, size_t n)
{
    if (!a->stop.tree)
        return;
    flush_piece(a);
    if (a->stop.hit.p && a->stop_at == 0)
        a->stop_at = n;
}

/* Turns stop strings within the first min_tokens tokens into text when a further id follows,
 * because engines search only after min_tokens. */
static void pass_early_stops(struct sampled_answer *a)
{
    while (a->stop.hit.p && a->stop_at <= a->opt.min_tokens) {
        buf_clear(&a->clean);
        stop_text_pass(&a->stop, &a->clean);
        if (a->clean.len > 0)
            parser_feed(a->parser, buf_str(&a->clean));
        if (!a->stop.hit.p)
            a->stop_at = 0;
    }
}

/* Feeds one id, whatever it is, that follows n others. */
static void feed_single(struct sampled_answer *a, int32_t id, size_t n)
{
    size_t had = a->piece.len;

    pass_early_stops(a);
    if (a->held_id >= 0) {
        if (a->ended_at == 0 && ends_turn(a, a->held_id))
            a->ended_at = n;
        feed_id(a, a->held_id);
        flush_stops(a, n);
    }
    a->held_id = -1;
    if (may_end(a, id))
        a->held_id = id;
    else
        feed_id(a, id);
    flush_stops(a, n + 1);
    if (!goes_on(a) || first_turn(a, had) < a->piece.len || a->piece.len >= PIECE_MAX)
        flush_piece(a);
}

/* Feeds the leading ids at once as long as they are plain text that changes no state. Returns their
 * number; 0 if feed_single must handle the next id. */
static size_t feed_plain(struct sampled_answer *a, struct token_span ids)
{
    size_t had = a->piece.len, turn, n;

    if (a->one_by_one || a->held_id >= 0 || a->stop.tree || !goes_on(a))
        return 0;
    n = detok_feed_plain(a->detok, ids.at, MIN_OF(ids.n, (size_t)PLAIN_MOST), PIECE_MAX, &a->piece);
    turn = first_turn(a, had);
    if (turn < a->piece.len) { /* text before the byte counts before its id */
        a->piece.len = had;
        for (n = 0; a->piece.len + text_len(a, ids.at[n]) <= turn; n++)
            a->piece.len += text_len(a, ids.at[n]);
    }
    if (a->thinking)
        a->reasoning_tokens += (uint32_t)n;
    if (a->piece.len >= PIECE_MAX)
        flush_piece(a);
    return n;
}

void sampled_answer_feed(struct sampled_answer *a, struct token_span ids)
{
    (void)buf_reserve(&a->piece, MIN_OF(ids.n * ID_USUAL, (size_t)PIECE_MAX));
    for (size_t i = 0; i < ids.n;) {
        size_t n = feed_plain(a, (struct token_span){ids.at + i, ids.n - i});

        if (n == 0)
            feed_single(a, ids.at[i], a->fed + i);
        i += MAX_OF(n, (size_t)1);
    }
    a->fed += ids.n;
    flush_piece(a);
}

/* At the end, warns of withheld tool calls. */
static void warn_of_withheld(struct sampled_answer *a)
{
    struct buf told = {0};

    if (a->withheld == 0)
        return;
    buf_printf(&told, "%zu further tool call%s withheld: ", a->withheld,
               a->withheld == 1 ? "" : "s");
    if (a->opt.max_calls == 1)
        buf_puts(&told, "parallel calls were not allowed");
    else
        buf_printf(&told, "of an answer's no more than %zu are told", a->opt.max_calls);
    sampled_answer_warn(a, buf_str(&told));
    buf_done(&told);
}

void sampled_answer_finish(struct sampled_answer *a, struct token_span all, int32_t end_id)
{
    size_t n = all.n;

    if (n > a->fed && end_id >= 0 && all.at[n - 1] == end_id && !is_mark(a, end_id))
        n--;
    if (n > a->fed)
        sampled_answer_feed(a, (struct token_span){all.at + a->fed, n - a->fed});
    decide_held_ids(a, n < all.n ? -1 : end_id);
    detok_finish(a->detok, &a->piece);
    flush_piece(a);
    if (a->stop.hit.p && a->stop_at == 0)
        a->stop_at = all.n;
    buf_clear(&a->clean);
    stop_text_finish(&a->stop, &a->clean);
    if (a->clean.len > 0)
        parser_feed(a->parser, buf_str(&a->clean));
    parser_finish(a->parser);
    warn_of_withheld(a);
    free_stages(a);
}

/* --- messages that an upstream sends --- */

static void end_last_call(struct sampled_answer *a)
{
    if (a->n_calls > 0 && !a->calls[a->n_calls - 1].ended)
        on_event(a, &(struct parse_event){.kind = PARSE_CALL_END, .call = (int)a->n_calls - 1});
}

/* Feeds a tool call, or the next piece of the last one. A call without an index gets its place in
 * the list. */
static void feed_call(struct sampled_answer *a, const struct json *v, size_t place)
{
    const struct json *function = json_get(v, "function");
    struct parse_event ev = {.kind = PARSE_CALL_ARGS};
    int64_t index;

    if (json_to_i64(json_get(v, "index"), &index) == 0 && index >= 0)
        place = (size_t)MIN_OF(index, INT32_MAX);
    if (place >= a->n_calls && a->n_calls == a->opt.max_calls) {
        end_last_call(a);
        record_withheld(a, place);
        return;
    }
    ev.call = (int)MIN_OF(place, a->n_calls);
    if ((size_t)ev.call == a->n_calls) {
        struct parse_event begin = {.kind = PARSE_CALL_BEGIN,
                                    .call = (int)a->n_calls,
                                    .text = json_string(json_get(function, "name")),
                                    .id = json_string(json_get(v, "id"))};

        end_last_call(a);
        on_event(a, &begin);
        ev.call = begin.call;
    }
    ev.text = json_string(json_get(function, "arguments"));
    if (ev.text.len > 0)
        on_event(a, &ev);
}

static void feed_text(struct sampled_answer *a, enum parse_kind kind, const struct json *text)
{
    struct parse_event ev = {.kind = kind, .text = json_string(text)};

    if (ev.text.len > 0)
        on_event(a, &ev);
}

static void feed_seal(struct sampled_answer *a, const struct json *v)
{
    struct str seal = json_string(json_get(v, "seal"));
    bool signs_text = json_is_true(json_get(v, "signs_text"));

    if (seal.len == 0)
        return;
    if (!a->seals_arena)
        a->seals_arena = mem_zalloc(sizeof(*a->seals_arena));
    if (a->n_seals == a->cap_seals) {
        a->cap_seals = a->cap_seals ? a->cap_seals * 2 : 4;
        a->seals = mem_realloc_array(a->seals, a->cap_seals, sizeof(*a->seals));
    }
    a->seals[a->n_seals++] =
        (struct sampled_seal){arena_str(a->seals_arena, seal), a->reasoning.len, signs_text};
    a->opt.sink->sealed(a->opt.sink_ctx, a->opt.index, seal, signs_text);
}

/* Searches an upstream's text for stop strings. Returns whether text follows one. */
static bool overruns_stop(struct sampled_answer *a, struct str text)
{
    if (!a->stop.tree || a->opt.min_tokens > 0)
        return false;
    if (a->stop.hit.p) {
        a->overrun += text.len;
        return a->overrun > 0;
    }
    buf_clear(&a->clean);
    stop_text_feed(&a->stop, text, &a->clean);
    if (a->stop.hit.p)
        a->overrun = a->stop.held.len - a->stop.hit.len;
    return a->overrun > 0;
}

/* For upstreams that answer with messages: text and tool calls are parsed already. */
void sampled_answer_feed_message(struct sampled_answer *a, const struct json *message)
{
    const struct json *calls = json_get(message, "tool_calls"),
                      *text = json_get(message, "content");

    feed_text(a, PARSE_REASONING, json_get(message, "reasoning_content"));
    feed_seal(a, json_get(message, "sealed"));
    if (overruns_stop(a, json_string(text)))
        return;
    feed_text(a, PARSE_TEXT, text);
    for (size_t i = 0; json_at(calls, i); i++) {
        if (a->stop.hit.p)
            a->overrun++;
        else
            feed_call(a, json_at(calls, i), i);
    }
}

void sampled_answer_end_messages(struct sampled_answer *a)
{
    end_last_call(a);
    warn_of_withheld(a);
    free_stages(a);
}

/* --- repeating all events for a listener that joins --- */

/* Cost of a tool call's events without its arguments, in REPEAT_UNIT. */
enum { REPEAT_CALL = 4 };

/* Returns the next piece of the text, cut between characters, and advances *at and *room. */
static struct str next_piece(const struct buf *b, size_t *at, size_t *room)
{
    struct str rest = str_sub(buf_str(b), *at, SIZE_MAX);
    size_t n = *room < rest.len / REPEAT_UNIT ? *room * REPEAT_UNIT : rest.len;

    while (n < rest.len && ((unsigned char)rest.p[n] & 0xc0) == 0x80)
        n++;
    *at += n;
    *room -= MIN_OF(*room, (n + REPEAT_UNIT - 1) / REPEAT_UNIT);
    return str_sub(rest, 0, n);
}

/* Repeats the reasoning up to the next seal, and the seals there. Returns whether more is left. */
static bool repeat_reasoning(const struct sampled_answer *a, struct repeat_place *at, size_t *room,
                             const struct answer_sink *sink, void *ctx)
{
    struct buf known = a->reasoning;
    struct str piece;

    known.len = at->seal < a->n_seals ? a->seals[at->seal].at : known.len;
    piece = next_piece(&known, &at->reasoning, room);
    if (piece.len > 0)
        sink->reasoning(ctx, a->opt.index, piece);
    for (; at->seal < a->n_seals && a->seals[at->seal].at == at->reasoning; at->seal++) {
        const struct sampled_seal *s = &a->seals[at->seal];

        if (sink->sealed)
            sink->sealed(ctx, a->opt.index, s->seal, s->signs_text);
    }
    return at->reasoning < a->reasoning.len;
}

/* Repeats reasoning and text, which may have grown meanwhile. */
static void repeat_texts(const struct sampled_answer *a, struct repeat_place *at, size_t *room,
                         const struct answer_sink *sink, void *ctx)
{
    struct str piece;

    while (repeat_reasoning(a, at, room, sink, ctx)) {
        if (*room == 0)
            return;
    }
    piece = next_piece(&a->text, &at->text, room);
    if (piece.len > 0)
        sink->text(ctx, a->opt.index, piece);
}

/* Continues the tool call that was begun. Returns false if its arguments were not sent
 * completely. */
static bool repeat_call(const struct sampled_answer *a, struct repeat_place *at, size_t *room,
                        const struct answer_sink *sink, void *ctx)
{
    const struct sampled_call *c = &a->calls[at->call];
    struct str piece = next_piece(&c->args, &at->args, room);

    if (piece.len > 0)
        sink->tool_args(ctx, a->opt.index, at->call, piece);
    if (at->args < c->args.len)
        return false;
    if (c->ended)
        sink->tool_end(ctx, a->opt.index, at->call);
    else
        /* all earlier events were sent, so later ones are sent to the listener directly */
        *room = SIZE_MAX;
    at->call++;
    at->begun = false;
    return true;
}

bool sampled_answer_repeat(const struct sampled_answer *a, struct repeat_place *at, size_t *room,
                           const struct answer_sink *sink, void *ctx)
{
    size_t own = *room;
    bool all = false;

    while (!all && own > 0) {
        const struct sampled_call *c;

        if (at->begun && !repeat_call(a, at, &own, sink, ctx))
            break;
        repeat_texts(a, at, &own, sink, ctx);
        if (at->reasoning < a->reasoning.len || at->text < a->text.len)
            break;
        all = at->call == a->n_calls;
        if (all || own == 0)
            break;
        c = &a->calls[at->call];
        sink->tool_begin(ctx, a->opt.index, at->call, buf_str(&c->id), buf_str(&c->name));
        at->begun = true;
        at->args = 0;
        own -= MIN_OF(own, (size_t)REPEAT_CALL);
    }
    *room = MIN_OF(*room, own);
    return all;
}
