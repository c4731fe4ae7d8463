/*
 * Finds the members of a request that have no effect (request_members.h). The table has a row of
 * request_members.def for each known member. A member without a row is unknown. Names of inner
 * members are "object.name".
 *
 * The walk visits each member of the body once, and one level of objects that have inner rows.
 * Counts are complete. At most DROPPED_NAMES_MAX names are kept, each once and cut to
 * DROPPED_NAME_MAX bytes.
 */

#include "worker/dialect/request_members.h"

#include <stdio.h>

#include "common/base/attrs.h"
#include "common/base/utf8.h"
#include "common/codec/json_build.h"
#include "common/codec/sampling.h"
#include "worker/dialect/dialect.h"
#include "worker/dialect/request_dropping.h"
#include "worker/text/request/chat.h"

static const struct member {
    unsigned dialects;
    const char *name;
    size_t len;
    enum member_use use;
} members[] = {

#define CHAT IN_CHAT
#define MESSAGES IN_MESSAGES
#define RESPONSES IN_RESPONSES
#define COMPLETIONS IN_COMPLETIONS
#define ALL IN_ALL
#define X(in, text, how) {in, text, sizeof(text) - 1, USE_##how},
#include "worker/dialect/request_members.def"
};

const char *request_member_at(const struct dialect *d, size_t i)
{
    for (size_t k = 0; k < ARRAY_LEN(members); k++) {
        if ((members[k].dialects & d->members) && members[k].use <= USE_SAMPLING && i-- == 0)
            return members[k].name;
    }
    return NULL;
}

const char *request_next_sampling(unsigned dialects, size_t *at)
{
    for (; *at < ARRAY_LEN(members); ++*at) {
        if ((members[*at].dialects & dialects) && members[*at].use == USE_SAMPLING)
            return members[(*at)++].name;
    }
    return NULL;
}

/* --- one name --- */

/* Returns the use of a member of the body. */
static enum member_use use_of(unsigned dialects, struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct member *m = &members[i];

        if ((m->dialects & dialects) && str_eq(str_of(m->name, m->len), name))
            return m->use;
    }
    return USE_UNKNOWN;
}

static bool is_inner(const struct member *m, unsigned dialects, struct str object)
{
    return m->len > object.len && m->name[object.len] == '.' && (m->dialects & dialects) &&
           str_starts(str_of(m->name, m->len), object);
}

/* Returns the use of object.name. */
static enum member_use inner_use_of(unsigned dialects, struct str object, struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct member *m = &members[i];

        if (is_inner(m, dialects, object) && str_eq_c(name, m->name + object.len + 1))
            return m->use;
    }
    return USE_UNKNOWN;
}

/* Reports whether the table has rows for members of this object. */
static bool has_inner(unsigned dialects, struct str object)
{
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        if (is_inner(&members[i], dialects, object))
            return true;
    }
    return false;
}

/* --- the list --- */

/* Reports whether the name is in the list. */
static bool is_listed(const struct json *names, struct str name)
{
    for (uint32_t i = 0; i < names->n; i++) {
        if (str_eq(json_string(&names->items[i]), name))
            return true;
    }
    return false;
}

/* Adds a name, or object.name, to the list, unless the list is full or has it. */
static void list_name(struct arena *a, struct json *names, struct str object, struct str name)
{
    struct buf path = {0};
    struct str text;

    if (names->n >= DROPPED_NAMES_MAX)
        return;
    if (object.len) {
        buf_add_str(&path, object);
        buf_add_c(&path, '.');
    }
    buf_add_str(&path, name);
    text = str_sub(buf_str(&path), 0, utf8_cut(buf_str(&path), DROPPED_NAME_MAX));
    if (!is_listed(names, text))
        json_push(a, names, json_make_string(arena_str(a, text)));
    buf_done(&path);
}

