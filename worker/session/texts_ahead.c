/* Texts ahead: new messages that are long are recorded in parts before the commit of their call
 * (RECORD_TEXTS, commit.h), so that no step of the loop writes them all. The commit then says how
 * many there are (COMMIT_AHEAD). The call's own worker has them ready (new_messages.h) and keeps
 * nothing of these records; a session that is read back or copied keeps their bytes here until the
 * commit, for which a helper reads them (session_texts.h). Parts whose call failed before its
 * commit are given up (ledger/loose_parts.h); what of them is read all the same is dropped when the
 * reading ends. */
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "worker/session/commit.h"
#include "worker/session/new_messages.h"
#include "worker/session/plan.h"
#include "worker/session/record.h"
#include "worker/session/session_texts.h"
#include "worker/session/store.h"
#include "worker/session/text_parts.h"

struct texts_ahead {
    uint64_t call;           /* its number */
    struct text_parts texts; /* so far */
};

/* A session that has ended takes no more records; its commit says so. */
bool session_texts_record(struct session_plan *pub, size_t max_bytes, uint64_t now_ms,
                          struct buf *record)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    struct new_messages *m = p->made.messages;
    struct str all, part;

    if (!m || pub->exhausted || p->session->unlinked || session_has_ended(p->session))
        return false;
    if (m->ahead == 0) {
        plan_renew(p);
        m->ahead_from = m->texts.len - plan_new_texts(p).len;
    }
    all = str_sub(buf_str(&m->texts), m->ahead_from, SIZE_MAX);
    part = str_sub(all, m->ahead, max_bytes);
    if (all.len <= max_bytes || part.len == 0)
        return false;
    record_begin(record, RECORD_TEXTS, p->session->id, now_ms);
    record_put_u(record, pub->call);
    record_put_u(record, m->ahead);
    buf_add_str(record, part);
    mem_drop_pages(part.p, part.len); /* all at once at the end they would take a while */
    m->ahead += part.len;
    return true;
}

static struct str key_of(const uint64_t *call)
{
    return str_of((const char *)call, sizeof(*call));
}

/* Some more or fewer bytes are kept. */
static void count(struct session *s, const struct texts_ahead *t, size_t before)
{
    s->texts_bytes += sizeof(*t) + t->texts.bytes - before;
}

static struct texts_ahead *first_part(struct session *s, uint64_t call)
{
    struct texts_ahead *t = map_get(&s->texts_ahead, key_of(&call));

    if (!t) {
        t = mem_zalloc(sizeof(*t));
        t->call = call;
        (void)map_set(&s->texts_ahead, key_of(&t->call), t);
        count(s, t, 0);
    }
    s->texts_bytes -= t->texts.bytes;
    text_parts_done(&t->texts);
    return t;
}

/* Parts from byte 0 on begin anew: a call that failed may have left some under its number. */
int session_apply_texts(struct session *s, struct record_in *r, struct err *e)
{
    uint64_t call = record_u(r), before = record_u(r);
    struct texts_ahead *t;
    size_t had;

    if (r->bad)
        return err_set(e, ERR_IO, "session record: torn texts");
    if (session_new_messages(s, call)) /* it is this call that is being recorded */
        return 0;
    t = before == 0 ? first_part(s, call) : map_get(&s->texts_ahead, key_of(&call));
    if (!t || t->texts.len != before)
        return err_set(e, ERR_IO, "session record: texts without those before them");
    had = sizeof(*t) + t->texts.bytes;
    text_parts_add(&t->texts, str_of(r->p, (size_t)(r->end - r->p)));
    count(s, t, had);
    return 0;
}

int session_texts_ahead(struct session *s, uint64_t call, uint32_t n, struct record_in *ret,
                        struct err *e)
{
    struct texts_ahead *t = map_get(&s->texts_ahead, key_of(&call));
    size_t had = t ? sizeof(*t) + t->texts.bytes : 0;
    struct str all = t ? text_parts_whole(&t->texts) : STR("");

    if (t)
        count(s, t, had);
    if (!record_last_strs(all, n, ret))
        return err_set(e, ERR_IO, "session record: the texts before it are torn");
    return 0;
}

size_t session_ahead_bytes(const struct session *s, uint64_t call)
{
    const struct texts_ahead *t = map_get(&s->texts_ahead, key_of(&call));

    return t ? t->texts.len : 0;
}

struct text_parts session_lend_texts(struct session *s, uint64_t call)
{
    struct texts_ahead *t = map_get(&s->texts_ahead, key_of(&call));
    struct text_parts texts = t ? t->texts : (struct text_parts){0};

    if (t)
        t->texts = (struct text_parts){0};
    s->texts_bytes -= texts.bytes;
    return texts;
}

void session_return_texts(struct session *s, uint64_t call, struct text_parts *texts)
{
    struct texts_ahead *t = map_get(&s->texts_ahead, key_of(&call));

    CHECK(t && t->texts.blocks.n == 0);
    t->texts = *texts;
    *texts = (struct text_parts){0};
    s->texts_bytes += t->texts.bytes;
}

static void free_one(struct texts_ahead *t)
{
    text_parts_done(&t->texts);
    free(t);
}

void session_drop_texts(struct session *s, uint64_t call)
{
    struct texts_ahead *t = map_take(&s->texts_ahead, key_of(&call));

    if (!t)
        return;
    s->texts_bytes -= sizeof(*t) + t->texts.bytes;
    free_one(t);
}

void session_free_texts(struct session *s)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&s->texts_ahead, &at)))
        free_one(slot->value);
    map_done(&s->texts_ahead);
    s->texts_bytes = 0;
    session_texts_end(s);
}
