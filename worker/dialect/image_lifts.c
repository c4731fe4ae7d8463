/*
 * Walks over the body from quote to quote. A string is lifted if it is long, has no escapes, and is
 * a data URL or the value of a member "data" (Messages). Only the base64 of a data URL is lifted.
 * The base64 must be strict, so that undo can encode the same text again. All other text stays. If
 * the body is not JSON, quotes may be paired wrongly; then the parse fails and image_lifts_undo
 * restores the strings.
 */
#include "worker/dialect/image_lifts.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/base64.h"
#include "common/codec/sha256.h"

enum { DATA_HEAD_MAX = 128, STAND_IN_LEN = 1 + SHA256_HEX_LEN, LOOK_BYTES = 256 << 10 };

/* --- finding --- */

static void pass_bytes(struct image_lifts *l, struct str body, size_t end)
{
    if (end <= l->reached)
        return;
    if (l->reach)
        l->reach(l->ctx, str_sub(body, l->reached, end - l->reached));
    l->reached = end;
}

/* Returns the position of the first quote from `at` on, or the body's length. */
static size_t find_quote(struct image_lifts *l, struct str body, size_t at)
{
    while (at < body.len) {
        size_t end = MIN_OF(body.len, at + LOOK_BYTES);
        const char *quote;

        pass_bytes(l, body, end);
        quote = memchr(body.p + at, '"', end - at);
        if (quote)
            return (size_t)(quote - body.p);
        at = end;
    }
    return body.len;
}

/* Returns the position of the quote that ends the string which begins at `at`, or the body's
 * length. */
static size_t string_end(struct image_lifts *l, struct str body, size_t at)
{
    for (size_t from = at; from < body.len; from++) {
        size_t slashes = 0;

        from = find_quote(l, body, from);
        if (from == body.len)
            break;
        while (from - slashes > at && body.p[from - slashes - 1] == '\\')
            slashes++;
        if (slashes % 2 == 0)
            return from;
    }
    return body.len;
}

/* Returns the position after the last byte before `at` that is not white space. */
static size_t skip_blanks_backwards(struct str body, size_t at)
{
    while (at > 0 && memchr(" \t\r\n", body.p[at - 1], 4))
        at--;
    return at;
}

/* Reports whether the string whose quote is at `quote` is the value of a member "data". */
static bool is_data_member(struct str body, size_t quote)
{
    static const struct str key = STR_LIT("\"data\"");
    size_t at = skip_blanks_backwards(body, quote);

    if (at == 0 || body.p[at - 1] != ':')
        return false;
    at = skip_blanks_backwards(body, at - 1);
    return str_ends(str_sub(body, 0, at), key);
}

/* Returns the offset of the base64 in a string, or SIZE_MAX if the string is not lifted. */
static size_t base64_start(struct str body, size_t quote, struct str text)
{
    size_t comma;

    if (!str_eq_nocase(str_sub(text, 0, 5), STR("data:")))
        return is_data_member(body, quote) ? 0 : SIZE_MAX;
    comma = str_find(str_sub(text, 0, DATA_HEAD_MAX), STR(","), 0);
    if (comma == SIZE_MAX || comma < 12 ||
        !str_eq_nocase(str_sub(text, comma - 7, 7), STR(";base64")))
        return SIZE_MAX;
    return comma + 1;
}

/* Finds the next string from *at on that is long enough and may be an image. Sets *ret to its
 * base64, and *at to the position after its end quote. */
static bool next_text(struct image_lifts *l, struct str body, size_t *at, struct str *ret)
{
    while (*at < body.len) {
        size_t start = find_quote(l, body, *at), end, from;

        if (start == body.len)
            break;
        end = string_end(l, body, start + 1);
        *ret = str_sub(body, start + 1, end - start - 1);
        *at = end + 1;
        if (ret->len < l->least)
            continue;
        from = base64_start(body, start, *ret);
        if (from == SIZE_MAX)
            continue;
        *ret = str_sub(*ret, from, ret->len);
        return true;
    }
    return false;
}

bool image_lifts_any(struct str body, size_t at)
{
    struct image_lifts l = {.least = IMAGE_LIFT_LEAST};
    struct str text;

    return next_text(&l, body, &at, &text);
}

