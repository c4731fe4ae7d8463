/*
 * value_types collects the types that a schema allows, as bits. It knows the type names that
 * engines accept, many by their beginning. value_write then tests the text: is it JSON of an
 * allowed type, a word for true, false or null, a number in Python's form, a Python literal? All
 * other values become strings, because a value that a model wrote must not be lost.
 */
#include "worker/text/parsers/param_value.h"

#include <string.h>

#include "common/base/arena.h"
#include "common/base/attrs.h"
#include "common/base/utf8.h"
#include "common/codec/hex.h"
#include "worker/text/parsers/object_scan.h"
#include "worker/text/parsers/python_scan.h"

/* Names of types. A prefix matches where engines accept families of names (int32, uint8 ...). */
static const struct {
    const char *name;
    bool prefix;
    unsigned type;
} type_names[] = {
    {"null", false, TYPE_NULL},       {"integer", false, TYPE_INTEGER},
    {"int", true, TYPE_INTEGER},      {"uint", true, TYPE_INTEGER},
    {"long", true, TYPE_INTEGER},     {"short", true, TYPE_INTEGER},
    {"unsigned", true, TYPE_INTEGER}, {"number", false, TYPE_NUMBER},
    {"num", true, TYPE_NUMBER},       {"float", true, TYPE_NUMBER},
    {"double", true, TYPE_NUMBER},    {"boolean", false, TYPE_BOOLEAN},
    {"bool", true, TYPE_BOOLEAN},     {"binary", false, TYPE_BOOLEAN},
    {"object", false, TYPE_OBJECT},   {"dict", true, TYPE_OBJECT},
    {"array", false, TYPE_ARRAY},     {"arr", true, TYPE_ARRAY},
    {"list", true, TYPE_ARRAY},
};

static unsigned type_named(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(type_names); i++) {
        struct str want = str_cstr(type_names[i].name);

        if (type_names[i].prefix ? str_starts(name, want) : str_eq(name, want))
            return type_names[i].type;
    }
    return TYPE_STRING;
}

static unsigned type_of_value(const struct json *v)
{
    switch ((enum json_kind)v->kind) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_BOOL:
        return TYPE_BOOLEAN;
    case JSON_NUMBER:
        return memchr(v->text, '.', v->n) ? TYPE_NUMBER : TYPE_INTEGER;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_STRING:
        break;
    }
    return TYPE_STRING;
}

static unsigned types_within(const struct json *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    const struct json *type = json_get(schema, "type");
    const struct json *values = json_get(schema, "enum");
    unsigned types = 0;

    if (json_is(type, JSON_STRING))
        types |= type_named(json_string(type));
    for (size_t i = 0; json_at(type, i); i++)
        types |= type_named(json_string(json_at(type, i)));
    for (size_t i = 0; !type && json_at(values, i); i++)
        types |= type_of_value(json_at(values, i));
    for (size_t u = 0; u < ARRAY_LEN(unions) && depth < 16; u++) {
        const struct json *list = json_get(schema, unions[u]);

        for (size_t i = 0; json_at(list, i); i++)
            types |= types_within(json_at(list, i), depth + 1);
    }
    return types;
}

unsigned value_types(const struct json *schema)
{
    unsigned types = types_within(schema, 0);

    return types ? types : TYPE_STRING;
}

void value_escape(struct buf *out, struct str text)
{
    static const char hex[] = "0123456789abcdef";
    static const char named[] = "\b\f\n\r\t";

    size_t plain = 0; /* everything before is written */

    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];
        const char *short_form;

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_add(out, text.p + plain, i - plain);
        plain = i + 1;
        short_form = c ? strchr(named, c) : NULL;
        if (c >= 0x20 || short_form) {
            buf_add_c(out, '\\');
            buf_add_c(out, short_form ? "bfnrt"[short_form - named] : (char)c);
        } else {
            buf_puts(out, "\\u00");
            buf_add_c(out, hex[c >> 4]);
            buf_add_c(out, hex[c & 15]);
        }
    }
    buf_add_str(out, str_sub(text, plain, text.len));
}

