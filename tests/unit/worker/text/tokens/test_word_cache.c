/*
 * The cache of encoded words: no word may be mistaken for another.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/attrs.h"
#include "tokens_kit.h"
#include "worker/text/tokens/word_cache.h"

static bool found(const struct word_cache *c, struct str word, int32_t id)
{
    struct word_key key = word_key(word);
    const struct word_line *line = word_cache_get(word_cache_set(c, &key), &key);

    return line && word_line_count(line) == 1 && line->ids[0] == id;
}

static void put(const struct word_cache *c, struct str word, int32_t id)
{
    struct word_key key = word_key(word);

    word_cache_put(word_cache_set(c, &key), &key, &id, 1);
}

/* Tests every length, a change of each byte, and zeros, which could look like absent bytes. */
TEST(word_cache, tells_words_apart)
{
    struct word_key keys[2 * WORD_CACHE_KEY_MAX * (WORD_CACHE_KEY_MAX + 1)];
    size_t n = 0;

    for (size_t len = 1; len <= WORD_CACHE_KEY_MAX; len++) {
        for (size_t at = 0; at <= len; at++) {
            for (int zeros = 0; zeros < 2; zeros++) {
                char word[WORD_CACHE_KEY_MAX];

                memset(word, zeros ? 0 : 'a', sizeof(word));
                if (at < len)
                    word[at] = zeros ? 'c' : 'b';
                keys[n++] = word_key(str_of(word, len));
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(keys[i].at[2] >> 56, 0);
        for (size_t k = 0; k < i; k++)
            cr_assert(memcmp(&keys[i], &keys[k], sizeof(keys[i])) != 0, "%zu %zu", i, k);
    }
}

TEST(word_cache, keeps_the_two_newest_of_a_set)
{
    struct word_key first = word_key(STR("word 0"));
    struct word_line *set;
    struct word_cache c;
    char text[2][32] = {"", ""};
    int32_t many[WORD_CACHE_IDS_MAX + 1] = {0};
    size_t n = 0;

    word_cache_init(&c);
    set = word_cache_set(&c, &first);
    cr_assert_null(word_cache_get(set, &first));
    word_cache_put(set, &first, many, ARRAY_LEN(many));
    cr_assert_null(word_cache_get(set, &first));
    put(&c, STR("word 0"), 0);
    cr_assert(found(&c, STR("word 0"), 0));
    for (int i = 1; n < 2; i++) { /* two more words in the same set */
        struct word_key key;

        snprintf(text[n], sizeof(text[n]), "word %d", i);
        key = word_key(str_cstr(text[n]));
        n += word_cache_set(&c, &key) == set;
    }
    put(&c, str_cstr(text[0]), 1);
    cr_assert(found(&c, STR("word 0"), 0));
    put(&c, str_cstr(text[1]), 2);
    cr_assert_null(word_cache_get(set, &first));
    cr_assert(found(&c, str_cstr(text[0]), 1));
    cr_assert(found(&c, str_cstr(text[1]), 2));
    word_cache_done(&c);
}

/* After a large block was freed, the C library allocates blocks of this size from its heap. */
TEST(word_cache, an_unused_one_takes_no_memory)
{
    enum { PAGE = 4096, BYTES = sizeof(struct word_line) * WORD_CACHE_WAYS << WORD_CACHE_BITS };

    unsigned char in_memory[BYTES / PAGE] = {0};
    char *volatile large = calloc(1, 8 * BYTES);
    size_t first, n = 0;
    struct word_cache c;

    free(large);
    word_cache_init(&c);
    first = ((size_t)c.lines + PAGE - 1) / PAGE * PAGE;
    cr_assert_eq(mincore((void *)first, BYTES - PAGE, in_memory), 0);
    for (size_t i = 0; i < BYTES / PAGE; i++)
        n += in_memory[i] & 1;
    cr_expect_eq(n, 0);
    word_cache_done(&c);
}
