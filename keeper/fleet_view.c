/* What the store reports, by kind: three maps of entries (fleet_view.h). */
#include "keeper/fleet_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/vec.h"

static void free_map(struct map *m)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(m, &at));)
        free(slot->value);
    map_done(m);
}

void fleet_view_done(struct fleet_view *v)
{
    free_map(&v->nodes);
    free_map(&v->blocks);
    free_map(&v->places);
    free_map(&v->gone);
    buf_done(&v->fleet);
    buf_done(&v->orders);
}

/* Copies a name. A name that is too long becomes "": no node has it. */
static void copy_name(char ret[FLEET_NAME_MAX], struct str name)
{
    (void)snprintf(ret, FLEET_NAME_MAX, "%.*s",
                   (int)(name.len < FLEET_NAME_MAX && name.p ? name.len : 0), name.p ? name.p : "");
}

static void add_node(struct fleet_view *v, struct str name, const struct store_entry *e,
                     uint64_t now_ms)
{
    struct seen_node *n = map_get(&v->nodes, name);

    if (name.len == 0 || name.len >= FLEET_NAME_MAX)
        return;
    if (!n) {
        n = mem_zalloc(sizeof(*n));
        copy_name(n->name, name);
        n->beat_ms = now_ms;
        n->slot = FLEET_NO_NODE;
        (void)map_set(&v->nodes, str_cstr(n->name), n);
    }
    if (n->beat != e->beat)
        n->beat_ms = now_ms;
    n->beat = e->beat;
    n->seen_ms = now_ms;
    n->edition = e->edition;
    n->valid = node_entry_read(e->value, &n->entry) == 0;
    n->round = v->round;
}

static void add_block(struct fleet_view *v, uint32_t block, const struct store_entry *e)
{
    struct seen_block *b = fleet_view_block(v, block);

    if (!b) {
        b = mem_zalloc(sizeof(*b));
        (void)snprintf(b->key, sizeof(b->key), "%u", block);
        (void)map_set(&v->blocks, str_cstr(b->key), b);
    }
    copy_name(b->owner, e->value);
    b->edition = e->edition;
    b->round = v->round;
}

bool fleet_view_lacks_claim(const struct seen_place *p, uint64_t base)
{
    return base > p->base || (base > p->before && base < p->since);
}

static void count_place(struct fleet_view *v, const struct seen_place *p, uint32_t change)
{
    if (!p->vacant && p->index / FLEET_BLOCK_SIZE < FLEET_BLOCKS)
        v->places_of_block[p->index / FLEET_BLOCK_SIZE] += change;
}

/* Keeps a copy of a place whose entry was made anew, without the claim that was seen last. */
static void keep_forgotten(struct fleet_view *v, const struct seen_place *p,
                           const struct store_entry *e, uint64_t now_ms)
{
    const struct seen_place now = {.base = e->base, .before = e->before, .since = e->since};
    struct seen_place *copy;

    if ((p->vacant && !p->taken) || !fleet_view_lacks_claim(&now, p->base))
        return;
    copy = mem_alloc(sizeof(*copy));
    *copy = *p;
    fleet_view_keep_gone(v, copy, now_ms);
}

/* Removes a place that the store has no longer. */
static void remove_place(struct fleet_view *v, struct seen_place *p, uint64_t now_ms)
{
    count_place(v, p, (uint32_t)-1);
    v->places_gone = true;
    (void)map_take(&v->places, str_cstr(p->key));
    if (p->vacant && !p->taken)
        free(p);
    else
        fleet_view_keep_gone(v, p, now_ms);
}

static void add_place(struct fleet_view *v, uint32_t index, const struct store_entry *e,
                      uint64_t now_ms)
{
    struct seen_place *p = fleet_view_place(v, index);

    if (e->epoch == 0) { /* the store was emptied after it had told of a change */
        if (p)
            remove_place(v, p, now_ms);
        return;
    }
    if (!p) {
        p = mem_zalloc(sizeof(*p));
        p->index = index;
        (void)snprintf(p->key, sizeof(p->key), "%u", index);
        (void)map_set(&v->places, str_cstr(p->key), p);
        p->beat_ms = now_ms;
    } else {
        count_place(v, p, (uint32_t)-1);
        keep_forgotten(v, p, e, now_ms);
    }
    if (p->beat != e->beat || !str_eq_c(e->owner, p->owner))
        p->beat_ms = now_ms;
    p->seen_ms = now_ms;
    if (p->epoch != e->epoch)
        p->claim_ms = now_ms;
    copy_name(p->owner, e->owner);
    p->epoch = e->epoch;
    if (p->owner[0])
        p->newest = MAX_OF(p->newest, p->epoch);
    p->base = e->base;
    p->before = e->before;
    p->since = e->since;
    p->beat = e->beat;
    p->version = e->version;
    p->whole = e->whole;
    p->taken = e->taken;
    p->doubt_ms = e->doubt_ms;
    p->stale = false;
    p->vacant = e->vacant && e->owner.len == 0 && index != FLEET_DISPATCHER;
    p->round = v->round;
    count_place(v, p, 1);
}

