/*
 * Building JSON values in an arena. Arrays and objects that grow here must only grow here: their
 * room is known by their length.
 */
#ifndef RG_CODEC_JSON_BUILD_H
#define RG_CODEC_JSON_BUILD_H

#include "common/base/arena.h"
#include "common/codec/json.h"

/* An empty array or object. */
struct json json_empty(enum json_kind kind);

/* Appends; the content of item, key and value is borrowed. */
void json_push(struct arena *a, struct json *array, struct json item);
void json_put(struct arena *a, struct json *object, const char *key, struct json value);

/* A string that holds the value's JSON text. */
struct json json_text_of(struct arena *a, const struct json *v);

/* The value itself, put into the arena. */
const struct json *json_keep(struct arena *a, struct json v);

#endif
