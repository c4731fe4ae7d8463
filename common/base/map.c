/*
 * An entry is in the first slot that was free from its home (hash & mask) on. So a search goes from
 * the home to the key or to a free slot. The table grows when it is three quarters full.
 *
 * Removal leaves no marks. It moves later entries of the same row of full slots back into the hole,
 * but only entries whose home is not after the hole. Otherwise a search would stop at the hole and
 * miss them.
 *
 * A full table of many slots is not moved at once. Each map_set moves a few slots to the new table,
 * and continues to the end of a row. Rows move as a whole, so searches and removals in the old
 * table still work. New entries are added to the new table only.
 *
 * The hash has a random seed for each process, so that clients cannot prepare keys that collide.
 */
#include "common/base/map.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"

/* FIRST: slots of the first table, which is small because many maps have one entry; the second has
 * four times as many. AT_ONCE: smaller tables are moved at once. STEP: slots that one call moves.
 * With a STEP of two or more the old table is empty before the new one is full. */
enum { FIRST = 4, AT_ONCE = 2048, STEP = 8 };

struct map_leaving {
    struct map_table table;
    size_t at;   /* next slot to move. The slot before it is free, so no row crosses it */
    size_t left; /* slots to move */
};

static void leaving_free(struct map *m)
{
    if (!m->leaving)
        return;
    free(m->leaving->table.slots);
    free(m->leaving);
    m->leaving = NULL;
}

void map_done(struct map *m)
{
    leaving_free(m);
    free(m->table.slots);
    *m = (struct map){.seed = m->seed};
}

size_t map_bytes(const struct map *m)
{
    return map_places(m) * sizeof(*m->table.slots);
}

static uint32_t hash_of(const struct map *m, struct str key)
{
    return (uint32_t)str_hash(key, m->seed);
}

/* Returns the slot of the key, or the free slot for it. */
static struct map_slot *find_home(const struct map_table *t, struct str key, uint32_t hash)
{
    size_t mask = t->cap - 1;
    size_t i = hash & mask;

    while (t->slots[i].value &&
           !(t->slots[i].hash == hash && str_eq(map_slot_key(&t->slots[i]), key)))
        i = (i + 1) & mask;
    return &t->slots[i];
}

/* Frees the slot and returns its value. Closes the gap: a later entry moves into the hole unless
 * its home is after the hole. */
static void *vacate_slot(struct map_table *t, struct map_slot *s)
{
    size_t mask = t->cap - 1, hole = (size_t)(s - t->slots);
    void *value = s->value;

    for (size_t i = (hole + 1) & mask; t->slots[i].value; i = (i + 1) & mask) {
        size_t home = t->slots[i].hash & mask;

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    }
    t->slots[hole] = (struct map_slot){0};
    return value;
}

void *map_get(const struct map *m, struct str key)
{
    uint32_t hash;
    void *value;

    if (!m->n)
        return NULL;
    hash = hash_of(m, key);
    value = find_home(&m->table, key, hash)->value;
    if (!value && m->leaving)
        value = find_home(&m->leaving->table, key, hash)->value;
    return value;
}

/* Moves n slots of the old table, and further ones to the end of a row. Frees the table after its
 * last slot. */
static void move_slots(struct map *m, size_t n)
{
    struct map_leaving *o = m->leaving;

    for (; o->left > 0 && (n > 0 || o->table.slots[o->at].value); o->left--) {
        struct map_slot *s = &o->table.slots[o->at];

        if (s->value)
            *find_home(&m->table, map_slot_key(s), s->hash) = *s;
        s->value = NULL;
        o->at = (o->at + 1) & (o->table.cap - 1);
        n -= n > 0;
    }
    if (o->left == 0)
        leaving_free(m);
}

/* Makes a larger table. Moving of the old one begins at one of its free slots. */
static void grow_table(struct map *m)
{
    struct map_leaving *o;

    if (!m->table.cap) {
        m->seed = str_seed();
        m->table = (struct map_table){mem_calloc(FIRST, sizeof(*m->table.slots)), FIRST};
        return;
    }
    if (m->leaving)
        move_slots(m, m->leaving->left);
    o = m->leaving = mem_zalloc(sizeof(*o));
    o->table = m->table;
    o->left = o->table.cap;
    while (o->table.slots[o->at].value)
        o->at++;
    m->table.cap *= m->table.cap == FIRST ? 4 : 2;
    m->table.slots = mem_calloc(m->table.cap, sizeof(*m->table.slots));
    if (o->table.cap <= AT_ONCE)
        move_slots(m, o->left);
}

void *map_set(struct map *m, struct str key, void *value)
{
    struct map_slot *s;
    uint32_t hash;
    void *before;

    CHECK(key.len <= UINT32_MAX);
    if ((m->n + 1) * 4 > m->table.cap * 3)
        grow_table(m);
    if (m->leaving)
        move_slots(m, STEP);
    hash = hash_of(m, key);
    s = find_home(&m->table, key, hash);
    before = s->value;
    if (!before && m->leaving) {
        struct map_slot *o = find_home(&m->leaving->table, key, hash);

        if (o->value)
            before = vacate_slot(&m->leaving->table, o);
    }
    m->n += !before;
    *s = (struct map_slot){key.p, (uint32_t)key.len, hash, value};
    return before;
}

void *map_take(struct map *m, struct str key)
{
    struct map_table *t = &m->table;
    struct map_slot *s;
    uint32_t hash;

    if (!m->n)
        return NULL;
    hash = hash_of(m, key);
    s = find_home(t, key, hash);
    if (!s->value && m->leaving) {
        t = &m->leaving->table;
        s = find_home(t, key, hash);
    }
    if (!s->value)
        return NULL;
    m->n--;
    return vacate_slot(t, s);
}

/* Positions of the old table follow those of the new one. */
struct map_slot *map_next(const struct map *m, size_t *at)
{
    return map_next_before(m, at, SIZE_MAX);
}

size_t map_places(const struct map *m)
{
    return m->table.cap + (m->leaving ? m->leaving->table.cap : 0);
}

struct map_slot *map_next_before(const struct map *m, size_t *at, size_t end)
{
    size_t places = map_places(m);

    end = end < places ? end : places;
    while (*at < end) {
        size_t i = (*at)++;
        struct map_slot *s =
            i < m->table.cap ? &m->table.slots[i] : &m->leaving->table.slots[i - m->table.cap];

        if (s->value)
            return s;
    }
    return NULL;
}
