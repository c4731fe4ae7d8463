/*
 * struct str: a borrowed run of bytes, not NUL-terminated, may hold NUL bytes. The maker of the
 * bytes owns them. A str whose p is NULL is "absent"; len is then 0.
 */
#ifndef RG_BASE_STR_H
#define RG_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t len;
};

/* A str over a string literal, usable in initialisers. */
#define STR_LIT(s)            \
    {                         \
        ("" s), sizeof(s) - 1 \
    }
#define STR(s) ((struct str)STR_LIT(s))

static inline struct str str_of(const char *p, size_t len)
{
    return (struct str){p, len};
}

static inline struct str str_cstr(const char *s)
{
    return (struct str){s, s ? strlen(s) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
    /* Absent ones have no length. NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
    return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

static inline bool str_eq_c(struct str a, const char *b)
{
    return str_eq(a, str_cstr(b));
}

static inline bool str_starts(struct str s, struct str head)
{
    return s.len >= head.len && (head.len == 0 || memcmp(s.p, head.p, head.len) == 0);
}

static inline bool str_ends(struct str s, struct str tail)
{
    return s.len >= tail.len &&
           (tail.len == 0 || memcmp(s.p + s.len - tail.len, tail.p, tail.len) == 0);
}

/* The bytes [from, from+len) clipped to s. */
static inline struct str str_sub(struct str s, size_t from, size_t len)
{
    if (from > s.len)
        from = s.len;
    if (len > s.len - from)
        len = s.len - from;
    return (struct str){from > 0 ? s.p + from : s.p, len}; /* s may be absent */
}

/* Order by bytes, then by length; for sorting. */
int str_cmp(struct str a, struct str b);

/* ASCII case-insensitive equality (header names). */
bool str_eq_nocase(struct str a, struct str b);

/* Position of the first `needle` at or after `from`, or SIZE_MAX. Empty needles match at from. */
size_t str_find(struct str s, struct str needle, size_t from);

/* s without leading and trailing spaces, tabs, CR and LF. */
struct str str_trim(struct str s);

/* Decimal digits only, the whole of s, no sign; 0 on success, -1 when empty, not digits or above
 * max (*ret is then untouched). */
int str_to_u64(struct str s, uint64_t max, uint64_t *ret);

/* A 64-bit hash of the bytes (seeded wyhash-style mixing, ours); stable across processes and
 * builds, so it may be stored, but not proof against chosen collisions without a secret seed. */
uint64_t str_hash(struct str s, uint64_t seed);

/* 128 bits of the same kind, four blocks abreast: for long texts. */
void str_hash128(struct str s, uint64_t ret[2]);

/* State of str_hash128 after the first `bytes` of a text. Texts with the same beginning share it;
 * it can be copied like any value. */
struct hash128 {
    uint64_t lane[4];
    size_t bytes;
};

/* Starts a hash; hash128_on follows. */
void hash128_begin(struct hash128 *ret);

/* Continues with the whole `text`, of which h->bytes have been hashed already. Hashes all further
 * bytes except its last block of at most 64 bytes. */
void hash128_on(struct hash128 *h, struct str text);

/* str_hash128 of `text`, which begins with what h has taken and is longer, unless that is nothing.
 */
void hash128_end(struct hash128 *h, struct str text, uint64_t ret[2]);

/* A seed of this process, by chance: for tables of keys that others choose. */
uint64_t str_seed(void);

#endif
