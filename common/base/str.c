/* Views of bytes (str.h). An absent str has p == NULL and differs from an empty one; functions here
 * treat both as empty unless they say otherwise. The hashes are for tables and for comparing
 * bodies. They are fast and not cryptographic. Tables whose keys come from clients use a seed. */

#include "common/base/str.h"

#include <strings.h>
#include <sys/auxv.h>

/* Compares bytes. A text comes after each of its own prefixes. */
int str_cmp(struct str a, struct str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n ? memcmp(a.p, b.p, n) : 0;

    if (c != 0)
        return c;
    return a.len < b.len ? -1 : a.len > b.len;
}

bool str_eq_nocase(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.p, b.p, a.len) == 0);
}

size_t str_index(struct str s, const char *const *texts, size_t n)
{
    char first = s.len ? s.p[0] : '\0'; /* most texts differ in it */
    size_t i = 0;

    while (i < n && !(texts[i][0] == first && str_eq_c(s, texts[i])))
        i++;
    return i;
}

size_t str_find(struct str s, struct str needle, size_t from)
{
    const char *hit;

    if (from > s.len)
        return SIZE_MAX;
    if (needle.len == 0)
        return from;
    if (needle.len > s.len - from)
        return SIZE_MAX; /* s is too short, or absent */
    hit = memmem(s.p + from, s.len - from, needle.p, needle.len);
    return hit ? (size_t)(hit - s.p) : SIZE_MAX;
}

static bool is_trimmed_byte(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
    while (s.len > 0 && is_trimmed_byte(s.p[0])) {
        s.p++;
        s.len--;
    }
    while (s.len > 0 && is_trimmed_byte(s.p[s.len - 1]))
        s.len--;
    return s;
}

bool str_has_only(struct str s, const char *marks)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c && strchr(marks, c))))
            return false;
    }
    return true;
}

struct str str_cut(struct str *rest, char mark)
{
    size_t end = str_find(*rest, str_of(&mark, 1), 0);
    struct str piece = str_sub(*rest, 0, end);

    *rest = end == SIZE_MAX ? str_of(NULL, 0) : str_sub(*rest, end + 1, SIZE_MAX);
    return piece;
}

int str_to_u64(struct str s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;

    if (s.len == 0)
        return -1;
    for (size_t i = 0; i < s.len; i++) {
        unsigned digit = (unsigned)(unsigned char)s.p[i] - '0';

        if (digit > 9 || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)digit, &v))
            return -1;
    }
    if (v > max)
        return -1;
    *ret = v;
    return 0;
}

static uint64_t mix_words(uint64_t a, uint64_t b)
{
    __uint128_t m = (__uint128_t)a * b;

    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Hashes 16 bytes at a time. */
uint64_t str_hash(struct str s, uint64_t seed)
{
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd1b54a32d192ed03u, k2 = 0x8cb92ba72f3d8dd7u;
    uint64_t h = seed ^ mix_words(s.len ^ k0, k1);
    const char *p = s.p;
    size_t n = s.len;
    uint64_t a = 0, b = 0;

    while (n > 16) {
        memcpy(&a, p, 8);
        memcpy(&b, p + 8, 8);
        h = mix_words(a ^ k1, b ^ h);
        p += 16;
        n -= 16;
    }
    a = b = 0;
    if (n >= 8) {
        memcpy(&a, p, 8);
        memcpy(&b, p + n - 8, 8);
    } else if (n > 0) {
        memcpy(&a, p, n);
    }
    h = mix_words(a ^ k2, b ^ h);
    return mix_words(h ^ k0, k2);
}

/* Returns a random seed that stays the same until the process ends. */
uint64_t str_seed(void)
{
    /* 16 random bytes that the kernel gives to every program at its start, so reading them cannot
     * fail. */
    const void *chance = (const void *)(uintptr_t)getauxval(AT_RANDOM); /* NOLINT */
    uint64_t seed = 0;

    if (chance)
        memcpy(&seed, chance, sizeof(seed));
    return seed;
}

/* Four lanes in parallel, for bodies of megabytes. */
enum { LANES = 4, BLOCK = LANES * 16 };

static const uint64_t MIXED_WITH = 0xd1b54a32d192ed03u;

void hash128_begin(struct hash128 *ret)
{
    *ret = (struct hash128){.lane = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu,
                                     0xa54ff53a5f1d36f1u}};
}

void hash128_on(struct hash128 *h, struct str text)
{
    uint64_t a, b;

    for (; text.len - h->bytes > BLOCK; h->bytes += BLOCK)
        for (size_t i = 0; i < LANES; i++) {
            memcpy(&a, text.p + h->bytes + 16 * i, 8);
            memcpy(&b, text.p + h->bytes + 16 * i + 8, 8);
            h->lane[i] = mix_words(a ^ MIXED_WITH, b ^ h->lane[i]) + a;
        }
}

void hash128_end(struct hash128 *h, struct str text, uint64_t ret[2])
{
    const uint64_t *lane = h->lane, k = MIXED_WITH;
    struct str last;
    uint64_t rest;

    hash128_on(h, text);
    last = str_sub(text, h->bytes, SIZE_MAX);
    rest = str_hash(last, lane[0]);
    ret[0] = mix_words(lane[0] ^ lane[1], lane[2] ^ k) ^ mix_words(rest ^ lane[3], k);
    ret[1] = mix_words(lane[1] ^ rest, lane[3] ^ ret[0]) ^ str_hash(last, lane[2]);
}

void str_hash128(struct str s, uint64_t ret[2])
{
    struct hash128 h;

    hash128_begin(&h);
    hash128_end(&h, s, ret);
}
