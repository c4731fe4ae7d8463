/* Decides when two messages are equal (message.h). The matcher says what counts:
 *
 *                         canonical   strict   loose_tool_call   role_content_only
 *   role, content             x         x             x                 x
 *   content lists as text     x         -             -                 -
 *   reasoning                 -         x             x                 -
 *   tool calls: name          x         x             x                 -
 *   tool calls: id, type      -         x             x                 -
 *   arguments by value        x         -         objects               -
 *
 * Arguments of a message that are long together (MESSAGE_ARGS_MAX) count as text under each
 * matcher.
 *
 * message_read reduces a message to the fields that count, so that equality and hash use the same
 * fields. Equal messages have equal hashes; message_hash may omit something, message_equal may not.
 */

#include "worker/session/forest/message.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/session/forest/text_compare.h"
#include "worker/text/request/images.h"

static const char *const NAMES[MATCHER_COUNT] = {"canonical", "strict", "loose_tool_call",
                                                 "role_content_only"};

int matcher_from_name(struct str name, enum matcher_kind *ret)
{
    size_t i = str_index(name, NAMES, MATCHER_COUNT);

    if (i == MATCHER_COUNT)
        return -1;
    *ret = (enum matcher_kind)i;
    return 0;
}

const char *matcher_name(enum matcher_kind kind)
{
    return NAMES[kind];
}

/* --- reading messages --- */

static bool is_cch_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* Returns s with the value of every `cch=<value>` replaced by the same text, or s itself if there
 * is none. */
static struct str without_cch(struct str s, struct arena *a)
{
    const struct str mark = STR_LIT("cch=");
    size_t at = str_find(s, mark, 0), from = 0, n = 0;
    char *out;

    if (at == SIZE_MAX)
        return s;
    out = arena_alloc(a, s.len + 1);
    for (; at != SIZE_MAX; at = str_find(s, mark, from)) {
        size_t end = at + mark.len;

        while (end < s.len && is_cch_char(s.p[end]))
            end++;
        memcpy(out + n, s.p + from, at + mark.len - from);
        n += at + mark.len - from;
        if (end > at + mark.len)
            out[n++] = '0';
        from = end;
    }
    memcpy(out + n, s.p + from, s.len - from);
    return str_of(out, n + s.len - from);
}

static struct str leaf_without_cch(struct str s, const struct matcher *mt, struct arena *a)
{
    if (!s.p)
        return STR("");
    return mt->ignore_cch ? without_cch(s, a) : s;
}

/* Removes the value of cch from every string in a JSON value, but not from keys. */
static struct json leaves_without_cch(const struct json *v, struct arena *a)
{
    struct json copy = *v;

    if (v->kind == JSON_STRING) {
        copy = json_make_string(without_cch(json_string(v), a));
    } else if (v->kind == JSON_ARRAY) {
        copy.items = arena_alloc(a, v->n * sizeof(*copy.items));
        for (uint32_t i = 0; i < v->n; i++)
            copy.items[i] = leaves_without_cch(&v->items[i], a);
    } else if (v->kind == JSON_OBJECT) {
        copy.members = arena_alloc(a, v->n * sizeof(*copy.members));
        for (uint32_t i = 0; i < v->n; i++)
            copy.members[i] = (struct json_member){v->members[i].key,
                                                   leaves_without_cch(&v->members[i].value, a)};
    }
    return copy;
}

/* Returns the strings of a content list without what may change from call to call (ignore_cch). */
static const struct json *list_leaves(const struct json *list, const struct matcher *mt,
                                      struct arena *a)
{
    struct json *copy;

    if (!mt->ignore_cch)
        return list;
    copy = ARENA_NEW(a, struct json);
    *copy = leaves_without_cch(list, a);
    return copy;
}

/* Returns a part's text. Absent if it has none. */
static struct str text_of_content(const struct json *part)
{
    return json_string(json_get(part, "text"));
}

/* Joins a list of texts, borrowed or in the arena. Absent if some part has no text. Reads each part
 * once, because there may be many. Long texts are adjacent in memory already (their parser,
 * dialect/normalised.c, placed them so) and are not copied. */
static struct str joined_texts(const struct json *list, struct arena *a)
{
    struct str few[16], *parts = few;
    bool adjoin = true; /* each text begins where the one before ends */
    size_t n = 0, at = 0;
    char *out = NULL;

