/*
 * SHA-256 by mbedtls. Digits are lower case, and sha256_is_hex accepts no others: hashes are
 * compared and used as file names, so each hash must have one spelling.
 */
#include "common/codec/sha256.h"

#include <mbedtls/sha256.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/hex.h"

struct sha256 {
    mbedtls_sha256_context context;
};

void sha256_hex(struct str bytes, char out[SHA256_HEX_LEN + 1])
{
    unsigned char hash[SHA256_HEX_LEN / 2];

    CHECK(mbedtls_sha256_ret((const unsigned char *)bytes.p, bytes.len, hash, 0) == 0);
    *hex_write(out, hash, sizeof(hash)) = '\0';
}

struct sha256 *sha256_begin(void)
{
    struct sha256 *h = mem_zalloc(sizeof(*h));

    mbedtls_sha256_init(&h->context);
    CHECK(mbedtls_sha256_starts_ret(&h->context, 0) == 0);
    return h;
}

void sha256_add(struct sha256 *h, struct str piece)
{
    CHECK(mbedtls_sha256_update_ret(&h->context, (const unsigned char *)piece.p, piece.len) == 0);
}

void sha256_end(struct sha256 *h, char out[SHA256_HEX_LEN + 1])
{
    unsigned char hash[SHA256_HEX_LEN / 2];

    CHECK(mbedtls_sha256_finish_ret(&h->context, hash) == 0);
    *hex_write(out, hash, sizeof(hash)) = '\0';
    sha256_drop(h);
}

void sha256_drop(struct sha256 *h)
{
    if (!h)
        return;
    mbedtls_sha256_free(&h->context);
    free(h);
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
