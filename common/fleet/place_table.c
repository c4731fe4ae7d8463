/*
 * The place table: rows of atomics, in two hashes that only grow.
 *
 * A place is one word (owner, epoch, whole), so readers always see one state of it. An own place is
 * several words, of which each holds alone: reports carry the epoch that they are about. A node is
 * longer than a word: its version is odd during a change, and readers then read again.
 */
#include "common/fleet/place_table.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/log.h"

enum {
    PLACE_ROWS = 2 * FLEET_PLACES_MAX,
    OWN_ROWS = FLEET_OWN_MAX + 1, /* the dispatcher's is the last */
    OWN_WORDS = sizeof(struct fleet_own_place) / 8,
    NODE_WORDS = (sizeof(struct fleet_node) + 7) / 8,
    NODE_READS = 1000, /* of one row, until its change ends; the keeper may have died within it */
    EPOCH_SHIFT = 12,  /* a place's word: epoch, whole, taken, 1 + slot of the owner */
    WHOLE_BIT = 1 << 11,
    TAKEN_BIT = 1 << 10, /* stays if the place is removed */
    VACANT = WHOLE_BIT,  /* the word of a place without owner and sessions: it has no epoch */
    NODE_MASK = TAKEN_BIT - 1,
};

struct place_row {
    _Atomic uint64_t key;  /* 1 + index; 0: free */
    _Atomic uint64_t word; /* 0: no such place */
};

struct own_row {
    _Atomic uint64_t key;              /* 1 + index; 0: free */
    _Atomic uint64_t words[OWN_WORDS]; /* of its struct fleet_own_place; without the first, index */
};

struct node_row {
    _Atomic uint32_t version; /* 0: free; odd: a change is under way */
    _Atomic uint64_t words[NODE_WORDS];
};

struct place_table {
    _Atomic uint32_t generation, place_changes;
    _Atomic uint32_t self; /* 1 + slot; 0: not joined */
    _Atomic uint64_t reached_ms, complete_ms, orders, server;
    uint32_t n_places; /* the keeper's */
    struct node_row nodes[FLEET_NODES_MAX];
    struct own_row own[OWN_ROWS];
    struct place_row places[PLACE_ROWS];
};

struct log_field place_table_log(const char *key, uint32_t index)
{
    return index == FLEET_DISPATCHER ? LOG_T(key, "dispatcher") : LOG_U(key, index);
}

struct place_table *place_table_new(void)
{
    enum { FLAGS = MAP_SHARED | MAP_ANONYMOUS };

    /* cppcheck-suppress invalidFunctionArg ; -1 goes with MAP_ANONYMOUS */
    void *map = mmap(NULL, sizeof(struct place_table), PROT_READ | PROT_WRITE, FLAGS, -1, 0);

    CHECK(map != MAP_FAILED);
    return map;
}

void place_table_free(struct place_table *t)
{
    if (t)
        (void)munmap(t, sizeof(*t));
}

