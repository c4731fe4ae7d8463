/*
 * Compiler attributes and a few macros that the language lacks.
 */
#ifndef RG_BASE_ATTRS_H
#define RG_BASE_ATTRS_H

#include <stddef.h>

#define RG_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))
#define RG_NORETURN __attribute__((noreturn))
#define RG_MUSTCHECK __attribute__((warn_unused_result))
/* Marks functions that make errors and failures. The compiler moves the code that leads to their
 * calls away from the normal path. */
#define RG_COLD __attribute__((cold))
/* Marks a function that may pause its task (common/os/task.h). Its callers are marked, too
 * (scripts/check_pauses.py). Calls through a pointer must not pause if the pointer is unmarked. */
#define MAY_PAUSE
#define RG_LIKELY(x) __builtin_expect(!!(x), 1)
#define RG_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))

/* Returns the struct whose `member` is at `ptr`: the inverse of &s->member. */
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
