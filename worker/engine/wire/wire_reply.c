/*
 * reply_merge moves an event over: detect_mode decides whether the stream repeats everything,
 * find_new finds where new tokens begin (by counts, because known ones may have been skipped during
 * reading), check_new and support_take check them, `append` moves them. An event that fails any
 * check ends the attempt, whatever was moved by then.
 *
 * Some engines return logprobs as a list of entries with gaps. Those are collected first and placed
 * by reply_take_entries. The gaps become `lacks`, which are requested afterwards (scoring.c).
 */
#include "worker/engine/wire/wire_reply.h"
#include "common/base/limits.h"
#include "worker/engine/wire/error_words.h"
#include "worker/engine/wire/npy.h"
#include "worker/engine/wire/overflow.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "common/codec/json_number.h"
#include "common/codec/surrogates.h"

enum { SHOWN_MAX = 64 }; /* most bytes of an engine's own words in an error */

void reply_init(struct reply *y, uint32_t n_top, atomic_size_t *held)
{
    *y = (struct reply){.n_top = n_top,
                        .stop_id = -1,
                        .cached = -1,
                        .dp_rank = -1,
                        .indexer_layers = -1,
                        .held = held};
    reply_begin_event(y);
}

static void count_reply_bytes(struct reply *y, size_t bytes)
{
    if (y->held)
        atomic_fetch_add_explicit(y->held, bytes - y->counted, memory_order_relaxed);
    y->counted = bytes;
}

void reply_done(struct reply *y)
{
    struct reply_event *v = &y->event;

    vec_done(&y->ids);
    vec_done(&y->logprobs);
    vec_done(&y->tops);
    vec_done(&y->spans);
    vec_done(&y->seen);
    vec_done(&v->ids);
    vec_done(&v->echo);
    vec_done(&v->logprob_ids);
    vec_done(&v->top_ids);
    vec_done(&v->logprobs);
    vec_done(&v->top_logprobs);
    buf_done(&y->stop_text);
    buf_done(&y->message);
    buf_done(&y->error_code);
    buf_done(&y->error_type);
    buf_done(&y->answer_id);
    buf_done(&y->version);
    buf_done(&y->version_text);
    buf_done(&y->seen_text);
    buf_done(&y->experts);
    npy_free(y->npy);
    buf_done(&y->indexer);
    vec_done(&y->prompt_ids);
    vec_done(&y->entries);
    vec_done(&y->lacks);
    support_done(&y->support);
    count_reply_bytes(y, 0);
}

/* Counts the memory that grows with the answer. */
void reply_count(struct reply *y, size_t besides)
{
    const struct reply_event *v = &y->event;

    count_reply_bytes(
        y, besides + vec_bytes(&y->ids) + vec_bytes(&y->logprobs) + vec_bytes(&y->tops) +
               vec_bytes(&y->spans) + vec_bytes(&y->seen) + vec_bytes(&y->prompt_ids) +
               vec_bytes(&y->entries) + vec_bytes(&y->lacks) + vec_bytes(&v->ids) +
               vec_bytes(&v->echo) + vec_bytes(&v->logprob_ids) + vec_bytes(&v->top_ids) +
               vec_bytes(&v->logprobs) + vec_bytes(&v->top_logprobs) + y->experts.cap +
               y->indexer.cap + (y->npy ? y->npy->items.cap : 0) + support_bytes(&y->support));
}

void reply_begin_event(struct reply *y)
{
    struct reply_event *v = &y->event;

    vec_clear(&v->ids);
    vec_clear(&v->logprob_ids);
    vec_clear(&v->top_ids);
    vec_clear(&v->logprobs);
    vec_clear(&v->top_logprobs);
    v->ids_seen = v->logprobs_seen = v->top_positions = 0;
    v->has_ids = v->has_logprobs = v->has_logprob_ids = v->has_echo = false;
    v->has_spans = false;
    v->prompt_tokens = v->completion_tokens = -1;
    v->misfit = NULL;
    y->early_tops = 0;
    support_begin_event(&y->support);
}

int reply_invalid(struct err *e, const char *what)
{
    return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %s", what);
}

/* Reports whether the event's ids begin with all known ones. */
static bool repeats_known(const struct reply *y)
{
    const struct json_ints *ids = &y->event.ids;

    return ids->n >= y->ids.n &&
           (y->ids.n == 0 || memcmp(ids->at, y->ids.at, y->ids.n * sizeof(*ids->at)) == 0);
}

