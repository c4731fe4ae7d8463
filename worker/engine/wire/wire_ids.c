/*
 * Writes the ids of a prompt (wire_write.h), which are most of a request's bytes: with AVX-512
 * eight at a time, and sixteen if all are short, else three digits at a time, from tables that stay
 * in the nearest cache. A table of whole ids is slower, because most of its lines are in no cache.
 * The tables are made by the first call, without a lock, so wire_ids may be called on the loop
 * only.
 */
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/buf.h"
#include "common/codec/json.h"
#include "worker/engine/wire/remote.h"
#include "worker/engine/wire/wire_write.h"
#include "worker/text/tokens/span.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    GROUP = 1000, /* values of three digits */
    ID_MOST = 11, /* bytes of an id and its comma, at most */
    ID_BLOCK = 1024,
    EIGHT = 8,
    SIXTEEN = 16
};

/* Text of an id in two words of 4 bytes: the digits before the last three, then those and a comma.
 * The second one is at GROUP + its value if no digits precede it: then it has no leading zeros. */
static struct {
    char head[GROUP][4], tail[2 * GROUP][4];
    uint8_t head_len[GROUP], tail_len[2 * GROUP];
} id_words;

/* Writes the digits and a comma. Returns the number of bytes. */
static unsigned write_digits(uint32_t id, char *out)
{
    char digits[10];
    unsigned n = 0, len = 0;

    do {
        digits[n++] = (char)('0' + id % 10);
        id /= 10;
    } while (id > 0);
    while (n > 0)
        out[len++] = digits[--n];
    out[len++] = ',';
    return len;
}

static void make_id_words(void)
{
    for (uint32_t i = 0; i < GROUP; i++) {
        char text[ID_MOST];
        unsigned n = write_digits(GROUP + i, text); /* "1", three digits, and the comma */

        memcpy(id_words.tail[i], text + 1, n - 1);
        id_words.tail_len[i] = (uint8_t)(n - 1);
        n = write_digits(i, text);
        memcpy(id_words.tail[GROUP + i], text, n);
        id_words.tail_len[GROUP + i] = (uint8_t)n;
        memcpy(id_words.head[i], text, n);
        id_words.head_len[i] = (uint8_t)(i > 0 ? n - 1 : 0);
    }
}

/* Writes an id below GROUP * GROUP and a comma. What follows overwrites the surplus bytes. */
static char *write_id(char *p, uint32_t id)
{
    uint32_t head = id / GROUP, tail = id % GROUP + (head == 0 ? GROUP : 0);

    memcpy(p, id_words.head[head], sizeof(id_words.head[head]));
    p += id_words.head_len[head];
    memcpy(p, id_words.tail[tail], sizeof(id_words.tail[tail]));
    return p + id_words.tail_len[tail];
}

/* Writes each id and a comma. Returns the end of the text. No known vocabulary has ids of more than
 * six digits. */
static char *write_ids(char *p, struct token_span ids)
{
    for (size_t i = 0; i < ids.n; i++) {
        uint32_t id = (uint32_t)ids.at[i];

        p = RG_LIKELY(id < GROUP * GROUP) ? write_id(p, id) : p + write_digits(id, p);
    }
    return p;
}

#ifdef __x86_64__

#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vbmi2,popcnt")))

static bool wide_able(void)
{
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vbmi2");
}

/* Writes each number below 1000, one in each 32 bits, as three bytes, the first digit lowest. The
 * products divide by 100 and by 10. */
WIDE static inline __m512i three_digits(__m512i v)
{
    __m512i hundreds = _mm512_srli_epi16(_mm512_mullo_epi16(v, _mm512_set1_epi32(41)), 12);
    __m512i rest = _mm512_sub_epi32(v, _mm512_mullo_epi16(hundreds, _mm512_set1_epi32(100)));
    __m512i tens = _mm512_srli_epi16(_mm512_mullo_epi16(rest, _mm512_set1_epi32(103)), 10);
    __m512i ones = _mm512_sub_epi32(rest, _mm512_mullo_epi16(tens, _mm512_set1_epi32(10)));

    return _mm512_or_epi32(_mm512_or_epi32(hundreds, _mm512_slli_epi32(tens, 8)),
                           _mm512_slli_epi32(ones, 16));
}

/* Writes the chosen bytes of a text. Stores 64 bytes; what follows overwrites the surplus. */
WIDE static inline char *write_chosen(char *p, uint64_t bytes, __m512i text)
{
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi8(bytes, text));
    return p + _mm_popcnt_u64(bytes);
}

/* Writes eight ids, each with a comma, from 64 bits each: three digits, an unused byte, three
 * digits, the comma. */
