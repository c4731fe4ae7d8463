/* Decodes a commit record into struct commit_record (commit_record.h) without copying: texts and
 * numbers point into the bytes. Checks only the form; apply.c checks whether what is named exists.
 * Fields are in the order in which commit.c writes them, optional ones by the flags. */

#include "worker/session/record/commit_record.h"

#include <string.h>

#include "worker/session/record/call_bulk.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/session.h"

enum { MESSAGES_MAX = 1 << 24 };

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_IO, "session record: %s", what);
}

static void skip_strs(struct record_in *r, uint32_t n)
{
    for (uint32_t i = 0; i < n && !r->bad; i++)
        (void)record_str(r);
}

/* Reads of a commit's body only what every commit has, up to its key. Sets r->bad if the body is
 * incomplete. */
static void commit_record_read_head(struct record_in *r, struct commit_record *c)
{
    const char *temperature;

    c->call = record_u(r);
    c->body_hash[0] = record_u64(r);
    c->body_hash[1] = record_u64(r);
    c->max_tokens = (int64_t)(record_u(r) & INT64_MAX);
    temperature = record_floats(r, 1);
    if (temperature)
        memcpy(&c->temperature, temperature, sizeof(float));
    c->flags = (unsigned)record_u32(r);
    c->prompt_tokens = record_u32(r);
    if (c->flags & COMMIT_KEY)
        c->key = record_str(r);
    if (c->flags & COMMIT_AFTER)
        c->calls_before = record_u32(r);
}

/* Reads environment and new messages. */
static int read_place(struct record_in *r, struct commit_record *c, struct err *e)
{
    bool apart = c->flags & COMMIT_TEXTS;

    if (c->flags & COMMIT_NEW_ENV) {
        c->tools = record_str(r);
        c->kwargs = record_str(r);
        if (c->flags & COMMIT_POOL)
            c->pool = record_str(r);
    } else {
        c->env = record_u32(r);
    }
    if (c->flags & COMMIT_BASE)
        c->base = record_u32(r);
    c->n_messages = record_u32(r);
    if (c->n_messages > MESSAGES_MAX || (!apart && c->n_messages > (size_t)(r->end - r->p)) ||
        ((apart || !(c->flags & COMMIT_BASE)) && c->n_messages == 0))
        return bad(e, "impossible number of messages");
    if (apart) {
        c->texts_at = record_u(r);
        return 0;
    }
    c->messages = *r;
    skip_strs(r, c->n_messages);
    return 0;
}

/* Reads the tokens before the answers, and the cause. */
static int read_context(struct record_in *r, struct commit_record *c, struct err *e)
{
    c->trim = record_u32(r);
    c->close = record_u32(r);
    if (c->flags & COMMIT_SENT)
        c->sent = record_u64(r);
    if (c->flags & COMMIT_RUN) {
        c->run = record_u32(r);
        c->common = record_u32(r);
    }
    if (c->flags & COMMIT_BULK) {
        c->n_context = record_u32(r);
    } else {
        c->context = record_ids(r, &c->n_context);
        if (!c->context)
            return bad(e, "torn context");
    }
    c->cause = record_u(r);
    c->diff_message = record_u32(r);
    c->diff_field = record_str(r);
    c->diff_stored = record_str(r);
    c->diff_request = record_str(r);
    c->label = record_str(r);
    c->parent_label = record_str(r);
    if (c->flags & COMMIT_DROPPED)
        c->dropped_fields = record_str(r);
    return 0;
}

/* Returns the next n bytes of the piece. Returns NULL while no bulk is attached. */
static const char *from_bulk(const struct commit_record *c, struct answer_cursor *at, size_t n)
{
    struct str piece = c->bulk ? bulk_bytes(c->bulk, at->piece) : (struct str){0};
    const char *p = piece.p ? piece.p + at->bulk_at : NULL;

    at->bulk_at += payload_padded(n);
    if (!c->bulk || at->bulk_at <= piece.len)
        return p;
    at->in.bad = true;
    return NULL;
}

