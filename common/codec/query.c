/* '+' is decoded to a space and %XX to a byte. Other text, such as an incomplete escape, stays
 * unchanged. */

#include "common/codec/query.h"

#include "common/codec/hex.h"

/* Decodes a text. The result is never longer than the text. */
static struct str percent_decode(struct arena *a, struct str s)
{
    char *out = arena_alloc(a, s.len + 1);
    size_t n = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] == '%' && i + 2 < s.len && hex_value(s.p[i + 1]) >= 0 &&
            hex_value(s.p[i + 2]) >= 0) {
            out[n++] = (char)(hex_value(s.p[i + 1]) * 16 + hex_value(s.p[i + 2]));
            i += 2;
        } else {
            out[n++] = s.p[i] == '+' ? ' ' : s.p[i];
        }
    }
    return str_of(out, n);
}

bool query_split(struct str *left, struct str *ret_name, struct str *ret_value)
{
    while (left->len > 0) {
        struct str pair = str_cut(left, '&');

        if (pair.len == 0)
            continue;
        *ret_name = str_cut(&pair, '=');
        *ret_value = pair.p ? pair : STR("");
        return true;
    }
    return false;
}

bool query_next(struct arena *a, struct str *left, struct str *ret_name, struct str *ret_value)
{
    struct str name, value;

    if (!query_split(left, &name, &value))
        return false;
    *ret_name = percent_decode(a, name);
    *ret_value = percent_decode(a, value);
    return true;
}

struct str query_get(struct arena *a, struct str query, const char *name)
{
    struct str key, value;

    while (query_next(a, &query, &key, &value)) {
        if (str_eq_c(key, name))
            return value;
    }
    return (struct str){0};
}
