/* Joins the fragments of a call into pieces (call_bulk.h). A piece grows in the memory that its
 * payload will use, because moving a long one at the end would take milliseconds. */
#include "worker/session/record/call_bulk.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "worker/session/call/plan.h"
#include "worker/session/record/commit.h"
#include "worker/session/record/record.h"
#include "worker/session/store/payload.h"
#include "worker/session/store/store.h"

bool bulk_fragment_read(struct record_in *r, struct bulk_fragment *ret)
{
    *ret = (struct bulk_fragment){.call = record_u(r), .before = record_u(r)};
    ret->piece = record_u32(r);
    ret->bytes = str_of(r->p, (size_t)(r->end - r->p));
    return !r->bad && ret->bytes.len > 0 && ret->piece < BULK_PIECES_MAX;
}

/* Grows by a half: unused pages cost nothing, and long pieces are not copied. */
static void reserve_piece(struct bulk_piece *p, size_t need)
{
    size_t cap = MAX_OF(p->cap + p->cap / 2, need);

    if (need <= p->cap)
        return;
    p->bytes.p = payload_resize((char *)(uintptr_t)p->bytes.p, p->cap, cap);
    p->cap = cap;
}

bool bulk_add(struct call_bulk *b, const struct bulk_fragment *f, uint32_t record)
{
    struct bulk_piece *p;
    size_t at;

    if (f->before != b->len || f->piece + (size_t)1 < b->pieces.n)
        return false;
    while (b->pieces.n <= f->piece)
        *vec_push(&b->pieces) = (struct bulk_piece){0};
    p = &vec_last(&b->pieces);
    at = p->bytes.len;
    if (f->bytes.len > UINT32_MAX - at)
        return false;
    if (f->piece != BULK_TEXTS || !b->skips_texts) {
        reserve_piece(p, at + f->bytes.len);
        memcpy((char *)(uintptr_t)p->bytes.p + at, f->bytes.p, f->bytes.len);
        *vec_push(&p->parts) = (struct payload_part){record, (uint32_t)at};
    }
    p->bytes.len += f->bytes.len;
    b->len += f->bytes.len;
    return true;
}

struct str bulk_bytes(const struct call_bulk *b, uint32_t piece)
{
    return piece < b->pieces.n ? b->pieces.at[piece].bytes : (struct str){0};
}

bool bulk_name(struct call_bulk *b, uint32_t piece, size_t len)
{
    if (len == 0)
        return bulk_bytes(b, piece).len == 0;
    if (bulk_bytes(b, piece).len != len || b->pieces.at[piece].named)
        return false;
    b->pieces.at[piece].named = true;
    return true;
}

size_t bulk_memory(const struct call_bulk *b)
{
    size_t n = b->pieces.cap * sizeof(*b->pieces.at);

    for (size_t i = 0; i < b->pieces.n; i++)
        n += b->pieces.at[i].cap + b->pieces.at[i].parts.cap * sizeof(struct payload_part);
    return n;
}

void bulk_done(struct call_bulk *b)
{
    for (size_t i = 0; i < b->pieces.n; i++) {
        payload_free_buffer((char *)(uintptr_t)b->pieces.at[i].bytes.p, b->pieces.at[i].cap);
        vec_done(&b->pieces.at[i].parts);
    }
    vec_done(&b->pieces);
    *b = (struct call_bulk){0};
}

/* --- the bulks of a session --- */

static struct str key_of(const uint64_t *call)
{
    return str_of((const char *)call, sizeof(*call));
}

static size_t memory_of(const struct call_bulk *b)
{
    return sizeof(*b) + bulk_memory(b);
}

/* Makes only empty ones: a call that is being recorded has its own, and others are read back or
 * copied. */
static struct call_bulk *begin_call_bulk(struct session *s, uint64_t call)
{
    struct call_bulk *b = session_bulk(s, call);

    if (b) {
        bool skips = b->skips_texts;

        s->bulk_bytes -= bulk_memory(b);
        bulk_done(b);
        b->call = call;
        b->skips_texts = skips;
        return b;
    }
    b = mem_zalloc(sizeof(*b));
    b->call = call;
    (void)map_set(&s->bulks, key_of(&b->call), b);
    s->bulk_bytes += memory_of(b);
    return b;
}

struct call_bulk *session_bulk(struct session *s, uint64_t call)
{
    const struct plan *p = plan_find(s, call);

    return p ? p->bulk.written : map_get(&s->bulks, key_of(&call));
}

uint64_t session_copied_type(const struct session_store *st, uint64_t type)
{
    return type == RECORD_ROWS && !st->defaults.rows_apart ? RECORD_BULK : type;
}

int session_apply_bulk(struct session *s, struct record_in *r, struct err *e)
{
    struct bulk_fragment f;
    struct call_bulk *b;
    size_t had;
    bool added;

    if (!bulk_fragment_read(r, &f))
        return err_set(e, ERR_IO, "session record: a torn fragment");
    b = f.before == 0 ? begin_call_bulk(s, f.call) : session_bulk(s, f.call);
    if (!b)
        return err_set(e, ERR_IO, "session record: a fragment without those before it");
    had = bulk_memory(b);
    added = bulk_add(b, &f, s->record);
    s->bulk_bytes += bulk_memory(b) - had;
    return added ? 0 : err_set(e, ERR_IO, "session record: a fragment in a wrong place");
}

/* The plan frees its own bulk. */
void session_drop_bulk(struct session *s, uint64_t call)
{
    struct call_bulk *b = map_take(&s->bulks, key_of(&call));

    if (!b)
        return;
    s->bulk_bytes -= memory_of(b);
    bulk_done(b);
    free(b);
}

void session_free_bulks(struct session *s)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&s->bulks, &at))) {
        struct call_bulk *b = slot->value;

        s->bulk_bytes -= memory_of(b);
        bulk_done(b);
        free(b);
    }
    map_done(&s->bulks);
}
