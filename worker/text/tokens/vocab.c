/* The vocabulary (vocab.h): texts one after the other in a pool, entries with offset, length and
 * id, an open-addressing hash from text to entry, and by_id from id to entry (number + 1; 0: none).
 * Read-only after vocab_seal. Hash and prefetch are separate from the look-up, so that loading can
 * overlap memory accesses. */

#include "worker/text/tokens/vocab.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"

/* Returns a power of two that leaves a third of the slots free. */
static size_t slots_for(size_t n)
{
    size_t cap = 16;

    while (cap < n + n / 2)
        cap *= 2;
    return cap;
}

/* No later call enlarges the memory. */
void vocab_init(struct vocab *v, size_t n, size_t bytes)
{
    *v = (struct vocab){.cap = n ? n : 1};
    buf_reserve(&v->pool, bytes + 1);
    v->entries = mem_alloc(v->cap * sizeof(*v->entries));
    v->mask = slots_for(n) - 1;
    v->slots = mem_calloc(v->mask + 1, sizeof(*v->slots));
}

void vocab_done(struct vocab *v)
{
    buf_done(&v->pool);
    free(v->entries);
    free(v->slots);
    free(v->by_id);
    *v = (struct vocab){0};
}

/* Returns the slot of the piece, or the free slot for it. */
static struct vocab_slot *find_piece(const struct vocab *v, struct str piece, uint32_t hash)
{
    for (size_t i = hash & v->mask;; i = (i + 1) & v->mask) {
        struct vocab_slot *slot = &v->slots[i];
        const struct vocab_entry *entry;

        if (!slot->entry)
            return slot;
        if (slot->hash != hash)
            continue;
        entry = &v->entries[slot->entry - 1];
        if (entry->len == piece.len && memcmp(v->pool.p + entry->at, piece.p, piece.len) == 0)
            return slot;
    }
}

/* Reports whether few occupied slots were skipped, as expected with a third of the slots free. Many
 * mean a vocabulary that was made to be slow. */
static bool probes_are_few(const struct vocab *v)
{
    return v->probes <= 64 * v->n + (1 << 16);
}

/* An existing piece gets the later id, like JSON objects in the library. */
int vocab_add(struct vocab *v, struct str piece, int64_t id, struct err *e)
{
    uint32_t hash = (uint32_t)str_hash(piece, 0);
    struct vocab_slot *slot;

    if (id < 0 || id > VOCAB_ID_MAX)
        return err_set(e, ERR_UNSUPPORTED, "token id %lld: ids above %d are not supported",
                       (long long)id, VOCAB_ID_MAX);
    slot = find_piece(v, piece, hash);
    if (slot->entry) {
        v->entries[slot->entry - 1].id = (int32_t)id;
        return 0;
    }
    if (v->n == v->cap)
        return err_set(e, ERR_INTERNAL, "vocabulary larger than announced");
    v->probes += ((size_t)(slot - v->slots) - hash) & v->mask;
    if (!probes_are_few(v) || v->pool.len + piece.len > VOCAB_BYTES_MAX)
        return err_set(e, ERR_UNSUPPORTED, "model: vocab %s",
                       probes_are_few(v) ? "has more than 64 MiB of text"
                                         : "has too many pieces that hash alike");
    v->entries[v->n++] =
        (struct vocab_entry){(uint32_t)v->pool.len, (uint32_t)piece.len, (int32_t)id};
    *slot = (struct vocab_slot){hash, (uint32_t)v->n};
    buf_add_str(&v->pool, piece);
    return 0;
}

/* Refuses an id that two pieces have: the library decodes it to a random one of them. */
static int refuse_same_id(const struct vocab *v, const struct vocab_entry *a,
                          const struct vocab_entry *b, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "model: vocab gives \"%.*s\" and \"%.*s\" the same id %d",
                   (int)MIN_OF(a->len, 60U), v->pool.p + a->at, (int)MIN_OF(b->len, 60U),
                   v->pool.p + b->at, a->id);
}

int vocab_seal(struct vocab *v, struct err *e)
{
    v->id_count = 0;
    for (size_t i = 0; i < v->n; i++)
        if ((size_t)v->entries[i].id + 1 > v->id_count)
            v->id_count = (size_t)v->entries[i].id + 1;
    v->by_id = mem_calloc(v->id_count + 1, sizeof(*v->by_id));
    for (size_t i = 0; i < v->n; i++) {
        uint32_t *entry = &v->by_id[v->entries[i].id];

        if (*entry)
            return refuse_same_id(v, &v->entries[*entry - 1], &v->entries[i], e);
        *entry = (uint32_t)i + 1;
    }
    return 0;
}

uint32_t vocab_hash(const struct vocab *v, struct str piece)
{
    uint32_t hash = (uint32_t)str_hash(piece, 0);

    if (v->n > 0)
        __builtin_prefetch(&v->slots[hash & v->mask]);
    return hash;
}

/* Fetches the entry that the slot names. */
void vocab_prefetch(const struct vocab *v, uint32_t hash)
{
    const struct vocab_slot *slot;

    if (v->n == 0)
        return;
    slot = &v->slots[hash & v->mask];
    if (slot->entry)
        __builtin_prefetch(&v->entries[slot->entry - 1]);
}

int32_t vocab_id_at(const struct vocab *v, struct str piece, uint32_t hash)
{
    const struct vocab_slot *slot;

    if (v->n == 0)
        return -1;
    slot = find_piece(v, piece, hash);
    return slot->entry ? v->entries[slot->entry - 1].id : -1;
}

int32_t vocab_id(const struct vocab *v, struct str piece)
{
    return vocab_id_at(v, piece, (uint32_t)str_hash(piece, 0));
}

struct str vocab_piece(const struct vocab *v, int32_t id)
{
    const struct vocab_entry *entry;

    if (id < 0 || (size_t)id >= v->id_count || !v->by_id[id])
        return (struct str){0};
    entry = &v->entries[v->by_id[id] - 1];
    return str_of(v->pool.p + entry->at, entry->len);
}
