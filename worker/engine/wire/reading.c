/*
 * Bytes go through these functions, each of which may stop at any byte and continue with the next
 * piece:
 *
 *   reading_feed -> take_events (a stream)    -> take_data  -> take_json (by the wire's table)
 *                                             '-> take_event, at an event's end -> take_document
 *                '-> take_json (one document)
 *   reading_end  -> take_document, for the one document; then the checks of a whole answer
 *
 * on_scalar, on_target and on_bulk put fields into reply.event. take_document checks the prompt
 * that the engine says it answered, moves the event to the reply (reply_merge) and passes on the
 * new tokens as a delta. Kinds with text read each document whole instead (reading_text.c), because
 * their messages are passed on as JSON.
 */
#include "common/base/limits.h"
#include "worker/engine/wire/reading_internal.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/engine/pool/engine_request.h"
#include "worker/engine/pool/engine_result.h"
#include "worker/engine/wire/npy.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/upstream_text.h"

enum {
    EXPERTS_MAX = 1 << 30,
    EVENT_MAX = 256 << 20,
    WORD_MAX = 64, /* longest word of an event that is not JSON */
    /* tokens that are converted to text and passed on in one loop iteration */
    DELTA_MAX = 4096,
    DELTA_TOPS_MAX = 8192, /* limit of tokens with alternatives; both count */
};

/* Makes the attempt's error from the reader's own reason in e, with the field that was read. */
static int unreadable(struct str field, struct err *e)
{
    struct err kept = *e;
    struct str shown = reply_shown(field);

    return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %.*s%s%s",
                   (int)shown.len, shown.p, shown.len ? ": " : "", kept.text);
}

/* --- fields of the answer --- */

static void take_support_logprob(struct support *p, bool sampled, const struct json_scan *s)
{
    if (!p->wanted)
        return;
    if (sampled)
        *vec_push(&p->sampled) = reply_float(s);
    else
        *vec_push(&p->row_logprobs) = reply_float(s);
}

static void on_scalar(void *ctx, int id, const struct json_scan *s, struct str key)
{
    struct reading *r = ctx;
    struct reply *y = &r->reply;

    switch (id) {
    case FIELD_ID_PROMPT_TOKENS:
        /* The ids are counted, so the usage adds nothing. */
        if (y->event.prompt_tokens < 0)
            y->event.prompt_tokens = reply_int(s);
        break;
    case FIELD_ID_COMPLETION_TOKENS:
        y->event.completion_tokens = reply_int(s);
        break;
    case FIELD_ID_CACHED:
        y->cached = reply_int(s);
        break;
    case FIELD_ID_FINISH:
        reply_take_finish(y, s);
        break;
    case FIELD_ID_ERROR:
        if (s->token != JSON_TOKEN_STRING)
            break;
        __attribute__((fallthrough));
    case FIELD_ID_ERROR_MESSAGE:
        y->failed = true;
        reply_text(&y->message, s);
        break;
    case FIELD_ID_ERROR_CODE:
    case FIELD_ID_ERROR_TYPE:
        y->failed = y->failed || id == FIELD_ID_ERROR_CODE;
        reply_text(id == FIELD_ID_ERROR_CODE ? &y->error_code : &y->error_type, s);
        break;
    case FIELD_ID_SUPPORT_LOGPROB:
    case FIELD_ID_SUPPORT_SAMPLED:
        take_support_logprob(&y->support, id == FIELD_ID_SUPPORT_SAMPLED, s);
        break;
    case FIELD_ID_LOGPROB:
        y->event.has_logprobs = true;
        y->event.logprobs_seen++;
        *vec_push(&y->event.logprobs) = reply_float(s);
        break;
    case FIELD_ID_INDEXER_LAYERS:
        y->indexer_layers = reply_int(s);
        break;
    case FIELD_ID_ANSWER:
        reply_text(&y->answer_id, s);
        break;
    case FIELD_ID_SPAN_VERSION:
    case FIELD_ID_SPAN_START:
    case FIELD_ID_SPAN_END:
        reply_take_span(y, SPAN_VERSION + (enum reply_span_member)(id - FIELD_ID_SPAN_VERSION), s);
        break;
    default:
        r->wire->scalar(y, id, s, key);
    }
}

