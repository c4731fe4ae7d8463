#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/base/vec.h"
#include "testing.h"

TEST(str, to_u64_refuses_what_is_no_number)
{
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x1", "18446744073709551616"};
    uint64_t v = 42;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(str_to_u64(str_cstr(bad[i]), UINT64_MAX, &v), -1, "%s", bad[i]);
    cr_assert_eq(v, 42);
    cr_assert_eq(str_to_u64(STR("18446744073709551615"), UINT64_MAX, &v), 0);
    cr_assert_eq(v, UINT64_MAX);
    cr_assert_eq(str_to_u64(STR("100"), 99, &v), -1);
}

TEST(str, hash_sees_every_byte)
{
    char text[64] = {0};
    uint64_t base = str_hash(str_of(text, 64), 1);

    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = 1;
        cr_assert_neq(str_hash(str_of(text, 64), 1), base, "byte %zu", i);
        text[i] = 0;
    }
    cr_assert_neq(str_hash(str_of(text, 63), 1), base);
}

TEST(str, hash128_sees_every_byte_and_the_length)
{
    char text[200];
    uint64_t base[2], other[2];

    memset(text, 'x', sizeof(text));
    for (size_t n = 1; n < sizeof(text); n += 7) {
        str_hash128(str_of(text, n), base);
        for (size_t i = 0; i < n; i++) {
            text[i] ^= 1;
            str_hash128(str_of(text, n), other);
            cr_assert(base[0] != other[0] && base[1] != other[1], "%zu of %zu", i, n);
            text[i] ^= 1;
        }
        str_hash128(str_of(text, n - 1), other);
        cr_assert(base[0] != other[0] && base[1] != other[1], "length %zu", n);
    }
}

TEST(str, hash128_goes_on_from_any_place)
{
    char text[400];
    uint64_t whole[2], on[2];

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i * 31);
    for (size_t n = 0; n < sizeof(text); n += 3)
        for (size_t known = 0; known <= n; known++) {
            struct hash128 h;

            str_hash128(str_of(text, n), whole);
            hash128_begin(&h);
            hash128_on(&h, str_of(text, known));
            cr_assert_leq(h.bytes, known);
            hash128_end(&h, str_of(text, n), on);
            cr_assert(whole[0] == on[0] && whole[1] == on[1], "%zu of %zu", known, n);
        }
}

TEST(str, find_and_trim)
{
    cr_assert_eq(str_find(STR("abcabc"), STR("bc"), 2), 4);
    cr_assert_eq(str_find(STR("abc"), STR("x"), 0), SIZE_MAX);
    cr_assert(str_eq_c(str_trim(STR(" \ta b\r\n")), "a b"));
    cr_assert(str_eq_nocase(STR("Content-Length"), STR("content-length")));
}

TEST(str, cut_removes_pieces_until_nothing_is_left)
{
    struct str rest = STR("a,,b"), end = STR("a\n");

    cr_assert(str_eq_c(str_cut(&rest, ','), "a"));
    cr_assert_eq(str_cut(&rest, ',').len, 0);
    cr_assert(rest.p && str_eq_c(str_cut(&rest, ','), "b"));
    cr_assert_not(rest.p);
    cr_assert_not(str_cut(&rest, ',').p);
    cr_assert(str_eq_c(str_cut(&end, '\n'), "a"));
    cr_assert(end.p && end.len == 0, "text that ends with a mark leaves an empty piece");
}

TEST(str, has_only_letters_digits_and_marks)
{
    cr_assert(str_has_only(STR("aZ9-."), ".-") && str_has_only(STR(""), ""));
    cr_assert(!str_has_only(STR("a_b"), ".-") && !str_has_only(STR("a\0"), ".-"));
}

TEST(str, index_of_a_text_in_a_list)
{
    static const char *const texts[] = {"a", "b", "a"};

    cr_assert_eq(str_index(STR("a"), texts, 3), 0);
    cr_assert_eq(str_index(STR("b"), texts, 3), 1);
    cr_assert_eq(str_index(STR("ab"), texts, 3), 3);
    cr_assert_eq(str_index(str_of(NULL, 0), texts, 3), 3);
    cr_assert(str_is_one_of(STR("b"), texts, 2) && !str_is_one_of(STR("b"), texts, 1));
}

