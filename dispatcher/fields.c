#include "dispatcher/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const struct json *find(const struct field_reader *f, const char *name)
{
    const struct json *v = json_get(f->body, name);

    return v ? v : json_get(f->defaults, name);
}

static const char *where(const struct field_reader *f)
{
    return f->where ? f->where : "";
}

int fields_fault(struct field_reader *f, const char *name, const char *fmt, ...)
{
    char full[128], text[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void)snprintf(full, sizeof(full), "%s%s", where(f), name);
    return err_field(f->e, full, "%s %s", full, text);
}

/* The value as it stands in an error: JSON, cut. */
static int fault_value(struct field_reader *f, const char *name, const struct json *v,
                       const char *allowed)
{
    struct buf text = {0};
    int rc;

    json_write(&text, v);
    rc = fields_fault(f, name, "must be %s, not %.*s%s", allowed, (int)MIN_OF(text.len, 60), text.p,
                      text.len > 60 ? "..." : "");
    buf_done(&text);
    return rc;
}

int fields_known(struct field_reader *f, const char *of, const char *const known[], size_t n)
{
    struct buf names = {0};
    int rc = 0;

    for (uint32_t i = 0; json_is(f->body, JSON_OBJECT) && i < f->body->n && rc == 0; i++) {
        struct str name = json_string(&f->body->members[i].key);
        size_t k = 0;

        while (k < n && !str_eq_c(name, known[k]))
            k++;
        if (k < n)
            continue;
        for (k = 0; k < n; k++)
            buf_printf(&names, "%s%s", k ? ", " : "", known[k]);
        rc = fields_fault(f, of[0] ? of : "body", "has no field %.*s; known are %.*s",
                          (int)MIN_OF(name.len, 60), name.p, (int)names.len, names.p);
    }
    buf_done(&names);
    return rc;
}

int fields_integer(struct field_reader *f, const char *name, int64_t min, int64_t max, int64_t *ret)
{
    const struct json *v = find(f, name);
    char allowed[96];

    if (json_is_null(v))
        return 0;
    (void)snprintf(allowed, sizeof(allowed), "an integer from %lld to %lld", (long long)min,
                   (long long)max);
    if (json_to_i64(v, ret) || *ret < min || *ret > max)
        return fault_value(f, name, v, allowed);
    return 0;
}

int fields_number(struct field_reader *f, const char *name, double min, double max, double *ret)
{
    const struct json *v = find(f, name);
    char allowed[96] = "a finite number";

    if (json_is_null(v))
        return 0;
    if (isfinite(min) && isfinite(max))
        (void)snprintf(allowed, sizeof(allowed), "a number from %g to %g", min, max);
    if (json_to_double(v, ret) || !isfinite(*ret) || *ret < min || *ret > max)
        return fault_value(f, name, v, allowed);
    return 0;
}

int fields_word(struct field_reader *f, const char *name, const char *const words[], size_t n,
                unsigned *ret)
{
    const struct json *v = find(f, name);
    char allowed[128];
    size_t len = 0;

    if (json_is_null(v))
        return 0;
    for (unsigned i = 0; i < n; i++) {
        if (str_eq_c(json_string(v), words[i])) {
            *ret = i;
            return 0;
        }
        len += (size_t)snprintf(allowed + len, sizeof(allowed) - len, "%s%s", i ? " or " : "",
                                words[i]);
    }
    return fault_value(f, name, v, allowed);
}

int fields_text(struct field_reader *f, const char *name, size_t max, struct str *ret)
{
    const struct json *v = find(f, name);
    char allowed[64];

    if (json_is_null(v))
        return 0;
    (void)snprintf(allowed, sizeof(allowed), "a string of at most %zu bytes", max);
    if (!json_is(v, JSON_STRING) || v->n > max)
        return fault_value(f, name, v, allowed);
    *ret = json_string(v);
    return 0;
}

int fields_bool(struct field_reader *f, const char *name, bool *ret)
{
    const struct json *v = find(f, name);

    if (json_is_null(v))
        return 0;
    if (!json_is(v, JSON_BOOL))
        return fault_value(f, name, v, "true or false");
    *ret = json_is_true(v);
    return 0;
}

int fields_object(struct field_reader *f, const char *name)
{
    const struct json *v = find(f, name);

    if (json_is_null(v) || json_is(v, JSON_OBJECT))
        return 0;
    return fault_value(f, name, v, "an object");
}
