/*
 * What a body began with (known_body.h). It grows at its end: each body adds a piece of raw bytes,
 * which end with an item of the list, and what they were read to. Texts of the values lie in the
 * pieces, or decoded beside them. A body that leaves the known one cuts it there; what is cut off
 * stays in the arena, so one that has more of that than it is worth is begun anew.
 */
#include "worker/dialect/known_body.h"

#include <string.h>

#include "common/base/mem.h"
#include "worker/dialect/dialect.h"

enum {
    WORN_FACTOR = 6,      /* an arena of so many times the bytes that are known is begun anew, */
    WORN_FREE = 128 << 10 /* beside so much */
};

struct known_piece {
    struct str raw;
    size_t n_items; /* up to its end, over all pieces */
};

struct known_body {
    atomic_uint holders;
    atomic_bool busy;
    atomic_size_t bytes; /* of memory */
    const struct dialect *dialect;
    struct arena arena;
    struct json list_key;
    size_t escaped_at;
    VEC(struct json) members;
    VEC(struct known_piece) pieces;
    VEC(struct json_mark) marks; /* of each item, as are the next */
    VEC(struct json) items;
    VEC(struct json) made;
    VEC(uint32_t) made_bytes;
};

/* --- life --- */

struct known_body *known_body_new(const struct dialect *d, atomic_size_t *sum)
{
    struct known_body *k = mem_zalloc(sizeof(*k));

    atomic_init(&k->holders, 1);
    k->dialect = d;
    k->arena = (struct arena){.tight = true, .sum = sum};
    k->escaped_at = SIZE_MAX;
    return k;
}

void known_body_hold(struct known_body *k)
{
    atomic_fetch_add_explicit(&k->holders, 1, memory_order_relaxed);
}

