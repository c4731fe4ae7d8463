/*
 * CHECK: our own invariants, in every build. Never for outside input, which gets a struct err.
 * A failed check writes one line to stderr and into the last-words page (check_set_last_words),
 * from which the supervisor composes the obituary, then aborts.
 */
#ifndef RG_BASE_CHECK_H
#define RG_BASE_CHECK_H

#include <stddef.h>

#include <stdbool.h>

#include "common/base/attrs.h"

#define CHECK(cond)                                  \
    do {                                             \
        if (RG_UNLIKELY(!(cond)))                    \
            check_failed(__FILE__, __LINE__, #cond); \
    } while (0)

/* A place that control flow cannot reach. */
#define UNREACHABLE() check_failed(__FILE__, __LINE__, "unreachable")

/* Reports and aborts. Does not return. */
RG_NORETURN RG_COLD void check_failed(const char *file, int line, const char *what);

/* Hands over a buffer of `len` bytes (shared memory) that a failed check fills with its text.
 * Borrowed until the process ends; NULL takes it back. */
void check_set_last_words(char *page, size_t len);

/* Makes the line of a failed check one of the log: role (borrowed), form, priority for journald. */
void check_set_log(const char *role, bool json, bool journald);

#endif