    if (list->n == 1)
        return text_of_content(&list->items[0]);
    if (list->n > ARRAY_LEN(few))
        parts = mem_calloc(list->n, sizeof(*parts));
    for (uint32_t i = 0; i < list->n && n != SIZE_MAX; i++) {
        parts[i] = text_of_content(&list->items[i]);
        adjoin = adjoin && parts[i].p && parts[i].p == parts[0].p + n;
        n = parts[i].p ? n + parts[i].len : SIZE_MAX;
    }
    if (n != SIZE_MAX && !(adjoin && n > 0))
        out = arena_alloc(a, n + 1);
    for (uint32_t i = 0; i < list->n && out; i++) {
        memcpy(out + at, parts[i].p, parts[i].len);
        at += parts[i].len;
    }
    if (n != SIZE_MAX && !out && list->n > 0)
        out = (char *)(uintptr_t)parts[0].p; /* only read, like every text */
    if (parts != few)
        free(parts);
    return str_of(out, n == SIZE_MAX ? 0 : n);
}

/* A long text counts as not blank, because it would be read on the loop. */
static bool is_blank(struct str s)
{
    enum { BLANK_MAX = 64 << 10 };

    if (s.len > BLANK_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.p[i] != ' ' && (s.p[i] < '\t' || s.p[i] > '\r'))
            return false;
    return true;
}

/* The result borrows from `json`, or is in the arena. */
void message_read(struct message *m, const struct json *json, const struct matcher *mt,
                  struct arena *a)
{
    static const struct str names[] = {STR_LIT("role"), STR_LIT("content"), STR_LIT("tool_calls"),
                                       STR_LIT("name"), STR_LIT("reasoning_content")};
    const struct json *at[ARRAY_LEN(names)], *content, *calls;
    bool canonical = mt->kind == MATCHER_CANONICAL;
    struct str text;

    json_get_each(json, names, ARRAY_LEN(names), at);
    content = at[1];
    calls = at[2];
    *m = (struct message){.json = json, .role = json_string(at[0])};
    if (!m->role.p)
        m->role = STR("");
    m->reasoning = m->name = m->content = STR("");
    if (json_is(calls, JSON_ARRAY) && calls->n > 0 && mt->kind != MATCHER_ROLE_CONTENT_ONLY)
        m->calls = calls;
    text =
        json_is(content, JSON_ARRAY) && canonical ? joined_texts(content, a) : json_string(content);
    if (json_is(content, JSON_ARRAY) && content->n > 0 && !text.p)
        m->list = list_leaves(content, mt, a);
    else
        m->content = leaf_without_cch(text, mt, a);
    if (canonical) {
        if (m->calls && is_blank(m->content))
            m->content = STR("");
        if (!str_eq_c(m->role, "assistant"))
            m->name = leaf_without_cch(json_string(at[3]), mt, a);
    } else if (mt->kind != MATCHER_ROLE_CONTENT_ONLY) {
        m->reasoning = leaf_without_cch(json_string(at[4]), mt, a);
    }
}

/* --- tool calls --- */

struct call_text {
    struct str id, type, name, args;
};

static struct call_text call_of(const struct json *v)
{
    const struct json *f = json_get(v, "function");

    return (struct call_text){json_text(json_get(v, "id")), json_text(json_get(v, "type")),
                              json_text(json_get(f, "name")), json_text(json_get(f, "arguments"))};
}

/* Limits of parsing one message's arguments for a comparison: bytes, plus so many for each call,
 * and memory for their values. */
enum { ARGS_MAX = MESSAGE_ARGS_MAX, ARGS_EACH = 16, ARGS_MEMORY = 256 << 10 };

/* Parses one call's arguments as a value. Returns NULL if they count as text. */
static const struct json *parsed_args(struct str args, const struct matcher *mt, struct arena *a)
{
    const struct json *v;
    struct err e;

    if (json_parse_replacing(a, args, &v, &e) != 0)
        return NULL;
    return mt->kind == MATCHER_LOOSE_TOOL_CALL && v->kind != JSON_OBJECT ? NULL : v;
}

/* Parses each call's arguments as a value, if the matcher compares values. Returns NULL if all of
 * the message's count as text, because long arguments are not parsed on the loop. The choice
 * depends on the message alone, so its hash and its comparisons agree. The arena must be empty and
 * used for this message only. */