/* Reads the number that follows `head` in a key. False: the key is of another kind. */
static bool read_number(struct str key, struct str head, uint64_t max, uint32_t *ret)
{
    uint64_t number;

    if (!str_starts(key, head) || str_to_u64(str_sub(key, head.len, SIZE_MAX), max, &number))
        return false;
    *ret = (uint32_t)number;
    return true;
}

void fleet_view_raise_edition(struct fleet_view *v, uint64_t edition)
{
    v->stored_edition = MAX_OF(v->stored_edition, edition);
}

static void add_orders(struct fleet_view *v, const struct store_entry *e)
{
    v->listed_edition = e->edition;
    v->orders_round = v->round;
    fleet_view_raise_edition(v, e->edition);
    if (e->edition <= v->orders_edition)
        return;
    buf_set(&v->orders, e->value);
    v->orders_edition = e->edition;
}

bool fleet_view_lacks_orders(const struct fleet_view *v)
{
    return v->stored_edition < v->orders_edition;
}

void fleet_view_add(struct fleet_view *v, const struct store_entry *e, uint64_t now_ms)
{
    static const struct str node = STR_LIT("node:");
    uint32_t number;

    if (str_starts(e->key, node)) {
        add_node(v, str_sub(e->key, node.len, SIZE_MAX), e, now_ms);
    } else if (read_number(e->key, STR("block:"), FLEET_BLOCKS - 1, &number)) {
        add_block(v, number, e);
    } else if (str_eq_c(e->key, "place:d")) {
        add_place(v, FLEET_DISPATCHER, e, now_ms);
    } else if (read_number(e->key, STR("place:"), UINT32_MAX - 1, &number)) {
        add_place(v, number, e, now_ms);
    } else if (str_eq_c(e->key, "fleet")) {
        buf_clear(&v->fleet);
        buf_add_str(&v->fleet, e->value);
        v->fleet_edition = e->edition;
        v->fleet_round = v->round;
    } else if (str_eq_c(e->key, "orders")) {
        add_orders(v, e);
    }
}

/* Removes entries of a map that are older than this round, which they have at that offset. */
static void remove_old(struct fleet_view *v, struct map *m, size_t round_offset, uint64_t now_ms)
{
    VEC(struct map_slot) old = {0};
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(m, &at));)
        if (*(const uint32_t *)(const void *)((const char *)slot->value + round_offset) != v->round)
            *vec_push(&old) = *slot;
    for (size_t i = 0; i < old.n; i++) {
        if (m == &v->places) {
            remove_place(v, old.at[i].value, now_ms);
            continue;
        }
        v->nodes_gone |= m == &v->nodes;
        (void)map_take(m, map_slot_key(&old.at[i]));
        free(old.at[i].value);
    }
    vec_done(&old);
}

void fleet_view_end_list(struct fleet_view *v, uint64_t now_ms)
{
    if (v->unbroken_ms == 0)
        v->unbroken_ms = now_ms;
    remove_old(v, &v->nodes, offsetof(struct seen_node, round), now_ms);
    remove_old(v, &v->blocks, offsetof(struct seen_block, round), now_ms);
    remove_old(v, &v->places, offsetof(struct seen_place, round), now_ms);
    if (v->fleet_round != v->round)
        buf_clear(&v->fleet);
    v->stored_edition = v->orders_round == v->round ? v->listed_edition : 0;
    v->round++;
}

struct seen_node *fleet_view_node(const struct fleet_view *v, const char *name)
{
    return map_get(&v->nodes, str_cstr(name));
}

struct seen_block *fleet_view_block(const struct fleet_view *v, uint32_t block)
{
    char key[16];

    (void)snprintf(key, sizeof(key), "%u", block);
    return map_get(&v->blocks, str_cstr(key));
}