TEST(str, each_byte_counts_for_equality)
{
    char a[40], b[40];

    for (size_t n = 0; n <= sizeof(a); n++) {
        memset(a, 'x', sizeof(a));
        memset(b, 'x', sizeof(b));
        cr_assert(str_eq(str_of(a, n), str_of(b, n)), "%zu bytes", n);
        for (size_t i = 0; i < n; i++) {
            b[i] = 'y';
            cr_assert_not(str_eq(str_of(a, n), str_of(b, n)), "%zu bytes, byte %zu", n, i);
            b[i] = 'x';
        }
    }
    cr_assert(str_eq(str_of(NULL, 0), STR("")));
    cr_assert_not(str_eq(STR("a"), STR("ab")));
}

TEST(buf, grows_and_consumes)
{
    struct buf b = {0};

    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i);
    cr_assert(str_starts(buf_str(&b), STR("0,1,2,")));
    buf_consume(&b, 2);
    cr_assert(str_starts(buf_str(&b), STR("1,2,")));
    buf_done(&b);
}

TEST(arena, is_aligned_and_survives_reset)
{
    struct arena a = {0};

    for (size_t i = 1; i < 5000; i += 7) {
        char *p = arena_zalloc(&a, i);

        cr_assert_eq((uintptr_t)p % ARENA_ALIGN, 0);
        memset(p, 0xff, i);
    }
    arena_reset(&a);
    cr_assert_eq(a.used_bytes, 0);
    cr_assert(str_eq_c(arena_printf(&a, "%s-%d", "x", 3), "x-3"));
    arena_done(&a);
}

TEST(arena, prints_as_well_where_a_chunk_ends)
{
    for (int len = 0; len < 64; len++) {
        struct arena a = {0};
        char want[64];
        struct str got, again;

        memset(want, 'x', (size_t)len);
        want[len] = 0;
        (void)arena_alloc(&a, 1);
        (void)arena_alloc(&a, (size_t)(a.end - a.at) - 32); /* leaves 32 bytes in the chunk */
        got = arena_printf(&a, "%s", want);
        again = arena_printf(&a, "%d", len);
        cr_expect(str_eq_c(got, want) && got.p[len] == 0, "%d bytes", len);
        cr_expect_eq(str_to_u64(again, 64, &(uint64_t){0}), 0);
        arena_done(&a);
    }
}

TEST(arena, a_kept_chunk_serves_the_next)
{
    struct arena a = {0}, b = {0};
    char *first, *second;

    arena_keep_chunks();
    first = arena_alloc(&a, 16);
    second = arena_alloc(&a, 4096); /* in a chunk of 8 KiB */
    arena_done(&a);
    cr_expect(ARENA_ADDRESSES_CHECKED || arena_alloc(&b, 4096) == (void *)first);
    cr_expect(ARENA_ADDRESSES_CHECKED || arena_alloc(&b, 8192) == (void *)second);
    cr_expect(ARENA_ADDRESSES_CHECKED || arena_alloc(&a, 16) != (void *)first);
    cr_expect(ARENA_ADDRESSES_CHECKED || (a.held_bytes > 4096 && b.held_bytes > 4096));
    arena_done(&a);
    arena_done(&b);
}

/* arena_drop frees a large block at once. Other chunks stay and are filled further. */
TEST(arena, what_stands_alone_is_given_back)
{
    enum { LARGE = 3 << 20 };

    atomic_size_t sum = 0;
    struct arena a = {.sum = &sum};
    char *early = arena_alloc_alone(&a, LARGE), *small, *late;

    small = arena_alloc(&a, 16);
    memset(small, 1, 16);
    memset(early, 2, LARGE);
    late = arena_alloc_alone(&a, LARGE);
    memset(late, 3, LARGE);
    cr_expect_gt(sum, 2 * LARGE);
    arena_drop(&a, early);
    arena_drop(&a, small); /* a small block is not freed */
    arena_drop(&a, NULL);
    cr_expect_lt(sum, LARGE + 65536);
    cr_expect_eq(sum, a.held_bytes);
    cr_expect_lt(a.used_bytes, LARGE + 64);
    cr_expect_eq(small[15], 1);
    cr_expect_eq(late[LARGE - 1], 3);
    cr_expect_eq(arena_alloc(&a, 16), small + 16);
    arena_reset(&a);
    memset(arena_alloc(&a, 16), 4, 16);
    arena_done(&a);
    cr_expect_eq(sum, 0);
}

