/*
 * SHA-256 of bytes that lie in memory.
 */
#ifndef RG_CODEC_SHA256_H
#define RG_CODEC_SHA256_H

#include "common/base/str.h"

enum { SHA256_HEX_LEN = 64 };

/* Writes the hash as lower-case hexadecimal digits, and a NUL. */
void sha256_hex(struct str bytes, char out[SHA256_HEX_LEN + 1]);

/* Whether text has the form that sha256_hex writes. */
bool sha256_is_hex(struct str text);

#endif
