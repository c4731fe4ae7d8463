/*
 * The known beginning of a body (known_body.h). Each body appends the values of a piece that ends
 * with an item of the list. Of the bytes only hashes of their blocks are kept; the last block ends
 * where the known bytes end. If a body differs from the known one, the known one is cut after the
 * last item before the first block that differs. The cut values stay in the arena, so a known body
 * with too many of them is replaced.
 */
#include "worker/dialect/known_body.h"

#include <string.h>

#include "common/base/block_hash.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/json_build.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/request_members.h"
#include "worker/text/request/chat.h"

/* A known body is replaced if its arena uses more than WORN_FACTOR times the known bytes plus
 * WORN_FREE bytes. */
enum { WORN_FACTOR = 6, WORN_FREE = 128 << 10 };

/* A known body is worth sharing if its arena has twice the bytes that it had left for the items
 * shared last, and 1/OWN_PART of the known bytes, and OWN_FREE bytes more. */
#ifdef NDEBUG
enum { OWN_PART = 32, OWN_FREE = 4 << 10 };
#else
enum { OWN_PART = 1 << 30, OWN_FREE = 0 }; /* so that all tests cover sharing */
#endif

struct known_piece {
    size_t n_items;   /* number of items up to its end, over all pieces */
    uint64_t reading; /* number of the reading that added it */
};

struct known_body {
    atomic_uint holders;
    atomic_bool busy;
    atomic_size_t bytes; /* memory in bytes, for known_body_bytes */
    size_t shared_bytes; /* bytes of the arena for the items that were shared; 0: not yet */
    const void *held;    /* what keeps the shared messages; NULL: none are shared */
    const struct dialect *dialect;
    struct arena arena;
    struct str head; /* bytes before the first item */
    struct json list_key;
    size_t escaped_at, surrogate_at; /* like in json_trace; SIZE_MAX: none */
    struct hash128 hashed;
    VEC(struct json) members;
    VEC(struct block_hash) blocks;
    VEC(struct known_piece) pieces;
    VEC(struct json_mark)
    marks; /* one per item, as in the next vectors */
    VEC(struct json) items;
    VEC(struct json) made;
    VEC(uint32_t) made_bytes;
    size_t calls_at[2]; /* indexes of the first two messages with tool_calls; SIZE_MAX: none */
    size_t dropped_at;  /* index of the first item with members without effect; SIZE_MAX: none */
};

/* --- life --- */

/* Makes a known body with the caller as its only holder. */
static struct known_body *known_body_new(const struct dialect *d, atomic_size_t *sum)
{
    struct known_body *k = mem_zalloc(sizeof(*k));

    atomic_init(&k->holders, 1);
    k->dialect = d;
    k->arena = (struct arena){.tight = true, .sum = sum};
    hash128_begin(&k->hashed);
    k->escaped_at = k->surrogate_at = k->calls_at[0] = k->calls_at[1] = SIZE_MAX;
    k->dropped_at = SIZE_MAX;
    return k;
}

void known_body_hold(struct known_body *k)
{
    atomic_fetch_add_explicit(&k->holders, 1, memory_order_relaxed);
}

void known_body_release(void *known)
{
    struct known_body *k = known;

    if (!k || atomic_fetch_sub_explicit(&k->holders, 1, memory_order_acq_rel) > 1)
        return;
    vec_done(&k->members);
    vec_done(&k->blocks);
    vec_done(&k->pieces);
    vec_done(&k->marks);
    vec_done(&k->items);
    vec_done(&k->made);
    vec_done(&k->made_bytes);
    arena_done(&k->arena);
    free(k);
}

bool known_body_begin(struct known_body *k)
{
    return !atomic_exchange_explicit(&k->busy, true, memory_order_acquire);
}

void known_body_end(struct known_body *k)
{
    atomic_store_explicit(&k->busy, false, memory_order_release);
}

/* --- looking --- */

