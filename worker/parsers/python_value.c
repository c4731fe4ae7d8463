/* Python literals as JSON: value_python of value.h. */
#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/hex.h"
#include "worker/parsers/object_scan.h"
#include "worker/parsers/value.h"

enum { PYTHON_DEPTH_MAX = 64 };

struct reader {
    struct str text;
    size_t at;
    struct buf *out;
    int depth;
};

static int read_value(struct reader *r);

static char peek(const struct reader *r)
{
    return r->at < r->text.len ? r->text.p[r->at] : '\0';
}

static void blanks(struct reader *r)
{
    while (r->at < r->text.len && strchr(" \t\n\r", r->text.p[r->at]) && r->text.p[r->at])
        r->at++;
}

static bool eat(struct reader *r, char c)
{
    blanks(r);
    if (r->at >= r->text.len || r->text.p[r->at] != c)
        return false;
    r->at++;
    return true;
}

static int hex_digits(struct reader *r, int n, uint32_t *ret)
{
    uint32_t v = 0;

    for (; n; n--, r->at++) {
        int digit = hex_value(peek(r));

        if (digit < 0)
            return -1;
        v = v * 16 + (uint32_t)digit;
    }
    *ret = v;
    return 0;
}

/* As JSON escapes: nothing to encode, and lone surrogates stay valid. */
static void write_code_point(struct buf *out, uint32_t cp)
{
    if (cp > 0xffff)
        buf_printf(out, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                   0xdc00 + ((cp - 0x10000) & 0x3ff));
    else
        buf_printf(out, "\\u%04x", cp);
}

static int read_escape(struct reader *r)
{
    static const char simple[] = "abfnrtv\\'\"";
    static const char meaning[] = "\a\b\f\n\r\t\v\\'\"";
    char c = peek(r);
    const char *s = c ? strchr(simple, c) : NULL;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t cp;

    if (r->at >= r->text.len)
        return -1;
    r->at++;
    if (s) {
        value_escape(r->out, str_of(&meaning[s - simple], 1));
    } else if (digits) {
        if (hex_digits(r, digits, &cp) != 0 || cp > 0x10ffff)
            return -1;
        write_code_point(r->out, cp);
    } else if (c != '\n') {
        /* Python keeps an unknown escape as it is. */
        buf_puts(r->out, "\\\\");
        value_escape(r->out, str_of(&c, 1));
    }
    return 0;
}

static int read_string(struct reader *r)
{
    char quote = r->text.p[r->at++];

    buf_add_c(r->out, '"');
    while (r->at < r->text.len && r->text.p[r->at] != quote) {
        char c = r->text.p[r->at++];

        if (c == '\\') {
            if (read_escape(r) != 0)
                return -1;
        } else if (c == '\n') {
            return -1;
        } else {
            value_escape(r->out, str_of(&c, 1));
        }
    }
    if (r->at >= r->text.len)
        return -1;
    r->at++;
    buf_add_c(r->out, '"');
    return 0;
}

/* True, 12, -1.5, None: the run of letters, digits and signs. */
static int read_word(struct reader *r)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    size_t from = r->at;
    struct str word;

    while (r->at < r->text.len && !strchr(" \t\r\n,:()[]{}'\"", r->text.p[r->at]))
        r->at++;
    word = str_sub(r->text, from, r->at - from);
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq_c(word, words[i][0])) {
            buf_puts(r->out, words[i][1]);
            return 0;
        }
    }
    if (!word.len || !object_scan_valid(word))
        return -1;
    buf_add_str(r->out, word);
    return 0;
}

static int read_list(struct reader *r, char close)
{
    int n = 0;

    r->at++;
    buf_add_c(r->out, '[');
    while (!eat(r, close)) {
        if (n++)
            buf_puts(r->out, ", ");
        if (read_value(r) != 0)
            return -1;
        if (eat(r, close))
            break;
        if (!eat(r, ','))
            return -1;
    }
    buf_add_c(r->out, ']');
    return 0;
}

static int read_dict(struct reader *r)
{
    int n = 0;

    r->at++;
    buf_add_c(r->out, '{');
    while (!eat(r, '}')) {
        if (n++)
            buf_puts(r->out, ", ");
        blanks(r);
        if ((peek(r) != '"' && peek(r) != '\'') || read_string(r) != 0 || !eat(r, ':'))
            return -1;
        buf_puts(r->out, ": ");
        if (read_value(r) != 0)
            return -1;
        if (eat(r, '}'))
            break;
        if (!eat(r, ','))
            return -1;
    }
    buf_add_c(r->out, '}');
    return 0;
}

static int read_value(struct reader *r)
{
    int ret;

    blanks(r);
    if (r->depth >= PYTHON_DEPTH_MAX)
        return -1;
    r->depth++;
    if (peek(r) == '"' || peek(r) == '\'')
        ret = read_string(r);
    else if (peek(r) == '[')
        ret = read_list(r, ']');
    else if (peek(r) == '(')
        ret = read_list(r, ')');
    else if (peek(r) == '{')
        ret = read_dict(r);
    else
        ret = read_word(r);
    r->depth--;
    return ret;
}

int value_python(struct buf *out, struct str text, size_t *at)
{
    struct reader r = {text, *at, out, 0};

    if (read_value(&r) != 0)
        return -1;
    *at = r.at;
    return 0;
}