void request_add_skipped(struct arena *a, const char *list, struct str kind,
                         struct chat_request *req)
{
    if (!req->skipped) {
        req->skipped = ARENA_NEW(a, struct json);
        *req->skipped = json_empty(JSON_ARRAY);
    }
    req->dropped.unused++;
    list_name(a, req->skipped, str_cstr(list), kind);
}

void drop_member(struct dropping *d, struct str object, struct str name, enum member_use use)
{
    if (use == USE_UNUSED)
        d->to->unused++;
    else
        d->to->unknown++;
    list_name(d->a, &d->names, object, name);
}

/* Reports whether the engines obey object.name by themselves. */
static bool is_taken(const struct dropping *d, struct str object, struct str name)
{
    char path[64];
    int n = snprintf(path, sizeof(path), "%.*s.%.*s", (int)MIN_OF(object.len, sizeof(path)),
                     object.p, (int)MIN_OF(name.len, sizeof(path)), name.p);

    return d->readers.taken && n > 0 && (size_t)n < sizeof(path) &&
           d->readers.taken(str_cstr(path));
}

/* Reports whether the value is null, or the default of a known member, or its empty list. */
static bool asks_nothing(enum member_use use, struct str name, const struct json *v)
{
    static const struct {
        const char *name, *value;
    } defaults[] = {
        {"service_tier", "auto"},
        {"service_tier", "default"},
        {"truncation", "disabled"},
        {"verbosity", "medium"},
    };

    if (json_is_null(v) || use != USE_UNUSED)
        return json_is_null(v);
    if (str_eq_c(name, "continuous_usage_stats"))
        return v->kind == JSON_BOOL && !json_is_true(v);
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++) {
        if (str_eq_c(name, defaults[i].name) && str_eq_c(json_string(v), defaults[i].value))
            return true;
    }
    return v->kind == JSON_ARRAY && v->n == 0;
}

/* Checks the members of an object that has inner rows. */
static void check_inner_members(struct dropping *d, const struct json_member *outer)
{
    struct str object = json_string(&outer->key);

    for (uint32_t i = 0; i < outer->value.n; i++) {
        const struct json_member *m = &outer->value.members[i];
        struct str name = json_string(&m->key);
        enum member_use use = inner_use_of(d->dialects, object, name);

        if (use >= USE_UNUSED && !asks_nothing(use, name, &m->value) && !is_taken(d, object, name))
            drop_member(d, object, name, use);
    }
}

/* Checks one member of the body. */
static void check_member(struct dropping *d, const struct json_member *m)
{
    struct str name = json_string(&m->key);
    enum member_use use = use_of(d->dialects, name);

    if (use < USE_UNUSED || asks_nothing(use, name, &m->value) ||
        (d->readers.taken && d->readers.taken(name)))
        return;
    if (use == USE_UNKNOWN && json_is(&m->value, JSON_OBJECT) && has_inner(d->dialects, name))
        check_inner_members(d, m);
    else
        drop_member(d, (struct str){0}, name, use);
}

/* --- texts --- */

static bool has_surrogate(const struct json *v)
{
    bool found = v->kind == JSON_STRING && (v->flags & JSON_SURROGATE);

    for (uint32_t i = 0; v->kind == JSON_ARRAY && i < v->n && !found; i++)
        found = has_surrogate(&v->items[i]);
    for (uint32_t i = 0; v->kind == JSON_OBJECT && i < v->n && !found; i++)
        found = has_surrogate(&v->members[i].key) || has_surrogate(&v->members[i].value);
    return found;
}

/* Records "NAME.lone_surrogate" for the member, or "NAME[i].lone_surrogate" for an item of a
 * list. */
static void find_surrogates(struct dropping *d, const struct json_member *m)
{
    static const struct str kind = STR_LIT("lone_surrogate");
    const struct json *v = &m->value;
    struct str name = json_string(&m->key);

    for (uint32_t i = 0; v->kind == JSON_ARRAY && i < v->n; i++) {
        if (has_surrogate(&v->items[i]))
            drop_member(d, arena_printf(d->a, "%.*s[%u]", (int)name.len, name.p, i), kind,
                        USE_UNUSED);
    }
    if (v->kind != JSON_ARRAY && has_surrogate(v))
        drop_member(d, name, kind, USE_UNUSED);
}