static const struct json **parse_args(const struct json *calls, const struct matcher *mt,
                                      struct arena *a)
{
    const struct json **ret;
    size_t bytes = 0;

    if (mt->kind == MATCHER_STRICT)
        return NULL;
    for (uint32_t i = 0; i < calls->n && bytes <= ARGS_MAX; i++)
        bytes += call_of(&calls->items[i]).args.len + ARGS_EACH;
    if (bytes > ARGS_MAX)
        return NULL;
    if (mt->parsed)
        *mt->parsed += bytes;
    a->max_bytes = ARGS_MEMORY;
    ret = arena_calloc(a, calls->n, sizeof(*ret));
    for (uint32_t i = 0; i < calls->n && !arena_over(a); i++)
        ret[i] = parsed_args(leaf_without_cch(call_of(&calls->items[i]).args, mt, a), mt, a);
    return arena_over(a) ? NULL : ret;
}

static void read_args(struct message_args *r, const struct json *calls, const struct matcher *mt)
{
    if (!r->read)
        r->values = parse_args(calls, mt, &r->arena);
    r->arena.max_bytes = 0;
    r->read = true;
}

void message_args_done(struct message_args *r)
{
    arena_done(&r->arena);
}

/* Compares the arguments of equally many calls. Equal text is enough if both sides are values, or
 * both texts. */
static bool args_equal(const struct json *x, const struct json *y, const struct matcher *mt,
                       struct message_args *of_y)
{
    struct arena of_x = {0};
    const struct json **a = parse_args(x, mt, &of_x), **b;
    bool same;

    read_args(of_y, y, mt);
    b = of_y->values;
    same = !a == !b;
    of_x.max_bytes = 0;
    for (uint32_t i = 0; i < x->n && same; i++) {
        struct str s = call_of(&x->items[i]).args, t = call_of(&y->items[i]).args;

        if (!str_eq(s, t))
            same = a && a[i] && b[i]
                       ? json_equal(a[i], b[i])
                       : !(a && (a[i] || b[i])) &&
                             str_eq(leaf_without_cch(s, mt, &of_x), leaf_without_cch(t, mt, &of_x));
    }
    arena_done(&of_x);
    return same;
}

/* Compares calls in order. `of_y` is of y's arguments. */
static bool calls_like(const struct json *x, const struct json *y, const struct matcher *mt,
                       struct message_args *of_y)
{
    bool same = true; /* the arguments are equal as texts */

    if (!x || !y)
        return x == y;
    if (x->n != y->n)
        return false;
    for (uint32_t i = 0; i < x->n; i++) {
        struct call_text a = call_of(&x->items[i]), b = call_of(&y->items[i]);

        if (!str_eq(a.name, b.name))
            return false;
        if (mt->kind != MATCHER_CANONICAL && (!str_eq(a.id, b.id) || !str_eq(a.type, b.type)))
            return false;
        same = same && str_eq(a.args, b.args);
    }
    return same || args_equal(x, y, mt, of_y);
}

static bool calls_equal(const struct json *x, const struct json *y, const struct matcher *mt)
{
    struct message_args of_y = {0};
    bool same = calls_like(x, y, mt, &of_y);

    message_args_done(&of_y);
    return same;
}

/* --- equality and hash --- */

static bool content_equal(const struct message *a, const struct message *b)
{
    if (a->list || b->list)
        return a->list && b->list && json_equal(a->list, b->list);
    return str_eq(a->content, b->content);
}

bool message_equal(const struct message *a, const struct message *b, const struct matcher *mt)
{
    return str_eq(a->role, b->role) && content_equal(a, b) && str_eq(a->name, b->name) &&
           str_eq(a->reasoning, b->reasoning) && calls_equal(a->calls, b->calls, mt);
}

