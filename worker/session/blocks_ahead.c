/* Blocks ahead: a long block of an answer (rows for each token, what was told) is recorded in parts
 * before the answer (RECORD_BLOCKS, block_record.c), so that no step writes and reads all of it.
 * Parts of rows become payloads here, each of its own record, so that they leave memory and come
 * back one by one; what was told is put together, and so is a message, unless it is ready (a live
 * call's, or a helper's: new_messages.h). The record of the answer names how long each
 * block is (COMMIT_BLOCKS_AHEAD) and its checkpoint points to the payloads; with the commit the
 * forest takes them over. The bulk of a record comes the same way, behind the blocks, and is
 * gathered where its payload will have it (bulk_ahead.h). A live call and one that is read back go
 * the same way. Blocks whose call failed before its commit are dropped with its plan, or when the
 * reading ends. */
#include <stdlib.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "worker/session/bulk_ahead.h"
#include "worker/session/checkpoint.h"
#include "worker/session/commit_record.h"
#include "worker/session/new_messages.h"
#include "worker/session/payload.h"
#include "worker/session/store.h"
#include "worker/session/text_parts.h"

/* Texts of this size have pages of their own: few, for a process may have only so many mappings. */
enum { TOLD_LARGE = 1 << 20 };

struct block_ahead {
    uint32_t answer;
    unsigned kind; /* enum block_kind */
    uint64_t len;  /* so far */
    bool named;    /* by the record of its answer */
    VEC(struct payload *) parts;
    struct buf text; /* BLOCK_TOLD: itself, up to TOLD_LARGE bytes */
    char *large;     /* else, in the arena, of `room` bytes */
    size_t room;
    struct text_parts json; /* BLOCK_MESSAGE that is not ready */
};

struct blocks_ahead {
    uint64_t call;               /* its number */
    uint64_t len;                /* of all of them */
    VEC(struct block_ahead) all; /* by answer, then by kind */
    struct bulk_ahead bulk;      /* of the record that comes next */
    struct arena arena;          /* of their payloads' structs */
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_IO, "session record: %s", what);
}

static struct str key_of(const uint64_t *call)
{
    return str_of((const char *)call, sizeof(*call));
}

static size_t bytes_of(const struct blocks_ahead *a)
{
    size_t n = sizeof(*a) + a->arena.held_bytes + a->all.cap * sizeof(*a->all.at) +
               bulk_ahead_bytes(&a->bulk);

    for (size_t i = 0; i < a->all.n; i++)
        n += a->all.at[i].parts.cap * sizeof(struct payload *) + a->all.at[i].text.cap +
             a->all.at[i].json.bytes;
    return n;
}

/* A call that failed may have left some under its number, and answers: those that the part does not
 * stand behind. */
static void begin_anew(struct session *s, const struct block_part *part)
{
    if (part->kind == BLOCK_BULK && part->answer > 0 &&
        session_answers_so_far(s, part->call) == part->answer)
        session_drop_blocks(s, part->call);
    else
        session_drop_answers(s, part->call);
}

static struct blocks_ahead *begin(struct session *s, const struct block_part *part)
{
    struct blocks_ahead *a = mem_zalloc(sizeof(*a));

    begin_anew(s, part);
    a->call = part->call;
    a->arena.tight = true;
    (void)map_set(&s->blocks_ahead, key_of(&a->call), a);
    s->answers_bytes += bytes_of(a);
    return a;
}

/* The block that the part goes on with, or begins. NULL: a later one stands before it. */
static struct block_ahead *block_of(struct blocks_ahead *a, uint32_t answer, uint64_t kind)
{
    struct block_ahead *last = a->all.n > 0 ? &vec_last(&a->all) : NULL, *next;

    if (last && last->answer == answer && last->kind == kind)
        return last;
    if (last && (last->answer > answer || (last->answer == answer && last->kind > kind)))
        return NULL;
    next = vec_push(&a->all);
    *next = (struct block_ahead){.answer = answer, .kind = (unsigned)kind};
    return next;
}

/* A large one is copied once, to where it stays. */
static void add_text(struct blocks_ahead *a, struct block_ahead *b, struct str part)
{
    size_t at = (size_t)b->len - part.len;

    if (b->len <= TOLD_LARGE) {
        buf_add_str(&b->text, part);
        return;
    }
    if (b->len > b->room) {
        b->room = MAX_OF(b->room + b->room / 2, (size_t)b->len);
        b->large = arena_grow_alone(&a->arena, b->large, b->room);
    }
    if (b->text.len > 0)
        memcpy(b->large, b->text.p, b->text.len);
    buf_done(&b->text);
    memcpy(b->large + at, part.p, part.len);
}

