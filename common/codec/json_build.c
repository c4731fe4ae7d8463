/* Building JSON values in an arena (json_build.h). Items are appended; the room doubles, and no
 * count of it is kept, as it follows from n. Values are borrowed: what a value points to must
 * live as long as what it is put into. */

#include "common/codec/json_build.h"

#include <string.h>

#include "common/base/buf.h"

struct json json_empty(enum json_kind kind)
{
    return (struct json){.kind = (uint8_t)kind};
}

/* Room doubles whenever n is a power of two from 4 on. */
static bool needs_growth(uint32_t n)
{
    return n == 0 || (n >= 4 && (n & (n - 1)) == 0);
}

/* Appends an item to an array. */
void json_push(struct arena *a, struct json *array, struct json item)
{
    if (needs_growth(array->n)) {
        struct json *more = arena_calloc(a, array->n ? (size_t)array->n * 2 : 4, sizeof(*more));

        if (array->n)
            memcpy(more, array->items, array->n * sizeof(*more));
        array->items = more;
    }
    array->items[array->n++] = item;
}

/* Appends a member; a key that is there already is not looked for. */
void json_put(struct arena *a, struct json *object, const char *key, struct json value)
{
    if (needs_growth(object->n)) {
        struct json_member *more =
            arena_calloc(a, object->n ? (size_t)object->n * 2 : 4, sizeof(*more));

        if (object->n)
            memcpy(more, object->members, object->n * sizeof(*more));
        object->members = more;
    }
    object->members[object->n++] = (struct json_member){json_make_string(str_cstr(key)), value};
}

const struct json *json_keep(struct arena *a, struct json v)
{
    struct json *copy = ARENA_NEW(a, struct json);

    *copy = v;
    return copy;
}

/* A value's JSON text, as a string value. */
struct json json_text_of(struct arena *a, const struct json *v)
{
    struct buf b = {0};
    struct str text;

    json_write(&b, v);
    text = arena_str(a, buf_str(&b));
    buf_done(&b);
    return json_make_string(text);
}
