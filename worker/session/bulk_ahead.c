/* The bulk of a record, of its parts (bulk_ahead.h). */
#include "worker/session/bulk_ahead.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/check.h"

enum { FIRST_BYTES = 512 << 10 };

size_t bulk_ahead_bytes(const struct bulk_ahead *b)
{
    return b->cap + b->places.cap * sizeof(*b->places.at);
}

/* By a half: pages that are not used yet cost nothing, and long ones are not copied. */
static void make_room(struct bulk_ahead *b, size_t need)
{
    size_t cap = MAX_OF(MAX_OF(b->cap + b->cap / 2, need), (size_t)FIRST_BYTES);

    if (need <= b->cap)
        return;
    b->room = payload_resize(b->room, b->cap, cap);
    b->cap = cap;
}

bool bulk_ahead_add(struct bulk_ahead *b, struct str part, uint32_t record)
{
    size_t at = b->bytes.len;

    if (part.len > UINT32_MAX - at)
        return false;
    make_room(b, at + part.len);
    memcpy(b->room + at, part.p, part.len);
    b->bytes = str_of(b->room, at + part.len);
    *vec_push(&b->places) = (struct payload_part){record, (uint32_t)at};
    return true;
}

char *bulk_ahead_take(struct bulk_ahead *b, struct arena *a, const struct payload_parts **ret)
{
    size_t n = b->places.n;
    struct payload_parts *parts = arena_alloc(a, sizeof(*parts) + n * sizeof(struct payload_part));
    char *bytes = payload_resize(b->room, b->cap, b->bytes.len);

    CHECK(n > 0);
    parts->n = (uint32_t)n;
    memcpy(parts->at, b->places.at, n * sizeof(struct payload_part));
    *ret = parts;
    vec_done(&b->places);
    *b = (struct bulk_ahead){0};
    return bytes;
}

void bulk_ahead_done(struct bulk_ahead *b)
{
    payload_free_room(b->room, b->cap);
    vec_done(&b->places);
    *b = (struct bulk_ahead){0};
}
