/*
 * The members of an object as they were read, brought to one of each key. Internal to the reader.
 */
#ifndef RG_CODEC_JSON_MERGE_H
#define RG_CODEC_JSON_MERGE_H

#include <stddef.h>

struct json;
struct json_member;

/* Drops members with an earlier member of their key: the last value takes the first one's position,
 * as in Python's dict. Returns the number of members left. *twice becomes such a key, if there is
 * one. */
size_t json_merge_keys(struct json_member *members, size_t n, struct json *twice);

#endif
