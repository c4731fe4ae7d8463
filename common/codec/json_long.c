/* Long values as their text (json_long.h). */
#include "common/codec/json_long.h"

#include <string.h>

#include "common/codec/json.h"

struct json json_make_raw(struct str text)
{
    return (struct json){.kind = JSON_RAW, .n = (uint32_t)text.len, {.text = text.p}};
}

static bool is_long(const struct json *v)
{
    bool may_be = v->kind == JSON_STRING || v->kind == JSON_ARRAY || v->kind == JSON_OBJECT;

    return may_be && json_text_bytes(v, JSON_LONG_BYTES + 1) > JSON_LONG_BYTES;
}

static struct json kept(struct arena *a, const struct json *v)
{
    struct buf text = {0};
    struct json ret;

    json_write(&text, v);
    ret = json_make_raw(arena_str(a, buf_str(&text)));
    buf_done(&text);
    return ret;
}

const struct json *json_keep_long(struct arena *a, const struct json *object)
{
    struct json *ret = NULL;

    for (uint32_t i = 0; json_is(object, JSON_OBJECT) && i < object->n; i++) {
        if (!is_long(&object->members[i].value))
            continue;
        if (!ret) {
            ret = arena_alloc(a, sizeof(*ret));
            *ret = *object;
            ret->members = arena_alloc(a, object->n * sizeof(*ret->members));
            memcpy(ret->members, object->members, object->n * sizeof(*ret->members));
        }
        ret->members[i].value = kept(a, &object->members[i].value);
    }
    return ret ? ret : object;
}

bool json_has_raw(const struct json *object)
{
    for (uint32_t i = 0; json_is(object, JSON_OBJECT) && i < object->n; i++)
        if (object->members[i].value.kind == JSON_RAW)
            return true;
    return false;
}
