/* The table has the positions of each session's records, and the needed bytes of each segment. A
 * dropped session's bytes are dead at once. Compaction and removal use these counts. */

#include "common/journal/liveness.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/vec.h"

/* Positions that one step updates; each takes about 20 ns. */
enum { MOVE_STEP = 16384 };

/* A segment that still has records of a session that is over. */
struct remains {
    uint32_t number;
    uint32_t copied_to; /* segment with possible copies of them; 0: none */
};

struct live_session {
    struct record_place *at;
    size_t n, cap;
    uint64_t bytes; /* bytes of the needed records */
    bool over;      /* the session is over: `at` has only its last record */
    bool released;  /* the last record was released, and is kept only for the remains */

    uint32_t asked_by; /* liveness_wants: the compaction (copied_to) that asked last */
    size_t cursor;     /* liveness_wants: the index in `at` that it has reached */

    struct {
        struct remains *at;
        size_t n, cap;
    } remains; /* segments with older records, if the session is over */

    struct list_item item; /* in `over`, while there are remains */
    struct list_item all_item;
    char id[];
};

static size_t table_bytes(const struct live_session *s)
{
    return sizeof(*s) + s->cap * sizeof(*s->at) + s->remains.cap * sizeof(*s->remains.at);
}

static void session_free(struct liveness *v, struct live_session *s)
{
    v->table_bytes -= table_bytes(s);
    if (v->relocation.at == s) {
        v->relocation.at = LIST_NEXT_OF(&v->all, s, struct live_session, all_item);
        v->relocation.record = 0;
    }
    list_remove(&s->all_item);
    list_remove(&s->item);
    vec_done(&s->remains);
    vec_done(s);
    free(s);
}

void liveness_done(struct liveness *v)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&v->sessions, &at)) != NULL)
        session_free(v, slot->value);
    map_done(&v->sessions);
    free(v->relocation.m);
    vec_done(v);
}

void liveness_segment(struct liveness *v, uint32_t number)
{
    *vec_push(v) = (struct live_segment){.number = number};
}

/* Finds a segment. Begins with the newest, which is requested most. */
static struct live_segment *segment_find(const struct liveness *v, uint32_t number)
{
    for (size_t i = v->n; i-- > 0;) {
        if (v->at[i].number == number)
            return &v->at[i];
    }
    return NULL;
}