/* Decides the mode, if something shows it. Counts are certain. Without them the engine's own report
 * decides (a router may have answered for a different engine), then a guess. If the stream is
 * cumulative, the event's arrays still have known tokens then. */
static void detect_mode(struct reply *y)
{
    const struct reply_event *v = &y->event;
    int64_t total = v->completion_tokens;

    if (y->mode != REPLY_UNKNOWN || y->ids.n == 0 || !v->has_ids || v->ids_seen == 0)
        return;
    if (total == (int64_t)v->ids_seen && repeats_known(y))
        y->mode = REPLY_CUMULATIVE;
    else if (total == (int64_t)(y->ids.n + v->ids_seen))
        y->mode = REPLY_INCREMENTAL;
    else if (y->told != REPLY_UNKNOWN)
        y->mode = y->told;
    else
        y->mode = repeats_known(y) ? REPLY_CUMULATIVE : REPLY_INCREMENTAL;
}

/* Where new ids and logprobs start in the event's arrays. */
struct cut {
    size_t ids, logprobs, n;
};

/* Returns how many of the c->n tokens of an aborted event are new: none if the count shows that an
 * event before it was lost, even the first, without which the mode is unknown. SGLang ends the
 * stream of a waiting request with its last id once more and the logprobs of all tokens, after what
 * the client had not yet read. */
static size_t count_aborted(const struct reply *y, const struct cut *c)
{
    const struct reply_event *v = &y->event;
    int64_t left = v->completion_tokens - (int64_t)y->ids.n;
    size_t n = v->completion_tokens < 0 ? c->n : MIN_OF(c->n, (size_t)MAX_OF(left, 0)), i = 0;

    if (y->mode != REPLY_CUMULATIVE && left > (int64_t)v->ids_seen)
        return 0;
    if (v->ids_seen == v->logprobs_seen || !v->has_logprob_ids)
        return n;
    while (i < n && v->logprob_ids.at[c->logprobs + i] == v->ids.at[c->ids + i])
        i++;
    return i;
}

/* Reports whether the event has new ids, and the logprobs of all tokens: streams of SGLang before
 * March 2026 that were started as incremental. */
static bool repeats_logprobs(const struct reply *y)
{
    const struct reply_event *v = &y->event;

    return y->mode == REPLY_INCREMENTAL && y->ids.n > 0 && v->logprob_ids.n == v->logprobs_seen &&
           v->logprobs_seen == y->ids.n + v->ids_seen &&
           memcmp(v->logprob_ids.at, y->ids.at, y->ids.n * sizeof(*y->ids.at)) == 0;
}

/* Finds the new tokens of the event: by counts, and by how many were skipped during reading. */
static int find_new(const struct reply *y, struct cut *c, struct err *e)
{
    const struct reply_event *v = &y->event;
    size_t known = y->mode == REPLY_CUMULATIVE ? y->ids.n : 0;
    size_t ids_read = v->ids_seen - v->ids.n, logprobs_read = v->logprobs_seen - v->logprobs.n;
    size_t new_ids = v->ids_seen > known ? v->ids_seen - known : 0;
    size_t new_logprobs = v->logprobs_seen > known ? v->logprobs_seen - known : 0;
    bool aborted = y->finish == REPLY_ABORT;

    if (!aborted && repeats_logprobs(y)) {
        *c = (struct cut){0, y->ids.n, v->ids_seen};
        return 0;
    }
    if (!aborted && v->ids_seen < known)
        return reply_invalid(e, "tokens that it had sent are missing");
    if (!aborted && v->has_logprobs && v->logprobs_seen != v->ids_seen)
        return reply_invalid(e, "the numbers of tokens and logprobs differ");
    if (v->ids_seen > 0 && !v->has_logprobs && !aborted)
        return reply_invalid(e, "it has no logprobs");
    *c = (struct cut){known - MIN_OF(known, ids_read), known - MIN_OF(known, logprobs_read),
                      MIN_OF(new_ids, new_logprobs)};
    if (aborted)
        c->n = count_aborted(y, c);
    return 0;
}

struct str reply_shown(struct str words)
{
    return str_sub(words, 0, utf8_cut(words, SHOWN_MAX));
}

int reply_invalid_logprob(struct err *e, const char *fault, size_t at, int32_t id, float logprob)
{
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is invalid: %s (token %zu, id %d, logprob %g)", fault, at,
                   id, (double)logprob);
}