/* --- lifting --- */

static struct image_lift *add_lift(struct image_lifts *l, struct arena *a)
{
    struct image_lift *all;

    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        all = arena_calloc(a, l->cap, sizeof(*all));
        if (l->n > 0)
            memcpy(all, l->all, l->n * sizeof(*all));
        l->all = all;
    }
    return &l->all[l->n++];
}

/* Decodes a text and adds it to the lifts. Text that is not strict base64 stays. */
static void lift_text(struct image_lifts *l, struct arena *a, struct str body, struct str text)
{
    char *bytes, *hex;
    size_t n;

    if (text.len < l->least || text.len % 4 != 0 || base64_room(text.len) > l->max_bytes + 2)
        return;
    bytes = arena_alloc_alone(a, base64_room(text.len));
    if (base64_decode(text, bytes, &n) != 0 || n > l->max_bytes) {
        arena_drop(a, bytes);
        return;
    }
    hex = arena_alloc(a, SHA256_HEX_LEN + 1);
    sha256_hex(str_of(bytes, n), hex);
    *add_lift(l, a) = (struct image_lift){
        .image = {.media = str_of(hex, SHA256_HEX_LEN), .bytes = str_of(bytes, n)},
        .at = (size_t)(text.p - body.p),
        .len = text.len,
    };
    if (l->gone)
        l->gone(l->ctx, text);
}

static void lift_all(struct image_lifts *l, struct arena *a, struct str body)
{
    struct str text;
    size_t at = 0;

    while (!arena_over(a) && next_text(l, body, &at, &text))
        lift_text(l, a, body, text);
}

/* --- the body that is read --- */

static char *put_bytes(char *to, struct str text)
{
    if (text.len > 0)
        memcpy(to, text.p, text.len);
    return to + text.len;
}

struct str image_lifts_lift(struct image_lifts *l, struct arena *a, struct str body)
{
    size_t len = body.len, at = 0;
    char *text, *to;

    lift_all(l, a, body);
    pass_bytes(l, body, body.len);
    for (size_t i = 0; i < l->n; i++)
        len = len - l->all[i].len + STAND_IN_LEN;
    text = to = arena_alloc(a, len + 1);
    for (size_t i = 0; i < l->n; i++) {
        struct image_lift *x = &l->all[i];

        to = put_bytes(to, str_sub(body, at, x->at - at));
        x->stand_in = str_of(to, STAND_IN_LEN);
        *to++ = '#';
        to = put_bytes(to, x->image.media);
        at = x->at + x->len;
    }
    to = put_bytes(to, str_sub(body, at, body.len));
    *to = 0;
    return str_of(text, len);
}

static int compare_offsets_of_lifts(const void *key, const void *lift)
{
    const char *at = *(const char *const *)key;
    const char *place = ((const struct image_lift *)lift)->stand_in.p;

    return (at > place) - (at < place);
}

struct image_lift *image_lifts_find(const struct image_lifts *l, struct str text)
{
    struct image_lift *x = NULL;

    if (l && l->n > 0)
        x = bsearch(&text.p, l->all, l->n, sizeof(*l->all), compare_offsets_of_lifts);
    return x && text.len == x->stand_in.len ? x : NULL;
}

bool image_lifts_used(const struct image_lifts *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!l->all[i].used)
            return false;
    return true;
}

struct str image_lifts_undo(const struct image_lifts *l, struct arena *a, struct str rest)
{
    const char *at = rest.p, *end = rest.p + rest.len;
    size_t len = rest.len;
    char *text, *to;

    for (size_t i = 0; i < l->n; i++)
        len = len - STAND_IN_LEN + l->all[i].len;
    text = to = arena_alloc(a, len + 1);
    for (size_t i = 0; i < l->n; i++) {
        const struct image_lift *x = &l->all[i];

        to = put_bytes(to, str_of(at, (size_t)(x->stand_in.p - at)));
        base64_encode(x->image.bytes.p, x->image.bytes.len, to);
        to += x->len;
        at = x->stand_in.p + STAND_IN_LEN;
    }
    to = put_bytes(to, str_of(at, (size_t)(end - at)));
    *to = 0;
    return str_of(text, len);
}
