/* SHA-1 by mbedtls. */
#include "common/codec/sha1.h"

#include <mbedtls/sha1.h>

#include "common/base/check.h"
#include "common/codec/hex.h"

void sha1_hex(struct str bytes, char out[SHA1_HEX_LEN + 1])
{
    unsigned char hash[SHA1_HEX_LEN / 2];

    CHECK(mbedtls_sha1_ret((const unsigned char *)bytes.p, bytes.len, hash) == 0);
    *hex_write(out, hash, sizeof(hash)) = '\0';
}
