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

/* Reports whether n bytes are equal. Short ones need no call, because a request compares hundreds.
 * The two loads of a side may overlap. */
static inline bool bytes_eq(const char *a, const char *b, size_t n)
{
    uint64_t a8[2], b8[2];
    uint32_t a4[2], b4[2];

    if (n > 16)
        return memcmp(a, b, n) == 0;
    if (n >= 8) {
        memcpy(&a8[0], a, 8);
        memcpy(&b8[0], b, 8);
        memcpy(&a8[1], a + n - 8, 8);
        memcpy(&b8[1], b + n - 8, 8);
        return ((a8[0] ^ b8[0]) | (a8[1] ^ b8[1])) == 0;
    }
    if (n >= 4) {
        memcpy(&a4[0], a, 4);
        memcpy(&b4[0], b, 4);
        memcpy(&a4[1], a + n - 4, 4);
        memcpy(&b4[1], b + n - 4, 4);
        return ((a4[0] ^ b4[0]) | (a4[1] ^ b4[1])) == 0;
    }
    return n == 0 || (a[0] == b[0] && a[n / 2] == b[n / 2] && a[n - 1] == b[n - 1]);
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && bytes_eq(a.p, b.p, a.len);
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

/* Returns the bytes [from, from+len) clipped to s. */
static inline struct str str_sub(struct str s, size_t from, size_t len)
{
    if (from > s.len)
        from = s.len;
    if (len > s.len - from)
        len = s.len - from;
    return (struct str){from > 0 ? s.p + from : s.p, len}; /* s may be absent */
}

/* Compares by bytes, then by length; for sorting. */
int str_cmp(struct str a, struct str b);

/* Compares without regard to ASCII case (header names). */
bool str_eq_nocase(struct str a, struct str b);

/* Returns the index of the first of n texts that equals s, or n. */
size_t str_index(struct str s, const char *const *texts, size_t n);

static inline bool str_is_one_of(struct str s, const char *const *texts, size_t n)
{
    return str_index(s, texts, n) < n;
}

/* Returns the position of the first `needle` at or after `from`, or SIZE_MAX. An empty needle
 * matches at `from`. */
size_t str_find(struct str s, struct str needle, size_t from);

/* Returns s without leading and trailing spaces, tabs, CR and LF. */
struct str str_trim(struct str s);

/* Reports whether all bytes are ASCII letters, digits or bytes of `marks`. */
bool str_has_only(struct str s, const char *marks);

/* Returns the text up to the next mark, and removes it from *rest with the mark. Without a mark
 * that is all, and *rest becomes absent. */
struct str str_cut(struct str *rest, char mark);

/* Reads s, which must be decimal digits only, without a sign. Returns 0, or -1 if it is empty, not
 * digits or above max (*ret is then unchanged). */
int str_to_u64(struct str s, uint64_t max, uint64_t *ret);

/* Returns a 64-bit hash of the bytes (seeded wyhash-style mixing). It is the same in all processes
 * and builds, so it may be stored. Without a secret seed, clients can choose texts that collide. */
uint64_t str_hash(struct str s, uint64_t seed);

/* Computes 128 bits like str_hash, but faster for long texts: four blocks at a time. */
void str_hash128(struct str s, uint64_t ret[2]);

/* State of str_hash128 after the first `bytes` of a text. Texts with the same beginning share it.
 * It may be copied like any value. */
struct hash128 {
    uint64_t lane[4];
    size_t bytes;
};

/* Starts a hash; hash128_on follows. */
void hash128_begin(struct hash128 *ret);

/* Continues with the whole `text`, of which h->bytes have been hashed already. Hashes all further
 * bytes except the last block of at most 64 bytes. */
void hash128_on(struct hash128 *h, struct str text);

/* Returns str_hash128 of `text`, which begins with the bytes that h has hashed and is longer than
 * them, unless h is empty. */
void hash128_end(struct hash128 *h, struct str text, uint64_t ret[2]);

/* Returns the process's random seed, for tables whose keys clients choose. */
uint64_t str_seed(void);

#endif
