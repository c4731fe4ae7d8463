/*
 * Builds JSON values in an arena. An array or object that grows here must grow nowhere else,
 * because its capacity is derived from its length.
 */
#ifndef RG_CODEC_JSON_BUILD_H
#define RG_CODEC_JSON_BUILD_H

#include "common/base/arena.h"
#include "common/codec/json.h"

/* Returns an empty array or object. */
struct json json_empty(enum json_kind kind);

/* Appends an item or a member. The contents of item, key and value are borrowed: they must live as
 * long as the container. json_put does not search for an equal key. */
void json_push(struct arena *a, struct json *array, struct json item);
void json_put_str(struct arena *a, struct json *object, struct str key, struct json value);

static inline void json_put(struct arena *a, struct json *object, const char *key,
                            struct json value)
{
    json_put_str(a, object, str_cstr(key), value);
}

/* Returns a string whose content is the JSON text of v. */
struct json json_text_of(struct arena *a, const struct json *v);

/* Copies the value into the arena and returns the copy. */
const struct json *json_keep(struct arena *a, struct json v);

/* Copies the value deeply into the arena. The words of nearly every message are shared. */
const struct json *json_copy(struct arena *a, const struct json *v);

#endif
