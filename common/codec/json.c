/*
 * The reader passes over the text once. Values of open containers are on a stack. When a container
 * closes, its values are copied to the arena, so they are contiguous. The members key, value, key,
 * value have the layout of struct json_member:
 *
 *   text    {"a": [1, 2], "b": 3}
 *   stack   1  2            at "]": both are copied to the arena as the array of "a"
 *   stack   a  [2]  b  3    at "}": all four are copied to the arena as an object of two members
 *
 * Strings without escapes stay in the text. Those with escapes are decoded into one buffer. It
 * needs no more bytes than the text from the first such string on. Most of a body is runs of plain
 * bytes, which are found 16 bytes at a time. json_value.c reads values, json_write.c writes them.
 *
 * If a text begins like an earlier one, parsing can begin at an item of a list (json_trace.h). The
 * reader's state at that item is its stack and its use of the arena.
 */
#include "common/codec/json.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/cancel.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/codec/json_merge.h"
#include "common/codec/json_reader.h"
#include "common/codec/json_trace.h"

enum { CHECK_EVERY = 4096 };

static int read_any_value(struct json_reader *r, struct json *ret);

int json_fail(struct json_reader *r, const char *at, const char *what)
{
    return err_set(r->e, ERR_INVALID, "JSON: %s at byte %zu", what, json_place(r, at));
}

/* Reports whether a text is a form (NAME=...), as browsers and `curl -d a=b` send it. */
static bool is_form(struct str text)
{
    size_t n = 0;

    while (n < text.len && (text.p[n] == '_' || text.p[n] == '-' || text.p[n] == '.' ||
                            (text.p[n] >= '0' && text.p[n] <= '9') ||
                            ((text.p[n] | 32) >= 'a' && (text.p[n] | 32) <= 'z')))
        n++;
    return n > 0 && n < text.len && text.p[n] == '=';
}

/* Returns the cause of an unexpected character, if it is a usual mistake. `first`: it is the first
 * byte of the text. */
static const char *name_mistake(struct str text, bool first)
{
    static const struct {
        const char *start, *what;
    } mistakes[] = {
        {"NaN", "NaN is not a JSON number"},
        {"nan", "NaN is not a JSON number"},
        {"Infinity", "Infinity is not a JSON number"},
        {"inf", "Infinity is not a JSON number"},
        {"None", "Python's None is null in JSON"},
        {"True", "Python's True is true in JSON"},
        {"False", "Python's False is false in JSON"},
        {"'", "strings need double quotes, unexpected character"},
        {"\xef\xbb\xbf", "a byte order mark (U+FEFF), which JSON does not have,"},
    };

    if (first && is_form(text))
        return "a form (NAME=VALUE), not JSON; unexpected character";
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++) {
        if (str_starts(text, str_cstr(mistakes[i].start)))
            return mistakes[i].what;
    }
    return "unexpected character";
}

int json_fail_here(struct json_reader *r)
{
    struct str text = str_of(r->at, (size_t)(r->end - r->at));

    if (text.len == 0)
        return json_fail(r, r->at, "unexpected end");
    if (r->before == 0 && r->at == r->start + 1 && r->start[0] == '-' && text.p[0] == '-')
        return json_fail(r, r->at, "a multipart form, not JSON; unexpected character");
    return json_fail(r, r->at, name_mistake(text, json_place(r, r->at) == 0));
}

static inline bool is_json_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline void skip_json_space(struct json_reader *r)
{
    while (r->at < r->end && is_json_space(*r->at))
        r->at++;
}

/* Returns the next byte after white space without consuming it. Returns 0 at the end, because no
 * NUL is ever expected. */
static inline char peek_byte(struct json_reader *r)
{
    skip_json_space(r);
    return r->at < r->end ? *r->at : 0;
}

/* Doubles the stack of values. */
static void grow_stack(struct json_reader *r)
{
    struct json *grown = mem_realloc_array(r->grown, r->cap * 2, sizeof(*r->stack));

    if (!r->grown)
        memcpy(grown, r->stack, r->n * sizeof(*r->stack));
    r->stack = r->grown = grown;
    r->cap *= 2;
}

/* Adds a slot to the stack of values whose container is open. */
static inline struct json *push_value(struct json_reader *r)
{
    if (RG_UNLIKELY(r->n == r->cap))
        grow_stack(r);
    return &r->stack[r->n++];
}

/* --- strings --- */

/* Returns the first byte at or after p that is not plain, or end. */
static inline const char *plain_run(const char *p, const char *end)
{
#ifdef __SSE2__
    while (end - p >= 16) {
        unsigned mask = json_special_bytes(_mm_loadu_si128((const __m128i *)(const void *)p));

        if (mask)
            return p + __builtin_ctz(mask);
        p += 16;
    }
#endif
    while (p < end && json_is_plain(*p))
        p++;
    return p;
}

