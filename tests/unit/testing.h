/*
 * TEST(suite, name): Criterion's Test with a limit of TEST_LIMIT_S. Under ASan it ends with a leak
 * check, because Criterion's children exit without LeakSanitizer's own check. Use cr_assert_eq
 * style assertions.
 *
 * TEST_WITH(suite, name, type): a TEST whose body gets `struct type *f`, which was zeroed.
 * type_open(f) runs before the body, type_close(f) after it.
 */
#ifndef RG_UNIT_TESTING_H
#define RG_UNIT_TESTING_H

#if defined(__SANITIZE_THREAD__) || defined(RG_ALONE)
#include "alone.h"
#define TEST_TIMED(suite, name) Test(suite, name)
#else
#include <criterion/criterion.h>

enum { TEST_LIMIT_S = 120 };

#define TEST_TIMED(suite, name) Test(suite, name, .timeout = TEST_LIMIT_S)
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define TEST_LEAKS() cr_assert_eq(__lsan_do_recoverable_leak_check(), 0, "leak")
#else
#define TEST_LEAKS() ((void)0)
#endif

#define TEST(suite, name)                    \
    static void suite##_##name##_body(void); \
    TEST_TIMED(suite, name)                  \
    {                                        \
        suite##_##name##_body();             \
        TEST_LEAKS();                        \
    }                                        \
    static void suite##_##name##_body(void)

#define TEST_WITH(suite, name, type)                   \
    static void suite##_##name##_with(struct type *f); \
    TEST(suite, name)                                  \
    {                                                  \
        struct type f = {0};                           \
                                                       \
        type##_open(&f);                               \
        suite##_##name##_with(&f);                     \
        type##_close(&f);                              \
    }                                                  \
    static void suite##_##name##_with(struct type *f)

#endif
