#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *code;
    bool retry;
} kinds[] = {
    [ERR_NONE] = {200, "ok", false},

#define X(kind, http, name, again) [ERR_##kind] = {http, name, again},
#include "common/base/err.def"
#undef X
};

RG_PRINTF(3, 0) static void fill(struct err *e, enum err_kind kind, const char *fmt, va_list ap)
{
    *e = (struct err){.kind = kind};
    (void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
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
    return -1;
}

int err_sys(struct err *e, enum err_kind kind, const char *fmt, ...)
{
    int sys = errno;
    va_list ap;
    size_t n;

    if (!e)
        return -1;
    va_start(ap, fmt);
    fill(e, kind, fmt, ap);
    va_end(ap);
    e->sys = sys;
    n = strlen(e->text);
    (void)snprintf(e->text + n, sizeof(e->text) - n, ": %s", strerror(sys));
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

bool err_retry(const struct err *e)
{
    return kinds[e->kind].retry;
}
