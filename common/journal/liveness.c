/* Which bytes of the journal are needed (liveness.h): for each session the places of its
 * records, for each segment how many of its bytes are. A session that is dropped makes its bytes
 * dead at once; compaction and removal go by these counts. */

#include "common/journal/liveness.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/vec.h"

struct live_session {
    struct record_place *at;
    size_t n, cap;
    bool over; /* only the last record is needed, which alone is here */
    char id[];
};

static void session_free(struct liveness *v, struct live_session *s)
{
    v->table_bytes -= sizeof(*s) + s->cap * sizeof(*s->at);
    vec_done(s);
    free(s);
}

/* Frees everything. */
void liveness_done(struct liveness *v)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&v->sessions, &at)) != NULL)
        session_free(v, slot->value);
    map_done(&v->sessions);
    vec_done(v);
}

void liveness_segment(struct liveness *v, uint32_t number)
{
    *vec_push(v) = (struct live_segment){.number = number};
}

/* From the newest, which is asked for most. */
static struct live_segment *segment_find(const struct liveness *v, uint32_t number)
{
    for (size_t i = v->n; i-- > 0;) {
        if (v->at[i].number == number)
            return &v->at[i];
    }
    return NULL;
}

/* The segment's records must have been dropped or moved. */
void liveness_remove(struct liveness *v, uint32_t number)
{
    struct live_segment *s = segment_find(v, number);

    if (!s)
        return;
    memmove(s, s + 1, (size_t)(v->at + v->n - (s + 1)) * sizeof(*s));
    v->n--;
}

void liveness_insert(struct liveness *v, size_t i, struct live_segment segment)
{
    (void)vec_push(v);
    memmove(v->at + i + 1, v->at + i, (v->n - 1 - i) * sizeof(*v->at));
    v->at[i] = segment;
}

uint64_t liveness_bytes(const struct liveness *v, uint32_t number)
{
    const struct live_segment *s = segment_find(v, number);

    return s ? s->total_bytes : 0;
}

/* A compacted segment keeps its place in the order. */
void liveness_renumber(struct liveness *v, uint32_t old, uint32_t number, uint64_t bytes)
{
    struct live_segment *seg = segment_find(v, old);

    if (!seg)
        return;
    seg->number = number;
    seg->total_bytes = bytes;
}

static int by_from(const void *a, const void *b)
{
    const struct moved *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* Changes the places of all records that were in the old segment. */
void liveness_moved(struct liveness *v, uint32_t old, uint32_t number, const struct moved *m,
                    size_t n)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&v->sessions, &at)) != NULL) {
        struct live_session *s = slot->value;

        for (size_t i = 0; i < s->n; i++) {
            struct moved key = {.from = s->at[i].offset};
            const struct moved *found;

            if (s->at[i].number != old)
                continue;
            found = bsearch(&key, m, n, sizeof(*m), by_from);
            CHECK(found);
            s->at[i].number = number;
            s->at[i].offset = found->to;
        }
    }
}

/* Made at its first record. */
static struct live_session *session_get(struct liveness *v, struct str id)
{
    struct live_session *s = map_get(&v->sessions, id);

    if (s)
        return s;
    s = mem_zalloc(sizeof(*s) + id.len + 1);
    memcpy(s->id, id.p, id.len);
    v->table_bytes += sizeof(*s);
    (void)map_set(&v->sessions, str_of(s->id, id.len), s);
    return s;
}

/* An absent id is a note, which keeps no segment alive. */
void liveness_add(struct liveness *v, struct record_place place, struct str id)
{
    struct live_segment *seg = segment_find(v, place.number);
    struct live_session *s;

    if (!seg)
        return;
    seg->total_bytes += place.size;
    if (!id.p) {
        seg->note_bytes += place.size;
        return;
    }
    seg->live_bytes += place.size;
    s = session_get(v, id);
    v->table_bytes -= s->cap * sizeof(*s->at);
    *vec_push(s) = place;
    v->table_bytes += s->cap * sizeof(*s->at);
}

/* The session's first n records are dead bytes from now on. */
static void bury_first(struct liveness *v, const struct live_session *s, size_t n)
{
    struct live_segment *seg = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!seg || seg->number != s->at[i].number)
            seg = segment_find(v, s->at[i].number);
        if (seg)
            seg->live_bytes -= s->at[i].size;
    }
}

/* A session that is not there is no error. */
void liveness_drop(struct liveness *v, struct str id)
{
    struct live_session *s = map_take(&v->sessions, id);

    if (!s)
        return;
    bury_first(v, s, s->n);
    session_free(v, s);
}

/* The same. */
void liveness_drop_earlier(struct liveness *v, struct str id)
{
    struct live_session *s = map_get(&v->sessions, id);

    if (!s)
        return;
    bury_first(v, s, s->n - 1);
    s->at[0] = s->at[s->n - 1];
    s->n = 1;
    s->over = true;
}

bool liveness_has(const struct liveness *v, struct str id, uint32_t number, uint64_t offset)
{
    const struct live_session *s = map_get(&v->sessions, id);

    return s && (!s->over || (s->at[0].number == number && s->at[0].offset == offset));
}

/* The place of the session's i-th record; false behind the last one. */
bool liveness_place(const struct liveness *v, struct str id, size_t i, struct record_place *ret)
{
    const struct live_session *s = map_get(&v->sessions, id);

    if (!s || i >= s->n)
        return false;
    *ret = s->at[i];
    return true;
}

/* Bytes on disk, and those that are needed. */
uint64_t liveness_total(const struct liveness *v, uint64_t *ret_live)
{
    uint64_t sum = 0;

    *ret_live = 0;
    for (size_t i = 0; i < v->n; i++) {
        sum += v->at[i].total_bytes;
        *ret_live += v->at[i].live_bytes;
    }
    return sum;
}
