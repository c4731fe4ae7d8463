/*
 * SHA-1, where a protocol names texts by it. Not for anything that must be safe.
 */
#ifndef RG_CODEC_SHA1_H
#define RG_CODEC_SHA1_H

#include "common/base/str.h"

enum { SHA1_HEX_LEN = 40 };

/* Writes the hash as lower-case hexadecimal digits, and a NUL. */
void sha1_hex(struct str bytes, char out[SHA1_HEX_LEN + 1]);

#endif