static int check_new(const struct reply *y, const struct cut *c, struct err *e)
{
    const struct reply_event *v = &y->event;

    for (size_t i = 0; i < c->n; i++) {
        float logprob = v->logprobs.at[c->logprobs + i];
        const char *fault = logprob_fault(logprob);

        if (isnan(logprob) && y->lacks.n > 0)
            fault = NULL;
        else if (!fault && v->has_logprob_ids &&
                 v->logprob_ids.at[c->logprobs + i] != v->ids.at[c->ids + i])
            fault = v->logprob_ids.at[c->logprobs + i] < 0 ? "a logprob names no token id"
                                                           : "a logprob belongs to another token";
        if (fault)
            return reply_invalid_logprob(e, fault, y->ids.n + i, v->ids.at[c->ids + i], logprob);
    }
    for (size_t i = 0; i < v->top_logprobs.n; i++) {
        float logprob = v->top_logprobs.at[i];

        /* one that is missing, or cannot be sampled, becomes a gap */
        if (!isnan(logprob) && !logprob_stands_in(logprob) && logprob_fault(logprob))
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's answer is invalid: of an alternative, %s (logprob %g)",
                           logprob_fault(logprob), (double)logprob);
    }
    return 0;
}

/* Sorts the k alternatives at one position, the best first and gaps last. Most engines already
 * do. */
static void sort_tops(struct engine_top *at, uint32_t k)
{
    for (uint32_t i = 1; i < k; i++) {
        struct engine_top moved = at[i];
        uint32_t j = i;

        for (; j > 0 && moved.id >= 0 && (at[j - 1].id < 0 || at[j - 1].logprob < moved.logprob);
             j--)
            at[j] = at[j - 1];
        at[j] = moved;
    }
}

/* Reads n of the event's alternatives. One that cannot be sampled becomes a gap. */
static void read_tops(struct reply *y, size_t from, size_t n, struct engine_top *to)
{
    const struct reply_event *v = &y->event;

    for (size_t i = 0; i < n; i++) {
        float logprob = v->top_logprobs.at[from + i];

        to[i] = logprob_stands_in(logprob) ? (struct engine_top){-1, NAN}
                                           : (struct engine_top){v->top_ids.at[from + i], logprob};
        y->n_named_tops += to[i].id >= 0;
    }
    for (size_t i = 0; y->n_top > 1 && i + y->n_top <= n; i += y->n_top)
        sort_tops(to + i, y->n_top);
}

void reply_take_early(struct reply *y)
{
    const struct reply_event *v = &y->event;
    size_t n = v->top_positions > 1 ? (v->top_positions - 1) * y->n_top : 0;

    n = MIN_OF(n, MIN_OF(v->top_ids.n, v->top_logprobs.n));
    if (y->tops.n > 0 || y->entries.n > 0 || n <= y->early_tops)
        return;
    vec_reserve(&y->tops, n);
    read_tops(y, y->early_tops, n - y->early_tops, y->tops.at + y->early_tops);
    y->early_tops = n;
}

/* Adds the alternatives at n positions of the event, from `skip` on. Positions without any (a wire
 * that left them out) are filled with NaN. Those that were moved early are there already. */
static void add_tops(struct reply *y, size_t skip, size_t n)
{
    const struct reply_event *v = &y->event;
    size_t from = skip * y->n_top, all = n * y->n_top;
    size_t told = MIN_OF(all, v->top_ids.n - MIN_OF(v->top_ids.n, from)), early;
    struct engine_top *to;

    vec_reserve(&y->tops, all);
    to = y->tops.at + y->tops.n;
    early = y->tops.n == 0 && from == 0 ? MIN_OF(y->early_tops, told) : 0;
    read_tops(y, from + early, told - early, to + early);
    for (size_t i = told; i < all; i++)
        to[i] = (struct engine_top){-1, NAN};
    y->tops.n += all;
}

static void append_new(struct reply *y, const struct cut *c)
{
    struct reply_event *v = &y->event;

    if (y->ids.n == 0 && c->ids == 0 && c->n == v->ids.n && c->logprobs == 0) {
        /* The whole answer came at once, so its arrays are moved instead of copied. */
        struct json_ints ids = y->ids;
        struct json_floats logprobs = y->logprobs;

        y->ids = v->ids;
        y->logprobs = v->logprobs;
        y->logprobs.n = c->n;
        v->ids = ids;
        v->logprobs = logprobs;
        return;
    }
    vec_reserve(&y->ids, c->n);
    vec_reserve(&y->logprobs, c->n);
    memcpy(y->ids.at + y->ids.n, v->ids.at + c->ids, c->n * sizeof(*v->ids.at));
    memcpy(y->logprobs.at + y->logprobs.n, v->logprobs.at + c->logprobs,
           c->n * sizeof(*v->logprobs.at));
    y->ids.n += c->n;
    y->logprobs.n += c->n;
}

