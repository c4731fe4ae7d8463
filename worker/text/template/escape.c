/* Two small codecs of text (escape.h): escapes of string literals, and HTML's entities. */

#include "worker/text/template/escape.h"

#include "common/base/utf8.h"
#include "common/codec/hex.h"
#include "worker/text/template/pystr.h"

/* Reads `n` hex digits at *at. Returns -1 if there are fewer. */
static int64_t read_escape_hex(struct str raw, size_t *at, int n)
{
    int64_t v = 0;

    for (int i = 0; i < n; i++) {
        int d = *at < raw.len ? hex_value(raw.p[*at]) : -1;

        if (d < 0)
            return -1;
        v = v * 16 + d;
        ++*at;
    }
    return v;
}

/* Reads up to three octal digits at *at. */
static int64_t read_octal(struct str raw, size_t *at)
{
    int64_t v = 0;

    for (int i = 0; i < 3 && *at < raw.len && raw.p[*at] >= '0' && raw.p[*at] <= '7'; i++)
        v = v * 8 + (raw.p[(*at)++] - '0');
    return v;
}

static int refuse_escape(const char *what, const char **why)
{
    *why = what;
    return -1;
}

/* Handles a backslash before a character beyond ASCII. Jinja replaces such a character by an escape
 * before it decodes the literal. So the backslash escapes the backslash of that escape, and the
 * result is the text of the escape. */
static void spell_escape(struct str raw, size_t *at, struct buf *out)
{
    uint32_t cp = pystr_next(raw, at);

    buf_printf(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
}

/* Decodes one escape. *at is after the backslash. */
static int decode_escape(struct str raw, size_t *at, struct buf *out, const char **why)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = raw.p[*at];
    const char *simple = c ? strchr(from, c) : NULL;
    int64_t cp;

    if (c == '\n') {
        ++*at;
        return 0;
    }
    if (simple) {
        ++*at;
        buf_add_c(out, to[simple - from]);
        return 0;
    }
    if (c == 'N')
        return refuse_escape("\\N{NAME} is not supported, write the character or \\uXXXX", why);
    if ((unsigned char)c >= 0x80) {
        spell_escape(raw, at, out);
        return 0;
    }
    if (c >= '0' && c <= '7') {
        cp = read_octal(raw, at);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        ++*at;
        cp = read_escape_hex(raw, at, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else {
        buf_add_c(out, '\\');
        return 0;
    }
    if (cp < 0 || cp > 0x10ffff)
        return refuse_escape("invalid escape in a string", why);
    out->len += utf8_encode(buf_reserve(out, 4), (uint32_t)cp);
    return 0;
}

/* A text without a backslash is only copied. A lone backslash at the end is kept. */
int escape_decode(struct arena *a, struct str raw, struct str *ret, const char **why)
{
    struct buf out = {0};
    int rc = 0;

    if (!raw.len || !memchr(raw.p, '\\', raw.len)) {
        *ret = arena_str(a, raw);
        return 0;
    }
    for (size_t at = 0; at < raw.len && rc == 0;) {
        if (raw.p[at] == '\\' && at + 1 < raw.len) {
            at++;
            rc = decode_escape(raw, &at, &out, why);
        } else {
            buf_add_c(&out, raw.p[at++]);
        }
    }
    *ret = arena_str(a, buf_str(&out));
    buf_done(&out);
    return rc;
}

/* The longest escapes take five bytes. */
uint64_t escape_html_size(struct str s)
{
    uint64_t n = s.len;

    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];

        if (c == '&' || c == '<' || c == '>' || c == '\'' || c == '"')
            n += 4;
    }
    return n;
}

void escape_html(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        switch (s.p[i]) {
        case '&':
            buf_puts(out, "&amp;");
            break;
        case '<':
            buf_puts(out, "&lt;");
            break;
        case '>':
            buf_puts(out, "&gt;");
            break;
        case '\'':
            buf_puts(out, "&#39;");
            break;
        case '"':
            buf_puts(out, "&#34;");
            break;
        default:
            buf_add_c(out, s.p[i]);
        }
    }
}
