/* The hash by which a repeated request is recognised (api_call.h): of the body's bytes without the
 * members that only determine how the answer is sent (stream, stream_options). So clients that
 * retry a broken stream without streaming ask for the same answer. The members are cut out of the
 * text; the parsed body gives their positions. */

#include <string.h>

#include "common/codec/json.h"
#include "worker/plane/api/api_call.h"
#include "worker/plane/api/known_bodies.h"

/* Returns the position after blanks. */
static size_t skip_blanks_at(struct str s, size_t at)
{
    while (at < s.len && (s.p[at] == ' ' || s.p[at] == '\n' || s.p[at] == '\r' || s.p[at] == '\t'))
        at++;
    return at;
}

/* Returns the end of the value at `at` of a "stream" or "stream_options" member, or `at` if it has
 * a different form. */
static size_t value_end(struct str s, size_t at)
{
    size_t end;

    if (str_starts(str_sub(s, at, 4), STR("true")) || str_starts(str_sub(s, at, 4), STR("null")))
        return at + 4;
    if (str_eq_c(str_sub(s, at, 5), "false"))
        return at + 5;
    if (!str_starts(str_sub(s, at, 1), STR("{")))
        return at;
    end = str_find(s, STR("}"), at);
    return end == SIZE_MAX ? at : end + 1;
}

static bool lies_in(struct str text, const char *p)
{
    return text.p && p > text.p && p < text.p + text.len;
}

/* Finds the range of member m in the body's text: from its quote to its value's end. Returns false
 * if the member does not determine how the answer is sent (or is spelled with escapes). */
static bool is_about_sending(const struct body_text *text, const struct json_member *m,
                             size_t *from, size_t *to)
{
    struct str key = json_string(&m->key), body = text->whole;
    size_t at;

    if (!str_eq_c(key, "stream") && !str_eq_c(key, "stream_options"))
        return false;
    if (!lies_in(text->tail, key.p) && !lies_in(text->head, key.p))
        return false;
    *from = lies_in(text->tail, key.p) ? text->tail_at + (size_t)(key.p - text->tail.p) - 1
                                       : (size_t)(key.p - text->head.p) - 1;
    at = skip_blanks_at(body, *from + key.len + 2);
    if (at >= body.len || body.p[at] != ':')
        return false;
    at = skip_blanks_at(body, at + 1);
    *to = value_end(body, at);
    return *to > at;
}

static void drop_last_comma(struct buf *b)
{
    while (b->len > 0 &&
           (b->p[b->len - 1] == ',' || b->p[b->len - 1] == ' ' || b->p[b->len - 1] == '\n'))
        b->len--;
}

/* If the body has neither member, which is usual, its bytes are hashed without a copy. */
void request_hash(const struct body_text *text, const struct json *parsed, uint64_t ret[2])
{
    struct str body = text->whole;
    struct buf rest = {0};
    struct str hashed = body;
    size_t at = 0, from, to;

    for (uint32_t i = 0; json_is(parsed, JSON_OBJECT) && i < parsed->n; i++) {
        if (!is_about_sending(text, &parsed->members[i], &from, &to) || from < at)
            continue;
        buf_add_str(&rest, str_sub(body, at, from - at));
        at = skip_blanks_at(body, to);
        if (at < body.len && body.p[at] == ',')
            at = skip_blanks_at(body, at + 1);
        else /* the last member: the comma before it is cut, too */
            drop_last_comma(&rest);
    }
    if (at > 0) {
        buf_add_str(&rest, str_sub(body, at, SIZE_MAX));
        hashed = buf_str(&rest);
    }
    if (at == 0 && text->hash && (text->hash[0] | text->hash[1]))
        memcpy(ret, (const uint64_t[]){text->hash[0], text->hash[1]}, 2 * sizeof(*ret));
    else
        str_hash128(hashed, ret);
    buf_done(&rest);
}
