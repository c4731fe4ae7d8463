/* Long requests that are packed while they arrive: unpacking returns the received bytes. */
#include "common/serve/packed_input.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "testing.h"

enum { WHOLE = 9 << 20, PIECE = 100003, MIDDLE = WHOLE - 2 * PACKED_ENDS };

/* Makes a request of base64 text. In its middle blocks every `gap`-th byte is `odd`; 0: none. */
static char *make_request(size_t gap, char odd)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(WHOLE);
    uint32_t state = 7;

    for (size_t i = 0; i < WHOLE; i++) {
        state = state * 1664525 + 1013904223;
        text[i] = alphabet[state >> 26];
    }
    for (size_t i = gap; gap > 0 && i < WHOLE; i += gap)
        text[i] = odd;
    return text;
}

/* Adds the text in pieces, as the network does. */
static void come(struct packed_input *p, char *at, const char *text)
{
    packed_input_begin(p, at, WHOLE);
    for (size_t n = 0; n < WHOLE;) {
        size_t piece = MIN_OF((size_t)PIECE, WHOLE - n);

        memcpy(at + n, text + n, piece);
        n += piece;
        packed_input_add(p, at + n);
    }
}

static size_t count_packed(const struct packed_input *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_blocks; i++)
        n += p->packed[i];
    return n;
}

struct kind {
    size_t gap;
    char odd;
    bool packs; /* a part is packed */
};

/* Unpacks one byte of the middle, then its surroundings, then everything, twice. Returns what is
 * wrong, or NULL. */
static const char *open_in_steps(struct packed_input *p, const char *at, const char *text)
{
    const size_t mid = WHOLE / 2, around = 70000;

    if (memcmp(at, text, PACKED_ENDS) != 0 ||
        memcmp(at + WHOLE - PACKED_ENDS, text + WHOLE - PACKED_ENDS, PACKED_ENDS) != 0)
        return "an end is packed";
    packed_input_open(p, str_of(at + mid, 1));
    if (at[mid] != text[mid])
        return "a byte is another";
    packed_input_open(p, str_of(at + mid - around, 2 * around));
    if (memcmp(at + mid - around, text + mid - around, 2 * around) != 0)
        return "a part is another";
    packed_input_open(p, str_of(at, WHOLE));
    packed_input_open(p, str_of(at, WHOLE));
    if (count_packed(p) > 0)
        return "something is still packed";
    return memcmp(at, text, WHOLE) != 0 ? "it is another" : NULL;
}

static const char *try_kind(const struct kind *k, char *at)
{
    char *text = make_request(k->gap, k->odd);
    struct packed_input p = {0};
    const char *why = NULL;

    come(&p, at, text);
    if ((count_packed(&p) > 0) != k->packs)
        why = "packed or not";
    if (!why)
        why = open_in_steps(&p, at, text);
    packed_input_done(&p);
    free(text);
    return why;
}

TEST(packed_input, base64_is_packed_and_opened_again)
{
    static const struct kind kinds[] = {
        {0, 0, true},        {1 << 20, '"', true}, {300000, '=', true},
        {5000, '\\', false}, {100, ' ', false},
    };
    char *room = mem_map(WHOLE + 4096);

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) * 4; i++) {
        const char *why = try_kind(&kinds[i / 4], room + i % 4 * 1365);

        cr_expect_null(why, "kind %zu: %s", i / 4, why);
    }
    mem_unmap(room, WHOLE + 4096);
}

static bool is_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

TEST(packed_input, all_but_the_ends_of_base64_takes_three_quarters)
{
    const size_t kept = PACKED_BLOCK / 4 * 3;
    char *text = make_request(0, 0), *room = mem_map(WHOLE);
    struct packed_input p = {0};
    size_t given_back = 0;

    come(&p, room, text);
    for (size_t i = 0; i < p.n_blocks; i++)
        if (is_zero(p.blocks + i * PACKED_BLOCK + kept, PACKED_BLOCK - kept))
            given_back += PACKED_BLOCK - kept;
    cr_expect_geq(given_back, ((size_t)MIDDLE - 2 * (size_t)PACKED_BLOCK) / 4);
    packed_input_done(&p);
    free(text);
    mem_unmap(room, WHOLE);
}

/* Base64 in the first half, other text in the second. */
TEST(packed_input, tells_whether_the_newest_block_is_packed)
{
    char *text = make_request(0, 0), *room = mem_map(WHOLE);
    struct packed_input p = {0};

    memset(text + WHOLE / 2, ' ', WHOLE / 2);
    memcpy(room, text, WHOLE);
    packed_input_begin(&p, room, WHOLE);
    cr_expect_not(packed_input_packs(&p));
    packed_input_add(&p, room + WHOLE / 2);
    cr_expect(packed_input_packs(&p));
    packed_input_add(&p, room + WHOLE);
    cr_expect_not(packed_input_packs(&p));
    packed_input_done(&p);
    free(text);
    mem_unmap(room, WHOLE);
}

TEST(packed_input, short_requests_stay_as_they_are)
{
    struct packed_input p = {0};
    char *text = make_request(0, 0);

    packed_input_begin(&p, text, PACKED_LEAST - 1);
    packed_input_add(&p, text + PACKED_LEAST - 1);
    packed_input_open(&p, str_of(text, PACKED_LEAST - 1));
    cr_expect_null(p.packed);
    packed_input_done(&p);
    free(text);
}
