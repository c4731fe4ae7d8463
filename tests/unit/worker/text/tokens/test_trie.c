/*
 * Compares the search for added tokens with a simple one, for tokens with and without common
 * starts.
 */
#include "common/base/attrs.h"
#include "common/base/budget.h"
#include "tokens_kit.h"
#include "worker/text/tokens/trie.h"

/* Finds the longest pattern at the leftmost matching position. */
static bool find_plainly(const char *const *patterns, size_t n, struct str text, size_t from,
                         struct trie_match *ret)
{
    for (size_t at = from; at < text.len; at++) {
        size_t best = 0;

        for (size_t i = 0; i < n; i++) {
            struct str p = str_cstr(patterns[i]);

            if (p.len > best && str_starts(str_sub(text, at, text.len), p)) {
                best = p.len;
                *ret = (struct trie_match){at, at + p.len, (int32_t)i};
            }
        }
        if (best > 0)
            return true;
    }
    return false;
}

static void compare(const char *const *patterns, size_t n)
{
    struct trie t = {0};
    struct budget budget;
    unsigned seed = 3;

    budget_init(&budget, UINT64_MAX / 2, 0, 0, NULL);
    for (size_t i = 0; i < n; i++)
        trie_add(&t, str_cstr(patterns[i]), (int32_t)i);
    for (int round = 0; round < 20000; round++) {
        char text[24];
        size_t len = kit_random(&seed, sizeof(text) + 1);

        for (size_t i = 0; i < len; i++)
            text[i] = "<|ab> x"[kit_random(&seed, 7)];
        for (size_t from = 0; from <= len;) {
            struct trie_match want = {0}, got = {0};
            bool is = find_plainly(patterns, n, str_of(text, len), from, &want);

            cr_assert_eq(trie_find(&t, str_of(text, len), from, &budget, &got), is);
            if (!is)
                break;
            cr_assert(got.start == want.start && got.end == want.end && got.value == want.value);
            from = got.end;
        }
    }
    trie_done(&t);
    cr_assert(trie_empty(&t));
}

TEST(trie, equals_a_plain_search)
{
    static const char *const alike[] = {"<|a|>", "<|ab", "<b>", "<<"};
    static const char *const others[] = {"<|a", "a>", "ab|", "x", "||"};

    compare(alike, ARRAY_LEN(alike));
    compare(others, ARRAY_LEN(others));
}
