/*
 * Reads msgpack into JSON values: our own exports (docs/trajectories.md), which files hold.
 * Arrays of ids, masks and logprobs (ext types 1, 2, 3) are strings of raw little-endian bytes with
 * a flag that says which. Bytes (bin) are strings, too.
 */
#ifndef RG_CODEC_MSGPACK_READ_H
#define RG_CODEC_MSGPACK_READ_H

#include "common/codec/json.h"

/* Flags of strings, next to those of json.h. */
enum { MSGPACK_IDS = 0x10, MSGPACK_MASK = 0x20, MSGPACK_FLOATS = 0x40, MSGPACK_BYTES = 0x80 };

/* Reads the first value of *bytes and cuts it off. Values point into the arena and into the bytes.
 * -1: ERR_INVALID with the offset; *bytes is unchanged. */
int msgpack_read(struct arena *a, struct str *bytes, const struct json **ret, struct err *e);

#endif
