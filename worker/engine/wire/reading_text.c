/* Kinds of text in a reading: long documents are read by a helper (reading_parse). */
#include "common/codec/json.h"
#include "worker/engine/wire/reading_internal.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/upstream_text.h"
#include "worker/request/chat_logprobs.h"

enum {
    TEXT_LONG = 64 << 10,        /* read in half a millisecond or more */
    TEXT_TAKES_LONG = 768 << 10, /* takes a helper several milliseconds */
    LOGPROBS_MAX = 512, /* are told in a turn of the loop, alternatives included: in a fifth of a
                           millisecond, for some listeners as often */
};

/* The text as a tree of its own, for the receiver. */
static void tell(struct reading *r, struct buf *text)
{
    struct err e;

    if (json_parse(&r->told_arena, arena_str(&r->told_arena, buf_str(text)), &r->told, &e))
        r->told = NULL; /* it was written here */
    buf_done(text);
    buf_done(&r->word);
}

/* Of a whole answer what goes on: the logprobs that the client wants, and the rest of the text. */
static void keep_whole(struct reading *r, const struct json *doc)
{
    struct buf kept = {0};

    if (r->wants_rows)
        upstream_text_rows(doc, &r->rows);
    upstream_text_keep(doc, &kept);
    tell(r, &kept);
}

void reading_text_end(struct reading *r)
{
    struct buf kept = {0};

    upstream_text_write(r->text, &kept);
    tell(r, &kept);
}

/* The document in r->word, all but its delta, which is r->delta_read. */
static int take_doc(struct reading *r, struct err *e)
{
    struct reply *y = &r->reply;
    const struct json *doc = NULL;

    r->delta_read = (struct engine_delta){0};
    if (json_parse(&r->doc_arena, buf_str(&r->word), &doc, e) < 0) {
        struct err why = *e;

        return err_set(e, ERR_ENGINE_INVALID, "the engine's answer is invalid: %s", why.text);
    }
    if (r->wire->text(y, r->text, doc, r->events, &r->delta_read, e) < 0)
        return -1;
    if (!r->wants_rows || !r->delta_read.message)
        r->delta_read.n_chat_lps = 0;
    reply_note_version(y);
    r->ended = r->ended || y->finish != REPLY_RUNNING;
    if (!y->failed && !r->events)
        keep_whole(r, doc);
    return y->failed ? READING_TOLD : READING_MORE;
}

void reading_parse(struct reading *r)
{
    r->parse_rc = take_doc(r, &r->parse_err);
    r->parsed = true;
    if (!r->events)
        arena_done(&r->doc_arena);
}

bool reading_is_long(const struct reading *r)
{
    return r->wire->text && !r->events && !r->parsed && r->word.len > TEXT_LONG;
}

bool reading_takes_long(const struct reading *r)
{
    return r->word.len > TEXT_TAKES_LONG;
}

int reading_text_whole(struct reading *r, struct err *e)
{
    if (!r->parsed)
        reading_parse(r);
    *e = r->parse_err;
    return r->parse_rc;
}

/* Of what the event brought: its message, and so many logprobs as there is room for. False: more
 * are to be told. */
static bool give_some(struct reading *r)
{
    struct engine_delta *left = &r->delta_read, now = *left;
    size_t n = 0;

    for (; n < left->n_chat_lps && r->told_lps < LOGPROBS_MAX; n++)
        r->told_lps += chat_logprobs_cost(&left->chat_lps[n]);
    now.n_chat_lps = n;
    if (now.message || n > 0)
        r->delta(r->ctx, &now);
    left->message = NULL;
    if (n == left->n_chat_lps)
        return true;
    left->chat_lps += n;
    left->n_chat_lps -= n;
    return false;
}

int reading_text_event(struct reading *r, struct err *e)
{
    int rc;

    if (!r->parsed && r->helped && r->word.len > TEXT_LONG)
        return READING_LONG;
    rc = reading_text_whole(r, e);
    if (rc == READING_MORE && !give_some(r))
        return READING_LATER;
    r->parsed = false;
    buf_clear(&r->word);
    arena_done(&r->doc_arena);
    r->doc_arena.sum = r->rows.arena.sum;
    return rc;
}