/* Skips everything if it was not asked for. */
static struct base64_window indexer_window(const struct indexer_ask *ask)
{
    return (struct base64_window){.from = (uint64_t)ask->from * ask->row_bytes,
                                  .max = ask->wanted ? ask->max_bytes : 0};
}

/* A server that was started for experts may send them without being asked. Then they are
 * skipped. */
static void experts_target(struct reading *r, struct field_target *t)
{
    struct reply *y = &r->reply;

    if (!r->experts) {
        y->passed_over = (struct base64_window){0};
        *t = (struct field_target){.bytes = &y->experts, .window = &y->passed_over};
        return;
    }
    if (!r->wire->experts_in_pieces)
        buf_clear(&y->experts);
    *t = (struct field_target){.bytes = &y->experts, .max_bytes = EXPERTS_MAX};
}

static void on_target(void *ctx, int id, struct field_target *t)
{
    struct reading *r = ctx;
    struct reply *y = &r->reply;

    switch (id) {
    case FIELD_ID_IDS:
        vec_clear(&y->event.ids);
        *t = (struct field_target){.ints = &y->event.ids, .from = reply_from(y)};
        break;
    case FIELD_ID_LOGPROBS:
        *t = (struct field_target){.floats = &y->event.logprobs};
        break;
    case FIELD_ID_TRIPLES:
        vec_clear(&y->event.logprobs);
        vec_clear(&y->event.logprob_ids);
        *t = (struct field_target){
            .ints = &y->event.logprob_ids, .floats = &y->event.logprobs, .from = reply_from(y)};
        break;
    case FIELD_ID_TOPS:
        *t = (struct field_target){.ints = &y->event.top_ids, .floats = &y->event.top_logprobs};
        break;
    case FIELD_ID_SUPPORT:
        *t = (struct field_target){.ints = &y->support.rows,
                                   .from = y->support.wanted ? 0 : SIZE_MAX};
        break;
    case FIELD_ID_SUPPORT_LOGPROBS:
        *t = (struct field_target){.floats = &y->support.row_logprobs,
                                   .from = y->support.wanted ? 0 : SIZE_MAX};
        break;
    case FIELD_ID_PROMPT_ECHO:
        vec_clear(&y->event.echo);
        *t = (struct field_target){.ints = &y->event.echo};
        break;
    case FIELD_ID_INDEXER:
        buf_clear(&y->indexer);
        y->indexer_window = indexer_window(&r->req->indexer);
        *t = (struct field_target){.bytes = &y->indexer, .window = &y->indexer_window};
        break;
    default:
        experts_target(r, t);
    }
}

static void on_bulk(void *ctx, int id, size_t items, bool null)
{
    struct reading *r = ctx;
    struct reply *y = &r->reply;

    switch (id) {
    case FIELD_ID_IDS:
        y->event.has_ids = !null;
        y->event.ids_seen = items;
        break;
    case FIELD_ID_LOGPROBS:
        y->event.has_logprobs = y->event.has_logprobs || items > 0;
        y->event.logprobs_seen += items;
        break;
    case FIELD_ID_TRIPLES:
        y->event.has_logprobs = y->event.has_logprob_ids = !null;
        y->event.logprobs_seen = items;
        break;
    case FIELD_ID_TOPS:
        y->event.top_positions++;
        reply_end_position(y);
        break;
    case FIELD_ID_POSITION:
        reply_begin_position(y);
        break;
    case FIELD_ID_TOP:
        if (!null)
            reply_begin_top(y);
        break;
    case FIELD_ID_SPECULATES:
        y->speculates = y->speculates || !null;
        break;
    case FIELD_ID_ENTRIES:
        if (null)
            y->event.misfit = "its list of logprobs is null";
        break;
    case FIELD_ID_ENTRY:
        reply_begin_entry(y);
        break;
    case FIELD_ID_ENTRY_TOPS:
        vec_last(&y->entries).listed = !null;
        break;
    case FIELD_ID_SUPPORT:
        *vec_push(&y->support.row_counts) = (int32_t)MIN_OF(items, (size_t)INT32_MAX);
        break;
    case FIELD_ID_SUPPORT_LOGPROBS:
        break;
    case FIELD_ID_PROMPT_ECHO:
        y->event.has_echo = !null;
        if (!null)
            y->event.prompt_tokens = (int64_t)items;
        break;
    case FIELD_ID_INDEXER:
        y->has_indexer = r->req->indexer.wanted && !null;
        break;
    default:
        y->has_experts = r->experts && (!null || (y->has_experts && r->wire->experts_in_pieces));
    }
}