static int by_from(const void *a, const void *b)
{
    const struct moved *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

/* Finds the new offset of the record that was at `from`; or NULL. */
static const struct moved *moved_from(const struct moved *m, size_t n, uint64_t from)
{
    struct moved key = {.from = from};

    return n > 0 ? bsearch(&key, m, n, sizeof(*m), by_from) : NULL;
}

/* Returns the current position of the session's record i, which the table may not have yet. A
 * record that was released during the copy may be in the new segment, or in none. */
static struct record_place current_location(const struct liveness *v, const struct live_session *s,
                                            size_t i)
{
    const struct relocation *r = &v->relocation;
    struct record_place p = s->at[i];
    const struct moved *found;

    if (r->number == 0 || p.number != r->old)
        return p;
    found = moved_from(r->m, r->n, p.offset);
    CHECK(found || p.size == 0);
    p.number = found ? r->number : 0;
    p.offset = found ? found->to : 0;
    return p;
}

/* The records of the segment must have been dropped or moved. */
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

/* A compacted segment keeps its position in the order. */
void liveness_renumber(struct liveness *v, uint32_t old, uint32_t number, uint64_t bytes)
{
    struct live_segment *seg = segment_find(v, old);

    if (!seg)
        return;
    seg->number = number;
    seg->total_bytes = bytes;
}

/* Marks the session's first n records as dead. */
static void mark_first_dead(struct liveness *v, const struct live_session *s, size_t n)
{
    struct live_segment *seg = NULL;

    for (size_t i = 0; i < n; i++) {
        struct record_place p = current_location(v, s, i);

        if (p.size == 0)
            continue;
        if (!seg || seg->number != p.number)
            seg = segment_find(v, p.number);
        if (seg)
            seg->live_bytes -= p.size;
    }
}

/* Removes a session whose last record was released, if there are no remains. */
static void drop_if_alone(struct liveness *v, struct live_session *s)
{
    if (!s->released || s->remains.n > 0)
        return;
    mark_first_dead(v, s, s->n);
    (void)map_take(&v->sessions, str_cstr(s->id));
    session_free(v, s);
}

/* Updates the remains after segment `old` has left the disk. `fresh` (0: none) has its copied
 * records. Remains in the same segment as the last record leave the disk with it, so they are not
 * listed. */
static void update_remains(struct liveness *v, uint32_t old, uint32_t fresh)
{
    struct live_session *s, *next;

    LIST_EACH_SAFE(&v->over, s, next, struct live_session, item) {
        size_t kept = 0;

        for (size_t i = 0; i < s->remains.n; i++) {
            struct remains r = s->remains.at[i];

            if (r.number == old &&
                (!fresh || r.copied_to != fresh || current_location(v, s, 0).number == fresh))
                continue;
            if (r.number == old)
                r = (struct remains){.number = fresh};
            s->remains.at[kept++] = r;
        }
        s->remains.n = kept;
        if (kept == 0)
            list_remove(&s->item);
        drop_if_alone(v, s);
    }
}

void liveness_left(struct liveness *v, uint32_t number)
{
    update_remains(v, number, 0);
}

void liveness_copying(struct liveness *v, uint32_t from, uint32_t to)
{
    v->copied_from = from;
    v->copied_to = to;
}

bool liveness_is_moving(const struct liveness *v)
{
    return v->relocation.number != 0;
}

/* A session counts as one position, in addition to its records. */
void liveness_move_on(struct liveness *v)
{
    struct relocation *r = &v->relocation;

    for (size_t i = 0; i < MOVE_STEP && r->at; i++) {
        struct live_session *s = r->at;

        if (r->record < s->n) {
            s->at[r->record] = current_location(v, s, r->record);
            r->record++;
        } else {
            r->at = LIST_NEXT_OF(&v->all, s, struct live_session, all_item);
            r->record = 0;
        }
    }
    if (r->at)
        return;
    free(r->m);
    *r = (struct relocation){0};
}

/* A new session is never in the old segment. So a pass from the first session to the last misses
 * none. */
void liveness_moved(struct liveness *v, uint32_t old, uint32_t number, struct moved *m, size_t n)
{
    CHECK(!liveness_is_moving(v));
    v->relocation =
        (struct relocation){.old = old,
                            .number = number,
                            .m = m,
                            .n = n,
                            .at = LIST_FIRST_OF(&v->all, struct live_session, all_item)};
    update_remains(v, old, number);
    liveness_move_on(v);
}

/* Finds a session, or makes it at its first record. */
static struct live_session *session_get(struct liveness *v, struct str id)
{
    struct live_session *s = map_get(&v->sessions, id);

    if (s)
        return s;
    s = mem_zalloc(sizeof(*s) + id.len + 1);
    memcpy(s->id, id.p, id.len);
    v->table_bytes += sizeof(*s);
    list_append(&v->all, &s->all_item);
    (void)map_set(&v->sessions, str_of(s->id, id.len), s);
    return s;
}

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
    s->bytes += place.size;
}

void liveness_drop(struct liveness *v, struct str id)
{
    struct live_session *s = map_take(&v->sessions, id);

    if (!s)
        return;
    mark_first_dead(v, s, s->n);
    session_free(v, s);
}

/* Records the segments with older records of the session, if these may outlive the last record. A
 * segment that also has the last record is recorded only while it is being copied, because the copy
 * may lack the last record. */
