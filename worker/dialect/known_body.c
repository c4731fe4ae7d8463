/*
 * The known beginning of a body (known_body.h). Each body appends a piece of raw bytes that ends
 * with an item of the list, and the values read from it. Strings of the values point into the
 * pieces, or are decoded separately. If a body differs from the known one, the known one is cut
 * there. The cut bytes stay in the arena, so a known body with too many of them is replaced.
 */
#include "worker/dialect/known_body.h"

#include <string.h>

#include "common/base/mem.h"
#include "worker/dialect/dialect.h"
#include "worker/text/request/chat.h"

/* A known body is replaced if its arena uses more than WORN_FACTOR times the known bytes plus
 * WORN_FREE bytes. */
enum { WORN_FACTOR = 6, WORN_FREE = 128 << 10 };

struct known_piece {
    struct str raw;
    size_t n_items;   /* number of items up to its end, over all pieces */
    uint64_t reading; /* number of the reading that added it */
};

struct known_body {
    atomic_uint holders;
    atomic_bool busy;
    atomic_size_t bytes; /* memory in bytes, for known_body_bytes */
    const struct dialect *dialect;
    struct arena arena;
    struct json list_key;
    size_t escaped_at, surrogate_at; /* like in json_trace; SIZE_MAX: none */
    struct hash128 hashed;
    VEC(struct json) members;
    VEC(struct known_piece) pieces;
    VEC(struct json_mark)
    marks; /* one per item, as in the next vectors */
    VEC(struct json) items;
    VEC(struct json) made;
    VEC(uint32_t) made_bytes;
    size_t calls_at[2]; /* indexes of the first two messages with tool_calls; SIZE_MAX: none */
};

/* --- life --- */

/* Makes a known body with the caller as its only holder. */
static struct known_body *known_body_new(const struct known_reader *by)
{
    struct known_body *k = mem_zalloc(sizeof(*k));

    atomic_init(&k->holders, 1);
    k->dialect = by->dialect;
    k->arena = (struct arena){.tight = true, .sum = by->sum};
    hash128_begin(&k->hashed);
    k->escaped_at = k->surrogate_at = k->calls_at[0] = k->calls_at[1] = SIZE_MAX;
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

static bool has_bytes_at(struct str body, size_t at, struct str raw)
{
    return body.len - at >= raw.len && memcmp(body.p + at, raw.p, raw.len) == 0;
}

/* Returns how many items match. Compares the items of a piece that the body does not contain
 * completely, from item n on, which begins at `at`. */
static size_t match_items(const struct known_body *k, const struct known_piece *piece, size_t n,
                          size_t at, struct str body)
{
    size_t from = at;

    for (; n < piece->n_items; n++) {
        size_t end = k->marks.at[n].end;

        if (!has_bytes_at(body, at, str_sub(piece->raw, at - from, end - at)))
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

        if (!has_bytes_at(body, at, piece->raw))
            return match_items(k, piece, n, at, body);
        at += piece->raw.len;
        n = piece->n_items;
    }
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
        .head = k->pieces.at[0].raw,
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

/* Removes all items after the first n. */
static void cut_items(struct known_body *k, size_t n)
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
    if (k->hashed.bytes > bytes)
        hash128_begin(&k->hashed);
    for (size_t i = 0; i < ARRAY_LEN(k->calls_at); i++)
        if (k->calls_at[i] >= n)
            k->calls_at[i] = SIZE_MAX;
    if (k->escaped_at >= bytes)
        k->escaped_at = SIZE_MAX;
    if (k->surrogate_at > bytes)
        k->surrogate_at = SIZE_MAX;
}

/* Adds an item and the message that the dialect makes of it. Returns -1 if the dialect rejects
 * it. */
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
        if (k->calls_at[1] == SIZE_MAX && json_get(&made, "tool_calls"))
            k->calls_at[k->calls_at[0] != SIZE_MAX] = at;
    }
    *vec_push(&k->items) = *item;
    *vec_push(&k->marks) = *mark;
    return 0;
}

static int add_items(struct known_body *k, struct known_piece piece, const struct json *list,
                     const struct json_mark *marks, size_t n_marks)
{
    if (!json_is(list, JSON_ARRAY) || list->n != n_marks)
        return -1;
    for (size_t i = 0; i < n_marks; i++)
        if (add_item(k, &list->items[i], &marks[i]))
            return -1;
    piece.n_items = k->items.n;
    *vec_push(&k->pieces) = piece;
    return 0;
}

/* Adds the first piece, which includes everything before the list. Parses it with the list and the
 * object closed after the last item. */
static int add_first(struct known_body *k, const struct known_reader *by, struct str raw)
{
    char *text = arena_alloc(&k->arena, raw.len + 2);
    struct json_trace t = {.key = str_cstr(by->dialect->list)};
    struct known_piece piece = {.raw = str_of(text, raw.len), .reading = by->number};
    const struct json *v;
    struct err unread;
    int rc = -1;

    memcpy(text, raw.p, raw.len);
    memcpy(text + raw.len, "]}", 2);
    if (json_parse_traced(&k->arena, str_of(text, raw.len + 2), NULL, &t, &v, &unread) == 0) {
        k->list_key = t.list_key;
        k->escaped_at = t.escaped_at;
        k->surrogate_at = t.surrogate_at;
        for (size_t i = 0; i < t.members.n; i++)
            *vec_push(&k->members) = t.members.at[i];
        rc = add_items(k, piece, json_get_str(v, t.key), t.marks.at, t.marks.n);
    }
    json_trace_done(&t);
    return rc;
}

/* Adds a further piece. Its first comma becomes '[' while it is parsed as a list. */
static int add_more(struct known_body *k, const struct known_reader *by, struct str raw,
                    const struct json_trace *t)
{
    char *text = arena_alloc(&k->arena, raw.len + 1);
    struct known_piece piece = {.raw = str_of(text, raw.len), .reading = by->number};
    size_t comma = str_find(raw, STR(","), 0);
    const struct json *list;
    struct err unread;
    int rc;

    if (comma == SIZE_MAX)
        return -1;
    memcpy(text, raw.p, raw.len);
    text[comma] = '[';
    text[raw.len] = ']';
    rc = json_parse_replacing(&k->arena, str_of(text + comma, raw.len + 1 - comma), &list, &unread);
    text[comma] = ',';
    if (k->escaped_at == SIZE_MAX && t->escaped_at < vec_last(&t->marks).end)
        k->escaped_at = t->escaped_at;
    if (k->surrogate_at == SIZE_MAX && t->surrogate_at <= vec_last(&t->marks).end)
        k->surrogate_at = t->surrogate_at;
    return rc ? -1 : add_items(k, piece, list, t->marks.at, t->marks.n);
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
        k->pieces.cap * sizeof(struct known_piece) +
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
    struct known_body *k = known_body_new(by);

    if (add_first(k, by, raw)) {
        known_body_release(k);
        return (struct known_kept){0};
    }
    hash128_on(&k->hashed, raw);
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
    count_known_bytes(k);
    if (rc)
        return (struct known_kept){0};
    hash128_on(&k->hashed, raw);
    known_body_hold(k);
    return (struct known_kept){k, true};
}