static const struct field_sink sink = {on_scalar, on_target, on_bulk};

/* --- documents --- */

static void give_delta(const struct reading *r, size_t n)
{
    const struct reply *y = &r->reply;
    size_t from = y->ids.n - n;
    struct engine_delta d = {
        .ids = {y->ids.at + from, n},
        .logprobs = y->logprobs.at + from,
        .top = y->n_top ? y->tops.at + from * y->n_top : NULL,
        .n_top = y->n_top,
    };

    r->delta(r->ctx, &d);
}

/* Passes on new tokens. An event with so many tokens that passing them on would take long is held
 * back, with all after it: the end of an answer is handled in steps. After an abort a further piece
 * may follow. */
static void give_new(struct reading *r, size_t n)
{
    r->back += n;
    r->holds_back = r->holds_back || r->back > DELTA_MAX ||
                    r->back * (r->reply.n_top + (size_t)1) > DELTA_TOPS_MAX;
    if (r->back == 0 || (r->holds_back && r->reply.finish != REPLY_ABORT))
        return;
    give_delta(r, r->back);
    r->back = 0;
}

/* Returns the length of the prompt with each picture's placeholder as a run. */
static size_t prompt_length(const struct engine_request *q)
{
    size_t n = q->prompt.n;

    for (size_t i = 0; i < q->n_images; i++)
        n += q->images[i].tokens - 1;
    return n;
}

/* Reports whether the echo is the prompt with these runs. */
static bool is_prompt(const struct engine_request *q, const struct json_ints *echo)
{
    size_t at = 0, image = 0;

    for (size_t k = 0; k < q->prompt.n_parts; k++) {
        struct token_span ids = q->prompt.parts[k];

        for (size_t i = 0; i < ids.n; i++) {
            bool pad = image < q->n_images && ids.at[i] == q->image_pad;
            size_t times = pad ? q->images[image++].tokens : 1;

            for (; times > 0; times--, at++)
                if (at >= echo->n || echo->at[at] != ids.at[i])
                    return false;
        }
    }
    return at == echo->n;
}

/* Checks the prompt of an answer with images before any of it is passed on. A server that does not
 * know images answers without them and does not report it. So its answer must show the prompt that
 * it made of them. */
static int check_images_told(struct reading *r, int64_t said, struct err *e)
{
    if (r->req->n_images == 0 || r->prompt_told)
        return 0;
    r->prompt_told = r->wire->echoes_images ? r->reply.event.has_echo : said >= 0;
    if (r->prompt_told || r->reply.finish == REPLY_ABORT)
        return 0;
    return reply_invalid(
        e, "it does not tell the prompt that it made with the images; the server is too "
           "old for them, or takes none");
}

/* Reports whether a different prompt is accepted: one with images, if engines may drift. One that
 * is no longer than what was sent was made without the images. */
static bool note_drift(struct reading *r, int64_t said)
{
    if (!r->req->media_drift || r->req->n_images == 0 || said <= (int64_t)r->req->prompt.n ||
        said > UINT32_MAX)
        return false;
    r->drifted = (uint32_t)said;
    return true;
}

static int check_prompt(struct reading *r, struct err *e)
{
    const struct json_ints *echo = &r->reply.event.echo;
    size_t length = prompt_length(r->req);
    int64_t said = r->reply.event.prompt_tokens;

    if (check_images_told(r, said, e) < 0)
        return -1;
    if (r->reply.event.has_echo && echo->n > 0 && echo->n == length && !is_prompt(r->req, echo))
        return note_drift(r, said) ? 0 : reply_invalid(e, "it is for another prompt");
    if (said < 0 || r->reply.finish == REPLY_ABORT || said == (int64_t)length ||
        note_drift(r, said))
        return 0;
    return err_set(e, ERR_ENGINE_INVALID,
                   "the engine's answer is invalid: it is for a prompt of %lld tokens, not %zu%s",
                   (long long)said, length,
                   r->req->n_images ? " (with its images); the engine makes other tokens of them"
                                    : "");
}

