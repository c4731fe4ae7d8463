/*
 * The subset of Criterion that tests of threads use, for builds with ThreadSanitizer. Criterion's
 * programs do not start there: it shares memory with its children at addresses that ThreadSanitizer
 * reserves. alone.c's main runs each test in a child process.
 */
#ifndef RG_UNIT_ALONE_H
#define RG_UNIT_ALONE_H

#include <stdbool.h>

/* Registers a test. Runs before main. */
void alone_add(const char *name, void (*body)(void));

/* Fails and ends the test unless `holds` is true. */
void alone_check(bool holds, const char *what, const char *file, int line);

#define Test(suite, name)                                               \
    static void suite##_##name##_test(void);                            \
    __attribute__((constructor)) static void suite##_##name##_add(void) \
    {                                                                   \
        alone_add(#suite "::" #name, suite##_##name##_test);            \
    }                                                                   \
    static void suite##_##name##_test(void)

#define cr_assert(holds, ...) alone_check((holds), #holds, __FILE__, __LINE__)
#define cr_assert_not(holds, ...) cr_assert(!(holds))
#define cr_assert_eq(a, b, ...) cr_assert((a) == (b))
#define cr_assert_gt(a, b, ...) cr_assert((a) > (b))
#define cr_assert_leq(a, b, ...) cr_assert((a) <= (b))
#define cr_assert_null(p, ...) cr_assert((p) == NULL)
#define cr_assert_not_null(p, ...) cr_assert((p) != NULL)

#endif
