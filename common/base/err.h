/*
 * struct err: why a function failed. It lives on the caller's stack; the callee fills it. Functions
 * return 0 or -1 (streaming ones 1 done, 0 more, -1 error) and have `struct err *e` as last
 * parameter. Kinds, HTTP status, code and retry flag are in err.def only.
 */
#ifndef RG_BASE_ERR_H
#define RG_BASE_ERR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/attrs.h"

enum err_kind {
    ERR_NONE = 0,

#define X(kind, status, code, retry, openai, messages, meaning) ERR_##kind,
#include "common/base/err.def"
#undef X
    ERR_KIND_COUNT
};

/* The figures of ERR_CONTEXT_LENGTH, in tokens; 0: unknown. */
struct err_overflow {
    uint64_t prompt;
    uint64_t answer; /* tokens that were asked for */
    uint64_t max;    /* size of the context */
};

struct err {
    enum err_kind kind;
    int sys;                /* errno, or 0 */
    int status;             /* overrides the table's HTTP status when > 0 (an engine's own 4xx) */
    unsigned retry_after_s; /* seconds to wait, if an engine asks for a wait; 0: it does not */
    char param[64];         /* name of the request field at fault, or "" */
    struct err_overflow overflow;
    char text[640]; /* one sentence for the user; never holds keys, prompts or internal paths */
};

/* Fills e (NULL is allowed) and returns -1, so that `return err_set(...)` is one line. Here and
 * below the text is cut to its size, and bytes that belong to no UTF-8 character become '?'. */
int err_set(struct err *e, enum err_kind kind, const char *fmt, ...) RG_PRINTF(3, 4) RG_COLD;

/* Sets the error of a bad request field: kind ERR_INVALID, e->param = field. Returns -1. */
int err_field(struct err *e, const char *field, const char *fmt, ...) RG_PRINTF(3, 4) RG_COLD;

/* Sets an error of kind ERR_CONTEXT_LENGTH. Each dialect makes its own text from the figures. */
int err_context(struct err *e, struct err_overflow o, const char *fmt, ...) RG_PRINTF(3, 4) RG_COLD;

/* Appends to the text of e, which was set. */
void err_add(struct err *e, const char *fmt, ...) RG_PRINTF(2, 3) RG_COLD;

/* Sets the error with errno's text appended, and errno in e->sys. Returns -1. */
int err_sys(struct err *e, enum err_kind kind, const char *fmt, ...) RG_PRINTF(3, 4) RG_COLD;

/* Return the HTTP status, the code and x-should-retry of e. */
int err_status(const struct err *e);
const char *err_code(const struct err *e);
bool err_retry(const struct err *e);

/* Return the error's type as OpenAI's APIs and Anthropic's Messages API name it. If an engine's own
 * status applies, the type is that of the first kind with this status. */
const char *err_openai_type(const struct err *e);
const char *err_messages_type(const struct err *e);

#endif