/* Handles a complete document. */
static int take_document(struct reading *r, struct err *e)
{
    struct reply *y = &r->reply;
    size_t n = 0;
    int rc;

    if (r->wire->end_event)
        r->wire->end_event(y);
    if (y->failed) {
        reply_end_error(y);
        return READING_TOLD;
    }
    rc = reading_check_id(r, e);
    if (rc != READING_MORE)
        return rc;
    /* a stream cannot have lacks, which need positions in a whole answer */
    if (r->events && y->lacks.n > 0)
        return reply_invalid(e, "a stream leaves logprobs out");
    if (check_prompt(r, e) < 0 || reply_merge(y, r->events, &n, e) < 0)
        return -1;
    reply_note_version(y);
    /* A whole answer that has ended is passed on only as the result. Deltas are for streams, and
     * for a piece that the engine aborted and that a further one follows. */
    if (y->lacks.n == 0 && (r->events || y->finish == REPLY_ABORT))
        give_new(r, n);
    r->ended = r->ended || y->finish != REPLY_RUNNING;
    return READING_MORE;
}

/* Reads bytes of a document. */
static int take_json(struct reading *r, struct str bytes, struct err *e)
{
    int rc;

    if (r->json_complete)
        return str_trim(bytes).len == 0 ? READING_MORE : reply_invalid(e, "bytes behind its JSON");
    rc = fields_feed(&r->fields, bytes, e);
    if (rc < 0)
        return unreadable(buf_str(&r->fields.path), e);
    r->json_complete = rc > 0;
    return READING_MORE;
}

/* --- event streams --- */

/* Reads bytes of an event's data: JSON, or a word such as [DONE]. */
static int take_data(struct reading *r, struct str bytes, struct err *e)
{
    if (r->wire->text) {
        buf_add_str(&r->word, bytes);
        return READING_MORE;
    }
    if (!r->in_json && r->word.len == 0) {
        while (bytes.len > 0 && memchr(" \t\r\n", bytes.p[0], 4))
            bytes = str_sub(bytes, 1, bytes.len); /* blanks after it are not yet recognized */
        if (bytes.len == 0)
            return READING_MORE;
        if (bytes.p[0] == '{') {
            r->in_json = true;
            r->json_complete = false;
            fields_reset(&r->fields);
            reply_begin_event(&r->reply);
        }
    }
    if (r->in_json)
        return take_json(r, bytes, e);
    buf_add_up_to(&r->word, bytes, WORD_MAX);
    return READING_MORE;
}

static int take_event(struct reading *r, struct err *e)
{
    if (str_eq_c(str_trim(str_sub(buf_str(&r->word), 0, WORD_MAX)), "[DONE]")) {
        r->all_sent = true;
        buf_clear(&r->word);
        return READING_MORE;
    }
    if (r->wire->text)
        return reading_text_event(r, e);
    if (!r->in_json)
        return reply_invalid(e, "an event that is no JSON");
    r->in_json = false;
    return r->json_complete ? take_document(r, e)
                            : reply_invalid(e, "an event ends inside its JSON");
}

static int take_events(struct reading *r, struct str bytes, struct err *e)
{
    struct str data;
    int rc = READING_MORE;

    while (rc == READING_MORE) {
        int item = sse_next(&r->sse, &bytes, &data, e);

        if (item == SSE_MORE)
            return READING_MORE;
        if (item < 0)
            return unreadable((struct str){0}, e);
        rc = item == SSE_DATA ? take_data(r, data, e) : take_event(r, e);
    }
    return rc;
}

/* --- life --- */