static uint64_t load_word(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void store_word(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* Counts a change. Readers that see the new number see the change. */
static void count_change(struct place_table *t)
{
    atomic_fetch_add_explicit(&t->generation, 1, memory_order_release);
}

static void count_place_change(struct place_table *t)
{
    atomic_fetch_add_explicit(&t->place_changes, 1, memory_order_release);
    count_change(t);
}

uint32_t place_table_generation(const struct place_table *t)
{
    return atomic_load_explicit(&t->generation, memory_order_acquire);
}

uint32_t place_table_place_changes(const struct place_table *t)
{
    return atomic_load_explicit(&t->place_changes, memory_order_acquire);
}

uint64_t place_table_reached_ms(const struct place_table *t)
{
    return load_word(&t->reached_ms);
}

void place_table_set_reached(struct place_table *t, uint64_t sent_ms)
{
    store_word(&t->reached_ms, sent_ms);
}

uint64_t place_table_server(const struct place_table *t)
{
    return load_word(&t->server);
}

void place_table_set_server(struct place_table *t, uint64_t server)
{
    store_word(&t->server, server);
}

bool place_table_is_complete(const struct place_table *t, uint64_t now_ms)
{
    return load_word(&t->complete_ms) > now_ms;
}

void place_table_set_complete(struct place_table *t, uint64_t now_ms, uint64_t until_ms)
{
    bool was = place_table_is_complete(t, now_ms);

    store_word(&t->complete_ms, until_ms);
    if (was != (until_ms > now_ms))
        count_change(t);
}

uint64_t place_table_orders(const struct place_table *t)
{
    return load_word(&t->orders);
}

void place_table_set_orders(struct place_table *t, uint64_t edition)
{
    store_word(&t->orders, edition + 1);
}

/* --- places --- */

static size_t hash_index(uint32_t index)
{
    return (size_t)(((uint64_t)index * 0x9e3779b97f4a7c15u) >> 40) % PLACE_ROWS;
}

/* Returns the row of the index, or the free row where it belongs. At least half of the rows are
 * free. */
static size_t find_row(const struct place_table *t, uint32_t index)
{
    size_t i = hash_index(index);
    uint64_t key;

    while ((key = load_word(&t->places[i].key)) != 0 && key != (uint64_t)index + 1)
        i = (i + 1) % PLACE_ROWS;
    return i;
}

/* False: the row has no place now. */
static bool read_row(const struct place_row *row, struct fleet_place *ret)
{
    uint64_t key = load_word(&row->key), word = load_word(&row->word);
    uint32_t owner = (uint32_t)(word & NODE_MASK);

    if (key == 0 || word >> EPOCH_SHIFT == 0)
        return false;
    *ret = (struct fleet_place){.index = (uint32_t)(key - 1),
                                .node = owner ? owner - 1 : FLEET_NO_NODE,
                                .epoch = word >> EPOCH_SHIFT,
                                .whole = (word & WHOLE_BIT) != 0,
                                .taken = (word & TAKEN_BIT) != 0};
    return true;
}

bool place_table_find(const struct place_table *t, uint32_t index, struct fleet_place *ret)
{
    return read_row(&t->places[find_row(t, index)], ret);
}

bool place_table_next(const struct place_table *t, size_t *at, struct fleet_place *ret)
{
    while (*at < PLACE_ROWS)
        if (read_row(&t->places[(*at)++], ret))
            return true;
    return false;
}

bool place_table_next_had(const struct place_table *t, size_t *at, uint32_t *ret)
{
    while (*at < PLACE_ROWS) {
        const struct place_row *row = &t->places[(*at)++];
        uint64_t key = load_word(&row->key);

        *ret = (uint32_t)(key - 1);
        if (key != 0 && load_word(&row->word) != VACANT)
            return true;
    }
    return false;
}

/* False: FLEET_PLACES_MAX places are known. */
static bool set_word(struct place_table *t, uint32_t index, uint64_t word)
{
    struct place_row *row = &t->places[find_row(t, index)];

    if (load_word(&row->key) == 0) {
        if (t->n_places == FLEET_PLACES_MAX)
            return false;
        t->n_places++;
    }
    if (load_word(&row->word) == word)
        return true;
    store_word(&row->word, word);
    store_word(&row->key, (uint64_t)index + 1);
    count_place_change(t);
    return true;
}

bool place_table_set(struct place_table *t, const struct fleet_place *place)
{
    uint64_t owner = place->node < FLEET_NODES_MAX ? place->node + 1 : 0;
    uint64_t word = place->epoch << EPOCH_SHIFT | (place->whole ? (uint64_t)WHOLE_BIT : 0) |
                    (place->taken ? (uint64_t)TAKEN_BIT : 0) | owner;

    return place->epoch > 0 && place->epoch <= FLEET_EPOCH_MAX && set_word(t, place->index, word);
}

bool place_table_set_vacant(struct place_table *t, uint32_t index, bool taken)
{
    return set_word(t, index, taken ? VACANT | TAKEN_BIT : VACANT);
}

bool place_table_is_taken(const struct place_table *t, uint32_t index)
{
    return (load_word(&t->places[find_row(t, index)].word) & TAKEN_BIT) != 0;
}

bool place_table_is_vacant(const struct place_table *t, uint32_t index)
{
    const struct place_row *row = &t->places[find_row(t, index)];

    return load_word(&row->key) != 0 && (load_word(&row->word) & ~(uint64_t)TAKEN_BIT) == VACANT;
}

void place_table_remove(struct place_table *t, uint32_t index)
{
    struct place_row *row = &t->places[find_row(t, index)];
    uint64_t word = load_word(&row->word), left = word & TAKEN_BIT;

    if (word == left || place_table_is_vacant(t, index))
        return;
    store_word(&row->word, left);
    count_place_change(t);
}

bool place_table_had(const struct place_table *t, uint32_t index)
{
    return load_word(&t->places[find_row(t, index)].key) != 0 && !place_table_is_vacant(t, index);
}

/* --- nodes --- */

/* Copies the words of a row that no change is within. False: it is free, or its change does not
 * end. */
static bool read_words(const struct node_row *row, uint64_t ret[NODE_WORDS])
{
    uint32_t before, after;

    for (unsigned n = 0; n < NODE_READS; n++) {
        before = atomic_load_explicit(&row->version, memory_order_acquire);
        if (before == 0)
            return false;
        for (size_t i = 0; i < NODE_WORDS; i++)
            ret[i] = load_word(&row->words[i]);
        after = atomic_load_explicit(&row->version, memory_order_relaxed);
        if (before == after && !(before & 1))
            return true;
    }
    return false;
}

static bool read_node(const struct node_row *row, struct fleet_node *ret)
{
    uint64_t words[NODE_WORDS];

    if (!read_words(row, words))
        return false;
    memcpy(ret, words, sizeof(*ret));
    return true;
}

bool place_table_node(const struct place_table *t, uint32_t slot, struct fleet_node *ret)
{
    if (slot >= FLEET_NODES_MAX || !read_node(&t->nodes[slot], ret))
        return false;
    ret->is_self = slot == place_table_self(t);
    return true;
}

uint32_t place_table_slot(const struct place_table *t, const char *name)
{
    uint32_t unused = FLEET_NO_NODE;
    struct fleet_node node;

    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++) {
        if (!read_node(&t->nodes[slot], &node))
            unused = MIN_OF(unused, slot);
        else if (strcmp(node.name, name) == 0)
            return slot;
    }
    return unused;
}

void place_table_set_node(struct place_table *t, uint32_t slot, const struct fleet_node *node)
{
    struct node_row *row = &t->nodes[slot];
    uint32_t version = atomic_load_explicit(&row->version, memory_order_relaxed);
    uint64_t words[NODE_WORDS] = {0}, old[NODE_WORDS];

    memcpy(words, node, sizeof(*node));
    if (read_words(row, old) && memcmp(old, words, sizeof(old)) == 0)
        return;
    atomic_store_explicit(&row->version, version + 1, memory_order_relaxed);
    for (size_t i = 0; i < NODE_WORDS; i++)
        store_word(&row->words[i], words[i]); /* releases: whoever reads it sees the odd version */
    version += version + 2 == 0 ? 4 : 2;      /* 0 is a free row's */
    atomic_store_explicit(&row->version, version, memory_order_release);
    count_change(t);
}

void place_table_remove_node(struct place_table *t, uint32_t slot)
{
    atomic_store_explicit(&t->nodes[slot].version, 0, memory_order_release);
    count_change(t);
}

uint32_t place_table_self(const struct place_table *t)
{
    uint32_t self = atomic_load_explicit(&t->self, memory_order_acquire);

    return self ? self - 1 : FLEET_NO_NODE;
}

bool place_table_has_successor(const struct place_table *t)
{
    struct fleet_node self, node;

    if (!place_table_node(t, place_table_self(t), &self))
        return false;
    for (uint32_t slot = 0; slot < FLEET_NODES_MAX; slot++)
        if (place_table_node(t, slot, &node) && !node.is_self && node.state == FLEET_UP &&
            node.model == self.model)
            return true;
    return false;
}

void place_table_set_self(struct place_table *t, uint32_t slot)
{
    atomic_store_explicit(&t->self, slot < FLEET_NODES_MAX ? slot + 1 : 0, memory_order_release);
    count_change(t);
}

/* A row whose change did not end is marked as free: the keeper sets it again. */
void place_table_begin(struct place_table *t)
{
    for (size_t i = 0; i < FLEET_NODES_MAX; i++)
        if (atomic_load_explicit(&t->nodes[i].version, memory_order_relaxed) & 1)
            atomic_store_explicit(&t->nodes[i].version, 0, memory_order_release);
    t->n_places = 0;
    for (size_t i = 0; i < PLACE_ROWS; i++)
        t->n_places += load_word(&t->places[i].key) != 0;
    count_change(t);
}

/* --- own places --- */

/* Position of a member's word in an own row. */
#define OWN(member) (offsetof(struct fleet_own_place, member) / 8)

/* Returns the row of the index, OWN_ROWS if it has no row. A block's places are in order. */
static size_t find_own(const struct place_table *t, uint32_t index)
{
    uint64_t key = (uint64_t)index + 1;

    if (index == FLEET_DISPATCHER)
        return load_word(&t->own[FLEET_OWN_MAX].key) == key ? FLEET_OWN_MAX : OWN_ROWS;
    for (size_t n = 0; n < FLEET_OWN_MAX; n++) {
        size_t i = (index + n) % FLEET_OWN_MAX;

        if (load_word(&t->own[i].key) == key)
            return i;
    }
    return OWN_ROWS;
}

/* Returns a row that no owned place has, near where the index belongs; OWN_ROWS: there is none. */
static size_t choose_own(const struct place_table *t, uint32_t index)
{
    if (index == FLEET_DISPATCHER)
        return FLEET_OWN_MAX;
    for (size_t n = 0; n < FLEET_OWN_MAX; n++) {
        size_t i = (index + n) % FLEET_OWN_MAX;

        if (load_word(&t->own[i].words[OWN(epoch)]) == 0)
            return i;
    }
    return OWN_ROWS;
}

/* Returns the row of the index, which it gets if it has no row; OWN_ROWS: there is none. */
static size_t enter_own(struct place_table *t, uint32_t index)
{
    size_t i = find_own(t, index);

    if (i < OWN_ROWS)
        return i;
    i = choose_own(t, index);
    if (i == OWN_ROWS)
        return i;
    for (size_t word = 0; word < OWN_WORDS; word++)
        store_word(&t->own[i].words[word], 0);
    store_word(&t->own[i].key, (uint64_t)index + 1);
    return i;
}

/* Returns a word of row i; 0 for OWN_ROWS. */
static uint64_t load_own(const struct place_table *t, size_t i, size_t word)
{
    return i < OWN_ROWS ? load_word(&t->own[i].words[word]) : 0;
}

/* Does nothing for OWN_ROWS. */
static void store_own(struct place_table *t, size_t i, size_t word, uint64_t value)
{
    if (i < OWN_ROWS)
        store_word(&t->own[i].words[word], value);
}

uint64_t place_table_own_epoch(const struct place_table *t, uint32_t index)
{
    size_t i = find_own(t, index);
    uint64_t epoch = load_own(t, i, OWN(epoch));

    return i < OWN_ROWS && load_word(&t->own[i].key) == (uint64_t)index + 1 ? epoch : 0;
}

bool place_table_may_answer(const struct place_table *t, uint32_t index, uint64_t now_ms)
{
    size_t i = find_own(t, index);

    /* the epoch first: whoever sees it sees the time that was set before it */
    return place_table_own_epoch(t, index) != 0 && now_ms >= load_own(t, i, OWN(answers_ms));
}

bool place_table_may_read(const struct place_table *t, uint32_t index, uint64_t now_ms,
                          uint64_t lease_ms)
{
    uint64_t renewed = load_own(t, find_own(t, index), OWN(renewed_ms));

    return renewed > 0 && now_ms - renewed < lease_ms / 5 * 4 &&
           place_table_may_answer(t, index, now_ms);
}

/* False: the row is free. */
static bool read_own(const struct own_row *row, struct fleet_own_place *ret)
{
    uint64_t key = load_word(&row->key), words[OWN_WORDS];

    if (key == 0)
        return false;
    for (size_t word = 0; word < OWN_WORDS; word++)
        words[word] = load_word(&row->words[word]);
    memcpy(ret, words, sizeof(*ret));
    ret->index = (uint32_t)(key - 1);
    return true;
}

bool place_table_next_own(const struct place_table *t, size_t *at, struct fleet_own_place *ret)
{
    while (*at < OWN_ROWS)
        if (read_own(&t->own[(*at)++], ret))
            return true;
    return false;
}

bool place_table_find_own(const struct place_table *t, uint32_t index, struct fleet_own_place *ret)
{
    size_t i = find_own(t, index);

    return i < OWN_ROWS && read_own(&t->own[i], ret) && ret->index == index;
}

bool place_table_set_own(struct place_table *t, uint32_t index, uint64_t epoch, uint64_t answers_ms)
{
    size_t i = epoch == 0 ? find_own(t, index) : enter_own(t, index);

    if (i == OWN_ROWS)
        return epoch == 0;
    if (load_own(t, i, OWN(epoch)) == epoch)
        return true;
    store_own(t, i, OWN(epoch), 0);
    store_own(t, i, OWN(answers_ms), answers_ms);
    store_own(t, i, OWN(renewed_ms), 0);
    store_own(t, i, OWN(epoch), epoch);
    count_change(t);
    return true;
}

void place_table_set_doubt(struct place_table *t, uint32_t index, uint64_t doubt_ms)
{
    store_own(t, doubt_ms > 0 ? enter_own(t, index) : find_own(t, index), OWN(doubt_ms), doubt_ms);
}

void place_table_set_bare(struct place_table *t, uint32_t index, uint64_t epoch)
{
    store_own(t, enter_own(t, index), OWN(bare_epoch), epoch);
}

void place_table_set_base(struct place_table *t, uint32_t index, uint64_t base)
{
    store_own(t, enter_own(t, index), OWN(base), base);
}

uint64_t place_table_own_base(const struct place_table *t, uint32_t index)
{
    return load_own(t, find_own(t, index), OWN(base));
}

void place_table_set_renewed(struct place_table *t, uint32_t index, uint64_t sent_ms)
{
    store_own(t, find_own(t, index), OWN(renewed_ms), sent_ms);
}

void place_table_report_whole(struct place_table *t, uint32_t index, uint64_t epoch,
                              uint64_t server)
{
    size_t i = find_own(t, index);

    store_own(t, i, OWN(server), server);
    store_own(t, i, OWN(whole_epoch), epoch);
}

void place_table_report_fenced(struct place_table *t, uint32_t index, uint64_t epoch)
{
    store_own(t, find_own(t, index), OWN(fenced_epoch), epoch);
}

void place_table_report_left(struct place_table *t, uint32_t index, uint64_t epoch)
{
    store_own(t, find_own(t, index), OWN(left_epoch), epoch);
}

void place_table_report_empty(struct place_table *t, uint32_t index, uint64_t epoch)
{
    store_own(t, find_own(t, index), OWN(empty_epoch), epoch);
    count_change(t);
}

void place_table_abandon(struct place_table *t, uint32_t index, uint64_t epoch, bool failed)
{
    size_t i = find_own(t, index);

    store_own(t, i, OWN(failed_epoch), failed ? epoch : 0);
    store_own(t, i, OWN(abandoned_epoch), epoch);
    count_change(t);
}

void place_table_report_behind(struct place_table *t, uint32_t index, uint64_t records)
{
    store_own(t, find_own(t, index), OWN(behind), records);
}

void place_table_report_version(struct place_table *t, uint32_t index, uint64_t version)
{
    store_own(t, find_own(t, index), OWN(version), version);
}