static size_t known_bytes(const struct known_body *k)
{
    return k->marks.n ? vec_last(&k->marks).end : 0;
}

/* Returns block i of a text whose last block is shorter. */
static struct str block_at(struct str text, size_t i)
{
    return str_sub(text, i * BLOCK_BYTES, BLOCK_BYTES);
}

/* Returns how many of the known bytes the body begins with, as far as whole blocks tell. */
static size_t match_blocks(const struct known_body *k, struct str body)
{
    struct str text = str_sub(body, 0, known_bytes(k));
    size_t n = 0;

    while (n < k->blocks.n && block_hash_equal(k->blocks.at[n], block_hash(block_at(text, n))))
        n++;
    return MIN_OF(n * BLOCK_BYTES, known_bytes(k));
}

size_t known_body_match(const struct known_body *k, const struct dialect *d, struct str body)
{
    size_t n = k->marks.n, bytes = d == k->dialect ? match_blocks(k, body) : 0;

    while (n > 0 && k->marks.at[n - 1].end > bytes)
        n--;
    return n;
}

void known_body_state(const struct known_body *k, size_t n, struct known_part *ret)
{
    const struct json_mark *m = &k->marks.at[n - 1];

    *ret = (struct known_part){
        .state = {.bytes = m->end,
                  .used_bytes = m->used_bytes,
                  .escaped_at = k->escaped_at < m->end ? k->escaped_at : SIZE_MAX,
                  .surrogate_at = k->surrogate_at <= m->end ? k->surrogate_at : SIZE_MAX,
                  .list_key = k->list_key,
                  .members = k->members.at,
                  .n_members = k->members.n,
                  .items = k->items.at,
                  .n_items = n},
        .messages = {.made = k->made.at,
                     .made_bytes = k->made_bytes.at,
                     .n = k->made.n ? (uint32_t)n : 0,
                     .with_calls = (k->calls_at[0] < n) + (k->calls_at[1] < n)},
        .n_obeyed = (uint32_t)MIN_OF(n, k->dropped_at),
        .head = k->head,
        .hashed = k->hashed,
    };
    if (k->hashed.bytes > m->end)
        hash128_begin(&ret->hashed);
}

void known_body_stretches(const struct known_body *k, size_t n, struct chat_known *ret)
{
    size_t last = 0, first;

    while (last < k->pieces.n && k->pieces.at[last].n_items < n)
        last++;
    first = last + 1 > CHAT_STRETCHES ? last + 1 - CHAT_STRETCHES : 0;
    *ret = (struct chat_known){.from = first ? (uint32_t)k->pieces.at[first - 1].n_items : 0};
    for (size_t i = first; i <= last && i < k->pieces.n; i++)
        ret->at[ret->n++] = (struct chat_stretch){k->pieces.at[i].reading,
                                                  (uint32_t)MIN_OF(k->pieces.at[i].n_items, n)};
}

size_t known_body_items(const struct known_body *k)
{
    return k->items.n;
}

/* --- growing --- */

/* Removes all items after the first n, n > 0, and the hash of the block in which they end. */
static void cut_items(struct known_body *k, size_t n)
{
    size_t bytes = n ? k->marks.at[n - 1].end : 0;

    while (k->pieces.n > 1 && k->pieces.at[k->pieces.n - 2].n_items >= n)
        k->pieces.n--;
    vec_last(&k->pieces).n_items = MIN_OF(vec_last(&k->pieces).n_items, n);
    k->blocks.n = MIN_OF(k->blocks.n, bytes / BLOCK_BYTES);
    k->marks.n = k->items.n = n;
    k->made.n = k->made_bytes.n = MIN_OF(k->made.n, n);
    if (k->hashed.bytes > bytes)
        hash128_begin(&k->hashed);
    for (size_t i = 0; i < ARRAY_LEN(k->calls_at); i++)
        if (k->calls_at[i] >= n)
            k->calls_at[i] = SIZE_MAX;
    if (k->dropped_at >= n)
        k->dropped_at = SIZE_MAX;
    if (k->escaped_at >= bytes)
        k->escaped_at = SIZE_MAX;
    if (k->surrogate_at > bytes)
        k->surrogate_at = SIZE_MAX;
}