/* Blocks also move from the heap to separate pages. Only the current block counts as used. */
TEST(arena, what_stands_alone_grows)
{
    static const size_t sizes[] = {100, 100, 5000, 100 << 10, 200 << 10, 3 << 20, (3 << 20) + 1};

    atomic_size_t sum = 0;
    struct arena a = {.sum = &sum};
    char *p = NULL, *other = arena_alloc_alone(&a, 300 << 10);
    size_t had = 0;

    memset(other, 7, 300 << 10);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        p = arena_grow_alone(&a, p, sizes[i]);
        for (size_t j = 0; j < had; j++)
            cr_assert_eq(p[j], (char)(j % 127), "byte %zu of %zu", j, had);
        for (had = 0; had < sizes[i]; had++)
            p[had] = (char)(had % 127);
        cr_expect_lt(sum, sizes[i] + (300 << 10) + 16384);
        cr_expect_eq(sum, a.held_bytes);
        cr_expect_eq(a.used_bytes, sizes[i] + (300 << 10) + ARENA_ALIGN);
    }
    cr_expect_eq(other[(300 << 10) - 1], 7);
    arena_drop(&a, p);
    arena_done(&a);
    cr_expect_eq(sum, 0);
}

/* The adopted memory counts as used memory of the arena until it is freed. */
TEST(arena, memory_of_the_heap_becomes_its_own)
{
    atomic_size_t sum = 0;
    struct arena a = {.sum = &sum, .max_bytes = 3000};

    for (int round = 0; round < 2; round++) {
        arena_own(&a, mem_alloc(1000), 1000);
        arena_own(&a, mem_alloc(2000), 2000);
        cr_expect_eq(sum, a.held_bytes);
        cr_expect_geq(a.held_bytes, 3000);
        cr_expect_eq(a.used_bytes, 3000);
        cr_expect_not(arena_over(&a));
        (void)arena_alloc(&a, 16);
        cr_expect(arena_over(&a));
        arena_reset(&a);
        cr_expect_eq(a.used_bytes, 0);
        cr_expect_eq(sum, a.held_bytes);
        cr_expect_lt(sum, 3000 + 2000);
    }
    arena_own(&a, mem_alloc(1000), 1000);
    arena_done(&a);
    cr_expect_eq(sum, 0);
}

/* The chunk with more free space is filled further, whichever arena it came from. */
TEST(arena, one_takes_over_what_another_has)
{
    atomic_size_t sum_to = 0, sum_from = 0;

    for (size_t n = 0; n < 4; n++) {
        struct arena to = {.sum = &sum_to}, from = {.sum = &sum_from, .tight = true};
        char *a = n & 1 ? arena_cstr(&to, STR("to")) : NULL;
        char *b = n & 2 ? arena_cstr(&from, STR("from")) : NULL, *large = NULL;
        size_t held, used;

        if (n == 3) {
            large = memset(arena_alloc(&from, 100000), 'x', 100000); /* fills the chunk */
            (void)arena_alloc(&to, 100);
        }
        held = to.held_bytes + from.held_bytes;
        used = to.used_bytes + from.used_bytes;
        arena_absorb(&to, &from);
        cr_assert_eq(to.held_bytes, held);
        cr_assert_eq(to.used_bytes, used);
        cr_assert_eq(from.held_bytes, 0);
        cr_assert_null(from.chunks);
        cr_assert_eq(atomic_load(&sum_to), held);
        cr_assert_eq(atomic_load(&sum_from), 0);
        for (unsigned i = 0; i < 1000; i++)
            memset(arena_alloc(&to, 64), 0, 64);
        cr_assert(!a || strcmp(a, "to") == 0);
        cr_assert(!b || strcmp(b, "from") == 0);
        cr_assert(!large || (large[0] == 'x' && large[99999] == 'x'));
        arena_done(&from);
        arena_done(&to);
        cr_assert_eq(atomic_load(&sum_to), 0);
    }
}