static void write_string(struct buf *out, struct str raw)
{
    buf_add_c(out, '"');
    value_escape(out, raw);
    buf_add_c(out, '"');
}

int value_unquote(struct buf *out, struct str quoted)
{
    struct arena a = {0};
    const struct json *v = NULL;
    int r = json_parse(&a, quoted, &v, NULL);

    if (r == 0 && json_is(v, JSON_STRING))
        buf_add_str(out, json_string(v));
    else
        r = -1;
    arena_done(&a);
    return r;
}

bool value_is_object(struct str text)
{
    struct str s = str_trim(text);

    return s.len && s.p[0] == '{' && object_scan_valid(s);
}

static bool is_json_number(struct str s)
{
    return s.len && (s.p[0] == '-' || (s.p[0] >= '0' && s.p[0] <= '9')) && object_scan_valid(s);
}

static bool is_integer(struct str s)
{
    return is_json_number(s) && !memchr(s.p, '.', s.len) && !memchr(s.p, 'e', s.len) &&
           !memchr(s.p, 'E', s.len);
}

/* Returns "true", "false" or NULL. */
static const char *boolean_of(struct str s)
{
    if (str_eq_nocase(s, STR("true")) || str_eq_c(s, "1"))
        return "true";
    if (str_eq_nocase(s, STR("false")) || str_eq_c(s, "0"))
        return "false";
    return NULL;
}

static bool is_container(struct str s)
{
    return s.len && (s.p[0] == '{' || s.p[0] == '[') && object_scan_valid(s);
}

/* Writes a Python literal that is the whole of s. Returns false if it is none. */
static bool write_python(struct buf *out, struct str s)
{
    struct python_scan scan = {0};
    size_t was = out->len, at = 0;
    enum python_step r = PYTHON_MORE;

    while (r == PYTHON_MORE && at < s.len)
        r = python_scan_byte(&scan, s.p[at++], out);
    if (r == PYTHON_MORE)
        r = python_scan_end(&scan, out);
    python_scan_done(&scan);
    if (r == PYTHON_DONE && at == s.len)
        return true;
    out->len = was;
    return false;
}

/* Reports whether the text is already JSON of one of the types. */
static bool fits_types(struct str s, unsigned types)
{
    return (types & TYPE_INTEGER && is_integer(s)) || (types & TYPE_NUMBER && is_json_number(s)) ||
           (types & (TYPE_OBJECT | TYPE_ARRAY) && is_container(s));
}

static size_t digits_at(struct str s, size_t at)
{
    size_t n = 0;

    while (at + n < s.len && s.p[at + n] >= '0' && s.p[at + n] <= '9')
        n++;
    return n;
}

/* Writes a number that Python's int and float accept and JSON does not: +5, 007, .5, 1. */
static bool write_number(struct buf *out, struct str s, unsigned types)
{
    size_t sign = s.len && (s.p[0] == '+' || s.p[0] == '-');
    size_t whole = digits_at(s, sign), at = sign + whole, part = 0, zeros = 0;
    bool dot = at < s.len && s.p[at] == '.';

    if (dot)
        part = digits_at(s, at + 1);
    at += dot + part;
    if (!(whole + part) || at != s.len ||
        !(types & (dot ? TYPE_NUMBER : TYPE_INTEGER | TYPE_NUMBER)))
        return false;
    while (zeros + 1 < whole && s.p[sign + zeros] == '0')
        zeros++;
    buf_puts(out, sign && s.p[0] == '-' ? "-" : "");
    buf_add_str(out, whole ? str_sub(s, sign + zeros, whole - zeros) : STR("0"));
    if (dot)
        buf_printf(out, ".%.*s", part ? (int)part : 1, part ? s.p + s.len - part : "0");
    return true;
}

