/*
 * SHA-256 of bytes in memory or in pieces.
 */
#ifndef RG_CODEC_SHA256_H
#define RG_CODEC_SHA256_H

#include "common/base/str.h"

enum { SHA256_HEX_LEN = 64 };

/* Writes the hash as lower-case hexadecimal digits and a NUL. */
void sha256_hex(struct str bytes, char out[SHA256_HEX_LEN + 1]);

/* Hashes several pieces: begin, add each one, then end, which frees h. sha256_drop frees h without
 * a result, and accepts NULL. */
struct sha256;
struct sha256 *sha256_begin(void);
void sha256_add(struct sha256 *h, struct str piece);
void sha256_end(struct sha256 *h, char out[SHA256_HEX_LEN + 1]);
void sha256_drop(struct sha256 *h);

/* Reports whether text has the form that sha256_hex writes. */
bool sha256_is_hex(struct str text);

#endif