struct reading *reading_new(const struct remote *remote, const struct wire *wire,
                            const struct engine_request *q,
                            void (*delta)(void *ctx, const struct engine_delta *d), void *ctx)
{
    struct reading *r = mem_alloc(sizeof(*r));

    *r = (struct reading){.remote = remote, .wire = wire, .req = q, .delta = delta, .ctx = ctx};
    r->text = wire->text ? upstream_text_new() : NULL;
    r->sse.max_event = wire->text ? UPSTREAM_EVENT_MAX : EVENT_MAX;
    if (q->indexer.wanted)
        r->sse.max_event = SIZE_MAX; /* the kept data is limited elsewhere */
    reply_init(&r->reply, q->top_logprobs, q->held);
    r->rows.arena.sum = r->told_arena.sum = r->doc_arena.sum = q->held;
    r->reply.support.wanted = q->support;
    r->wants_rows = wire->text && json_is_true(json_get(q->chat_body, "logprobs"));
    fields_init(&r->fields, wire->fields, wire->n_fields, &sink, r);
    return r;
}

void reading_expect(struct reading *r, uint8_t mode, enum logprob_basis basis, bool experts)
{
    r->reply.mode = r->wire->stream_mode;
    r->reply.told = mode;
    r->reply.basis = basis;
    r->experts = experts;
    if (experts && r->wire->experts_in_pieces)
        r->reply.npy = npy_new();
}

void reading_free(struct reading *r)
{
    if (!r)
        return;
    buf_done(&r->id);
    reply_done(&r->reply);
    fields_done(&r->fields);
    buf_done(&r->word);
    arena_done(&r->rows.arena);
    arena_done(&r->told_arena);
    arena_done(&r->doc_arena);
    upstream_text_free(r->text);
    free(r->versions);
    free(r);
}

void reading_limit(struct reading *r, uint64_t max_bytes)
{
    r->max_bytes = max_bytes;
}

void reading_expect_events(struct reading *r, bool events)
{
    r->events = events;
}

static int feed(struct reading *r, struct str bytes, struct err *e)
{
    r->bytes += bytes.len;
    if (r->max_bytes > 0 && r->bytes > r->max_bytes && (!r->events || r->wire->text))
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is too large");
    if (r->events)
        return take_events(r, bytes, e);
    if (!r->wire->text)
        return take_json(r, bytes, e);
    buf_add_str(&r->word, bytes);
    return READING_MORE;
}

int reading_feed(struct reading *r, struct str bytes, struct err *e)
{
    int rc = feed(r, bytes, e);

    if (!r->events)
        reply_take_early(&r->reply);
    if (r->reply.npy)
        npy_feed(r->reply.npy, &r->reply.experts);
    reply_count(&r->reply, r->word.cap);
    return rc;
}

int reading_end(struct reading *r, struct err *e)
{
    struct reply *y = &r->reply;
    struct str shown;
    int rc = READING_MORE;

    if (!r->events && !r->wire->text && !r->json_complete)
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer ends inside its JSON");
    if (!r->events)
        rc = r->wire->text ? reading_text_whole(r, e) : take_document(r, e);
    if (rc != READING_MORE)
        return rc;
    if (!r->ended && r->all_sent && r->wire->silent_abort) {
        y->finish = REPLY_ABORT;
        r->ended = true;
        give_new(r, 0); /* a further piece continues what was held back */
    }
    if (!r->ended)
        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer has no finish reason");
    shown = reply_shown(buf_str(&y->error_type));
    if (y->finish == REPLY_BROKEN)
        return err_set(e, ERR_ENGINE_INVALID, "the engine failed: its finish reason is \"%.*s\"",
                       (int)shown.len, shown.p);
    if (y->finish == REPLY_ABORT && y->status >= 400)
        return READING_TOLD;
    reply_settle_versions(y);
    if (reply_check_spans(y, e) < 0)
        return -1;
    if (r->wire->complete && r->wire->complete(y, r->req, e) < 0)
        return -1;
    if (r->wire->text_end && r->wire->text_end(r->remote, y, r->req, e) < 0)
        return -1;
    if (r->wire->text && r->events && reading_text_end(r, e) < 0)
        return -1;
    return y->lacks.n > 0 ? READING_LACKS : READING_MORE;
}

bool reading_ended(const struct reading *r)
{
    return r->ended;
}