/* Adds the hashes of the known bytes that have none. `raw` begins with the known bytes. */
static void hash_blocks(struct known_body *k, struct str raw)
{
    struct str text = str_sub(raw, 0, known_bytes(k));

    while (k->blocks.n * BLOCK_BYTES < text.len) {
        struct block_hash h = block_hash(block_at(text, k->blocks.n));

        *vec_push(&k->blocks) = h;
    }
}

/* Adds a copy of an item and the message that the dialect makes of it. Returns -1 if the dialect
 * rejects it. */
static int add_item(struct known_body *k, const struct json *given, const struct json_mark *mark)
{
    const struct json *item = json_copy(&k->arena, given);
    uint32_t at = (uint32_t)k->items.n;
    size_t used = k->arena.used_bytes;
    struct json made = {0};
    struct err unread;

    if (k->dialect->message && k->dialect->message(&k->arena, item, at, &made, &unread))
        return -1;
    if (k->dialect->message) {
        *vec_push(&k->made) = made;
        *vec_push(&k->made_bytes) = (uint32_t)(k->arena.used_bytes - used);
        if (k->calls_at[1] == SIZE_MAX && json_get(&made, "tool_calls"))
            k->calls_at[k->calls_at[0] != SIZE_MAX] = at;
    }
    if (k->dropped_at == SIZE_MAX && request_item_drops(k->dialect, item))
        k->dropped_at = at;
    *vec_push(&k->items) = *item;
    *vec_push(&k->marks) = *mark;
    return 0;
}

static int add_items(struct known_body *k, uint64_t reading, const struct json *list,
                     const struct json_trace *t)
{
    if (!json_is(list, JSON_ARRAY) || list->n != t->marks.n)
        return -1;
    for (size_t i = 0; i < t->marks.n; i++)
        if (add_item(k, &list->items[i], &t->marks.at[i]))
            return -1;
    *vec_push(&k->pieces) = (struct known_piece){k->items.n, reading};
    return 0;
}

/* Sets everything before the list's first item. Parses it with the list and the object closed. */
static int set_head(struct known_body *k, struct str head)
{
    char *text = arena_alloc(&k->arena, head.len + 2);
    struct json_trace t = {.key = str_cstr(k->dialect->list)};
    const struct json *unused;
    struct err unread;
    int rc;

    memcpy(text, head.p, head.len);
    memcpy(text + head.len, "]}", 2);
    rc = json_parse_traced(&k->arena, str_of(text, head.len + 2), NULL, &t, &unused, &unread);
    k->head = str_of(text, head.len);
    k->list_key = t.list_key;
    for (size_t i = 0; i < t.members.n; i++)
        *vec_push(&k->members) = t.members.at[i];
    json_trace_done(&t);
    return rc;
}

/* Adds the first piece, which includes everything before the list. Parses it with the list and the
 * object closed after the last item. */
static int add_first(struct known_body *k, const struct known_reader *by, struct str raw)
{
    struct arena tmp = {.sum = by->sum};
    char *text = arena_alloc(&tmp, raw.len + 2);
    struct json_trace t = {.key = str_cstr(by->dialect->list)};
    const struct json *v;
    struct err unread;
    int rc = -1;

    memcpy(text, raw.p, raw.len);
    memcpy(text + raw.len, "]}", 2);
    if (json_parse_traced(&tmp, str_of(text, raw.len + 2), NULL, &t, &v, &unread) == 0) {
        k->escaped_at = t.escaped_at;
        k->surrogate_at = t.surrogate_at;
        rc = set_head(k, str_sub(raw, 0, t.list_at));
        if (rc == 0)
            rc = add_items(k, by->number, json_get_str(v, t.key), &t);
    }
    json_trace_done(&t);
    arena_done(&tmp);
    return rc;
}

