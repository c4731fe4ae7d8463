/*
 * A state machine like object_scan's, which writes JSON while it reads: quotes and escapes are
 * converted, tuples become arrays, True, False and None become JSON's words. A comma is written
 * only when a value follows it, because Python allows one before the closing bracket. Words and
 * numbers wait in `word` until the byte after them, so `out` is always a beginning of valid JSON.
 */
#include "worker/text/parsers/python_scan.h"

#include <string.h>

#include "common/base/attrs.h"
#include "common/codec/hex.h"
#include "worker/text/parsers/object_scan.h"
#include "worker/text/parsers/param_value.h"

enum {
    VALUE, /* a value must follow */
    ITEM_FIRST,
    ITEM_NEXT, /* after a comma: a value, or the end */
    KEY_FIRST,
    KEY_NEXT,
    COLON,
    STRING,
    EMPTY,  /* after two quotes: a third one opens a triple-quoted string */
    TRIPLE, /* inside of a triple-quoted string */
    ESCAPE,
    HEX,
    WORD,
    AFTER, /* after a value, inside a container */
};

void python_scan_reset(struct python_scan *s)
{
    struct buf word = s->word;

    buf_clear(&word);
    *s = (struct python_scan){.word = word};
}

void python_scan_done(struct python_scan *s)
{
    buf_done(&s->word);
}

static bool is_python_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool ends_word(char c)
{
    return strchr(" \t\r\n,:()[]{}'\"", c) != NULL; /* also true for NUL */
}

static enum python_step end_text(struct python_scan *s)
{
    if (s->depth == 0)
        return PYTHON_DONE;
    s->state = AFTER;
    return PYTHON_MORE;
}

static bool is_python_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Writes a number in a form that Python permits and JSON does not (+2, .5, 3., -.5e3, 07), or in a
 * form that both permit. */
static bool write_number(struct str word, struct buf *out)
{
    struct buf text = {0};
    size_t at = 0;
    bool digits = false, valid;

    if (word.p[0] == '-')
        buf_add_c(&text, '-');
    if (word.p[0] == '-' || word.p[0] == '+')
        at++;
    while (at + 1 < word.len && word.p[at] == '0' && is_python_digit(word.p[at + 1]))
        at++;
    if (at < word.len && word.p[at] == '.')
        buf_add_c(&text, '0');
    for (; at < word.len; at++) {
        bool ends = at + 1 == word.len || (word.p[at + 1] | 32) == 'e';

        digits = digits || is_python_digit(word.p[at]);
        buf_add_c(&text, word.p[at]);
        if (word.p[at] == '.' && ends)
            buf_add_c(&text, '0');
    }
    valid = digits && object_scan_valid(buf_str(&text)) && strchr("-0123456789", text.p[0]);
    if (valid)
        buf_add_str(out, buf_str(&text));
    buf_done(&text);
    return valid;
}

/* Writes a word: True, 12, -1.5, None. */
static bool write_word(struct python_scan *s, struct buf *out)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    struct str word = buf_str(&s->word);

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq_c(word, words[i][0])) {
            buf_puts(out, words[i][1]);
            return true;
        }
    }
    if (!word.len)
        return false;
    return write_number(word, out);
}

static enum python_step begin_string(struct python_scan *s, char quote, bool key, struct buf *out)
{
    s->quote = quote;
    s->is_key = key;
    s->fresh = true;
    s->quotes = 0;
    s->state = STRING;
    buf_add_c(out, '"');
    return PYTHON_MORE;
}

static enum python_step open_container(struct python_scan *s, char c, struct buf *out)
{
    if (s->depth == PYTHON_DEPTH_MAX - 1)
        return PYTHON_BAD;
    s->closes[s->depth++] = c == '[' ? ']' : c == '(' ? ')' : '}';
    s->state = c == '{' ? KEY_FIRST : ITEM_FIRST;
    buf_add_c(out, c == '{' ? '{' : '[');
    return PYTHON_MORE;
}

static enum python_step close_container(struct python_scan *s, struct buf *out)
{
    buf_add_c(out, s->closes[--s->depth] == '}' ? '}' : ']');
    return end_text(s);
}

static enum python_step begin_python_value(struct python_scan *s, char c, struct buf *out)
{
    if (is_python_blank(c))
        return PYTHON_MORE;
    if (s->state != VALUE && c == s->closes[s->depth - 1])
        return close_container(s, out);
    if (s->state == ITEM_NEXT)
        buf_puts(out, ", ");
    if (c == '"' || c == '\'')
        return begin_string(s, c, false, out);
    if (c && strchr("[({", c))
        return open_container(s, c, out);
    if (ends_word(c))
        return PYTHON_BAD;
    buf_clear(&s->word);
    buf_add_c(&s->word, c);
    s->state = WORD;
    return PYTHON_MORE;
}

static enum python_step begin_key(struct python_scan *s, char c, struct buf *out)
{
    if (is_python_blank(c))
        return PYTHON_MORE;
    if (c == '}')
        return close_container(s, out);
    if (c != '"' && c != '\'')
        return PYTHON_BAD;
    if (s->state == KEY_NEXT)
        buf_puts(out, ", ");
    return begin_string(s, c, true, out);
}

/* Writes a code point as JSON escapes, so that lone surrogates stay valid. */
static void write_code_point(struct buf *out, uint32_t cp)
{
    if (cp > 0xffff)
        buf_printf(out, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                   0xdc00 + ((cp - 0x10000) & 0x3ff));
    else
        buf_printf(out, "\\u%04x", cp);
}