/* Reads a string, with r->at at its opening quote. */
static int read_json_string(struct json_reader *r, struct json *ret)
{
    const char *start = ++r->at;

    r->at = plain_run(start, r->end);
    ret->kind = JSON_STRING;
    if (RG_LIKELY(r->at < r->end && *r->at == '"')) {
        ret->flags = 0;
        ret->n = (uint32_t)(r->at - start);
        ret->text = start;
        r->at++;
        return 0;
    }
    if (r->at == r->end)
        return json_fail_here(r);
    if (*r->at != '\\')
        return json_fail(r, r->at, "control character in a string");
    return json_read_escaped(r, start, ret);
}

/* --- numbers and words --- */

static inline bool digit_at(const struct json_reader *r)
{
    return r->at < r->end && (unsigned)(*r->at - '0') < 10;
}

/* Passes the digits at r->at. Fails if there is not one. */
static int read_digits(struct json_reader *r)
{
    if (!digit_at(r))
        return json_fail_here(r);
    while (digit_at(r))
        r->at++;
    return 0;
}

/* Checks the form of a number and keeps its text, so that no digit is lost. */
static int read_number_text(struct json_reader *r, struct json *ret)
{
    const char *start = r->at;

    if (*r->at == '-')
        r->at++;
    if (r->at < r->end && *r->at == '0')
        r->at++;
    else if (read_digits(r) < 0)
        return -1;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (read_digits(r) < 0)
            return -1;
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        if (read_digits(r) < 0)
            return -1;
    }
    *ret = (struct json){.kind = JSON_NUMBER, .n = (uint32_t)(r->at - start), {.text = start}};
    return 0;
}

/* Reads true, false or null. */
static int read_literal(struct json_reader *r, struct str word, struct json *ret, struct json value)
{
    if (!str_starts(str_of(r->at, (size_t)(r->end - r->at)), word))
        return json_fail_here(r);
    r->at += word.len;
    *ret = value;
    return 0;
}

/* --- containers --- */

/* Enters a container, with r->at at its bracket. A long parse checks here whether it is cancelled.
 */
static int enter_level(struct json_reader *r)
{
    if (++r->depth > JSON_DEPTH_MAX)
        return json_fail(r, r->at, "nested too deep");
    if (cancel_wanted())
        return cancel_fail(r->e);
    r->at++;
    return 0;
}

/* Moves the values of the stack from `base` on to the arena. Returns NULL if there are no values.
 */
static struct json *move_values(struct json_reader *r, size_t base)
{
    size_t bytes = (r->n - base) * sizeof(struct json);
    struct json *items = NULL;

    if (bytes) {
        items = arena_alloc(r->arena, bytes);
        memcpy(items, &r->stack[base], bytes);
    }
    r->n = base;
    return items;
}

static int fail_budget(const struct json_reader *r)
{
    return err_set(r->e, ERR_BODY_TOO_LARGE, "JSON: its values take more than %zu bytes of memory",
                   r->arena->max_bytes);
}

/* Checks whether the arena's budget holds the values on the stack, too. Only every CHECK_EVERY
 * values. */
static int check_stack(struct json_reader *r)
{
    size_t waiting = r->n * sizeof(*r->stack);

    if (r->n < r->check_at)
        return 0;
    r->check_at = r->n + CHECK_EVERY;
    if (r->arena->max_bytes == 0 || r->arena->used_bytes + waiting <= r->arena->max_bytes)
        return 0;
    r->arena->used_bytes += waiting; /* the arena counts as over its budget from now on */
    return fail_budget(r);
}

/* Records a mark after an item of the followed list. Only an object shows its own end, so other
 * items end the marks. An object without members ends them, too: the budget was not just checked,
 * so parsing from the mark could differ. */
static void mark_item(struct json_reader *r, const struct json *item)
{
    struct json_trace *t = r->trace;

    t->closed =
        t->closed || item->kind != JSON_OBJECT || item->n == 0 || r->check_at != CHECK_EVERY;
    if (!t->closed)
        *vec_push(&t->marks) = (struct json_mark){
            .end = json_place(r, r->at), .used_bytes = r->arena->used_bytes - r->uncounted};
}

static int read_array_item(struct json_reader *r)
{
    struct json value = {0};

    if (read_any_value(r, &value) < 0)
        return -1;
    *push_value(r) = value;
    if (RG_UNLIKELY(r->depth == r->followed))
        mark_item(r, &value);
    return 0;
}

