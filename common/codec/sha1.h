/*
 * SHA-1, for protocols that name texts by it. Not for security.
 */
#ifndef RG_CODEC_SHA1_H
#define RG_CODEC_SHA1_H

#include "common/base/str.h"

enum { SHA1_HEX_LEN = 40 };

/* Writes the hash as lower-case hexadecimal digits and a NUL. */
void sha1_hex(struct str bytes, char out[SHA1_HEX_LEN + 1]);

#endif