/* Reads a block of bytes, with its piece if it may have one of its own. */
static struct str read_block(const struct commit_record *c, struct answer_cursor *at,
                             uint32_t *piece)
{
    uint64_t n;

    if (!(c->flags & COMMIT_BULK))
        return record_str(&at->in);
    n = record_u32(&at->in);
    if (n == 0)
        return (struct str){0};
    if (piece)
        *piece = record_u32(&at->in);
    if (!piece || *piece == 0)
        return (struct str){from_bulk(c, at, (size_t)n - 1), (size_t)n - 1};
    return (struct str){c->bulk ? bulk_bytes(c->bulk, *piece).p : NULL, (size_t)n - 1};
}

/* Reads a message's JSON, from the bulk if one is attached. */
static struct str read_message(const struct commit_record *c, struct record_in *r)
{
    struct str all = c->bulk ? bulk_bytes(c->bulk, BULK_TEXTS) : (struct str){0};
    uint64_t at, n;

    if (!(c->flags & COMMIT_BULK) || record_u(r) == 0)
        return record_str(r);
    at = record_u32(r);
    n = record_u32(r);
    if (c->bulk && at + n > all.len)
        r->bad = true;
    return (struct str){r->bad || !all.p ? NULL : all.p + at, (size_t)n};
}

/* Reads ids with logprobs and weight versions. */
static void read_sampled(const struct commit_record *c, struct answer_cursor *at,
                         struct commit_answer *a)
{
    struct record_in *r = &at->in;
    bool apart = c->flags & COMMIT_BULK;

    if (apart) {
        a->piece = record_u32(r);
        if (a->piece != at->piece) {
            at->piece = a->piece;
            at->bulk_at = 0;
        }
        a->n = record_u32(r);
        a->ids = from_bulk(c, at, a->n * sizeof(int32_t));
    } else {
        a->ids = record_ids(r, &a->n);
    }
    a->has_logprobs = record_u(r) != 0;
    if (a->has_logprobs)
        a->logprobs = apart ? from_bulk(c, at, a->n * sizeof(float)) : record_floats(r, a->n);
    a->n_versions = record_u32(r);
    a->versions = *r;
    for (uint32_t i = 0; i < a->n_versions && !r->bad; i++) {
        (void)record_str(r);
        (void)record_u32(r);
        (void)record_u32(r);
    }
}

static void read_rows(const struct commit_record *c, struct answer_cursor *at, int kind,
                      struct commit_answer *a)
{
    struct token_rows *x = &a->rows[kind];
    struct record_in *r = &at->in;

    x->block = read_block(c, at, &a->apart[kind]);
    x->from = record_u32(r);
    x->rows = record_u32(r);
    x->layers = record_u32(r);
    x->topk = record_u32(r);
}

static void read_told(const struct commit_record *c, struct record_in *r, struct commit_answer *a)
{
    uint64_t n;

    if (!(c->flags & COMMIT_BULK)) {
        a->told = record_str(r);
        return;
    }
    n = record_u32(r);
    a->told_bytes = n > 0 ? (size_t)n - 1 : 0;
}

/* Reads all fields of one answer, in put_answer's order. */
static void read_answer(const struct commit_record *c, struct answer_cursor *at,
                        struct commit_answer *a)
{
    struct record_in *r = &at->in;
    unsigned flags = c->flags;
    uint64_t mode;

    *a = (struct commit_answer){0};
    read_sampled(c, at, a);
    a->cut = record_u(r) != 0;
    a->finish_reason = record_str(r);
    a->message = read_message(c, r);
    a->response_id = record_str(r);
    a->parse_warning = record_str(r);
    read_rows(c, at, ROWS_EXPERTS, a);
    a->queue_us = record_u(r);
    a->engine_us = record_u(r);
    a->gateway_us = record_u(r);
    mode = record_u(r);
    if (mode > DUPLICATE_KEEP)
        r->bad = true;
    a->mode = mode > DUPLICATE_KEEP ? DUPLICATE_NONE : (enum commit_duplicate)mode;
    if (mode != DUPLICATE_NONE)
        a->duplicate = record_u32(r);
    a->basis = record_str(r);
    a->scored_tokens = record_u32(r);
    a->cached = record_u(r);
    if (flags & COMMIT_ODDS)
        a->odds = read_block(c, at, NULL);
    if (flags & COMMIT_DRIFT)
        a->drifted = record_u32(r);
    if (flags & COMMIT_INDEXER)
        read_rows(c, at, ROWS_INDEXER, a);
    if (flags & COMMIT_ASKED)
        a->asked = record_str(r);
    read_told(c, r, a);
}