/* Adds the sampling support of new tokens. Its logprobs replace the others. */
static int add_support(struct reply *y, const struct cut *c, struct err *e)
{
    struct reply_event *v = &y->event;
    struct support_tokens t = {.n = c->n,
                               .from = v->ids_seen - v->ids.n + c->ids,
                               .seen = v->ids_seen,
                               .cut = y->finish == REPLY_ABORT};

    if (c->n == 0)
        return 0;
    t.ids = v->ids.at + c->ids;
    t.logprobs = v->logprobs.at + c->logprobs;
    return support_take(&y->support, &t, e);
}

static void clear_spans(struct reply *y)
{
    vec_clear(&y->spans);
    buf_clear(&y->version_text);
}

int reply_merge(struct reply *y, bool stream, size_t *ret_new, struct err *e)
{
    const struct reply_event *v = &y->event;
    struct cut c = {0};

    *ret_new = 0;
    if (v->misfit)
        return reply_invalid(e, v->misfit);
    if (stream)
        detect_mode(y);
    if (!stream && !v->has_ids && y->finish != REPLY_ABORT && !y->failed)
        return reply_invalid(e, "it has no token ids");
    if (find_new(y, &c, e) < 0 || check_new(y, &c, e) < 0 || add_support(y, &c, e) < 0)
        return -1;
    if (c.n > 0 && !v->has_spans)
        clear_spans(y); /* the earlier spans covered fewer tokens */
    if (c.n > 0) {
        if (y->n_top > 0)
            add_tops(y, v->logprobs_seen - v->logprobs.n + c.logprobs, c.n);
        append_new(y, &c);
    }
    if (v->completion_tokens >= 0 && (v->has_ids || stream) && y->finish != REPLY_ABORT &&
        v->completion_tokens != (int64_t)y->ids.n)
        return reply_invalid(e, "its token count is not the number of its tokens");
    *ret_new = c.n;
    return 0;
}

/* One span above the limit is kept, as an empty one: the answer will be refused
 * (ENGINE_VERSIONS_MAX). */
void reply_take_span(struct reply *y, enum reply_span_member member, const struct json_scan *s)
{
    struct reply_span *last;
    bool open;

    if (!y->event.has_spans)
        clear_spans(y);
    y->event.has_spans = true;
    last = y->spans.n ? &vec_last(&y->spans) : NULL;
    open = last &&
           ((member == SPAN_VERSION && last->text_len == SIZE_MAX) ||
            (member == SPAN_START && last->start < 0) || (member == SPAN_END && last->end < 0));
    if (y->spans.n > ENGINE_VERSIONS_MAX)
        return;
    if (!open) {
        last = vec_push(&y->spans);
        *last = (struct reply_span){.text_len = SIZE_MAX, .start = -1, .end = -1};
    }
    if (y->spans.n > ENGINE_VERSIONS_MAX) {
        *last = (struct reply_span){0};
        return;
    }
    if (member == SPAN_START) {
        last->start = reply_int(s);
    } else if (member == SPAN_END) {
        last->end = reply_int(s);
    } else if (s->token == JSON_TOKEN_STRING || s->token == JSON_TOKEN_NUMBER) {
        last->text_at = y->version_text.len;
        surrogates_add_whole(s->text, &y->version_text);
        last->text_len = y->version_text.len - last->text_at;
    }
}

void reply_note_version(struct reply *y)
{
    struct str version = buf_str(&y->version);
    struct reply_span next = {.text_at = y->seen_text.len,
                              .text_len = version.len,
                              .start = y->seen.n ? vec_last(&y->seen).end : 0,
                              .end = (int64_t)y->ids.n};

    if (next.start == next.end || version.len == 0)
        return;
    if (y->seen.n > 0) {
        struct reply_span *last = &vec_last(&y->seen);

        if (str_eq(str_sub(buf_str(&y->seen_text), last->text_at, last->text_len), version)) {
            last->end = next.end;
            return;
        }
    }
    *vec_push(&y->seen) = next;
    buf_add_str(&y->seen_text, version);
}

void reply_set_version(struct reply *y, struct str version)
{
    vec_clear(&y->spans);
    *vec_push(&y->spans) = (struct reply_span){.text_at = y->version_text.len,
                                               .text_len = version.len,
                                               .start = 0,
                                               .end = (int64_t)y->ids.n};
    buf_add_str(&y->version_text, version);
}