/* Adds a further piece. Its first comma becomes '[' while it is parsed as a list. */
static int add_more(struct known_body *k, const struct known_reader *by, struct str raw,
                    const struct json_trace *t)
{
    struct arena tmp = {.sum = by->sum};
    char *text = arena_alloc(&tmp, raw.len + 1);
    size_t comma = str_find(raw, STR(","), 0);
    const struct json *list;
    struct err unread;
    int rc = -1;

    if (comma != SIZE_MAX) {
        memcpy(text, raw.p, raw.len);
        text[comma] = '[';
        text[raw.len] = ']';
        rc = json_parse_replacing(&tmp, str_of(text + comma, raw.len + 1 - comma), &list, &unread);
    }
    if (k->escaped_at == SIZE_MAX && t->escaped_at < vec_last(&t->marks).end)
        k->escaped_at = t->escaped_at;
    if (k->surrogate_at == SIZE_MAX && t->surrogate_at <= vec_last(&t->marks).end)
        k->surrogate_at = t->surrogate_at;
    if (rc == 0)
        rc = add_items(k, by->number, list, t);
    arena_done(&tmp);
    return rc;
}

/* Reports whether the arena has too many cut bytes. */
static bool has_too_much_waste(const struct known_body *k)
{
    return k->arena.used_bytes / WORN_FACTOR > known_bytes(k) + WORN_FREE / WORN_FACTOR;
}

static void count_known_bytes(struct known_body *k)
{
    size_t bytes =
        sizeof(*k) + k->arena.held_bytes + k->members.cap * sizeof(struct json) +
        k->blocks.cap * sizeof(struct block_hash) + k->pieces.cap * sizeof(struct known_piece) +
        k->marks.cap * (sizeof(struct json_mark) + 2 * sizeof(struct json) + sizeof(uint32_t));

    atomic_store_explicit(&k->bytes, bytes, memory_order_relaxed);
}

size_t known_body_bytes(const struct known_body *k)
{
    return atomic_load_explicit(&k->bytes, memory_order_relaxed);
}

/* Makes a new known body of `raw`. */
static struct known_kept start_known_body(const struct known_reader *by, struct str raw,
                                          bool replaces)
{
    struct known_body *k = known_body_new(by->dialect, by->sum);

    if (add_first(k, by, raw)) {
        known_body_release(k);
        return (struct known_kept){0};
    }
    hash128_on(&k->hashed, raw);
    hash_blocks(k, raw);
    count_known_bytes(k);
    return (struct known_kept){k, replaces};
}

/* Starts a new known body if less than half of the known bytes match: that is a different
 * conversation. */
struct known_kept known_body_keep(struct known_body *k, size_t n, const struct known_reader *by,
                                  struct str body, const struct json_trace *trace)
{
    size_t known = k && n ? k->marks.at[n - 1].end : 0;
    struct str raw;
    int rc;

    if (trace->marks.n == 0)
        return (struct known_kept){0};
    raw = str_sub(body, 0, vec_last(&trace->marks).end);
    if (known == 0 || known < known_bytes(k) / 2 || has_too_much_waste(k))
        return start_known_body(by, raw, known > 0 && has_too_much_waste(k));
    cut_items(k, n);
    rc = add_more(k, by, str_sub(raw, known, SIZE_MAX), trace);
    if (rc)
        cut_items(k, n);
    hash_blocks(k, raw);
    count_known_bytes(k);
    if (rc)
        return (struct known_kept){0};
    hash128_on(&k->hashed, raw);
    known_body_hold(k);
    return (struct known_kept){k, true};
}

/* --- sharing --- */

const void *known_body_shared(const struct known_body *k)
{
    return k->held;
}

uint64_t known_body_reading(const struct known_body *k)
{
    return k->pieces.n ? vec_last(&k->pieces).reading : 0;
}

