#include "worker/journal/liveness.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/vec.h"

struct share {
    uint32_t number;
    uint64_t bytes;
};

struct live_session {
    struct share *at;
    size_t n, cap;
    char id[];
};

static void session_free(struct live_session *s)
{
    vec_done(s);
    free(s);
}

void liveness_done(struct liveness *v)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&v->sessions, &at)) != NULL)
        session_free(slot->value);
    map_done(&v->sessions);
    vec_done(v);
}

void liveness_segment(struct liveness *v, uint32_t number)
{
    *vec_push(v) = (struct live_segment){.number = number};
}

static struct live_segment *segment_find(struct liveness *v, uint32_t number)
{
    for (size_t i = v->n; i-- > 0;) {
        if (v->at[i].number == number)
            return &v->at[i];
    }
    return NULL;
}

void liveness_remove(struct liveness *v, uint32_t number)
{
    struct live_segment *s = segment_find(v, number);

    if (!s)
        return;
    memmove(s, s + 1, (size_t)(v->at + v->n - (s + 1)) * sizeof(*s));
    v->n--;
}

void liveness_renumber(struct liveness *v, uint32_t old, uint32_t number)
{
    struct live_segment *seg = segment_find(v, old);
    struct map_slot *slot;
    size_t at = 0;

    if (!seg)
        return;
    seg->number = number;
    seg->total_bytes = seg->live_bytes;
    while ((slot = map_next(&v->sessions, &at)) != NULL) {
        struct live_session *s = slot->value;

        for (size_t i = 0; i < s->n; i++) {
            if (s->at[i].number == old)
                s->at[i].number = number;
        }
    }
}

static struct live_session *session_get(struct liveness *v, struct str id)
{
    struct live_session *s = map_get(&v->sessions, id);

    if (s)
        return s;
    s = mem_zalloc(sizeof(*s) + id.len + 1);
    memcpy(s->id, id.p, id.len);
    (void)map_set(&v->sessions, str_of(s->id, id.len), s);
    return s;
}

void liveness_add(struct liveness *v, uint32_t number, struct str id, uint64_t bytes)
{
    struct live_segment *seg = segment_find(v, number);
    struct live_session *s;

    if (!seg)
        return;
    seg->total_bytes += bytes;
    if (!id.p)
        return;
    seg->live_bytes += bytes;
    s = session_get(v, id);
    if (s->n > 0 && vec_last(s).number == number)
        vec_last(s).bytes += bytes;
    else
        *vec_push(s) = (struct share){number, bytes};
}

void liveness_drop(struct liveness *v, struct str id)
{
    struct live_session *s = map_take(&v->sessions, id);

    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        struct live_segment *seg = segment_find(v, s->at[i].number);

        if (seg)
            seg->live_bytes -= s->at[i].bytes;
    }
    session_free(s);
}

bool liveness_has(const struct liveness *v, struct str id)
{
    return map_get(&v->sessions, id) != NULL;
}

bool liveness_has_in(const struct liveness *v, struct str id, uint32_t number)
{
    const struct live_session *s = map_get(&v->sessions, id);

    for (size_t i = 0; s && i < s->n; i++)
        if (s->at[i].number == number)
            return true;
    return false;
}

uint64_t liveness_total(const struct liveness *v)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < v->n; i++)
        sum += v->at[i].total_bytes;
    return sum;
}
