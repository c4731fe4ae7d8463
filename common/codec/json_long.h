/*
 * JSON_RAW values: of a member of an object whose value is long, only the compact text is kept. So
 * whoever stores such an object and tells it again (metadata, rewards) neither walks nor copies a
 * tree of many small values: megabytes of text are copied as bytes, and take no more memory than
 * they are (a value of a tree has 16 bytes beside its text).
 */
#ifndef RG_CODEC_JSON_LONG_H
#define RG_CODEC_JSON_LONG_H

#include <stdbool.h>

#include "common/base/arena.h"
#include "common/base/str.h"

struct json;

/* A list, an object or a string of more bytes is long (counted by json_text_bytes; text: by its
 * length). Numbers never are: who reads a number by name always finds it. */
enum { JSON_LONG_BYTES = 4096 };

/* A value of that compact JSON text, which is borrowed and has at most UINT32_MAX bytes. */
struct json json_make_raw(struct str text);

/* The object with JSON_RAW values in the place of its long ones; `object` itself if it has none.
 * All is in the arena, or borrowed from `object`. */
const struct json *json_keep_long(struct arena *a, const struct json *object);

/* Whether some value of the object is JSON_RAW. NULL has none. */
bool json_has_raw(const struct json *object);

#endif