static enum python_step escape_byte(struct python_scan *s, char c, struct buf *out)
{
    static const char simple[] = "abfnrtv\\'\"";
    static const char meaning[] = "\a\b\f\n\r\t\v\\'\"";
    const char *known = c ? strchr(simple, c) : NULL;

    s->state = s->triple ? TRIPLE : STRING;
    s->code_point = 0;
    s->n_digits = s->digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (s->digits) {
        s->state = HEX;
    } else if (known) {
        value_escape(out, str_of(&meaning[known - simple], 1));
    } else if (c != '\n') {
        /* Python keeps the backslash of an unknown escape. */
        buf_puts(out, "\\\\");
        value_escape(out, str_of(&c, 1));
    }
    return PYTHON_MORE;
}

static enum python_step hex_byte(struct python_scan *s, char c, struct buf *out)
{
    int digit = hex_value(c);

    if (digit < 0)
        return PYTHON_BAD;
    s->code_point = s->code_point * 16 + (uint32_t)digit;
    if (--s->digits > 0)
        return PYTHON_MORE;
    if (s->code_point > 0x10ffff)
        return PYTHON_BAD;
    write_code_point(out, s->code_point);
    s->state = s->triple ? TRIPLE : STRING;
    return PYTHON_MORE;
}

static enum python_step close_string(struct python_scan *s, struct buf *out)
{
    s->triple = false;
    buf_add_c(out, '"');
    if (!s->is_key)
        return end_text(s);
    s->state = COLON;
    return PYTHON_MORE;
}

static enum python_step string_byte(struct python_scan *s, char c, struct buf *out)
{
    bool fresh = s->fresh;

    s->fresh = false;
    s->nesting = fresh ? 0 : s->nesting;
    if (c == '\\') {
        s->state = ESCAPE;
    } else if (c != s->quote) {
        value_escape(out, str_of(&c, 1));
        s->nesting += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    } else if (fresh) {
        s->state = EMPTY;
    } else {
        return close_string(s, out);
    }
    return PYTHON_MORE;
}

/* Handles a byte of a triple-quoted string. Quotes are text until three come together. */
static enum python_step triple_byte(struct python_scan *s, char c, struct buf *out)
{
    if (c == s->quote && ++s->quotes == 3)
        return close_string(s, out);
    if (c == s->quote)
        return PYTHON_MORE;
    for (; s->quotes > 0; s->quotes--)
        value_escape(out, str_of(&s->quote, 1));
    if (c == '\\')
        s->state = ESCAPE;
    else
        value_escape(out, str_of(&c, 1));
    return PYTHON_MORE;
}

/* Handles the byte after two quotes. If it is not a quote, the string was empty. */
static enum python_step empty_byte(struct python_scan *s, char c, struct buf *out)
{
    if (c == s->quote) {
        s->triple = true;
        s->state = TRIPLE;
        return PYTHON_MORE;
    }
    return close_string(s, out) == PYTHON_DONE ? PYTHON_BEFORE : python_scan_byte(s, c, out);
}

static enum python_step after_byte(struct python_scan *s, char c, struct buf *out)
{
    char close = s->closes[s->depth - 1];

    if (is_python_blank(c))
        return PYTHON_MORE;
    if (c == close)
        return close_container(s, out);
    s->state = close == '}' ? KEY_NEXT : ITEM_NEXT;
    return c == ',' ? PYTHON_MORE : PYTHON_BAD;
}

static enum python_step word_byte(struct python_scan *s, char c, struct buf *out)
{
    if (!ends_word(c)) {
        buf_add_c(&s->word, c);
        return PYTHON_MORE;
    }
    if (!write_word(s, out))
        return PYTHON_BAD;
    if (s->depth == 0)
        return PYTHON_BEFORE;
    s->state = AFTER;
    return after_byte(s, c, out);
}

enum python_step python_scan_byte(struct python_scan *s, char c, struct buf *out)
{
    switch (s->state) {
    case KEY_FIRST:
    case KEY_NEXT:
        return begin_key(s, c, out);
    case COLON:
        if (is_python_blank(c))
            return PYTHON_MORE;
        buf_puts(out, ": ");
        s->state = VALUE;
        return c == ':' ? PYTHON_MORE : PYTHON_BAD;
    case STRING:
        return string_byte(s, c, out);
    case EMPTY:
        return empty_byte(s, c, out);
    case TRIPLE:
        return triple_byte(s, c, out);
    case ESCAPE:
        return escape_byte(s, c, out);
    case HEX:
        return hex_byte(s, c, out);
    case WORD:
        return word_byte(s, c, out);
    case AFTER:
        return after_byte(s, c, out);
    default:
        return begin_python_value(s, c, out);
    }
}

bool python_scan_closes(const struct python_scan *s, char c)
{
    return s->state == STRING && c == s->quote;
}

size_t python_scan_pending(const struct python_scan *s)
{
    switch (s->state) {
    case EMPTY:
        return 1;
    case TRIPLE:
        return s->quotes;
    case WORD:
        return s->word.len;
    case ESCAPE:
        return 1;
    case HEX:
        return 2u + s->n_digits - s->digits;
    default:
        return 0;
    }
}

enum python_step python_scan_end(struct python_scan *s, struct buf *out)
{
    if (s->state == EMPTY && s->depth == 0)
        return close_string(s, out);
    return s->state == WORD && s->depth == 0 && write_word(s, out) ? PYTHON_DONE : PYTHON_BAD;
}
