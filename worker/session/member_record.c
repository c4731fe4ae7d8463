/* Objects as members of texts (member_record.h). */
#include "worker/session/member_record.h"

#include "common/base/lookup.h"
#include "common/codec/json.h"
#include "common/codec/json_long.h"

enum { MEMBER_BYTES_MIN = 2 }; /* an empty key and value */

bool member_record_suits(const struct json *object)
{
    return json_has_raw(object);
}

void member_record_put(struct buf *b, const struct json *object)
{
    size_t from = record_open_str(b);

    record_put_u(b, object->n);
    for (uint32_t i = 0; i < object->n; i++) {
        const struct json *v = &object->members[i].value;

        record_put_str(b, json_string(&object->members[i].key));
        if (v->kind == JSON_RAW)
            record_put_str(b, json_raw_text(v));
        else
            record_put_json(b, v);
    }
    record_close_str(b, from);
}

struct member_in member_record_of(struct str text)
{
    struct member_in m = {.r = record_in_of(text.p ? text : STR(""))};

    m.left = record_u32(&m.r);
    if (m.left > text.len / MEMBER_BYTES_MIN) {
        m.r.bad = true;
        m.left = 0;
    }
    return m;
}

bool member_record_next(struct member_in *m, struct str *ret_key, struct str *ret_value)
{
    if (m->left == 0) {
        m->r.bad = m->r.bad || m->r.p != m->r.end;
        return false;
    }
    *ret_key = record_str(&m->r);
    *ret_value = record_str(&m->r);
    m->left--;
    m->r.bad = m->r.bad || !ret_key->p || !ret_value->p;
    if (m->r.bad)
        m->left = 0;
    return !m->r.bad;
}

static int torn(struct err *e)
{
    return err_set(e, ERR_IO, "session record: torn members");
}

/* What json_keep_long keeps: never a number, and a string by the bytes that it has without escapes,
 * of which one takes six at most. */
static bool is_raw(struct str value, struct arena *a)
{
    enum { ESCAPED_BYTES = 6, QUOTES = 2 };

    const struct json *v;

    if (value.len <= JSON_LONG_BYTES ||
        (value.p[0] != '[' && value.p[0] != '{' && value.p[0] != '"'))
        return false;
    if (value.p[0] != '"' || value.len > JSON_LONG_BYTES * ESCAPED_BYTES + QUOTES)
        return true;
    return json_parse(a, value, &v, &(struct err){0}) != 0 || v->n > JSON_LONG_BYTES;
}

int member_record_read(struct str text, struct arena *a, const struct json **ret, struct err *e)
{
    struct member_in m = member_record_of(text);
    struct json *object = ARENA_NEW(a, struct json);
    struct str key, value;

    *object = (struct json){.kind = JSON_OBJECT};
    object->members = arena_calloc(a, m.left, sizeof(*object->members));
    while (member_record_next(&m, &key, &value)) {
        struct json_member *to = &object->members[object->n++];
        const struct json *parsed;

        to->key = json_make_string(key);
        if (is_raw(value, a))
            to->value = json_make_raw(value);
        else if (json_parse(a, value, &parsed, e) == 0)
            to->value = *parsed;
        else
            return torn(e);
    }
    *ret = object;
    return m.r.bad ? torn(e) : 0;
}

/* Whether a text is the one that json_write has for its value. */
static bool is_written_so(struct str text)
{
    struct arena tmp = {0};
    struct buf again = {0};
    const struct json *v;
    bool same = false;

    if (json_parse_once(&tmp, text, &v, &(struct err){0}) == 0) {
        json_write(&again, v);
        same = str_eq(buf_str(&again), text);
    }
    buf_done(&again);
    arena_done(&tmp);
    return same;
}

/* Whether a key is what a JSON string says. */
static bool is_key(struct str key)
{
    struct buf text = {0};
    bool is;

    json_write_string(&text, key);
    is = is_written_so(buf_str(&text));
    buf_done(&text);
    return is;
}

int member_record_check(struct str text, struct err *e)
{
    struct member_in m = member_record_of(text);
    struct arena tmp = {0};
    struct lookup known = {.arena = &tmp};
    struct str key, value;
    uint32_t n = 0;
    bool fits = true;

    while (fits && member_record_next(&m, &key, &value))
        fits = is_key(key) && is_written_so(value) && lookup_add(&known, key, n++);
    arena_done(&tmp);
    return fits && !m.r.bad ? 0 : torn(e);
}
