/* Ids and random numbers (ids.h), from a generator seeded once by the kernel. A session id is
 * "w<worker index>-<hex>": the index is all that a router needs, the rest makes it unique and
 * unguessable. */

#include "common/proc/ids.h"

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/platform_util.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/hex.h"

/* The generator computes a new key for each request, however short. So short requests are served
 * from bytes that were made in advance; each byte is used once and then erased. */
struct ids {
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context drbg;
    unsigned char ready[256];
    size_t n_ready; /* number of bytes in `ready` that are not used yet, from its start */
};

struct ids *ids_new(struct err *e)
{
    static const unsigned char purpose[] = "rollgate session ids";
    struct ids *ids = mem_zalloc(sizeof(*ids));
    int rc;

    mbedtls_entropy_init(&ids->entropy);
    mbedtls_ctr_drbg_init(&ids->drbg);
    rc = mbedtls_ctr_drbg_seed(&ids->drbg, mbedtls_entropy_func, &ids->entropy, purpose,
                               sizeof(purpose) - 1);
    if (rc != 0) {
        err_set(e, ERR_INTERNAL, "no random seed (mbedTLS error -0x%04x)", (unsigned)-rc);
        ids_free(ids);
        return NULL;
    }
    return ids;
}

/* Frees the generator; accepts NULL. */
void ids_free(struct ids *ids)
{
    if (!ids)
        return;
    mbedtls_ctr_drbg_free(&ids->drbg);
    mbedtls_entropy_free(&ids->entropy);
    mbedtls_platform_zeroize(ids->ready, sizeof(ids->ready));
    free(ids);
}

static void copy_ready(struct ids *ids, void *out, size_t len_bytes)
{
    if (ids->n_ready < len_bytes) {
        CHECK(mbedtls_ctr_drbg_random(&ids->drbg, ids->ready, sizeof(ids->ready)) == 0);
        ids->n_ready = sizeof(ids->ready);
    }
    ids->n_ready -= len_bytes;
    memcpy(out, ids->ready + ids->n_ready, len_bytes);
    mbedtls_platform_zeroize(ids->ready + ids->n_ready, len_bytes);
}

/* Splits long requests into the largest size that the generator accepts. */
void ids_random(struct ids *ids, void *out, size_t len_bytes)
{
    unsigned char *p = out;

    if (len_bytes <= sizeof(ids->ready) / 4) {
        copy_ready(ids, out, len_bytes);
        return;
    }
    while (len_bytes > 0) {
        size_t n = MIN_OF(len_bytes, (size_t)MBEDTLS_CTR_DRBG_MAX_REQUEST);

        CHECK(mbedtls_ctr_drbg_random(&ids->drbg, p, n) == 0);
        p += n;
        len_bytes -= n;
    }
}

void ids_hex(struct ids *ids, char *out, size_t n_bytes)
{
    unsigned char raw[64];

    while (n_bytes > 0) {
        size_t n = MIN_OF(n_bytes, sizeof(raw));

        ids_random(ids, raw, n);
        out = hex_write(out, raw, n);
        n_bytes -= n;
    }
    *out = 0;
    mbedtls_platform_zeroize(raw, sizeof(raw));
}

static bool ids_are_bare;

void ids_set_bare(bool on)
{
    ids_are_bare = on;
}

size_t ids_session(struct ids *ids, uint32_t index, char ret_text[ID_TEXT_MAX])
{
    int head;

    CHECK(index <= ID_INDEX_MAX);
    head = ids_are_bare ? 0 : snprintf(ret_text, ID_TEXT_MAX, "w%u-", index);
    CHECK(head >= 0 && head + ID_HEX_LEN < ID_TEXT_MAX);
    ids_hex(ids, ret_text + head, ID_HEX_LEN / 2);
    return (size_t)head + ID_HEX_LEN;
}

static const unsigned char is_hex[256] = {['0' ... '9'] = 1, ['a' ... 'f'] = 1};

/* Checks the hex digits without a branch per digit: they are random, and a router does this for
 * every request. */
static bool ends_in_hex(struct str text)
{
    unsigned hex = 1;

    for (size_t i = text.len - ID_HEX_LEN; i < text.len; i++)
        hex &= is_hex[(unsigned char)text.p[i]];
    return hex;
}

/* Accepts exactly one text for one id: no leading zeros, lower case. */
int ids_parse(struct str text, uint32_t *ret_index)
{
    uint64_t index;
    size_t digits;

    if (ids_are_bare && text.len == ID_HEX_LEN && ends_in_hex(text)) {
        *ret_index = 0;
        return 0;
    }
    if (text.len < 1 + 1 + 1 + ID_HEX_LEN || text.len >= ID_TEXT_MAX || text.p[0] != 'w')
        return -1;
    digits = text.len - 2 - ID_HEX_LEN;
    if (text.p[1 + digits] != '-' || (text.p[1] == '0' && digits > 1))
        return -1;
    if (str_to_u64(str_sub(text, 1, digits), ID_INDEX_MAX, &index))
        return -1;
    if (!ends_in_hex(text))
        return -1;
    *ret_index = (uint32_t)index;
    return 0;
}

const char *ids_form(void)
{
    return ids_are_bare ? "<32 hex digits>" : "w<index>-<32 hex digits>";
}

static size_t count_hex(struct str s)
{
    size_t n = 0;

    while (n < s.len && is_hex[(unsigned char)s.p[n]])
        n++;
    return n;
}

/* Returns the text after "w<digits>-", or the whole text if it does not begin so. */
static struct str tail_of(struct str text, bool *ret_has_head)
{
    size_t n = 1;

    *ret_has_head = false;
    if (text.len < 3 || text.p[0] != 'w')
        return text;
    while (n < text.len && text.p[n] >= '0' && text.p[n] <= '9')
        n++;
    *ret_has_head = n > 1 && n < text.len && text.p[n] == '-';
    return *ret_has_head ? str_sub(text, n + 1, SIZE_MAX) : text;
}

const char *ids_fault(struct str text)
{
    bool has_head;
    struct str tail = tail_of(text, &has_head);
    size_t digits = count_hex(tail);
    uint32_t index;

    if (ids_parse(text, &index) == 0)
        return NULL;
    if (text.len == 0)
        return "it is empty";
    if (str_find(text, STR("%"), 0) != SIZE_MAX)
        return "it is percent-encoded, which no id needs";
    for (size_t i = 0; i < text.len; i++)
        if (text.p[i] >= 'A' && text.p[i] <= 'F')
            return "it has upper-case letters";
    if (!has_head && ids_are_bare)
        return "it has no 32 hex digits";
    if (!has_head)
        return digits == ID_HEX_LEN ? "its w<index>- is missing"
                                    : "it does not begin with w<index>-";
    if (digits == tail.len && digits < ID_HEX_LEN)
        return "it is cut: it has fewer hex digits";
    if (digits >= ID_HEX_LEN && tail.len > ID_HEX_LEN)
        return "something follows its 32 hex digits";
    if (digits < tail.len)
        return "it has other characters than hex digits";
    return "its index is none: a number up to 999999 without leading zeros";
}