/* Reads the remaining items of an array. */
static int read_more_items(struct json_reader *r)
{
    while (peek_byte(r) == ',') {
        if (check_stack(r) < 0)
            return -1;
        r->at++;
        if (read_array_item(r) < 0)
            return -1;
    }
    return 0;
}

/* Ends an array, whose items are on the stack from `base` on. */
static int end_array(struct json_reader *r, size_t base, struct json *ret)
{
    if (peek_byte(r) != ']')
        return json_fail_here(r);
    r->at++;
    r->depth--;
    *ret = (struct json){.kind = JSON_ARRAY, .n = (uint32_t)(r->n - base)};
    ret->items = move_values(r, base);
    return arena_over(r->arena) ? fail_budget(r) : 0;
}

/* Reads [...], with r->at at the bracket. */
static int read_array(struct json_reader *r, struct json *ret)
{
    size_t base = r->n;

    if (enter_level(r) < 0)
        return -1;
    if (peek_byte(r) != ']' && (read_array_item(r) < 0 || read_more_items(r) < 0))
        return -1;
    return end_array(r, base, ret);
}

/* Reports whether this member of the text's object is the list that is followed. A second such key
 * would replace the list, so all marks are dropped then. */
static bool begins_list(struct json_reader *r, const struct json *key)
{
    struct json_trace *t = r->trace;

    if (r->depth != 1 || !str_eq(json_text(key), t->key))
        return false;
    if (t->found) {
        t->twice = t->closed = true;
        t->marks.n = 0;
        return false;
    }
    if (peek_byte(r) != '[')
        return false;
    t->found = true;
    t->list_key = *key;
    t->list_at = json_place(r, r->at) + 1;
    for (size_t i = 0; i < r->n; i++)
        *vec_push(&t->members) = r->stack[i];
    return true;
}

/* Reads a member's value, after the colon. */
static int read_member_value(struct json_reader *r, const struct json *key, struct json *ret)
{
    int rc;

    if (RG_LIKELY(!r->trace) || !begins_list(r, key))
        return read_any_value(r, ret);
    r->followed = 2;
    rc = read_any_value(r, ret);
    r->followed = 0;
    return rc;
}

/* Reads key and value and adds both to the stack. */
static int read_object_member(struct json_reader *r)
{
    struct json key = {0}, value;

    if (peek_byte(r) != '"')
        return json_fail_here(r);
    if (read_json_string(r, &key) < 0)
        return -1;
    if (peek_byte(r) != ':')
        return json_fail_here(r);
    r->at++;
    if (read_member_value(r, &key, &value) < 0)
        return -1;
    *push_value(r) = key;
    *push_value(r) = value;
    return 0;
}

/* Fails because an object has a key twice: only half of such a request would be obeyed. */
static int fail_twice(struct json_reader *r)
{
    enum { SHOWN = 64 };
    struct str key = str_sub(json_text(&r->twice), 0, SHOWN);

    key = str_sub(key, 0, utf8_valid_len(key));
    return err_set(r->e, ERR_INVALID, "JSON: the key \"%.*s\" stands twice in one object",
                   (int)key.len, key.p);
}

static int read_object_members(struct json_reader *r)
{
    for (;;) {
        if (read_object_member(r) < 0 || check_stack(r) < 0)
            return -1;
        if (peek_byte(r) != ',')
            return 0;
        r->at++;
    }
}

/* Ends an object, whose members are on the stack from `base` on. Duplicate keys are merged as in
 * Python's dict. */
static int end_object(struct json_reader *r, size_t base, struct json *ret)
{
    struct json_member *members;
    size_t n;

    if (peek_byte(r) != '}')
        return json_fail_here(r);
    r->at++;
    r->depth--;
    n = (r->n - base) / 2;
    if (n == 0) {
        *ret = (struct json){.kind = JSON_OBJECT};
        return 0;
    }
    members = (struct json_member *)(void *)(r->stack + base);
    n = json_merge_keys(members, n, &r->twice);
    if (r->once && r->twice.kind != JSON_NULL)
        return fail_twice(r);
    r->n = base + n * 2;
    *ret = (struct json){.kind = JSON_OBJECT, .n = (uint32_t)n};
    ret->members = (struct json_member *)(void *)move_values(r, base);
    return arena_over(r->arena) ? fail_budget(r) : 0;
}

/* Reads {...}, with r->at at the brace. */
static int read_object(struct json_reader *r, struct json *ret)
{
    size_t base = r->n;

    if (enter_level(r) < 0)
        return -1;
    if (peek_byte(r) != '}' && read_object_members(r) < 0)
        return -1;
    return end_object(r, base, ret);
}

