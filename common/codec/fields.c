/* Typed members of a JSON object (fields.h). Absent and null members leave *ret unchanged. Values
 * in errors have at most SHOWN_BYTES, and end with a whole character. */

#include "common/codec/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/nearest.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"

enum { SHOWN_BYTES = 48 };

static const struct json *find_field(const struct field_reader *f, const char *name)
{
    const struct json *v = json_get(f->body, name);

    return v ? v : json_get(f->defaults, name);
}

static const char *field_path(const struct field_reader *f)
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
    (void)snprintf(full, sizeof(full), "%s%s", field_path(f), name);
    return err_field(f->e, full, "%s %s", full, text);
}

int fields_bad(struct field_reader *f, const char *name, const struct json *v, const char *allowed)
{
    char full[128];

    (void)snprintf(full, sizeof(full), "%s%s", field_path(f), name);
    return field_bad(full, v, allowed, f->e);
}

/* Fails with the unknown name, the nearest one and all known ones. `of`: as in fields_known.
 * Returns -1. */
static int fault_unknown(struct field_reader *f, const char *of, struct str name,
                         const char *const known[], size_t n)
{
    struct nearest near = nearest_to(name);
    struct field_shown shown = {0};
    struct buf names = {0};
    char path[192];

    for (size_t k = 0; k < n; k++) {
        nearest_offer(&near, known[k]);
        buf_printf(&names, "%s%s", k ? ", " : "", known[k]);
    }
    (void)snprintf(path, sizeof(path), "%s%s%s%s", field_path(f), of, of[0] ? "." : "",
                   field_show_name(name, &shown));
    (void)field_unknown("body field", path, near.name, buf_str(&names), f->e);
    buf_done(&names);
    return -1;
}

int fields_known(struct field_reader *f, const char *of, const char *const known[], size_t n)
{
    for (uint32_t i = 0; json_is(f->body, JSON_OBJECT) && i < f->body->n; i++) {
        struct str name = json_string(&f->body->members[i].key);
        size_t k = 0;

        while (k < n && !str_eq_c(name, known[k]))
            k++;
        if (k == n)
            return fault_unknown(f, of, name, known, n);
    }
    return 0;
}

int fields_integer(struct field_reader *f, const char *name, int64_t min, int64_t max, int64_t *ret)
{
    const struct json *v = find_field(f, name);
    char allowed[96];

    if (json_is_null(v))
        return 0;
    (void)snprintf(allowed, sizeof(allowed), "an integer from %lld to %lld", (long long)min,
                   (long long)max);
    if (json_to_i64(v, ret) || *ret < min || *ret > max)
        return fields_bad(f, name, v, allowed);
    return 0;
}

int fields_number(struct field_reader *f, const char *name, double min, double max, double *ret)
{
    const struct json *v = find_field(f, name);
    char allowed[96] = "a finite number";

    if (json_is_null(v))
        return 0;
    if (isfinite(min) && isfinite(max))
        (void)snprintf(allowed, sizeof(allowed), "a number from %g to %g", min, max);
    if (json_to_double(v, ret) || !isfinite(*ret) || *ret < min || *ret > max)
        return fields_bad(f, name, v, allowed);
    return 0;
}

int fields_word(struct field_reader *f, const char *name, const char *const words[], size_t n,
                unsigned *ret)
{
    const struct json *v = find_field(f, name);
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
    return fields_bad(f, name, v, allowed);
}

int fields_text(struct field_reader *f, const char *name, size_t max, struct str *ret)
{
    const struct json *v = find_field(f, name);
    char allowed[64];

    if (json_is_null(v))
        return 0;
    (void)snprintf(allowed, sizeof(allowed), "a string of at most %zu bytes", max);
    if (!json_is(v, JSON_STRING) || v->n > max)
        return fields_bad(f, name, v, allowed);
    *ret = json_string(v);
    return 0;
}

int fields_bool(struct field_reader *f, const char *name, bool *ret)
{
    const struct json *v = find_field(f, name);

    if (json_is_null(v))
        return 0;
    if (!json_is(v, JSON_BOOL))
        return fields_bad(f, name, v, "true or false");
    *ret = json_is_true(v);
    return 0;
}

int fields_object(struct field_reader *f, const char *name)
{
    const struct json *v = find_field(f, name);

    if (json_is_null(v) || json_is(v, JSON_OBJECT))
        return 0;
    return fields_bad(f, name, v, "an object");
}

int fields_labels(struct field_reader *f, const struct json *labels)
{
    for (uint32_t i = 0; json_is(labels, JSON_OBJECT) && i < labels->n; i++) {
        const struct json_member *m = &labels->members[i];
        struct field_shown shown = {0};
        char name[80];

        if (json_text(&m->value).p)
            continue;
        (void)snprintf(name, sizeof(name), "labels.%s",
                       field_show_name(json_string(&m->key), &shown));
        return fields_bad(f, name, &m->value, "a string or a number");
    }
    return 0;
}

/* --- errors --- */

static struct str cut_shown(struct str s)
{
    struct str head = str_sub(s, 0, SHOWN_BYTES);

    return str_sub(head, 0, utf8_valid_len(head));
}

/* Returns the value as an error shows it: ret->text, or a constant text. */
static const char *field_show(const struct json *v, struct field_shown *ret)
{
    struct str text = cut_shown(json_text(v));
    const char *more = text.len < json_text(v).len ? "..." : "";

    if (!v)
        return "nothing";
    switch ((enum json_kind)v->kind) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_NULL:
        return "null";
    case JSON_BOOL:
        return json_is_true(v) ? "true" : "false";
    case JSON_STRING:
        (void)snprintf(ret->text, sizeof(ret->text), "\"%.*s%s\"", (int)text.len, text.p, more);
        return ret->text;
    case JSON_NUMBER:
    default:
        (void)snprintf(ret->text, sizeof(ret->text), "%.*s%s", (int)text.len, text.p, more);
        return ret->text;
    }
}

const char *field_show_name(struct str name, struct field_shown *ret)
{
    struct str shown = cut_shown(name);

    (void)snprintf(ret->text, sizeof(ret->text), "%.*s", (int)shown.len, shown.len ? shown.p : "");
    return ret->text;
}

int field_bad(const char *name, const struct json *v, const char *allowed, struct err *e)
{
    struct field_shown shown = {0};

    return err_field(e, name, "%s must be %s, not %s", name, allowed, field_show(v, &shown));
}

int field_unknown(const char *what, const char *path, const char *near, struct str known,
                  struct err *e)
{
    if (known.len == 0)
        return err_field(e, path, "unknown %s \"%s\": this request takes no %ss", what, path, what);
    return err_field(e, path, "unknown %s \"%s\"%s%s%s. Known: %.*s", what, path,
                     near ? " (did you mean \"" : "", near ? near : "", near ? "\"?)" : "",
                     (int)known.len, known.p);
}