static uint64_t mix_hash(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

/* Hashes a text. Of a text longer than 2 * `ends` bytes hashes only the first and last `ends` bytes
 * and the length. */
static uint64_t text_hash(struct str s, uint64_t seed, size_t ends)
{
    uint64_t h;

    if (s.len / 2 <= ends)
        return str_hash(s.p ? s : STR(""), seed);
    h = mix_hash(str_hash(str_sub(s, 0, ends), seed), s.len);
    return mix_hash(h, str_hash(str_sub(s, s.len - ends, s.len), seed));
}

/* Hashes the keys and texts of a value as text_hash does. */
static uint64_t value_hash(const struct json *v, size_t ends)
{
    uint64_t h = v->kind;
    double d = 0;

    switch ((enum json_kind)v->kind) {
    case JSON_NULL:
        break;
    case JSON_BOOL:
        h = mix_hash(h, json_is_true(v));
        break;
    case JSON_NUMBER:
        /* By value: 4096 and 4096.0 are equal; numbers that overflow share a bucket. */
        if (json_to_double(v, &d) == 0 && d != 0)
            h = mix_hash(h, str_hash(str_of((const char *)&d, sizeof(d)), 1));
        break;
    case JSON_STRING:
        h = text_hash(json_string(v), 2, ends);
        break;
    case JSON_ARRAY:
        for (uint32_t i = 0; i < v->n; i++)
            h = mix_hash(h, value_hash(&v->items[i], ends));
        break;
    case JSON_OBJECT: /* the order of members does not matter */
        for (uint32_t i = 0; i < v->n; i++)
            h += mix_hash(text_hash(json_string(&v->members[i].key), 3, ends),
                          value_hash(&v->members[i].value, ends));
        break;
    }
    return h;
}

uint64_t message_value_hash(const struct json *v)
{
    return value_hash(v, SIZE_MAX);
}

/* Hashes calls as calls_equal compares them. */
static uint64_t calls_hash(uint64_t h, const struct json *calls, const struct matcher *mt,
                           size_t ends)
{
    struct arena tmp = {0};
    const struct json **values = parse_args(calls, mt, &tmp);

    tmp.max_bytes = 0;
    for (uint32_t i = 0; i < calls->n; i++) {
        struct call_text c = call_of(&calls->items[i]);

        h = mix_hash(h, text_hash(c.name, 9, ends));
        h = mix_hash(h, values && values[i]
                            ? message_value_hash(values[i])
                            : text_hash(leaf_without_cch(c.args, mt, &tmp), 4, ends));
        if (mt->kind != MATCHER_CANONICAL)
            h = mix_hash(h, text_hash(c.id, 10, ends));
    }
    arena_done(&tmp);
    return h;
}

enum { BRIEF_ENDS = 16 << 10, BRIEF_CALL_ENDS = 64 };

/* Counts the bytes of a value's keys and texts, which do not depend on the form of its numbers or
 * the order of its members. Stops counting above BRIEF_ENDS. */
static size_t brief_bytes(const struct json *v)
{
    size_t n = v->kind == JSON_STRING ? json_string(v).len : 0;

    if (v->kind == JSON_ARRAY)
        for (uint32_t i = 0; i < v->n && n <= BRIEF_ENDS; i++)
            n += 1 + brief_bytes(&v->items[i]);
    if (v->kind == JSON_OBJECT)
        for (uint32_t i = 0; i < v->n && n <= BRIEF_ENDS; i++)
            n += 1 + json_string(&v->members[i].key).len + brief_bytes(&v->members[i].value);
    return n;
}

/* Because a long list may have many texts, hashes only as little of each as of a call. */
static uint64_t list_hash(const struct json *list, size_t ends)
{
    return value_hash(list, ends != SIZE_MAX && brief_bytes(list) > BRIEF_ENDS ? BRIEF_CALL_ENDS
                                                                               : SIZE_MAX);
}

/* Hashes a message: `ends` bytes of texts, and `call_ends` of calls, of which there may be many. */
static uint64_t hash_of(const struct message *m, const struct matcher *mt, size_t ends,
                        size_t call_ends)
{
    uint64_t h = str_hash(m->role, 5);

    h = mix_hash(h, m->list ? list_hash(m->list, ends) : text_hash(m->content, 6, ends));
    h = mix_hash(h, text_hash(m->name, 7, ends));
    h = mix_hash(h, text_hash(m->reasoning, 8, ends));
    return m->calls ? calls_hash(h, m->calls, mt, call_ends) : h;
}

/* Hashes the fields of a message that count under the matcher. */
uint64_t message_hash(const struct message *m, const struct matcher *mt)
{
    return m->hash ? m->hash : hash_of(m, mt, SIZE_MAX, SIZE_MAX);
}

uint64_t message_brief(const struct message *m, const struct matcher *mt)
{
    return m->brief ? m->brief : hash_of(m, mt, BRIEF_ENDS, BRIEF_CALL_ENDS);
}

bool message_is_long(const struct message *m)
{
    size_t n = m->content.len + m->name.len + m->reasoning.len;

    if (m->list)
        n += brief_bytes(m->list);
    for (uint32_t i = 0; m->calls && i < m->calls->n && n <= BRIEF_ENDS; i++) {
        struct call_text c = call_of(&m->calls->items[i]);

        n += c.id.len + c.name.len + c.args.len;
    }
    return n > BRIEF_ENDS;
}

bool message_shows_images(const struct message *m)
{
    for (uint32_t i = 0; m->list && i < m->list->n; i++)
        if (image_part_is(&m->list->items[i]))
            return true;
    return false;
}

/* --- echoes --- */

/* Returns the text without white space around it, and without the thought that some clients put
 * before it. Claude Code writes "(no content)" for an empty answer. */
static struct str bare_text(struct str text)
{
    struct str end = STR("</think>");
    size_t at;

    text = str_trim(text);
    at = str_starts(text, STR("<think>")) ? str_find(text, end, 0) : SIZE_MAX;
    if (at != SIZE_MAX)
        text = str_trim(str_sub(text, at + end.len, SIZE_MAX));
    return str_eq_c(text, "(no content)") ? STR("") : text;
}

/* Reports whether m may be an echo. Only under matcher canonical. */
static bool may_be_echo(const struct message *stored, const struct message *m,
                        const struct matcher *mt)
{
    return mt->kind == MATCHER_CANONICAL && !stored->list && !m->list &&
           str_eq(stored->role, m->role);
}

uint32_t message_ids_alike(const struct json *own, const struct message *m, bool renamed)
{
    const struct json *calls = json_get(own, "tool_calls");
    uint32_t i = 0;

    if (!calls || !m->calls || calls->n != m->calls->n)
        return 0;
    for (; i < calls->n; i++) {
        struct call_text a = call_of(&calls->items[i]), b = call_of(&m->calls->items[i]);

        if (!a.id.len || !str_eq(a.id, b.id) || (!renamed && !str_eq(a.name, b.name)))
            break;
    }
    return i;
}

/* Compares the texts beside tool calls. Clients keep texts in separate parts, and drop texts of
 * white space. If there was no text they put the thought there. */
enum message_beside message_beside(const struct message *stored, const struct message *m,
                                   const struct matcher *mt, struct str *ret_bare)
{
    struct str was;
    size_t went = 0;

    *ret_bare = (struct str){0};
    if (!may_be_echo(stored, m, mt) || !m->calls)
        return BESIDE_OTHER;
    was = bare_text(stored->content);
    *ret_bare = bare_text(m->content);
    if (ret_bare->len == 0 || texts_same_but_blanks(was, *ret_bare, &went))
        return BESIDE_SAME;
    return was.len == 0 ? BESIDE_THOUGHT : BESIDE_OTHER;
}

bool message_beside_is(enum message_beside beside, const struct json *own, struct str bare,
                       size_t *went)
{
    return beside == BESIDE_SAME ||
           (beside == BESIDE_THOUGHT &&
            texts_same_but_blanks(json_string(json_get(own, "reasoning_content")), bare, went));
}

bool message_echoes_words(const struct message *stored, const struct message *m,
                          const struct matcher *mt, struct message_args *args)
{
    struct str was, is;
    size_t went = 0;

    if (!may_be_echo(stored, m, mt))
        return false;
    was = bare_text(stored->content);
    is = bare_text(m->content);
    if (!m->calls)
        return !stored->calls && str_eq(was, is);
    return texts_same_but_blanks(was, is, &went) && calls_like(stored->calls, m->calls, mt, args);
}

/* Hashes the parts of tool calls that no client changes. Leaves out the text beside them, which a
 * client may have dropped. */
uint64_t message_echo_hash(const struct message *m)
{
    uint64_t h = str_hash(m->role, 11);

    if (!m->calls)
        return mix_hash(h, str_hash(bare_text(m->content), 12));
    for (uint32_t i = 0; i < m->calls->n; i++) {
        struct call_text c = call_of(&m->calls->items[i]);

        h = mix_hash(h, text_hash(c.name, 13, BRIEF_CALL_ENDS));
    }
    return h;
}

/* --- differences --- */

enum { DIFF_BEFORE = 24, DIFF_MAX = 120 };

static bool is_tail_byte(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Returns an excerpt from shortly before `at`, in whole characters. */
static struct str excerpt_at(struct str s, size_t at)
{
    size_t from = at > DIFF_BEFORE ? at - DIFF_BEFORE : 0, end;

    while (from > 0 && from < s.len && is_tail_byte(s.p[from]))
        from--;
    if (from > s.len)
        from = s.len;
    end = s.len - from > DIFF_MAX ? from + DIFF_MAX : s.len;
    while (end < s.len && end > from && is_tail_byte(s.p[end]))
        end--;
    return str_of(s.p + from, end - from);
}

/* Sets excerpts around the first byte that differs. */
static void set_diff(struct message_diff *d, const char *field, struct str stored,
                     struct str request)
{
    size_t at = texts_agree(stored, request);

    d->field = field;
    d->stored = excerpt_at(stored, at);
    d->request = excerpt_at(request, at);
}

/* Limits: bytes of values that are written, and of items that are compared to find a different
 * one. */
enum { DIFF_WHOLE = 64 << 10, DIFF_LOOKED = 512 << 10 };

/* Writes the value in the arena. Returns "" if it is long. */
static struct str json_as_text(const struct json *v, struct arena *a)
{
    struct buf b = {0};
    struct str s;

    if (!v || json_text_bytes(v, DIFF_WHOLE) >= DIFF_WHOLE)
        return STR("");
    json_write(&b, v);
    s = arena_str(a, buf_str(&b));
    buf_done(&b);
    return s;
}

/* Finds the first item in which two lists differ; NULL is a list's end. Both are NULL if it is not
 * among the items that were compared. */
static void first_different(const struct json **x, const struct json **y)
{
    uint32_t i = 0;
    size_t left = DIFF_LOOKED;

    for (; i < (*x)->n && i < (*y)->n; i++) {
        const struct json *a = &(*x)->items[i], *b = &(*y)->items[i];
        size_t n = json_text_bytes(a, left);

        if (n >= left || json_text_bytes(b, left) >= left || !json_equal(a, b))
            break;
        left -= n + 1;
    }
    *x = json_at(*x, i);
    *y = json_at(*y, i);
}

/* Short values are written whole. Of longer lists the item that differs is written, of calls its
 * arguments; of anything longer, nothing. */
void message_value_diff(const char *field, const struct json *stored, const struct json *request,
                        struct arena *a, struct message_diff *ret)
{
    if (json_text_bytes(stored, DIFF_WHOLE) + json_text_bytes(request, DIFF_WHOLE) >= DIFF_WHOLE) {
        if (json_is(stored, JSON_ARRAY) && json_is(request, JSON_ARRAY))
            first_different(&stored, &request);
        if (json_get(stored, "function") && json_get(request, "function") &&
            call_of(stored).args.p && call_of(request).args.p) {
            set_diff(ret, field, call_of(stored).args, call_of(request).args);
            return;
        }
    }
    set_diff(ret, field, json_as_text(stored, a), json_as_text(request, a));
}

/* The order of fields is role, content, tool_calls, name, reasoning_content. The messages must not
 * be equal. */
void message_diff(const struct message *stored, const struct message *request,
                  const struct matcher *mt, struct arena *a, struct message_diff *ret)
{
    if (!str_eq(stored->role, request->role))
        set_diff(ret, "role", stored->role, request->role);
    else if (!content_equal(stored, request) && stored->list && request->list)
        message_value_diff("content", stored->list, request->list, a, ret);
    else if (!content_equal(stored, request))
        set_diff(ret, "content", stored->list ? json_as_text(stored->list, a) : stored->content,
                 request->list ? json_as_text(request->list, a) : request->content);
    else if (!calls_equal(stored->calls, request->calls, mt))
        message_value_diff("tool_calls", stored->calls, request->calls, a, ret);
    else if (!str_eq(stored->name, request->name))
        set_diff(ret, "name", stored->name, request->name);
    else
        set_diff(ret, "reasoning_content", stored->reasoning, request->reasoning);
}
