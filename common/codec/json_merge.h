/*
 * Merges members of an object that have equal keys. Internal to the reader.
 */
#ifndef RG_CODEC_JSON_MERGE_H
#define RG_CODEC_JSON_MERGE_H

#include <stddef.h>

struct json;
struct json_member;

/* Merges members with equal keys: the last value takes the first one's position, as in Python's
 * dict. Returns the number of members that remain. If keys are equal, sets *twice to one of them.
 */
size_t json_merge_keys(struct json_member *members, size_t n, struct json *twice);

#endif