void reply_settle_versions(struct reply *y)
{
    struct reply_spans spans = y->spans;
    struct buf text = y->version_text;
    int64_t n = (int64_t)y->ids.n;

    for (size_t i = 0; i < spans.n && y->finish == REPLY_ABORT; i++) {
        spans.at[i].start = MIN_OF(spans.at[i].start, n);
        spans.at[i].end = MIN_OF(spans.at[i].end, n);
    }
    if (spans.n > 0)
        return;
    y->spans = y->seen;
    y->version_text = y->seen_text;
    y->seen = spans;
    y->seen_text = text;
}

int reply_check_spans(const struct reply *y, struct err *e)
{
    for (size_t i = 0; i < y->spans.n; i++) {
        const struct reply_span *s = &y->spans.at[i];

        if (s->start < 0 || s->end < 0 || s->text_len == SIZE_MAX)
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's weight version spans are unfinished: weight_versions[%zu] "
                           "needs version, start and end",
                           i);
    }
    return 0;
}

int64_t reply_int(const struct json_scan *s)
{
    int64_t v;

    return s->token == JSON_TOKEN_NUMBER && json_number_i64(s->text, &v) == 0 ? v : -1;
}

int32_t reply_token(const struct json_scan *s)
{
    int64_t v = reply_int(s);

    return v < 0 || v > INT32_MAX ? -1 : (int32_t)v;
}

float reply_float(const struct json_scan *s)
{
    double d;

    if (s->token != JSON_TOKEN_NUMBER || json_number_double(s->text, &d) < 0)
        return NAN;
    return (float)d;
}

void reply_text(struct buf *to, const struct json_scan *s)
{
    buf_clear(to);
    if (s->token == JSON_TOKEN_STRING || s->token == JSON_TOKEN_NUMBER)
        surrogates_add_whole(s->text, to);
}

void reply_end_error(struct reply *y)
{
    struct str code = buf_str(&y->error_code), type = buf_str(&y->error_type);
    struct str overflow = overflow_is_code(code) ? code : type;

    y->status = error_words_status(code);
    if (y->status == 0)
        y->status = error_words_status(type);
    if (!overflow_is_code(overflow))
        return;
    y->status = 400;
    buf_puts(&y->message, " (");
    buf_add_str(&y->message, overflow);
    buf_puts(&y->message, ")");
}

void reply_take_finish(struct reply *y, const struct json_scan *s)
{
    if (s->token == JSON_TOKEN_NULL)
        return;
    y->repeats = str_eq_c(s->text, "repetition");
    if (str_eq_c(s->text, "stop"))
        y->finish = REPLY_STOP;
    else if (str_eq_c(s->text, "length") || y->repeats)
        y->finish = REPLY_LENGTH;
    else if (str_eq_c(s->text, "abort"))
        y->finish = REPLY_ABORT;
    else
        reply_take_unknown_finish(y, s);
}

void reply_take_unknown_finish(struct reply *y, const struct json_scan *s)
{
    y->finish = REPLY_BROKEN;
    reply_text(&y->error_type, s);
}

static void pad_tops(struct reply *y, size_t want)
{
    struct reply_event *v = &y->event;

    while (v->top_ids.n < want)
        *vec_push(&v->top_ids) = -1;
    while (v->top_logprobs.n < want)
        *vec_push(&v->top_logprobs) = NAN;
    v->top_ids.n = v->top_logprobs.n = want;
}

void reply_begin_entry(struct reply *y)
{
    size_t n = MAX_OF(y->event.top_ids.n, y->event.top_logprobs.n);

    pad_tops(y, n);
    *vec_push(&y->entries) = (struct logprob_item){.id = -1, .logprob = NAN, .top_at = n};
}

