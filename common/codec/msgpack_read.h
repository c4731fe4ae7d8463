/*
 * Reads msgpack files of our own exports (docs/trajectories.md) into JSON values. Arrays of ids,
 * masks and logprobs (ext types 1, 2, 3) become strings of raw little-endian bytes, with a flag
 * that says which. Bytes (bin) become strings, too.
 */
#ifndef RG_CODEC_MSGPACK_READ_H
#define RG_CODEC_MSGPACK_READ_H

#include "common/codec/json.h"

/* Flags of strings, in addition to those of json.h. */
enum { MSGPACK_IDS = 0x10, MSGPACK_MASK = 0x20, MSGPACK_FLOATS = 0x40, MSGPACK_BYTES = 0x80 };

/* Reads the first value of *bytes and removes it from *bytes. Values point into the arena and into
 * the bytes. Fails with ERR_INVALID and the offset; *bytes is unchanged then. */
int msgpack_read(struct arena *a, struct str *bytes, const struct json **ret, struct err *e);

#endif
