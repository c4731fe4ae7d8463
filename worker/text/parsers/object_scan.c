/*
 * One state, and one bit for each open container (object or array). A byte changes the state and
 * nothing is read twice, so a call's arguments are followed while they arrive. A number has no last
 * byte of its own: the byte after it ends it and then counts for the container (number_ended). So a
 * number cannot be the whole value, and object_scan_valid puts brackets around its text.
 */
#include "worker/text/parsers/object_scan.h"

#include "common/base/limits.h"

#include <string.h>

static bool is_json_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_json_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_json_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

void object_scan_init(struct object_scan *s)
{
    *s = (struct object_scan){.state = SCAN_VALUE};
}

static bool in_object(const struct object_scan *s)
{
    unsigned at = s->depth - 1u;

    return (s->stack[at / 8] >> (at % 8)) & 1;
}

static void push_container(struct object_scan *s, bool object)
{
    unsigned at = s->depth;

    if (at >= JSON_DEPTH_MAX) {
        s->state = SCAN_BAD;
        return;
    }
    s->stack[at / 8] =
        (uint8_t)((s->stack[at / 8] & ~(1u << (at % 8))) | (unsigned)object << (at % 8));
    s->depth++;
    s->state = object ? SCAN_FIRST_KEY : SCAN_FIRST_ITEM;
}

static void value_ended(struct object_scan *s)
{
    s->state = s->depth ? SCAN_AFTER : SCAN_DONE;
}

static void pop_container(struct object_scan *s, char c)
{
    if (in_object(s) != (c == '}')) {
        s->state = SCAN_BAD;
        return;
    }
    s->depth--;
    value_ended(s);
}

static void begin_word(struct object_scan *s, const char *rest)
{
    s->word = rest;
    s->state = SCAN_WORD;
}

static void begin_scanned_value(struct object_scan *s, char c)
{
    if (c == '{' || c == '[') {
        push_container(s, c == '{');
    } else if (c == '"') {
        s->is_key = false;
        s->state = SCAN_STRING;
    } else if (c == 't') {
        begin_word(s, "rue");
    } else if (c == 'f') {
        begin_word(s, "alse");
    } else if (c == 'n') {
        begin_word(s, "ull");
    } else if (c == '-') {
        s->state = SCAN_MINUS;
    } else if (c == '0') {
        s->state = SCAN_ZERO;
    } else if (is_json_digit(c)) {
        s->state = SCAN_DIGITS;
    } else {
        s->state = SCAN_BAD;
    }
}

static void after_value(struct object_scan *s, char c)
{
    if (c == ',')
        s->state = in_object(s) ? SCAN_KEY : SCAN_VALUE;
    else if (c == '}' || c == ']')
        pop_container(s, c);
    else if (!is_json_blank(c))
        s->state = SCAN_BAD;
}

/* Handles the byte after a complete number, which belongs to the container. */
static void number_ended(struct object_scan *s, char c)
{
    if (!s->depth) {
        s->state = SCAN_BAD;
        return;
    }
    s->state = SCAN_AFTER;
    after_value(s, c);
}

/* Returns the state after a sign, a point or an "e", which a digit must follow. */
static uint8_t digit_due(uint8_t state, char c)
{
    bool digit = is_json_digit(c);

    if (state == SCAN_MINUS && c == '0')
        return SCAN_ZERO;
    if (state == SCAN_EXP && (c == '+' || c == '-'))
        return SCAN_EXP_SIGN;
    if (!digit)
        return SCAN_BAD;
    return state == SCAN_MINUS ? SCAN_DIGITS : state == SCAN_DOT ? SCAN_FRACTION : SCAN_EXP_DIGITS;
}

/* Handles a further byte of a number, or the first one after it. */
static void in_number(struct object_scan *s, char c)
{
    bool exp = c == 'e' || c == 'E';
    uint8_t state = s->state;

    if (state == SCAN_MINUS || state == SCAN_DOT || state == SCAN_EXP || state == SCAN_EXP_SIGN)
        s->state = digit_due(state, c);
    else if (is_json_digit(c) && state != SCAN_ZERO)
        return;
    else if (c == '.' && (state == SCAN_ZERO || state == SCAN_DIGITS))
        s->state = SCAN_DOT;
    else if (exp && state != SCAN_EXP_DIGITS)
        s->state = SCAN_EXP;
    else
        number_ended(s, c);
}

static void in_string(struct object_scan *s, char c)
{
    if (c == '"') {
        if (s->is_key)
            s->state = SCAN_COLON;
        else
            value_ended(s);
    } else if (c == '\\') {
        s->state = SCAN_ESCAPE;
    } else if ((unsigned char)c < 0x20) {
        s->state = SCAN_BAD;
    }
}

static void in_escape(struct object_scan *s, char c)
{
    if (s->state == SCAN_ESCAPE) {
        s->left = 4;
        s->state = c == 'u' ? SCAN_HEX : c && strchr("\"\\/bfnrt", c) ? SCAN_STRING : SCAN_BAD;
    } else if (!is_hex(c)) {
        s->state = SCAN_BAD;
    } else if (--s->left == 0) {
        s->state = SCAN_STRING;
    }
}

static void in_word(struct object_scan *s, char c)
{
    if (c != *s->word)
        s->state = SCAN_BAD;
    else if (!*++s->word)
        value_ended(s);
}

static void before_token(struct object_scan *s, char c)
{
    if (is_json_blank(c))
        return;
    if (s->state == SCAN_COLON) {
        s->state = c == ':' ? SCAN_VALUE : SCAN_BAD;
    } else if (s->state == SCAN_VALUE) {
        begin_scanned_value(s, c);
    } else if (s->state == SCAN_FIRST_ITEM) {
        if (c == ']')
            pop_container(s, c);
        else
            begin_scanned_value(s, c);
    } else if (c == '"') {
        s->is_key = true;
        s->state = SCAN_STRING;
    } else if (c == '}' && s->state == SCAN_FIRST_KEY) {
        pop_container(s, c);
    } else {
        s->state = SCAN_BAD;
    }
}

void object_scan_byte(struct object_scan *s, char c)
{
    switch ((enum object_scan_state)s->state) {
    case SCAN_STRING:
        in_string(s, c);
        break;
    case SCAN_ESCAPE:
    case SCAN_HEX:
        in_escape(s, c);
        break;
    case SCAN_WORD:
        in_word(s, c);
        break;
    case SCAN_AFTER:
        after_value(s, c);
        break;
    case SCAN_VALUE:
    case SCAN_FIRST_ITEM:
    case SCAN_FIRST_KEY:
    case SCAN_KEY:
    case SCAN_COLON:
        before_token(s, c);
        break;
    case SCAN_DONE:
    case SCAN_BAD:
        s->state = SCAN_BAD;
        break;
    default:
        in_number(s, c);
    }
}

bool object_scan_valid(struct str s)
{
    struct object_scan scan;
    char close = ']';

    /* The value is put into an array, so that a number ends as well. */
    object_scan_init(&scan);
    object_scan_byte(&scan, '[');
    s = str_trim(s);
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len && scan.state != SCAN_BAD; i++) {
        object_scan_byte(&scan, s.p[i]);
        if (scan.depth == 0 || (scan.depth == 1 && s.p[i] == ',' && scan.state == SCAN_VALUE))
            return false;
    }
    object_scan_byte(&scan, close);
    return scan.state == SCAN_DONE;
}
