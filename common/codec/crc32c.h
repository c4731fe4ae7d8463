/*
 * CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected, RFC 3720 appendix B.4), by the SSE4.2
 * instruction where the machine has it. Pure.
 */
#ifndef RG_CODEC_CRC32C_H
#define RG_CODEC_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of n bytes; `crc` is 0 for the first piece, then the result of the piece before. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);

/* Computes the sum by table on every machine, for tests. */
uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t n);

#endif