/* Empty allocations must not use a chunk each. */
TEST(arena, empty_allocations_cost_next_to_nothing)
{
    struct arena a = {0};
    size_t first;

    (void)arena_alloc(&a, 1);
    first = a.held_bytes;
    cr_assert_gt(first, 0);
    for (int i = 0; i < 100; i++)
        cr_assert_not_null(arena_calloc(&a, 0, 24));
    cr_assert_eq(a.held_bytes, first);
    arena_reset(&a);
    cr_assert_eq(a.held_bytes, first);
    arena_done(&a);
    cr_assert_eq(a.held_bytes, 0);
}

TEST(vec, push_and_pop)
{
    VEC(int) v = {0};

    for (int i = 0; i < 100; i++)
        *vec_push(&v) = i;
    cr_assert_eq(vec_pop(&v), 99);
    cr_assert_eq(v.n, 99);
    vec_done(&v);
}

TEST(err, has_one_type_for_a_status_in_each_dialect)
{
    static const struct {
        enum err_kind kind;
        int status; /* HTTP status of the engine; 0: none */
        const char *openai, *messages;
    } cases[] = {
        {ERR_INVALID, 0, "invalid_request_error", "invalid_request_error"},
        {ERR_UNKNOWN_SESSION, 0, "not_found_error", "not_found_error"},
        {ERR_STATE_CONFLICT, 0, "conflict_error", "invalid_request_error"},
        {ERR_OVERLOADED, 0, "rate_limit_error", "rate_limit_error"},
        {ERR_DRAINING, 0, "server_error", "overloaded_error"},
        {ERR_ENGINE_TIMEOUT, 0, "server_error", "timeout_error"},
        {ERR_ENGINE_REFUSED, 429, "rate_limit_error", "rate_limit_error"},
        {ERR_ENGINE_REFUSED, 418, "invalid_request_error", "invalid_request_error"},
        {ERR_SESSION_ENDED, 400, "invalid_request_error", "invalid_request_error"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = {.kind = cases[i].kind, .status = cases[i].status};

        cr_assert_str_eq(err_openai_type(&e), cases[i].openai);
        cr_assert_str_eq(err_messages_type(&e), cases[i].messages);
    }
}

TEST(err, carries_status_and_retry)
{
    struct err e;

    cr_assert_eq(err_set(&e, ERR_DRAINING, "closing %d", 3), -1);
    cr_assert_eq(err_status(&e), 503);
    cr_assert(err_retry(&e));
    cr_assert_str_eq(err_code(&e), "draining");
    cr_assert_eq(err_field(&e, "n", "must be 1..%d", 8), -1);
    cr_assert_str_eq(e.param, "n");
    cr_assert_eq(err_status(&e), 400);
}

/* Long-lived arenas waste at most a fifth. Short-lived ones have few chunks. */
static void let(void *thing)
{
    (*(int *)thing)++;
}

/* Bodies of errors are JSON. */
TEST(err, is_utf8_wherever_a_text_is_cut)
{
    struct err e;

    (void)err_set(&e, ERR_INVALID, "\"%.5s\" and \xff\xfe\xe4\xb8\x96 \x80",
                  "\xf0\x9f\x98\x80\xf0\x9f");
    cr_assert_str_eq(e.text, "\"\xf0\x9f\x98\x80?\" and ?\xe4\xb8\x96 ?");
    err_add(&e, "%s", "\xe4");
    cr_assert_str_eq(e.text, "\"\xf0\x9f\x98\x80?\" and ?\xe4\xb8\x96 ??");
    for (size_t n = 0; n < sizeof(e.text) + 8; n++) {
        (void)err_field(&e, "\xe4\xb8", "%*s\xe4\xb8\x96\xe4\xb8\x96", (int)n, "");
        cr_assert(utf8_valid(str_cstr(e.text)));
        cr_assert_str_eq(e.param, "?");
    }
}

TEST(arena, holds_what_its_values_point_into_until_it_is_given_back)
{
    struct arena a = {0};
    int one = 0, two = 0;

    arena_hold(&a, let, &one);
    arena_hold(&a, let, &two);
    cr_assert_eq(a.used_bytes, 0);
    (void)arena_alloc(&a, 10);
    cr_assert(one == 0 && two == 0);
    arena_reset(&a);
    cr_assert(one == 1 && two == 1);
    arena_hold(&a, let, &one);
    arena_done(&a);
    arena_done(&a);
    cr_assert(one == 2 && two == 1);
}

TEST(arena, tight_holds_little_more_than_it_gave)
{
    struct arena tight = {.tight = true}, wide = {0};

    for (int i = 0; i < 20000; i++) {
        (void)arena_alloc(&tight, 48);
        (void)arena_alloc(&wide, 48);
        cr_assert_leq(tight.held_bytes, tight.used_bytes / 8 * 9 + 8192, "%zu", tight.used_bytes);
    }
    cr_expect_leq(wide.held_bytes, 2 * wide.used_bytes + (1 << 20));
    cr_expect_eq(tight.used_bytes, wide.used_bytes);
    arena_done(&tight);
    arena_done(&wide);
}

/* Texts that are longer than the end of the newest chunk do not waste it. */
TEST(arena, tight_fills_a_chunk_beside_long_texts)
{
    struct arena a = {.tight = true};

    for (int i = 0; i < 2000; i++) {
        (void)arena_alloc(&a, i % 4 == 0 ? 2500 : 48);
        cr_assert_leq(a.held_bytes, a.used_bytes + a.used_bytes / 6 + 4096, "%zu", a.used_bytes);
    }
    arena_done(&a);
}

/* Small tables stay at their address. Large ones move with their content. */
TEST(mem, a_table_in_large_pages_keeps_what_it_holds)
{
    enum { N = 700000 };

    uint32_t *small = mem_alloc(100), *large = mem_alloc(N * sizeof(*large)), *moved;

    for (uint32_t i = 0; i < N; i++)
        large[i] = i * 7;
    cr_assert_eq(mem_to_large_pages(small, 100), small);
    moved = mem_to_large_pages(large, N * sizeof(*large));
    cr_assert_eq((uintptr_t)moved % ((uintptr_t)2 << 20), 0);
    for (uint32_t i = 0; i < N; i++)
        cr_assert_eq(moved[i], i * 7);
    free(small);
    free(moved);
}

TEST(mem, a_large_page_begins_behind_any_place)
{
    char *p = mem_map(3 * MEM_LARGE_PAGE), *end = p + MEM_LARGE_PAGE;

    cr_expect_eq(mem_large_behind(p), p);
    cr_expect_eq(mem_large_behind(p + 1), end);
    cr_expect_eq(mem_large_behind(end - 1), end);
    mem_ask_large(end);
    memset(end, 'a', MEM_LARGE_PAGE);
    mem_unask_large(end, end + MEM_LARGE_PAGE);
    mem_unask_large(NULL, NULL);
    cr_expect_eq(end[MEM_LARGE_PAGE - 1], 'a');
    mem_unmap(p, 3 * MEM_LARGE_PAGE);
}

/* Long blocks begin at a large page, and keep their content when they grow and move. */
TEST(mem, pages_of_its_own_are_aligned_and_grow)
{
    const size_t large = (size_t)2 << 20, sizes[] = {1, 5000, large - 1, large, 3 * large + 5};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        size_t n = sizes[i], more = 2 * n + large;
        char *p = mem_map(n);

        if (n >= large)
            cr_expect_eq((uintptr_t)p % large, 0);
        mem_touch(p, n);
        cr_expect_eq(p[n - 1], 0);
        p[0] = 'a';
        p[n - 1] = 'z';
        p = mem_remap(p, n, more);
        cr_expect_eq(p[n - 1], 'z');
        cr_expect(n == 1 || p[0] == 'a');
        cr_expect_eq(p[more - 1], 0);
        mem_unmap(p, more);
    }
}
