/*
 * CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected, RFC 3720 appendix B.4). Uses the SSE4.2
 * instruction if the processor has it. Pure.
 */
#ifndef RG_CODEC_CRC32C_H
#define RG_CODEC_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of n bytes. `crc` is 0 for the first piece of a text, and the previous
 * result for each further piece. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);

/* Returns a checksum moved over n bytes: for texts A and B, the checksum of A followed by B is
 * crc32c_move(A's checksum, B's length) ^ B's checksum. */
uint32_t crc32c_move(uint32_t crc, size_t n);

/* Computes the same checksum by tables on every processor. For tests. */
uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t n);

#endif
