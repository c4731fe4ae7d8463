#include "common/codec/sha256.h"

#include <mbedtls/sha256.h>

#include "common/base/check.h"

void sha256_hex(struct str bytes, char out[SHA256_HEX_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[SHA256_HEX_LEN / 2];

    CHECK(mbedtls_sha256_ret((const unsigned char *)bytes.p, bytes.len, hash, 0) == 0);
    for (size_t i = 0; i < sizeof(hash); i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[SHA256_HEX_LEN] = '\0';
}

bool sha256_is_hex(struct str text)
{
    if (text.len != SHA256_HEX_LEN)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!((text.p[i] >= '0' && text.p[i] <= '9') || (text.p[i] >= 'a' && text.p[i] <= 'f')))
            return false;
    return true;
}