/* --- the end --- */

/* Records "LIST[i].continuation" if the last message is the assistant's: it is closed, and a new
 * one is sampled instead of its continuation. */
static void check_continuation(struct dropping *d, const struct json *body, const struct chat *chat)
{
    const struct json *messages = chat->messages;
    const char *list = d->dialects & IN_RESPONSES ? "input" : "messages";
    const struct json *items = json_get(body, list);
    const struct json *last = messages && messages->n ? json_at(messages, messages->n - 1) : NULL;

    if (str_eq_c(json_string(json_get(last, "role")), "assistant") && json_is(items, JSON_ARRAY) &&
        items->n > 0)
        drop_member(d, arena_printf(d->a, "%s[%u]", list, items->n - 1), STR("continuation"),
                    USE_UNUSED);
}

/* Finds the dropped members. If `taken` is set, an upstream obeys more members than the table says.
 * In Chat Completions such an upstream also gets the tools and the messages unchanged. */
void request_find_dropped(struct arena *a, const struct dialect *d, const struct json *body,
                          uint32_t n_obeyed, struct member_readers readers,
                          struct chat_request *req)
{
    struct dropping x = {.a = a,
                         .dialects = d->members,
                         .readers = readers,
                         .to = &req->dropped,
                         .names = json_empty(JSON_ARRAY)};

    if (!d->members) {
        req->dropped = (struct dropped_fields){0};
        return;
    }
    for (uint32_t i = 0; req->skipped && i < req->skipped->n; i++)
        json_push(a, &x.names, req->skipped->items[i]);
    for (uint32_t i = 0; i < body->n; i++)
        check_member(&x, &body->members[i]);
    for (uint32_t i = 0; i < body->n && (body->flags & JSON_SURROGATE); i++)
        find_surrogates(&x, &body->members[i]);
    if (!(readers.taken && (d->members & IN_CHAT)) && !(d->members & IN_COMPLETIONS)) {
        drop_tools(&x, body, req);
        drop_messages(&x, body, n_obeyed);
        check_continuation(&x, body, req->chat);
    }
    if (x.names.n) {
        struct json text = json_text_of(a, &x.names);

        req->dropped.names = json_string(&text);
    }
}

/* --- members that could not take effect --- */

void request_add_unobeyed(struct arena *a, const char *name, struct chat_request *req)
{
    const struct json *had = NULL;
    struct json names = json_empty(JSON_ARRAY), text;

    req->dropped.unused++;
    if (req->dropped.names.p && json_parse(a, req->dropped.names, &had, NULL) == 0) {
        for (uint32_t i = 0; i < had->n; i++)
            json_push(a, &names, had->items[i]);
    }
    if (names.n >= DROPPED_NAMES_MAX)
        return;
    json_push(a, &names, json_make_string(str_cstr(name)));
    text = json_text_of(a, &names);
    req->dropped.names = json_string(&text);
}

static void add_header_name(struct buf *b, struct str name)
{
    if (b->len)
        buf_puts(b, ", ");
    for (size_t i = 0; i < name.len; i++)
        buf_add_c(b, name.p[i] > ' ' && name.p[i] < 0x7f && name.p[i] != ',' ? name.p[i] : '?');
}

struct str request_unobeyed(struct arena *a, const struct chat_request *req)
{
    const struct json *names = NULL;
    struct buf b = {0};
    struct str ret = {0};

    if (req->dropped.names.p && json_parse(a, req->dropped.names, &names, NULL) == 0) {
        for (uint32_t i = 0; i < names->n; i++)
            add_header_name(&b, json_string(&names->items[i]));
    }
    if (req->thinking.effort_lost)
        add_header_name(&b, str_cstr(req->thinking.effort_field));
    if (b.len)
        ret = arena_str(a, buf_str(&b));
    buf_done(&b);
    return ret;
}