void known_body_let(void *known)
{
    struct known_body *k = known;

    if (!k || atomic_fetch_sub_explicit(&k->holders, 1, memory_order_acq_rel) > 1)
        return;
    vec_done(&k->members);
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

static bool begins_with(struct str body, size_t at, struct str raw)
{
    return body.len - at >= raw.len && memcmp(body.p + at, raw.p, raw.len) == 0;
}

/* Of a piece that the body does not have whole: from item `n` on, whose place is `at`. */
static size_t match_items(const struct known_body *k, const struct known_piece *piece, size_t n,
                          size_t at, struct str body)
{
    size_t from = at;

    for (; n < piece->n_items; n++) {
        size_t end = k->marks.at[n].end;

        if (!begins_with(body, at, str_sub(piece->raw, at - from, end - at)))
            break;
        at = end;
    }
    return n;
}

size_t known_body_match(const struct known_body *k, const struct dialect *d, struct str body)
{
    size_t n = 0, at = 0;

    for (size_t i = 0; d == k->dialect && i < k->pieces.n; i++) {
        const struct known_piece *piece = &k->pieces.at[i];

        if (!begins_with(body, at, piece->raw))
            return match_items(k, piece, n, at, body);
        at += piece->raw.len;
        n = piece->n_items;
    }
    return n;
}

void known_body_part(const struct known_body *k, size_t n, struct known_part *ret)
{
    const struct json_mark *m = &k->marks.at[n - 1];

    *ret = (struct known_part){
        .state = {.bytes = m->end,
                  .used_bytes = m->used_bytes,
                  .escaped_at = k->escaped_at < m->end ? k->escaped_at : SIZE_MAX,
                  .list_key = k->list_key,
                  .members = k->members.at,
                  .n_members = k->members.n,
                  .items = k->items.at,
                  .n_items = n},
        .messages = {k->made.at, k->made_bytes.at, k->made.n ? (uint32_t)n : 0},
        .head = k->pieces.at[0].raw,
    };
}

/* --- growing --- */

/* Forgets all behind the first n items. */
static void cut(struct known_body *k, size_t n)
{
    size_t bytes = n ? k->marks.at[n - 1].end : 0, at = 0;

    for (size_t i = 0; i < k->pieces.n; i++) {
        struct known_piece *piece = &k->pieces.at[i];

        piece->raw = str_sub(piece->raw, 0, bytes - at);
        piece->n_items = MIN_OF(piece->n_items, n);
        at += piece->raw.len;
    }
    while (k->pieces.n > 0 && vec_last(&k->pieces).raw.len == 0)
        k->pieces.n--;
    k->marks.n = k->items.n = n;
    k->made.n = k->made_bytes.n = MIN_OF(k->made.n, n);
    if (k->escaped_at >= bytes)
        k->escaped_at = SIZE_MAX;
}

/* An item with what the dialect makes of it. */
static int add_item(struct known_body *k, const struct json *item, const struct json_mark *mark)
{
    uint32_t at = (uint32_t)k->items.n;
    size_t used = k->arena.used_bytes;
    struct json made = {0};
    struct err unread;

    if (k->dialect->message && k->dialect->message(&k->arena, item, at, &made, &unread))
        return -1;
    if (k->dialect->message) {
        *vec_push(&k->made) = made;
        *vec_push(&k->made_bytes) = (uint32_t)(k->arena.used_bytes - used);
    }
    *vec_push(&k->items) = *item;
    *vec_push(&k->marks) = *mark;
    return 0;
}

static int add_items(struct known_body *k, struct str raw, const struct json *list,
                     const struct json_mark *marks, size_t n_marks)
{
    if (!json_is(list, JSON_ARRAY) || list->n != n_marks)
        return -1;
    for (size_t i = 0; i < n_marks; i++)
        if (add_item(k, &list->items[i], &marks[i]))
            return -1;
    *vec_push(&k->pieces) = (struct known_piece){raw, k->items.n};
    return 0;
}

/* The first piece: all before the list as well. What is open behind its last item is closed. */
static int add_first(struct known_body *k, struct str key, struct str raw)
{
    char *text = arena_alloc(&k->arena, raw.len + 2);
    struct json_trace t = {.key = key};
    const struct json *v;
    struct err unread;
    int rc = -1;

    memcpy(text, raw.p, raw.len);
    memcpy(text + raw.len, "]}", 2);
    if (json_parse_traced(&k->arena, str_of(text, raw.len + 2), NULL, &t, &v, &unread) == 0) {
        k->list_key = t.list_key;
        k->escaped_at = t.escaped_at;
        for (size_t i = 0; i < t.members.n; i++)
            *vec_push(&k->members) = t.members.at[i];
        rc = add_items(k, str_of(text, raw.len), json_get_str(v, key), t.marks.at, t.marks.n);
    }
    json_trace_done(&t);
    return rc;
}

/* A further piece, which begins with a comma: in its place it is read as a list of its own. */
static int add_more(struct known_body *k, struct str raw, const struct json_trace *t)
{
    char *text = arena_alloc(&k->arena, raw.len + 1);
    size_t comma = str_find(raw, STR(","), 0);
    const struct json *list;
    struct err unread;
    int rc;

    if (comma == SIZE_MAX)
        return -1;
    memcpy(text, raw.p, raw.len);
    text[comma] = '[';
    text[raw.len] = ']';
    rc = json_parse(&k->arena, str_of(text + comma, raw.len + 1 - comma), &list, &unread);
    text[comma] = ',';
    if (k->escaped_at == SIZE_MAX && t->escaped_at < vec_last(&t->marks).end)
        k->escaped_at = t->escaped_at;
    return rc ? -1 : add_items(k, str_of(text, raw.len), list, t->marks.at, t->marks.n);
}

/* Whether it holds more of what was cut off than is good. */
static bool is_worn(const struct known_body *k)
{
    return k->arena.used_bytes / WORN_FACTOR > known_bytes(k) + WORN_FREE / WORN_FACTOR;
}

static void weigh(struct known_body *k)
{
    size_t bytes =
        sizeof(*k) + k->arena.held_bytes + k->members.cap * sizeof(struct json) +
        k->pieces.cap * sizeof(struct known_piece) +
        k->marks.cap * (sizeof(struct json_mark) + 2 * sizeof(struct json) + sizeof(uint32_t));

    atomic_store_explicit(&k->bytes, bytes, memory_order_relaxed);
}

size_t known_body_bytes(const struct known_body *k)
{
    return atomic_load_explicit(&k->bytes, memory_order_relaxed);
}

/* Begins one for the body. */
static struct known_kept keep_anew(const struct dialect *d, struct str raw, atomic_size_t *sum,
                                   bool replaces)
{
    struct known_body *k = known_body_new(d, sum);

    if (add_first(k, str_cstr(d->list), raw)) {
        known_body_let(k);
        return (struct known_kept){0};
    }
    weigh(k);
    return (struct known_kept){k, replaces};
}

/* One that shares less than half of what is known is another conversation's. */
struct known_kept known_body_keep(struct known_body *k, size_t n, const struct dialect *d,
                                  struct str body, const struct json_trace *trace,
                                  atomic_size_t *sum)
{
    size_t known = k && n ? k->marks.at[n - 1].end : 0;
    struct str raw;
    int rc;

    if (trace->marks.n == 0)
        return (struct known_kept){0};
    raw = str_sub(body, 0, vec_last(&trace->marks).end);
    if (known == 0 || known < known_bytes(k) / 2 || is_worn(k))
        return keep_anew(d, raw, sum, known > 0 && is_worn(k));
    cut(k, n);
    rc = add_more(k, str_sub(raw, known, SIZE_MAX), trace);
    if (rc)
        cut(k, n);
    weigh(k);
    if (rc)
        return (struct known_kept){0};
    known_body_hold(k);
    return (struct known_kept){k, true};
}
