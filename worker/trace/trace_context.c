/* Reads and writes traceparent = version "-" 32 hex "-" 16 hex "-" flags, all in lower case
 * (trace_context.h). */
#include "worker/trace/trace_context.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/hex.h"
#include "common/codec/sha256.h"

enum { STATE_MEMBERS = 32, STATE_KEY_MAX = 256, STATE_VALUE_MAX = 256 };

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads n bytes of lower-case hexadecimal digits. */
static bool read_bytes(const char *p, size_t n, uint8_t *ret)
{
    for (size_t i = 0; i < n; i++) {
        int high = digit_of(p[2 * i]), low = digit_of(p[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

int trace_parent_read(struct str text, struct trace_context *ret)
{
    struct trace_context c;
    uint8_t version;

    if (text.len < TRACE_PARENT_LEN || text.p[2] != '-' || text.p[35] != '-' || text.p[52] != '-' ||
        !read_bytes(text.p, 1, &version) || !read_bytes(text.p + 3, TRACE_ID_BYTES, c.trace_id) ||
        !read_bytes(text.p + 36, SPAN_ID_BYTES, c.span_id) || !read_bytes(text.p + 53, 1, &c.flags))
        return -1;
    if (version == 0xff || is_zero(c.trace_id, TRACE_ID_BYTES) || is_zero(c.span_id, SPAN_ID_BYTES))
        return -1;
    if (text.len > TRACE_PARENT_LEN && (version == 0 || text.p[TRACE_PARENT_LEN] != '-'))
        return -1;
    c.flags &= TRACE_SAMPLED | TRACE_RANDOM;
    *ret = c;
    return 0;
}

void trace_parent_write(const struct trace_context *c, char ret[TRACE_PARENT_LEN + 1])
{
    char *to = ret;

    memcpy(to, "00-", 3);
    to = hex_write(to + 3, c->trace_id, TRACE_ID_BYTES);
    *to++ = '-';
    to = hex_write(to, c->span_id, SPAN_ID_BYTES);
    *to++ = '-';
    to = hex_write(to, &c->flags, 1);
    *to = 0;
}

/* --- tracestate --- */

static bool is_key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr("_-*/@", c));
}

static bool is_key(struct str key)
{
    bool at = false;

    if (key.len == 0 || key.len > STATE_KEY_MAX || !is_key_char(key.p[0]) ||
        strchr("_-*/@", key.p[0]))
        return false;
    for (size_t i = 0; i < key.len; i++) {
        if (!is_key_char(key.p[i]) || (key.p[i] == '@' && at))
            return false;
        at = at || key.p[i] == '@';
    }
    return key.p[key.len - 1] != '@';
}

static bool is_value(struct str value)
{
    if (value.len == 0 || value.len > STATE_VALUE_MAX || value.p[value.len - 1] == ' ')
        return false;
    for (size_t i = 0; i < value.len; i++)
        if (value.p[i] < ' ' || value.p[i] > '~' || value.p[i] == ',' || value.p[i] == '=')
            return false;
    return true;
}

static bool is_among(struct str key, const struct str *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(keys[i], key))
            return true;
    return false;
}

bool trace_state_valid(struct str text)
{
    struct str keys[STATE_MEMBERS];
    size_t n = 0, at = 0;

    if (text.len == 0 || text.len > TRACE_STATE_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.p[i] < ' ' && text.p[i] != '\t')
            return false;
    while (at <= text.len) {
        size_t end = MIN_OF(str_find(text, STR(","), at), text.len), equals;
        struct str member = str_trim(str_sub(text, at, end - at));

        at = end + 1;
        if (member.len == 0)
            continue;
        equals = str_find(member, STR("="), 0);
        if (n == STATE_MEMBERS || equals == SIZE_MAX)
            return false;
        keys[n] = str_sub(member, 0, equals);
        if (!is_key(keys[n]) || !is_value(str_sub(member, equals + 1, member.len)) ||
            is_among(keys[n], keys, n))
            return false;
        n++;
    }
    return n > 0;
}

void trace_of_session(struct str session_id, uint8_t ret[TRACE_ID_BYTES])
{
    char hash[SHA256_HEX_LEN + 1];

    sha256_hex(session_id, hash);
    (void)read_bytes(hash, TRACE_ID_BYTES, ret);
    ret[0] |= is_zero(ret, TRACE_ID_BYTES);
}