static struct seen_place *find_by_index(const struct map *places, uint32_t index)
{
    char key[16];

    (void)snprintf(key, sizeof(key), "%u", index);
    return map_get(places, str_cstr(key));
}

struct seen_place *fleet_view_place(const struct fleet_view *v, uint32_t index)
{
    return find_by_index(&v->places, index);
}

struct seen_place *fleet_view_gone(const struct fleet_view *v, uint32_t index)
{
    return find_by_index(&v->gone, index);
}

/* Reports whether the node can have `wanted` indexes of its block. */
static bool has_indexes(const struct fleet_view *v, const char *name, uint32_t block, size_t wanted)
{
    size_t used = 0;
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&v->places, &at));) {
        const struct seen_place *p = slot->value;

        used += p->index / FLEET_BLOCK_SIZE == block && !p->vacant && strcmp(p->owner, name) != 0;
    }
    return used + wanted <= FLEET_BLOCK_SIZE;
}

uint32_t fleet_view_choose_block(const struct fleet_view *v, const char *name, uint32_t kept,
                                 size_t wanted)
{
    const struct seen_block *own = kept < FLEET_BLOCKS ? fleet_view_block(v, kept) : NULL;
    uint32_t unused = FLEET_BLOCKS;

    if (kept < FLEET_BLOCKS && (!own || !own->owner[0] || strcmp(own->owner, name) == 0) &&
        has_indexes(v, name, kept, wanted))
        return kept;
    for (uint32_t block = 0; block < FLEET_BLOCKS; block++) {
        const struct seen_block *b = fleet_view_block(v, block);

        if (b && strcmp(b->owner, name) == 0 && has_indexes(v, name, block, wanted))
            return block;
        if ((!b || !b->owner[0]) && v->places_of_block[block] == 0)
            unused = MIN_OF(unused, block);
    }
    return unused;
}

bool fleet_view_beat(struct fleet_view *v, const struct store_beat *b, uint64_t now_ms)
{
    struct seen_node *n = map_get(&v->nodes, b->node);

    if (!n)
        return false;
    if (n->beat != b->beat)
        n->beat_ms = now_ms;
    n->beat = b->beat;
    n->seen_ms = now_ms;
    return true;
}

void fleet_view_interrupt(struct fleet_view *v)
{
    v->unbroken_ms = 0;
}

bool fleet_view_has_beaten(const struct fleet_view *v, const struct seen_node *n)
{
    return v->unbroken_ms > 0 && n->beat_ms > v->unbroken_ms;
}

bool fleet_view_is_lost(const struct fleet_view *v, const struct seen_node *n, uint64_t lease_ms)
{
    return v->unbroken_ms > 0 && n->seen_ms >= MAX_OF(n->beat_ms, v->unbroken_ms) + lease_ms;
}

/* Returns when the lease of the place ends, if this beat does not change. */
static uint64_t end_lease(const struct fleet_view *v, const struct seen_place *p, uint64_t beat_ms,
                          uint64_t lease_ms)
{
    return MAX_OF(MAX_OF(beat_ms, p->claim_ms), v->unbroken_ms) + lease_ms;
}

uint64_t fleet_view_silent_ms(const struct fleet_view *v, const struct seen_place *p,
                              uint64_t lease_ms)
{
    const struct seen_node *owner = fleet_view_node(v, p->owner);

    if (v->unbroken_ms == 0)
        return 0;
    return p->owner[0] ? end_lease(v, p, owner ? owner->beat_ms : p->beat_ms, lease_ms)
                       : p->beat_ms;
}

uint64_t fleet_view_lost_ms(const struct fleet_view *v, const struct seen_place *p,
                            uint64_t lease_ms)
{
    uint64_t silent_ms = fleet_view_silent_ms(v, p, lease_ms);

    return p->owner[0] ? MIN_OF(silent_ms, end_lease(v, p, p->beat_ms, lease_ms)) : silent_ms;
}

static void count_owned(struct fleet_view *v)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&v->nodes, &at));)
        ((struct seen_node *)slot->value)->places = 0;
    for (size_t at = 0; (slot = map_next(&v->places, &at));) {
        struct seen_node *owner =
            fleet_view_node(v, ((const struct seen_place *)slot->value)->owner);

        if (owner)
            owner->places++;
    }
    v->counted = true;
}

