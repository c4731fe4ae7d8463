/* Errors as values (err.h). One table, err.def, has what a kind means to a client: HTTP status,
 * code, whether to retry, the types of OpenAI's and Anthropic's APIs. Every setter returns -1, so
 * that a function can end with `return err_set(...)`. e may be NULL if the caller needs no reason.
 */

#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

static const struct {
    int status;
    const char *code;
    bool retry;
    const char *openai_type, *messages_type;
} kinds[] = {
    [ERR_NONE] = {200, "ok", false, "", ""},

#define X(kind, http, name, again, openai, messages, meaning) \
    [ERR_##kind] = {http, name, again, openai, messages},
#include "common/base/err.def"
#undef X
};

/* Writes '?' for each run of bytes that belong to no UTF-8 character. A quoted text may be cut
 * inside a character, or be an engine's, and bodies of errors are JSON. */
static void mend_text(char *text)
{
    struct str rest = str_cstr(text);
    size_t to = 0;

    while (!utf8_valid(rest)) {
        size_t n = utf8_valid_len(rest);

        memmove(text + to, rest.p, n);
        to += n;
        if (n > 0 || to == 0)
            text[to++] = '?';
        rest = str_sub(rest, n + 1, rest.len);
    }
    memmove(text + to, rest.p, rest.len);
    text[to + rest.len] = 0;
}

RG_PRINTF(3, 0) static void fill(struct err *e, enum err_kind kind, const char *fmt, va_list ap)
{
    *e = (struct err){.kind = kind};
    (void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
    mend_text(e->text);
}

int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -1;
    va_start(ap, fmt);
    fill(e, kind, fmt, ap);
    va_end(ap);
    return -1;
}

int err_field(struct err *e, const char *field, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -1;
    va_start(ap, fmt);
    fill(e, ERR_INVALID, fmt, ap);
    va_end(ap);
    (void)snprintf(e->param, sizeof(e->param), "%s", field);
    mend_text(e->param);
    return -1;
}

int err_context(struct err *e, struct err_overflow o, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return -1;
    va_start(ap, fmt);
    fill(e, ERR_CONTEXT_LENGTH, fmt, ap);
    va_end(ap);
    e->overflow = o;
    return -1;
}

void err_add(struct err *e, const char *fmt, ...)
{
    size_t n = strlen(e->text);
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(e->text + n, sizeof(e->text) - n, fmt, ap);
    va_end(ap);
    mend_text(e->text);
}

/* Reads errno first, before a call here can change it. */
int err_sys(struct err *e, enum err_kind kind, const char *fmt, ...)
{
    int sys = errno;
    va_list ap;

    if (!e)
        return -1;
    va_start(ap, fmt);
    fill(e, kind, fmt, ap);
    va_end(ap);
    e->sys = sys;
    err_add(e, ": %s", strerror(sys));
    return -1;
}

int err_status(const struct err *e)
{
    return e->status > 0 ? e->status : kinds[e->kind].status;
}

const char *err_code(const struct err *e)
{
    return kinds[e->kind].code;
}

/* Returns the kind whose names are used for the error: its own, or, if the error has an engine's
 * status, the first kind with that status. */
static enum err_kind kind_of_words(const struct err *e)
{
    int status = err_status(e);

    if (status == kinds[e->kind].status)
        return e->kind;
    for (enum err_kind k = ERR_NONE + 1; k < ERR_KIND_COUNT; k++) {
        if (kinds[k].status == status)
            return k;
    }
    return status < 500 ? ERR_INVALID : ERR_INTERNAL;
}

const char *err_openai_type(const struct err *e)
{
    return kinds[kind_of_words(e)].openai_type;
}

const char *err_messages_type(const struct err *e)
{
    return kinds[kind_of_words(e)].messages_type;
}

bool err_retry(const struct err *e)
{
    return kinds[e->kind].retry;
}