/* Moves alternatives from the order of entries to that of positions. */
static void align_tops(struct reply *y)
{
    struct reply_event *v = &y->event;
    size_t k = y->n_top, n = v->ids.n * k;
    struct engine_top *tops = mem_calloc(n + 1, sizeof(*tops));

    y->early_tops = 0; /* this function also moves the tops that were read early */
    pad_tops(y, MAX_OF(v->top_ids.n, v->top_logprobs.n));
    for (size_t i = 0; i < n; i++)
        tops[i] = (struct engine_top){-1, NAN};
    for (size_t i = 0; i < y->entries.n; i++) {
        const struct logprob_item *x = &y->entries.at[i];

        for (size_t j = 0; x->at != ENTRY_NOWHERE && j < MIN_OF(k, x->n_top); j++)
            tops[x->at * k + j] = (struct engine_top){v->top_ids.at[x->top_at + j],
                                                      v->top_logprobs.at[x->top_at + j]};
    }
    vec_clear(&v->top_ids);
    vec_clear(&v->top_logprobs);
    for (size_t i = 0; i < n; i++) {
        *vec_push(&v->top_ids) = tops[i].id;
        *vec_push(&v->top_logprobs) = tops[i].logprob;
    }
    free(tops);
}

/* Stores the logprob of an entry at its position, if the engine computed it. Returns -1 if it is
 * not a number. */
static int place_logprob(struct reply *y, const struct logprob_item *x)
{
    if (x->at == ENTRY_NOWHERE || !entry_computed(x))
        return 0;
    if (isnan(x->logprob))
        return -1;
    y->event.logprobs.at[x->at] = x->logprob;
    return 0;
}

/* Records the tokens that have no logprob yet. `last`: position after the last token with an
 * entry. */
static void record_lacks(struct reply *y, uint32_t last)
{
    const struct reply_event *v = &y->event;

    for (uint32_t i = 0; i < v->ids.n; i++)
        if (isnan(v->logprobs.at[i]))
            *vec_push(&y->lacks) = (struct reply_lack){i, i < last};
    /* A token that has an entry ends a character, even if its value is missing. */
    for (size_t k = 0, i = 0; k < y->entries.n; k++) {
        while (i < y->lacks.n && y->lacks.at[i].at < y->entries.at[k].at)
            i++;
        if (i < y->lacks.n && y->lacks.at[i].at == y->entries.at[k].at)
            y->lacks.at[i].inside = false;
    }
}

void reply_take_entries(struct reply *y)
{
    struct reply_event *v = &y->event;
    uint32_t last = 0; /* position after the last token with an entry */

    if (v->misfit)
        return;
    if (entries_align(&y->entries, v->ids.at, v->ids.n) < 0) {
        v->misfit = "a logprob belongs to another token";
        return;
    }
    vec_clear(&v->logprobs);
    for (size_t i = 0; i < v->ids.n; i++)
        *vec_push(&v->logprobs) = NAN;
    for (size_t k = 0; k < y->entries.n; k++) {
        if (place_logprob(y, &y->entries.at[k]) < 0)
            v->misfit = "a logprob is null or no number";
        if (y->entries.at[k].at != ENTRY_NOWHERE)
            last = y->entries.at[k].at + 1;
    }
    record_lacks(y, last);
    align_tops(y);
    v->has_logprobs = v->ids.n > 0;
    v->logprobs_seen = v->ids.n;
}

/* Reports an alternative that has a logprob but no id: its text may belong to several tokens. */
static void check_last_top(struct reply_event *v)
{
    if (v->top_ids.n > 0 && vec_last(&v->top_ids) < 0 && !isnan(vec_last(&v->top_logprobs)))
        v->misfit = "an alternative names no token id";
}

/* Drops the worst alternative at a position that has one too many: vLLM's completions list the
 * sampled token in addition to the best. */
static void drop_worst_top(struct reply *y)
{
    struct reply_event *v = &y->event;
    size_t from = v->top_positions > 0 ? (v->top_positions - 1) * y->n_top : 0, worst = from;

    if (v->top_ids.n != v->top_logprobs.n || v->top_ids.n <= from + y->n_top)
        return;
    for (size_t i = from + 1; i < v->top_ids.n; i++)
        if (isnan(v->top_logprobs.at[i]) || v->top_logprobs.at[i] <= v->top_logprobs.at[worst])
            worst = i;
    v->top_ids.at[worst] = vec_last(&v->top_ids);
    v->top_logprobs.at[worst] = vec_last(&v->top_logprobs);
    v->top_ids.n--;
    v->top_logprobs.n--;
}

void reply_begin_top(struct reply *y)
{
    check_last_top(&y->event);
    drop_worst_top(y);
    *vec_push(&y->event.top_ids) = -1;
    *vec_push(&y->event.top_logprobs) = NAN;
}

void reply_end_position(struct reply *y)
{
    check_last_top(&y->event);
    drop_worst_top(y);
    pad_tops(y, y->event.top_positions * y->n_top);
}

void reply_begin_position(struct reply *y)
{
    reply_end_position(y);
    y->event.top_positions++;
}
