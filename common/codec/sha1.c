/* SHA-1 by mbedtls. */
#include "common/codec/sha1.h"

#include <mbedtls/sha1.h>

#include "common/base/check.h"

void sha1_hex(struct str bytes, char out[SHA1_HEX_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[SHA1_HEX_LEN / 2];

    CHECK(mbedtls_sha1_ret((const unsigned char *)bytes.p, bytes.len, hash) == 0);
    for (size_t i = 0; i < sizeof(hash); i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[SHA1_HEX_LEN] = '\0';
}