void value_write(struct buf *out, struct str raw, unsigned types)
{
    struct str s = str_trim(raw);
    const char *word = types & TYPE_BOOLEAN ? boolean_of(s) : NULL;
    bool container = types & (TYPE_OBJECT | TYPE_ARRAY) && s.len && strchr("{[(", s.p[0]);

    /* "null" means null unless only text is allowed. */
    if (types && !value_verbatim(types) && str_eq_nocase(s, STR("null")))
        word = "null";
    if (word && !fits_types(s, types))
        buf_puts(out, word);
    else if (fits_types(s, types))
        buf_add_str(out, s);
    else if (write_number(out, s, types))
        return;
    else if (!container || !write_python(out, s))
        write_string(out, raw);
}

/* Writes an object or a list whose quotes are escaped, as inside of a JSON string. */
static bool write_escaped(struct buf *out, struct str s)
{
    struct buf quoted = {0}, plain = {0};
    bool good = s.len && (s.p[0] == '{' || s.p[0] == '[') && memchr(s.p, '\\', s.len);

    if (good) {
        buf_printf(&quoted, "\"%.*s\"", (int)s.len, s.p);
        good = value_unquote(&plain, buf_str(&quoted)) == 0 && is_container(buf_str(&plain));
    }
    if (good)
        buf_add_str(out, buf_str(&plain));
    buf_done(&quoted);
    buf_done(&plain);
    return good;
}

void value_write_loose(struct buf *out, struct str raw, unsigned types)
{
    struct str s = str_trim(raw);
    bool text = (types & ~(unsigned)TYPE_NULL) == TYPE_STRING;

    if (!s.len && types & TYPE_ARRAY && !(types & TYPE_STRING))
        buf_puts(out, "[]");
    else if (!text && object_scan_valid(s))
        buf_add_str(out, s);
    else if (text || (!write_python(out, s) && !write_escaped(out, s)))
        write_string(out, raw);
}

enum { ENTITY_MAX = 10 }; /* bytes of the longest entity: &#1114111; */

/* Decodes &NAME; or &#N; at `at`: appends the character and returns the number of bytes read. */
static size_t read_entity(struct buf *out, struct str s, size_t at)
{
    static const char *const names[] = {"&lt;", "<",      "&gt;", ">",      "&amp;",
                                        "&",    "&quot;", "\"",   "&apos;", "'"};
    size_t end = str_find(str_sub(s, 0, at + ENTITY_MAX), STR(";"), at);
    char bytes[4];
    uint32_t code = 0;
    bool hex = at + 2 < s.len && (s.p[at + 2] | 32) == 'x';

    for (size_t i = 0; i < ARRAY_LEN(names); i += 2) {
        if (str_starts(str_sub(s, at, s.len), str_cstr(names[i]))) {
            buf_puts(out, names[i + 1]);
            return strlen(names[i]);
        }
    }
    if (at + 2 >= s.len || s.p[at + 1] != '#' || end == SIZE_MAX)
        return 0;
    for (size_t i = at + 2 + hex; i < end; i++) {
        int digit = hex_value(s.p[i]);

        if (digit < 0 || (!hex && digit > 9))
            return 0;
        code = code * (hex ? 16 : 10) + (uint32_t)digit;
    }
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    buf_add(out, bytes, utf8_encode(bytes, code));
    return end + 1 - at;
}

void value_unescape_xml(struct buf *out, struct str text)
{
    struct str begin = STR("<![CDATA["), end = STR("]]>");
    size_t at = 0;
    bool closes = true; /* the end of a section may follow */

    while (at < text.len) {
        size_t n = text.p[at] == '&' ? read_entity(out, text, at) : 0;

        if (closes && text.p[at] == '<' && str_starts(str_sub(text, at, text.len), begin)) {
            size_t to = str_find(text, end, at);

            closes = to != SIZE_MAX;
            if (closes) {
                buf_add_str(out, str_sub(text, at + begin.len, to - at - begin.len));
                n = to + end.len - at;
            }
        }
        if (n == 0) {
            buf_add_c(out, text.p[at]);
            n = 1;
        }
        at += n;
    }
}