static void add(struct session *s, struct blocks_ahead *a, struct block_ahead *b, struct str part)
{
    struct payload *p;

    a->len += part.len;
    b->len += part.len;
    if (b->kind == BLOCK_TOLD) {
        add_text(a, b, part);
        return;
    }
    if (b->kind == BLOCK_MESSAGE) {
        if (!session_ready_answer(s, a->call, b->answer))
            text_parts_add(&b->json, part);
        return;
    }
    p = payload_new(s, &a->arena, a->call, part.len, false);
    memcpy(p->bytes, part.p, part.len);
    *vec_push(&b->parts) = p;
}

bool session_block_read(struct record_in *r, struct block_part *ret)
{
    *ret = (struct block_part){.call = record_u(r), .before = record_u(r)};
    ret->answer = record_u32(r);
    ret->kind = record_u(r);
    ret->bytes = str_of(r->p, (size_t)(r->end - r->p));
    return !r->bad && ret->kind < BLOCK_KINDS && ret->bytes.len > 0 && ret->bytes.len <= UINT32_MAX;
}

static bool add_bulk(struct session *s, struct blocks_ahead *a, const struct block_part *part)
{
    if (a->bulk.bytes.len == 0)
        a->bulk.answer = part->answer;
    if (a->bulk.answer != part->answer || !bulk_ahead_add(&a->bulk, part->bytes, s->record))
        return false;
    a->len += part->bytes.len;
    return true;
}

static bool add_block(struct session *s, struct blocks_ahead *a, const struct block_part *part)
{
    struct block_ahead *b = block_of(a, part->answer, part->kind);

    if (!b || b->named || b->len + part->bytes.len > UINT32_MAX)
        return false;
    add(s, a, b, part->bytes);
    return true;
}

/* Parts from byte 0 on begin anew. */
int session_apply_blocks(struct session *s, struct record_in *r, struct err *e)
{
    struct blocks_ahead *a;
    struct block_part part;
    size_t had;
    bool good;

    if (!session_block_read(r, &part))
        return bad(e, "a torn block");
    a = part.before == 0 ? begin(s, &part) : map_get(&s->blocks_ahead, key_of(&part.call));
    if (!a || a->len != part.before)
        return bad(e, "a block without what is before it");
    had = bytes_of(a);
    good = part.kind == BLOCK_BULK ? add_bulk(s, a, &part) : add_block(s, a, &part);
    s->answers_bytes += bytes_of(a) - had;
    return good ? 0 : bad(e, "a block at a place that it cannot have");
}

/* Of a call; NULL: there is none. */
static struct block_ahead *find(struct session *s, uint64_t call, uint32_t answer, unsigned kind)
{
    struct blocks_ahead *a = map_get(&s->blocks_ahead, key_of(&call));

    for (size_t i = 0; a && i < a->all.n; i++)
        if (a->all.at[i].answer == answer && a->all.at[i].kind == kind)
            return &a->all.at[i];
    return NULL;
}

/* The JSON of a message, in the answer's record or, b, before it. Absent: it is not there. */
static struct str message_text(struct session *s, const struct commit_answer *a,
                               struct block_ahead *b)
{
    size_t had;
    struct str text;

    if (!b)
        return a->message;
    if (b->json.len != b->len)
        return (struct str){0};
    had = b->json.bytes;
    text = text_parts_whole(&b->json);
    s->answers_bytes += b->json.bytes - had;
    return text;
}

int session_take_message(struct session *s, struct block_owner of, const struct commit_answer *a,
                         struct checkpoint *t, struct arena *own, struct err *e)
{
    struct new_messages *ready = session_ready_answer(s, of.call, of.answer);
    struct block_ahead *b = NULL;
    struct str text;

    if (a->ahead[BLOCK_MESSAGE] > 0)
        b = find(s, of.call, of.answer, BLOCK_MESSAGE);
    if (ready) {
        arena_take(own, &ready->copy);
        t->node = ready->nodes[0];
        t->message = t->node->msg.json;
        return 0;
    }
    text = message_text(s, a, b);
    if (!text.p)
        return bad(e, "a value is missing");
    t->message = message_copy_text(own, text);
    return t->message ? 0 : bad(e, "a value is not JSON");
}

