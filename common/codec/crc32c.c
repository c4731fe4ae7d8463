/* If the processor has no instruction for CRC-32C, tables process eight bytes in each step
 * ("slicing by 8"). Tests compare both ways. */

#include "common/codec/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "common/base/attrs.h"

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

enum { REFLECTED_POLY = 0x82f63b78 };

static uint32_t table[8][256]; /* table[k][b]: byte b followed by k zero bytes */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? (uint32_t)REFLECTED_POLY : 0);
        table[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int k = 1; k < 8; k++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xff];
    }
}

uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    (void)pthread_once(&table_once, make_table);
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t next = 0;

        for (int k = 0; k < 8; k++)
            next ^= table[7 - k][(uint8_t)(p[k] ^ (k < 4 ? crc >> (8 * k) : 0))];
        crc = next;
    }
    for (; n > 0; n--)
        crc = crc >> 8 ^ table[0][(uint8_t)(crc ^ *p++)];
    return ~crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p,
                                                                 size_t n)
{
    uint64_t c = ~crc & 0xffffffffu;
    uint64_t word;

    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
    for (; n > 0; n--)
        c = _mm_crc32_u8((uint32_t)c, *p++);
    return ~(uint32_t)c;
}
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
#ifdef __x86_64__
    if (RG_LIKELY(__builtin_cpu_supports("sse4.2")))
        return by_instruction(crc, bytes, n);
#endif
    return crc32c_table(crc, bytes, n);
}

/* Multiplies two polynomials modulo that of the checksum. Their highest bit is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (; a; a <<= 1) {
        product ^= a & 0x80000000u ? b : 0;
        b = b >> 1 ^ (b & 1 ? (uint32_t)REFLECTED_POLY : 0);
    }
    return product;
}

uint32_t crc32c_move(uint32_t crc, size_t n)
{
    uint32_t power = 1u << (31 - 8); /* x^8: one byte */

    for (; n > 0; n >>= 1) {
        crc = n & 1 ? multiply(crc, power) : crc;
        power = multiply(power, power);
    }
    return crc;
}