WIDE static inline char *write_eight(char *p, const int32_t *at)
{
    const __m512i text = _mm512_set1_epi64(0x2c30303000303030); /* ",000 000", backwards */
    const __m512i last_digit = _mm512_set1_epi64((int64_t)1 << 55);
    __m512i ids = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(const void *)at));
    /* 4294968 / 2^32: a thousandth */
    __m512i head = _mm512_srli_epi64(_mm512_mul_epu32(ids, _mm512_set1_epi64(4294968)), 32);
    __m512i tail = _mm512_sub_epi64(ids, _mm512_mul_epu32(head, _mm512_set1_epi64(GROUP)));
    __m512i digits = three_digits(_mm512_or_epi64(head, _mm512_slli_epi64(tail, 32)));
    /* sets all bits from the lowest one on, so the top bits of all bytes from the first digit on */
    __m512i from = _mm512_or_epi64(digits, last_digit);
    __m512i shown = _mm512_or_epi64(from, _mm512_sub_epi64(_mm512_setzero_si512(), from));

    if (RG_UNLIKELY(_mm512_cmpge_epu64_mask(ids, _mm512_set1_epi64((int64_t)GROUP * GROUP))))
        return write_ids(p, (struct token_span){at, EIGHT});
    return write_chosen(p, _mm512_movepi8_mask(shown) & 0xf7f7f7f7f7f7f7f7,
                        _mm512_add_epi8(digits, text));
}

/* Writes sixteen ids. If all are below GROUP, such as bytes as tokens, each is made from 32 bits:
 * three digits and the comma. */
WIDE static inline char *write_sixteen(char *p, const int32_t *at)
{
    const __m512i text = _mm512_set1_epi32(0x2c303030); /* ",000", backwards */
    __m512i ids = _mm512_loadu_si512(at), digits, from, shown;

    if (_mm512_cmpge_epu32_mask(ids, _mm512_set1_epi32(GROUP)))
        return write_eight(write_eight(p, at), at + EIGHT);
    digits = three_digits(ids);
    from = _mm512_or_epi32(digits, _mm512_set1_epi32(1 << 23)); /* the last digit */
    shown = _mm512_or_epi32(from, _mm512_sub_epi32(_mm512_setzero_si512(), from));
    return write_chosen(p, _mm512_movepi8_mask(shown), _mm512_add_epi8(digits, text));
}

/* Like write_ids. */
WIDE static char *write_ids_wide(char *p, struct token_span ids)
{
    size_t i = 0;

    for (; i + SIXTEEN <= ids.n; i += SIXTEEN)
        p = write_sixteen(p, ids.at + i);
    for (; i + EIGHT <= ids.n; i += EIGHT)
        p = write_eight(p, ids.at + i);
    return write_ids(p, (struct token_span){ids.at + i, ids.n - i});
}

#else

static bool wide_able(void)
{
    return false;
}

static char *write_ids_wide(char *p, struct token_span ids)
{
    return write_ids(p, ids);
}

#endif

/* Appends a block. Reserves what it can take, which write_chosen does not exceed. If there is less
 * space, also reserves `rest` bytes for what follows. */
static void add_block(struct buf *b, struct token_span block, size_t rest)
{
    size_t most = (block.n + 1) * ID_MOST;
    char *p = buf_reserve(b, b->cap - b->len < most ? most + rest : most), *end;

    end = wide_able() ? write_ids_wide(p, block) : write_ids(p, block);
    b->len += (size_t)(end - p);
}

void wire_reserve(struct wire_send *s, size_t n)
{
    enum { ID_USUAL = 5, BESIDES = 1024, IDS_MOST = 8192 }; /* wire_ids reserves for more */

    size_t slack = MIN_OF(n, (size_t)ID_BLOCK) * (ID_MOST - ID_USUAL); /* for add_block */

    (void)buf_reserve(&s->body, MIN_OF(n, (size_t)IDS_MOST) * ID_USUAL + slack + BESIDES);
}

/* Expects of the ids that follow that they are as long as those before, and reserves an eighth more
 * for them: the text is not moved as it grows, and long memory that stays unused is cleared by the
 * kernel for each request. */
void wire_ids(struct json_out *o, struct token_parts ids)
{
    size_t from, n = 0;

    if (id_words.tail_len[0] == 0)
        make_id_words();
    json_out_arr(o);
    from = o->b->len;
    for (size_t k = 0; k < ids.n_parts; k++) {
        struct token_span part = ids.parts[k];

        for (size_t i = 0; i < part.n; i += ID_BLOCK) {
            struct token_span block = {part.at + i, MIN_OF(part.n - i, (size_t)ID_BLOCK)};

            add_block(o->b, block, n > 0 ? (ids.n - n) * (o->b->len - from) / n * 9 / 8 : 0);
            n += block.n;
        }
    }
    o->b->len -= ids.n > 0; /* drops the last comma */
    json_out_end_arr(o);
}