/* The answer's checkpoint has the block from now on. */
static void name_block(struct block_ahead *b, unsigned kind, struct checkpoint *t,
                       struct arena *own)
{
    if (kind == BLOCK_TOLD) {
        t->told =
            b->large ? str_of(b->large, (size_t)b->len) : forest_str_in(own, buf_str(&b->text));
        return;
    }
    t->rows[kind].n_parts = (uint32_t)b->parts.n;
    t->rows[kind].parts = arena_alloc(own, b->parts.n * sizeof(struct payload *));
    memcpy(t->rows[kind].parts, b->parts.at, b->parts.n * sizeof(struct payload *));
}

int session_name_blocks(struct session *s, struct block_owner of, const struct commit_answer *a,
                        struct checkpoint *t, struct arena *own, struct err *e)
{
    for (unsigned k = 0; k < BLOCK_KINDS; k++) {
        struct block_ahead *b = a->ahead[k] > 0 ? find(s, of.call, of.answer, k) : NULL;

        if (a->ahead[k] == 0)
            continue;
        if (!b || b->named || b->len != a->ahead[k])
            return bad(e, "the blocks before it are torn");
        b->named = true;
        if (k != BLOCK_MESSAGE)
            name_block(b, k, t, own);
    }
    return 0;
}

size_t session_message_bytes(struct session *s, struct block_owner of)
{
    const struct block_ahead *b = find(s, of.call, of.answer, BLOCK_MESSAGE);

    return b ? b->json.len : 0;
}

struct text_parts session_lend_message(struct session *s, struct block_owner of)
{
    struct block_ahead *b = find(s, of.call, of.answer, BLOCK_MESSAGE);
    struct text_parts json = b ? b->json : (struct text_parts){0};

    if (b)
        b->json = (struct text_parts){0};
    s->answers_bytes -= json.bytes;
    return json;
}

void session_return_message(struct session *s, struct block_owner of, struct text_parts *json)
{
    struct block_ahead *b = find(s, of.call, of.answer, BLOCK_MESSAGE);

    CHECK(b && b->json.blocks.n == 0);
    b->json = *json;
    *json = (struct text_parts){0};
    s->answers_bytes += b->json.bytes;
}

int session_attach_bulk(struct session *s, struct block_owner of, struct commit_record *c,
                        struct err *e)
{
    struct blocks_ahead *a = map_get(&s->blocks_ahead, key_of(&of.call));

    if (!a || a->bulk.answer != of.answer || a->bulk.bytes.len == 0 ||
        !commit_record_attach(c, a->bulk.bytes))
        return bad(e, "the bulk before it is torn");
    return 0;
}

struct payload *session_take_bulk(struct session *s, struct arena *own, uint64_t call)
{
    struct blocks_ahead *a = map_get(&s->blocks_ahead, key_of(&call));
    size_t had = bytes_of(a);
    struct payload *p = payload_of_bulk(s, own, call, &a->bulk);

    s->answers_bytes += bytes_of(a) - had;
    return p;
}

/* Payloads that no answer has are dropped. */
static void done(struct blocks_ahead *a, struct block_ahead *b, bool keep)
{
    if (!(keep && b->named))
        arena_drop(&a->arena, b->large);
    for (size_t i = 0; !(keep && b->named) && i < b->parts.n; i++)
        payload_drop(b->parts.at[i]);
    vec_done(&b->parts);
    buf_done(&b->text);
    text_parts_done(&b->json);
}

static void end(struct session *s, struct blocks_ahead *a, bool keep)
{
    s->answers_bytes -= bytes_of(a);
    for (size_t i = 0; i < a->all.n; i++)
        done(a, &a->all.at[i], keep);
    if (keep)
        arena_take(&s->forest.arena, &a->arena);
    arena_done(&a->arena);
    bulk_ahead_done(&a->bulk);
    vec_done(&a->all);
    free(a);
}

void session_take_blocks(struct session *s, uint64_t call)
{
    struct blocks_ahead *a = map_take(&s->blocks_ahead, key_of(&call));

    if (a)
        end(s, a, true);
}

void session_drop_blocks(struct session *s, uint64_t call)
{
    struct blocks_ahead *a = map_take(&s->blocks_ahead, key_of(&call));

    if (a)
        end(s, a, false);
}

void session_free_blocks(struct session *s)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&s->blocks_ahead, &at)))
        end(s, slot->value, false);
    map_done(&s->blocks_ahead);
}