/* Reads the next value, of any kind. */
static int read_any_value(struct json_reader *r, struct json *ret)
{
    switch (peek_byte(r)) {
    case '"':
        return read_json_string(r, ret);
    case '{':
        return read_object(r, ret);
    case '[':
        return read_array(r, ret);
    case 't':
        return read_literal(r, STR("true"), ret, json_make_bool(true));
    case 'f':
        return read_literal(r, STR("false"), ret, json_make_bool(false));
    case 'n':
        return read_literal(r, STR("null"), ret, (struct json){.kind = JSON_NULL});
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return read_number_text(r, ret);
    default:
        return json_fail_here(r);
    }
}

/* --- parsing from a known state --- */

static void push_all(struct json_reader *r, const struct json *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *push_value(r) = values[i];
}

/* Sets the reader to its state at the mark of `k`. */
static void restore_state(struct json_reader *r, const struct json_known *k)
{
    size_t bytes = r->before + (size_t)(r->end - r->start);

    push_all(r, k->members, k->n_members);
    push_all(r, k->items, k->n_items);
    r->depth = 2;
    r->trace->found = true;
    r->trace->list_key = k->list_key;
    r->trace->escaped_at = k->escaped_at;
    r->trace->surrogate_at = k->surrogate_at;
    r->has_surrogate = k->surrogate_at != SIZE_MAX;
    if (k->escaped_at != SIZE_MAX) {
        r->arena->used_bytes += json_decoding_bytes(bytes - k->escaped_at);
        r->uncounted += json_decoding_bytes(bytes - k->escaped_at);
    }
    r->arena->used_bytes += k->used_bytes;
}

/* Reads the rest of an object whose members are known up to an item of its list. */
static int read_known_object(struct json_reader *r, const struct json_known *k, struct json *ret)
{
    struct json list;

    restore_state(r, k);
    if (arena_over(r->arena))
        return fail_budget(r);
    r->followed = 2;
    if (read_more_items(r) < 0 || end_array(r, k->n_members, &list) < 0)
        return -1;
    r->followed = 0;
    *push_value(r) = k->list_key;
    *push_value(r) = list;
    if (check_stack(r) < 0)
        return -1;
    if (peek_byte(r) == ',') {
        r->at++;
        if (read_object_members(r) < 0)
            return -1;
    }
    return end_object(r, 0, ret);
}

/* Reads a text, which must be UTF-8 and hold one value. `known`: the state at the start of the
 * text, or NULL. */
static int parse_text(struct json_reader *r, struct str text, const struct json_known *known,
                      const struct json **ret)
{
    struct json *v = arena_alloc(r->arena, sizeof(*v)), few[64];
    size_t valid = utf8_valid_len(text);
    int rc;

    *ret = NULL;
    r->start = r->at = text.p ? text.p : "";
    r->end = r->start + text.len;
    r->check_at = CHECK_EVERY;
    r->uncounted = r->arena->used_bytes;
    if (text.len + r->before >= UINT32_MAX / 2)
        return err_set(r->e, ERR_INVALID, "JSON: longer than 2 GB");
    if (valid != text.len)
        return json_fail(r, r->start + valid, "invalid UTF-8");
    r->stack = few;
    r->cap = ARRAY_LEN(few);
    rc = known ? read_known_object(r, known, v) : read_any_value(r, v);
    skip_json_space(r);
    if (rc == 0 && r->at != r->end)
        rc = json_fail(r, r->at, "text after the value");
    free(r->grown);
    r->stack = NULL;
    if (r->has_surrogate)
        v->flags |= JSON_SURROGATE;
    if (rc == 0)
        *ret = v;
    return rc;
}

int json_parse(struct arena *a, struct str text, const struct json **ret, struct err *e)
{
    struct json_reader r = {.arena = a, .e = e};

    return parse_text(&r, text, NULL, ret);
}

int json_parse_replacing(struct arena *a, struct str text, const struct json **ret, struct err *e)
{
    struct json_reader r = {.arena = a, .replaces = true, .e = e};

    return parse_text(&r, text, NULL, ret);
}

int json_parse_once(struct arena *a, struct str text, const struct json **ret, struct err *e)
{
    struct json_reader r = {.arena = a, .once = true, .e = e};

    return parse_text(&r, text, NULL, ret);
}

int json_parse_traced(struct arena *a, struct str text, const struct json_known *known,
                      struct json_trace *trace, const struct json **ret, struct err *e)
{
    struct json_reader r = {
        .arena = a, .before = known ? known->bytes : 0, .trace = trace, .replaces = true, .e = e};

    trace->escaped_at = trace->surrogate_at = SIZE_MAX;
    return parse_text(&r, text, known, ret);
}

void json_trace_done(struct json_trace *t)
{
    vec_done(&t->members);
    vec_done(&t->marks);
}