/* Returns the next answer of a record that was read. */
static const struct commit_answer *next_answer(const struct commit_record *c,
                                               struct answer_cursor *at, struct commit_answer *room)
{
    if (!c->has_only) {
        read_answer(c, at, room);
        return room;
    }
    at->in.p = c->only_end;
    return &c->only;
}

/* Reads each answer once to find its end. commit_record_answer reads them again if there are
 * several, or if their bytes are in the bulk. */
static int read_each(struct record_in *r, struct commit_record *c, struct err *e)
{
    struct answer_cursor at;

    if (c->n_answers > (size_t)(r->end - r->p))
        return bad(e, "impossible number of answers");
    c->answers = *r;
    at = commit_record_answers(c);
    for (uint32_t i = 0; i < c->n_answers; i++) {
        struct commit_answer a;

        read_answer(c, &at, &a);
        if (at.in.bad)
            return bad(e, "torn answer");
        c->tokens += a.n;
        if (c->n_answers == 1 && !(c->flags & COMMIT_BULK)) {
            c->has_only = true;
            c->only = a;
            c->only_end = at.in.p;
        }
    }
    *r = at.in;
    return 0;
}

/* Reads the answers and the request's data. */
static int read_answers(struct record_in *r, struct commit_record *c, struct err *e)
{
    c->n_answers = record_u32(r);
    if (r->bad || c->n_answers == 0)
        return bad(e, "impossible number of answers");
    c->tokens = c->n_context;
    if (read_each(r, c, e) != 0)
        return -1;
    c->asked = record_u(r);
    if (c->asked == 1)
        c->asked_text = record_str(r);
    return 0;
}

static int at_end(const struct record_in *r, struct err *e)
{
    return !r->bad && r->p == r->end ? 0 : bad(e, r->bad ? "torn" : "bytes behind the record");
}

/* Refuses flags of a later program, because they may stand for fields that would be misread. */
static int check_flags(const struct commit_record *c, struct err *e)
{
    unsigned unknown = c->flags & ~(unsigned)COMMIT_KNOWN;

    return unknown ? err_set(e, ERR_UNSUPPORTED,
                             "a commit's record has the flags 0x%x, which this program does not "
                             "know: read it with the rollgate that wrote it",
                             unknown)
                   : 0;
}

int commit_record_read(struct record_in *r, struct commit_record *ret, struct err *e)
{
    struct commit_record *c = ret;

    *c = (struct commit_record){.chain = UINT32_MAX};
    commit_record_read_head(r, c);
    if (check_flags(c, e) != 0)
        return -1;
    if (c->flags & COMMIT_EXHAUSTED) {
        if (c->flags & COMMIT_CHAIN)
            c->chain = record_u32(r);
        if (c->flags & COMMIT_KEPT)
            c->kept = record_u32(r);
    } else {
        if (!(c->flags & COMMIT_RAW) && read_place(r, c, e) != 0)
            return -1;
        if (c->flags & COMMIT_PARENT)
            c->parent = record_u32(r);
        if (c->flags & COMMIT_CHAIN)
            c->chain = record_u32(r);
        if (read_context(r, c, e) != 0 || read_answers(r, c, e) != 0)
            return -1;
    }
    return at_end(r, e);
}

struct answer_cursor commit_record_answers(const struct commit_record *c)
{
    return (struct answer_cursor){c->answers, BULK_PAYLOADS,
                                  payload_padded(c->n_context * sizeof(int32_t))};
}