bool known_body_wants_sharing(const struct known_body *k)
{
    return k->arena.held_bytes > 2 * k->shared_bytes + known_bytes(k) / OWN_PART + OWN_FREE;
}

/* Reports whether two values are the same, including the order of members. */
static bool is_same(const struct json *v, const struct json *stored)
{
    if (!stored || v->kind != stored->kind || v->flags != stored->flags || v->n != stored->n)
        return false;
    if (v->text == stored->text || v->kind == JSON_NULL || v->kind == JSON_BOOL)
        return true;
    if (v->kind == JSON_NUMBER || v->kind == JSON_STRING)
        return str_eq(json_text(v), json_text(stored));
    for (uint32_t i = 0; v->kind == JSON_ARRAY && i < v->n; i++)
        if (!is_same(&v->items[i], &stored->items[i]))
            return false;
    for (uint32_t i = 0; v->kind == JSON_OBJECT && i < v->n; i++)
        if (!is_same(&v->members[i].key, &stored->members[i].key) ||
            !is_same(&v->members[i].value, &stored->members[i].value))
            return false;
    return true;
}

/* Copies an object. The copy has the stored object or its members where they are the same. */
static struct json share_object(struct arena *a, const struct json *v, const struct json *stored)
{
    struct json ret = *v;

    if (is_same(v, stored))
        return *stored;
    ret.members = arena_calloc(a, v->n, sizeof(*v->members));
    for (uint32_t i = 0; i < v->n; i++) {
        const struct json *value = &v->members[i].value;
        const struct json *same = json_get_str(stored, json_string(&v->members[i].key));

        ret.members[i].key = *json_copy(a, &v->members[i].key);
        ret.members[i].value = is_same(value, same) ? *same : *json_copy(a, value);
    }
    return ret;
}

/* Copies a vector to an empty one. */
#define COPY_VEC(to, from)       \
    (vec_reserve(to, (from)->n), \
     copy_bytes((to)->at, (from)->at, (from)->n * sizeof(*(from)->at)), (to)->n = (from)->n)

static void copy_bytes(void *to, const void *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n);
}

/* Copies everything but items and messages. */
static struct known_body *copy_state(const struct known_body *k)
{
    struct known_body *ret = known_body_new(k->dialect, k->arena.sum);

    CHECK(set_head(ret, k->head) == 0); /* as when k was made */
    ret->escaped_at = k->escaped_at;
    ret->surrogate_at = k->surrogate_at;
    ret->hashed = k->hashed;
    memcpy(ret->calls_at, k->calls_at, sizeof(k->calls_at));
    ret->dropped_at = k->dropped_at;
    COPY_VEC(&ret->blocks, &k->blocks);
    COPY_VEC(&ret->pieces, &k->pieces);
    COPY_VEC(&ret->marks, &k->marks);
    COPY_VEC(&ret->made_bytes, &k->made_bytes);
    return ret;
}

/* Copies the items up to number n, and their messages, sharing those of `stored`. The message of
 * an item that is not stored shares the item. */
static void share_items(struct known_body *to, const struct known_body *k,
                        const struct json *stored, size_t n)
{
    for (uint32_t i = (uint32_t)to->items.n; i < k->items.n && i < n; i++) {
        const struct json *same = json_at(stored, i);

        *vec_push(&to->items) = share_object(&to->arena, &k->items.at[i], same);
        same = same ? same : &vec_last(&to->items);
        if (k->made.n)
            *vec_push(&to->made) = share_object(&to->arena, &k->made.at[i], same);
    }
}

struct known_body *known_body_share(const struct known_body *k, const struct json *stored,
                                    void (*release)(void *held), void *held)
{
    struct known_body *ret = copy_state(k);

    arena_hold(&ret->arena, release, held);
    ret->held = held;
    share_items(ret, k, stored, stored->n);
    ret->shared_bytes = ret->arena.held_bytes;
    share_items(ret, k, stored, k->items.n); /* new ones, which the session did not store yet */
    count_known_bytes(ret);
    return ret;
}