/* No request goes to the node, now or when a place is taken from it. */
static bool is_unneeded(struct fleet_view *v, const struct seen_node *n, uint64_t lease_ms)
{
    if (!fleet_view_is_lost(v, n, lease_ms))
        return false;
    if (!v->counted)
        count_owned(v);
    return n->places == 0;
}

/* Returns the slot of a node that is gone or unneeded; FLEET_NO_NODE: there is none. */
static uint32_t find_unneeded(struct fleet_view *v, const struct place_table *t, uint64_t lease_ms)
{
    const struct seen_node *n;
    struct fleet_node old;

    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        if (!place_table_node(t, slot, &old) || (v->self && strcmp(old.name, v->self) == 0))
            continue;
        n = fleet_view_node(v, old.name);
        if (!n || is_unneeded(v, n, lease_ms))
            return slot;
    }
    return FLEET_NO_NODE;
}

static uint32_t choose_slot(struct fleet_view *v, const struct seen_node *n,
                            const struct place_table *t, uint64_t lease_ms)
{
    uint32_t slot = place_table_slot(t, n->name);

    if (slot == FLEET_NO_NODE && !is_unneeded(v, n, lease_ms))
        slot = find_unneeded(v, t, lease_ms);
    return slot;
}

static void publish_node(struct fleet_view *v, struct seen_node *n, struct place_table *t,
                         uint64_t lease_ms)
{
    uint32_t slot = choose_slot(v, n, t, lease_ms);
    enum fleet_node_state state = fleet_view_is_lost(v, n, lease_ms) ? FLEET_LOST
                                  : n->entry.draining                ? FLEET_DRAINING
                                                                     : FLEET_UP;
    struct fleet_node old, node;
    bool known;

    n->slot = slot;
    if (slot == FLEET_NO_NODE || !n->valid)
        return;
    known = place_table_node(t, slot, &old) && strcmp(old.name, n->name) == 0;
    memset(&node, 0, sizeof(node));
    memcpy(node.name, n->name, sizeof(node.name));
    memcpy(node.address, n->entry.address, sizeof(node.address));
    node.state = state;
    node.load = n->entry.load;
    node.sessions = n->entry.sessions;
    node.calls = n->entry.calls;
    node.capacity = n->entry.capacity;
    node.block = n->entry.block;
    node.edition = n->entry.edition;
    node.model = str_hash(str_cstr(n->entry.tokenizer), 0);
    node.since_ms = known && old.state == state ? old.since_ms : clock_wall_ms();
    place_table_set_node(t, slot, &node);
}

/* Removes lost nodes that the store has no longer: they were forgotten. */
static void publish_gone_nodes(struct fleet_view *v, struct place_table *t)
{
    struct fleet_node node;

    for (uint32_t slot = 0; v->nodes_gone && slot < FLEET_NODES_MAX; slot++)
        if (place_table_node(t, slot, &node) && !node.is_self && node.state == FLEET_LOST &&
            !fleet_view_node(v, node.name))
            place_table_remove_node(t, slot);
    v->nodes_gone = false;
}

/* Removes places that the store has no longer. */
static void publish_gone(struct fleet_view *v, struct place_table *t)
{
    struct fleet_place place;

    for (size_t at = 0; v->places_gone && place_table_next(t, &at, &place);)
        if (!fleet_view_place(v, place.index))
            place_table_remove(t, place.index);
    v->places_gone = false;
}

/* An owner whose node has no entry is no owner that a request could be sent to. */
static bool publish_place(const struct fleet_view *v, const struct seen_place *p,
                          struct place_table *t)
{
    const struct seen_node *owner = fleet_view_node(v, p->owner);
    struct fleet_place place = {.index = p->index,
                                .node = owner && owner->valid ? owner->slot : FLEET_NO_NODE,
                                .epoch = p->epoch,
                                .whole = p->whole,
                                .taken = p->taken};

    return p->vacant ? place_table_set_vacant(t, p->index, p->taken) : place_table_set(t, &place);
}

size_t fleet_view_publish(struct fleet_view *v, struct place_table *t, uint64_t lease_ms)
{
    struct map_slot *slot;
    size_t refused = 0;

    v->counted = false;
    for (size_t at = 0; (slot = map_next(&v->nodes, &at));)
        publish_node(v, slot->value, t, lease_ms);
    for (size_t at = 0; (slot = map_next(&v->places, &at));)
        refused += !publish_place(v, slot->value, t);
    publish_gone(v, t);
    publish_gone_nodes(v, t);
    place_table_set_orders(t, v->stored_edition);
    return refused;
}
