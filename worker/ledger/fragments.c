/* Numbers of fragments, from the first one of a call until its commit or its end (fragments.h). */
#include "worker/ledger/fragments.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/journal/journal.h"
#include "worker/session/store/session.h"

struct fragments {
    struct map calls; /* by session and call */
};

struct call_fragments {
    VEC(uint32_t) numbers;
    size_t id_len, key_len;
    char key[]; /* the session's id, then the call's number */
};

static void drop_numbers(struct call_fragments *c, struct journal *j)
{
    for (size_t i = 0; j && i < c->numbers.n; i++)
        journal_release(j, str_of(c->key, c->id_len), c->numbers.at[i]);
    vec_clear(&c->numbers);
}

static void call_free(struct call_fragments *c, struct journal *j)
{
    if (!c)
        return;
    drop_numbers(c, j);
    vec_done(&c->numbers);
    free(c);
}

static struct buf key_of(struct str session_id, uint64_t call)
{
    struct buf key = {0};

    buf_add_str(&key, session_id);
    buf_add(&key, &call, sizeof(call));
    return key;
}

static struct call_fragments *detach_call(struct fragments *f, struct str session_id, uint64_t call)
{
    struct buf key = key_of(session_id, call);
    struct call_fragments *c = map_take(&f->calls, buf_str(&key));

    buf_done(&key);
    return c;
}

static struct call_fragments *call_get(struct fragments *f, struct str session_id, uint64_t call)
{
    struct buf key = key_of(session_id, call);
    struct call_fragments *c = map_get(&f->calls, buf_str(&key));

    if (!c) {
        c = mem_zalloc(sizeof(*c) + key.len);
        c->id_len = session_id.len;
        c->key_len = key.len;
        memcpy(c->key, key.p, key.len);
        (void)map_set(&f->calls, str_of(c->key, c->key_len), c);
    }
    buf_done(&key);
    return c;
}

void fragments_add(struct fragments *f, struct journal *j, struct str session_id, struct str record,
                   uint32_t number)
{
    struct session_request commit;
    struct call_fragments *c;
    struct str id;
    uint64_t call;
    bool first;

    if (session_record_fragment(record, &call, &first)) {
        c = call_get(f, session_id, call);
        if (first) /* after a crash a new call may have the same number */
            drop_numbers(c, j);
        *vec_push(&c->numbers) = number;
    } else if (f->calls.n > 0 && session_record_commits(record, &id, &commit)) {
        call_free(detach_call(f, session_id, commit.call), commit.has_bulk ? NULL : j);
    }
}

void fragments_drop(struct fragments *f, struct journal *j, struct str session_id, uint64_t call)
{
    call_free(detach_call(f, session_id, call), j);
}

void fragments_drop_all(struct fragments *f, struct journal *j)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&f->calls, &at)))
        call_free(slot->value, j);
    map_done(&f->calls);
}

struct fragments *fragments_new(void)
{
    return mem_zalloc(sizeof(struct fragments));
}

void fragments_free(struct fragments *f)
{
    if (f)
        fragments_drop_all(f, NULL);
    free(f);
}
