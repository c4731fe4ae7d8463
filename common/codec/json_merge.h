/*
 * The members of an object as they were read, brought to one of each key. Internal to the reader.
 */
#ifndef RG_CODEC_JSON_MERGE_H
#define RG_CODEC_JSON_MERGE_H

#include <stddef.h>

struct json;
struct json_member;

/* Drops members whose key came before: the last value stands at the first key's place, as in
 * Python's dict. Returns how many are left; *twice becomes such a key, if there is one. */
size_t json_merge_keys(struct json_member *members, size_t n, struct json *twice);

#endif
