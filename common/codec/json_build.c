/* The capacity of a container is 4, then doubles. No field stores it, because it follows from n. */

#include "common/codec/json_build.h"

#include <string.h>

#include "common/base/buf.h"

struct json json_empty(enum json_kind kind)
{
    return (struct json){.kind = (uint8_t)kind};
}

/* Reports whether a container of n entries is full: n is 0, or a power of two from 4 on. */
static bool needs_growth(uint32_t n)
{
    return n == 0 || (n >= 4 && (n & (n - 1)) == 0);
}

void json_push(struct arena *a, struct json *array, struct json item)
{
    if (needs_growth(array->n)) {
        struct json *more = arena_alloc(a, (array->n ? (size_t)array->n * 2 : 4) * sizeof(*more));

        if (array->n)
            memcpy(more, array->items, array->n * sizeof(*more));
        array->items = more;
    }
    array->items[array->n++] = item;
}

void json_put_str(struct arena *a, struct json *object, struct str key, struct json value)
{
    if (needs_growth(object->n)) {
        struct json_member *more =
            arena_alloc(a, (object->n ? (size_t)object->n * 2 : 4) * sizeof(*more));

        if (object->n)
            memcpy(more, object->members, object->n * sizeof(*more));
        object->members = more;
    }
    object->members[object->n++] = (struct json_member){json_make_string(key), value};
}

const struct json *json_keep(struct arena *a, struct json v)
{
    struct json *copy = ARENA_NEW(a, struct json);

    *copy = v;
    return copy;
}

struct json json_text_of(struct arena *a, const struct json *v)
{
    struct buf b = {0};
    struct str text;

    json_write(&b, v);
    text = arena_str(a, buf_str(&b));
    buf_done(&b);
    return json_make_string(text);
}

enum { WORD_MAX = 12 };

/* Returns a static string for the words of nearly every message, which need no copy. */
static const char *copy_word(struct arena *a, struct str s)
{
    static const struct str words[] = {
        STR_LIT("role"),   STR_LIT("content"),      STR_LIT("user"),       STR_LIT("assistant"),
        STR_LIT("tool"),   STR_LIT("text"),         STR_LIT("type"),       STR_LIT("function"),
        STR_LIT("id"),     STR_LIT("tool_call_id"), STR_LIT("tool_calls"), STR_LIT("name"),
        STR_LIT("system"), STR_LIT("arguments")};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(s, words[i]))
            return words[i].p;
    return arena_cstr(a, s);
}

/* Copies deeply, except the words of nearly every message. */
static void copy_into(struct arena *a, const struct json *v, struct json *ret)
{
    *ret = *v;
    switch ((enum json_kind)v->kind) {
    case JSON_NULL:
    case JSON_BOOL:
        break;
    case JSON_NUMBER:
    case JSON_STRING:
        ret->text = v->n <= WORD_MAX ? copy_word(a, json_text(v)) : arena_cstr(a, json_text(v));
        break;
    case JSON_ARRAY:
        ret->items = arena_calloc(a, v->n, sizeof(*v->items));
        for (uint32_t i = 0; i < v->n; i++)
            copy_into(a, &v->items[i], &ret->items[i]);
        break;
    case JSON_OBJECT:
        ret->members = arena_calloc(a, v->n, sizeof(*v->members));
        for (uint32_t i = 0; i < v->n; i++) {
            copy_into(a, &v->members[i].key, &ret->members[i].key);
            copy_into(a, &v->members[i].value, &ret->members[i].value);
        }
        break;
    }
}

const struct json *json_copy(struct arena *a, const struct json *v)
{
    struct json *ret = ARENA_NEW(a, struct json);

    copy_into(a, v, ret);
    return ret;
}