void commit_record_answer(const struct commit_record *c, struct answer_cursor *at,
                          struct commit_answer *ret)
{
    const struct commit_answer *a = next_answer(c, at, ret);

    if (a != ret)
        *ret = *a;
}

/* Each byte of a piece of numbers must belong to some answer. */
bool commit_record_attach(struct commit_record *c, const struct call_bulk *bulk)
{
    struct answer_cursor at, before;
    struct str texts = bulk_bytes(bulk, BULK_TEXTS);

    c->bulk = bulk;
    c->context = bulk_bytes(bulk, BULK_PAYLOADS).p;
    if (c->flags & COMMIT_TEXTS && c->texts_at >= texts.len)
        return false;
    if (c->flags & COMMIT_TEXTS && texts.p)
        c->messages = record_in_of(str_sub(texts, (size_t)c->texts_at, SIZE_MAX));
    at = before = commit_record_answers(c);
    if (at.bulk_at > bulk_bytes(bulk, at.piece).len)
        return false;
    for (uint32_t i = 0; i < c->n_answers; i++, before = at) {
        struct commit_answer a;

        commit_record_answer(c, &at, &a);
        if (at.in.bad ||
            (at.piece != before.piece && before.bulk_at != bulk_bytes(bulk, before.piece).len))
            return false;
    }
    return at.bulk_at == bulk_bytes(bulk, at.piece).len;
}

static void put(char *to, size_t *at, const char *p, size_t n)
{
    size_t all = payload_padded(n);

    if (to && n > 0) {
        memcpy(to + *at, p, n);
        memset(to + *at + n, 0, all - n);
    }
    *at += all;
}

/* Copies context ids, then each answer's ids, logprobs, experts, odds and indexer's rows, each
 * padded. */
size_t commit_record_bulk(const struct commit_record *c, char *to)
{
    struct answer_cursor r = commit_record_answers(c);
    size_t at = 0;

    put(to, &at, c->context, c->n_context * sizeof(int32_t));
    for (uint32_t i = 0; i < c->n_answers; i++) {
        struct commit_answer room;
        const struct commit_answer *a = next_answer(c, &r, &room);

        put(to, &at, a->ids, a->n * sizeof(int32_t));
        if (a->has_logprobs)
            put(to, &at, a->logprobs, a->n * sizeof(float));
        put(to, &at, a->rows[ROWS_EXPERTS].block.p, a->rows[ROWS_EXPERTS].block.len);
        put(to, &at, a->odds.p, a->odds.len);
        put(to, &at, a->rows[ROWS_INDEXER].block.p, a->rows[ROWS_INDEXER].block.len);
    }
    return at;
}

/* Reads, without applying a record, whether it is a commit, and of which request. */
bool session_record_commits(struct str record, struct str *ret_id, struct session_request *ret)
{
    struct record_in r = record_in_of(record);
    struct commit_record c = {0};
    struct record_head h;

    if (!record_read_head(&r, &h) || h.type != RECORD_COMMIT)
        return false;
    commit_record_read_head(&r, &c);
    *ret_id = h.id;
    *ret = (struct session_request){
        .call = c.call,
        .body_hash = {c.body_hash[0], c.body_hash[1]},
        .key = c.key,
        .has_bulk = c.flags & COMMIT_BULK,
    };
    return !r.bad;
}

bool session_record_fragment(struct str record, uint64_t *ret_call, bool *ret_first)
{
    struct record_in r = record_in_of(record);
    struct bulk_fragment f;
    struct record_head h;

    if (!record_read_head(&r, &h) || !record_is_fragment(h.type) || !bulk_fragment_read(&r, &f))
        return false;
    *ret_call = f.call;
    *ret_first = f.before == 0;
    return true;
}

uint32_t session_record_version(struct str record)
{
    struct record_in r = record_in_of(record);
    struct record_head h;

    return record_read_head(&r, &h) ? (uint32_t)h.version : 0;
}

bool session_record_is_rows(struct str record)
{
    struct record_in r = record_in_of(record);
    struct record_head h;

    return record_read_head(&r, &h) && h.type == RECORD_ROWS;
}
