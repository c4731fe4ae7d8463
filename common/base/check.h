/*
 * CHECK: our own invariants, in every build. Never for outside input, which gets a struct err. A
 * failed check writes one line to stderr and into the last-words page (check_set_last_words), which
 * the supervisor logs after the death. Then it aborts.
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

/* Marks a line that the control flow cannot reach. */
#define UNREACHABLE() check_failed(__FILE__, __LINE__, "unreachable")

/* Reports the failed check and aborts. */
RG_NORETURN RG_COLD void check_failed(const char *file, int line, const char *what);

/* Sets a buffer of `len` bytes (shared memory) that a failed check fills with its text. Borrowed
 * until the process ends. NULL: no buffer. */
void check_set_last_words(char *page, size_t len);

/* Makes the line of a failed check look like a line of the log: role (borrowed), form, priority for
 * journald. */
void check_set_log(const char *role, bool json, bool journald);

#endif
