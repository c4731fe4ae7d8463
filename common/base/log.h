/*
 * Log lines: one event, one line, one write(2) to stderr, under 4 KiB (longer ones are cut).
 *     ts level role pid msg key=value ...        (--log-format text)
 *     {"ts":..., "level":..., "role":..., "pid":..., "msg":..., "fields":{"key":...}}
 *                                                (--log-format json); "session", "request" and
 *     "suppressed" before "fields" if there are such. No line has other keys.
 * Under systemd (JOURNAL_STREAM set) each line begins with a "<n>" priority prefix. Pure layers
 * (tokens, template, parsers, http1, sse, json) never log; they return struct err. Never pass keys,
 * prompts or completions above debug.
 *
 *     log_info(&scope, "worker started", LOG_U("index", i), LOG_T("path", path));
 */
#ifndef RG_BASE_LOG_H
#define RG_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

enum log_format { LOG_TEXT, LOG_JSON };

/* Fields in every line about one piece of work; empty ones are left out. */
struct log_scope {
    struct str session;
    struct str request;
};

enum log_type { LOG_END, LOG_STR, LOG_INT, LOG_UINT };

struct log_field {
    const char *key;
    enum log_type type;
    struct str s;
    int64_t i;
};

#define LOG_S(k, v) ((struct log_field){.key = (k), .type = LOG_STR, .s = (v)})
#define LOG_T(k, v) ((struct log_field){.key = (k), .type = LOG_STR, .s = str_cstr(v)})
#define LOG_I(k, v) ((struct log_field){.key = (k), .type = LOG_INT, .i = (int64_t)(v)})
#define LOG_U(k, v) ((struct log_field){.key = (k), .type = LOG_UINT, .i = (int64_t)(v)})

/* Sets up the log of the process, once at its start. `role` is borrowed ("router-0"). */
void log_setup(const char *role, enum log_level max, enum log_format format);

/* Reports whether lines are JSON, for lines that log_write does not write. */
bool log_is_json(void);

/* Limits each text to `per_second` lines a second (0: no limit). Calls `suppressed` (or NULL) for
 * each suppressed line. The next written line with the text contains the number of suppressed ones.
 */
void log_limit_setup(unsigned per_second, void (*suppressed)(void *ctx), void *ctx);

/* Reports whether a line of this level would be written. Call it before computing expensive fields.
 */
bool log_enabled(enum log_level level);

/* Writes a line; use the macros below. `fields` ends with a LOG_END element. scope may be NULL. */
void log_write(enum log_level level, const struct log_scope *scope, const char *msg,
               const struct log_field *fields);

/* The empty first field lets the list be empty; it is skipped. (Not __VA_OPT__: cppcheck 2.10
 * cannot read it.) */
#define LOG_AT(level, scope, msg, ...) \
    log_write(level, scope, msg,       \
              (const struct log_field[]){{.key = NULL}, ##__VA_ARGS__, {.type = LOG_END}} + 1)
#define log_error(scope, msg, ...) LOG_AT(LOG_ERROR, scope, msg, ##__VA_ARGS__)
#define log_warn(scope, msg, ...) LOG_AT(LOG_WARN, scope, msg, ##__VA_ARGS__)
#define log_info(scope, msg, ...) LOG_AT(LOG_INFO, scope, msg, ##__VA_ARGS__)
#define log_debug(scope, msg, ...)                        \
    do {                                                  \
        if (log_enabled(LOG_DEBUG))                       \
            LOG_AT(LOG_DEBUG, scope, msg, ##__VA_ARGS__); \
    } while (0)

/* Limits one call site to `per_second` lines. The next written line contains the number of
 * suppressed ones ("suppressed"). The struct is static, one for each call site. */
struct log_limit {
    int64_t second;
    unsigned count;
    unsigned dropped;
};

bool log_limit_pass(struct log_limit *l, unsigned per_second, unsigned *ret_dropped);

#endif