static void remember_remains(struct liveness *v, struct live_session *s)
{
    uint32_t last = current_location(v, s, s->n - 1).number, before = 0;

    for (size_t i = 0; i + 1 < s->n; i++) {
        uint32_t number = current_location(v, s, i).number;
        bool copied = number == v->copied_from;

        if (number == before || (number == last && !copied) || !segment_find(v, number))
            continue;
        before = number;
        *vec_push(&s->remains) =
            (struct remains){.number = number, .copied_to = copied ? v->copied_to : 0};
    }
    if (s->remains.n > 0 && !list_holds(&s->item))
        list_append(&v->over, &s->item);
}

/* Frees the positions of all records but the last. A compaction in progress may not have reached
 * the last record yet, so it searches from the start. */
static void keep_last(const struct liveness *v, struct live_session *s)
{
    struct record_place last = current_location(v, s, s->n - 1);

    vec_done(s);
    *vec_push(s) = last;
    s->cursor = 0;
}

void liveness_drop_earlier(struct liveness *v, struct str id)
{
    struct live_session *s = map_get(&v->sessions, id);

    if (!s)
        return;
    v->table_bytes -= table_bytes(s);
    mark_first_dead(v, s, s->n - 1);
    remember_remains(v, s);
    keep_last(v, s);
    v->table_bytes += table_bytes(s);
    s->bytes = s->at[0].size;
    s->over = true;
}

bool liveness_is_over(const struct liveness *v, struct str id)
{
    const struct live_session *s = map_get(&v->sessions, id);

    return s && s->over;
}

bool liveness_is_spread(const struct liveness *v, struct str id)
{
    const struct live_session *s = map_get(&v->sessions, id);
    uint32_t first;

    if (!s)
        return false;
    first = current_location(v, s, 0).number;
    return first != current_location(v, s, s->n - 1).number || first == v->copied_from;
}

bool liveness_release_last(struct liveness *v, struct str id)
{
    struct live_session *s = map_get(&v->sessions, id);

    if (!s || !s->over || s->released)
        return false;
    s->released = true;
    drop_if_alone(v, s);
    return true;
}

/* The position stays, with size 0, so that a compaction that finds the record there does not copy
 * it. */
void liveness_release(struct liveness *v, struct str id, size_t i)
{
    struct live_session *s = map_get(&v->sessions, id);
    struct live_segment *seg;

    if (!s || s->over || i >= s->n || s->at[i].size == 0)
        return;
    seg = segment_find(v, current_location(v, s, i).number);
    if (seg)
        seg->live_bytes -= s->at[i].size;
    s->bytes -= s->at[i].size;
    s->at[i].size = 0;
}

size_t liveness_records(const struct liveness *v, struct str id)
{
    const struct live_session *s = map_get(&v->sessions, id);

    return s ? s->n : 0;
}

uint64_t liveness_session_bytes(const struct liveness *v, struct str id)
{
    const struct live_session *s = map_get(&v->sessions, id);

    return s ? s->bytes : 0;
}

/* A segment has the records of one session in the order of `at`. So the search continues from the
 * last result: no later record has a position that was passed. */
bool liveness_wants(struct liveness *v, struct str id, uint32_t number, uint64_t offset)
{
    struct live_session *s = map_get(&v->sessions, id);

    if (!s)
        return false;
    if (s->asked_by != v->copied_to) { /* numbers of segments are not reused */
        s->asked_by = v->copied_to;
        s->cursor = 0;
    }
    while (s->cursor < s->n &&
           (s->at[s->cursor].number != number || s->at[s->cursor].offset < offset))
        s->cursor++;
    return s->cursor < s->n && s->at[s->cursor].offset == offset && s->at[s->cursor].size > 0;
}

bool liveness_find(const struct liveness *v, struct str id, size_t i, struct record_place *ret)
{
    const struct live_session *s = map_get(&v->sessions, id);

    if (!s || i >= s->n)
        return false;
    *ret = current_location(v, s, i);
    return true;
}

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
