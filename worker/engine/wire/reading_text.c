/* Text kinds in a reading. A helper reads long documents (reading_parse). */
#include "common/codec/json_build.h"
#include "worker/engine/wire/reading_internal.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/upstream_out.h"
#include "worker/engine/wire/upstream_text.h"

enum {
    TEXT_LONG = 64 << 10,        /* reading takes half a millisecond or more */
    TEXT_TAKES_LONG = 768 << 10, /* reading takes a helper several milliseconds */
};

/* Parses the text into a tree of its own, for the receiver. */
static void pass_tree(struct reading *r, struct buf *text)
{
    struct err e;

    if (json_parse(&r->told_arena, arena_str(&r->told_arena, buf_str(text)), &r->told, &e))
        r->told = NULL; /* it was parsed into this arena, which is reset */
    buf_done(text);
    buf_done(&r->word);
}

/* Keeps the data for the end of the answer: messages not passed on, its finish, usage. */
static void keep_text(struct reading *r)
{
    struct buf kept = {0};

    upstream_text_write(r->text, &r->messages, &kept);
    pass_tree(r, &kept);
}

int reading_text_end(struct reading *r, struct err *e)
{
    struct upstream_out out = {&r->doc_arena, &r->messages, r->events};

    r->messages = json_empty(JSON_ARRAY);
    if (upstream_text_end(r->text, &out, e) < 0)
        return -1;
    keep_text(r);
    return 0;
}

/* Reads the document in r->word: messages to r->messages, logprobs to r->delta_read. */
static int read_doc(struct reading *r, struct err *e)
{
    struct reply *y = &r->reply;
    struct upstream_out out = {&r->doc_arena, &r->messages, r->events};
    const struct json *doc = NULL;
    int rc;

    r->delta_read = (struct engine_delta){0};
    r->messages = json_empty(JSON_ARRAY);
    if (json_parse(&r->doc_arena, buf_str(&r->word), &doc, e) < 0) {
        struct err why = *e;

        return reply_invalid(e, why.text);
    }
    if (r->wire->text(y, r->text, doc, &out, &r->delta_read, e) < 0)
        return -1;
    rc = y->failed ? READING_MORE : reading_check_id(r, e);
    if (rc != READING_MORE)
        return rc;
    if (!r->wants_rows)
        r->delta_read.n_chat_lps = 0;
    if (!y->failed &&
        upstream_text_check_logprobs(r->delta_read.chat_lps, r->delta_read.n_chat_lps, e) < 0)
        return -1;
    reply_note_version(y);
    r->ended = r->ended || y->finish != REPLY_RUNNING;
    if (!y->failed && !r->events) {
        if (r->wants_rows)
            upstream_text_rows(doc, &r->rows);
        keep_text(r);
    }
    return y->failed ? READING_TOLD : READING_MORE;
}

void reading_parse(struct reading *r)
{
    r->parse_rc = read_doc(r, &r->parse_err);
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

/* Passes on the event's messages, then its logprobs. */
static void pass_event(struct reading *r)
{
    struct engine_delta now = r->delta_read;

    now.n_chat_lps = 0;
    for (uint32_t i = 0; i < r->messages.n; i++) {
        now.message = &r->messages.items[i];
        r->delta(r->ctx, &now);
    }
    now.message = NULL;
    now.n_chat_lps = r->delta_read.n_chat_lps;
    /* an empty delta shows that the engine is alive */
    if (r->messages.n == 0 || now.n_chat_lps > 0)
        r->delta(r->ctx, &now);
}

int reading_text_event(struct reading *r, struct err *e)
{
    int rc = reading_text_whole(r, e);

    if (rc == READING_MORE)
        pass_event(r);
    r->parsed = false;
    buf_clear(&r->word);
    arena_done(&r->doc_arena);
    r->doc_arena.sum = r->rows.arena.sum;
    return rc;
}