bool reading_cut(const struct reading *r)
{
    return r->events ? !r->ended : !r->wire->text && !r->json_complete;
}

struct str reading_words(const struct reading *r, int64_t *ret_status)
{
    const struct reply *y = &r->reply;
    bool told = y->failed || (y->finish == REPLY_ABORT && y->status >= 400);

    *ret_status = y->status;
    if (!told && y->finish != REPLY_BROKEN)
        return (struct str){0};
    return y->message.len > 0 ? buf_str(&y->message) : STR("");
}

uint32_t reading_error_wait_s(const struct reading *r)
{
    return r->reply.retry_after_s;
}

bool reading_versioned(const struct reading *r)
{
    return r->reply.spans.n > 0 || r->reply.ids.n == 0;
}

void reading_set_version(struct reading *r, struct str version)
{
    reply_set_version(&r->reply, version);
}

struct reply *reading_reply(struct reading *r)
{
    return &r->reply;
}

/* --- the result --- */

/* Makes the remaining spans after reply_settle_versions. Returns their number. */
static size_t make_versions(const struct reply *y, struct engine_version *out)
{
    for (size_t i = 0; i < y->spans.n; i++) {
        const struct reply_span *s = &y->spans.at[i];

        out[i] =
            (struct engine_version){str_sub(buf_str(&y->version_text), s->text_at, s->text_len),
                                    (uint32_t)s->start, (uint32_t)s->end};
    }
    return y->spans.n;
}

static enum engine_finish finish_of(const struct reply *y)
{
    if (y->finish == REPLY_ABORT)
        return ENGINE_ABORTED;
    if (y->finish == REPLY_LENGTH)
        return ENGINE_LENGTH;
    return y->stop_text.len > 0 ? ENGINE_STOP_STRING : ENGINE_STOP;
}

void reading_result(struct reading *r, struct engine_result *ret)
{
    static const float nothing; /* an empty answer has an empty, non-NULL list of logprobs */
    struct reply *y = &r->reply;
    const float *logprobs = y->ids.n > 0 ? y->logprobs.at : &nothing;

    free(r->versions);
    r->versions = mem_calloc(y->spans.n + 1, sizeof(*r->versions));
    *ret = (struct engine_result){
        .finish = finish_of(y),
        .speculates = y->speculates,
        .repeats = y->repeats,
        .stop_id = (int32_t)y->stop_id,
        /* for a repetition it has vLLM's name of that */
        .stop_text = y->stop_text.len && !y->repeats ? buf_str(&y->stop_text) : (struct str){0},
        .ids = {y->ids.at, y->ids.n},
        .logprobs = r->wire->text && y->logprobs.n == 0 ? NULL : logprobs,
        .basis = support_decides(&y->support, y->ids.n) ? BASIS_PROCESSED : y->basis,
        .support = support_of(&r->reply.support, y->ids.n),
        .support_most = y->support.most_id,
        .scored = y->scored,
        .drifted = r->drifted,
        .recomputed = y->recomputed,
        .cached_tokens = y->cached,
        .top = y->n_top ? y->tops.at : NULL,
        .ids_own = &y->ids.at,
        .logprobs_own = &y->logprobs.at,
        .top_own = &y->tops.at,
        .n_top = y->n_top,
        .versions = r->versions,
        .n_versions = make_versions(y, r->versions),
        .experts_buf = &r->reply.experts,
        .indexer_buf = &r->reply.indexer,
        .experts = y->has_experts ? str_sub(buf_str(&y->experts), y->experts_from, SIZE_MAX)
                                  : (struct str){0},
        .indexer =
            y->has_indexer && !y->indexer_window.over ? buf_str(&y->indexer) : (struct str){0},
        .indexer_layers = (uint32_t)MIN_OF(MAX_OF(y->indexer_layers, 0), (int64_t)UINT16_MAX),
        .indexer_bytes = y->has_indexer ? y->indexer_window.seen : 0,
        .rows = r->wire->text ? &r->rows : NULL,
        .openai = r->told,
        .openai_arena = &r->told_arena,
        .prompt_ids = {y->prompt_ids.at, y->prompt_ids.n},
    };
}
