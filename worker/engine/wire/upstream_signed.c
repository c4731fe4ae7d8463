/* Values are copied with their texts made valid (surrogates.h), because records and exports contain
 * them. Anything that does not look like a signature is dropped, because LiteLLM has much other
 * data there. */
#include "worker/engine/wire/upstream_signed.h"

#include <stdlib.h>

#include "common/base/attrs.h"
#include "common/base/mem.h"
#include "common/codec/json_build.h"
#include "common/codec/surrogates.h"
#include "worker/text/request/thought_blocks.h"

/* The lists of a message, and the text member of their items. content_parts is `content`. */
static const struct {
    const char *name, *source;
} lists[SIGNED_LISTS] = {
    {"reasoning_details", "reasoning_details"},
    {"thinking_blocks", "thinking_blocks"},
    {"content_parts", "content"},
};

static const char *const texts[] = {"text", "summary", "thinking"};
static const char *const of_message[] = {"extra_content", "provider_specific_fields",
                                         "reasoning_opaque", "encrypted_content"};
static const char *const of_call[] = {"extra_content", "provider_specific_fields",
                                      "thought_signature"};

void upstream_signed_done(struct upstream_signed *s)
{
    for (size_t i = 0; i < SIGNED_LISTS; i++) {
        for (size_t k = 0; k < s->lists[i].n; k++)
            buf_done(&s->lists[i].at[k].text);
        free(s->lists[i].at);
    }
    free(s->calls);
    arena_done(&s->arena);
}

/* --- values --- */

static struct json copy_valid_text(struct arena *a, struct str text)
{
    struct buf clean = {0};
    struct json ret;

    surrogates_add_whole(text, &clean);
    ret = json_make_string(arena_str(a, buf_str(&clean)));
    buf_done(&clean);
    return ret;
}

static struct json copy_value(struct arena *a, const struct json *v)
{
    struct json ret = *v;

    if (v->kind == JSON_STRING) {
        ret = copy_valid_text(a, json_string(v));
    } else if (v->kind == JSON_NUMBER) {
        ret.text = arena_str(a, json_text(v)).p;
    } else if (v->kind == JSON_ARRAY) {
        ret.items = arena_calloc(a, v->n, sizeof(*ret.items));
        for (uint32_t i = 0; i < v->n; i++)
            ret.items[i] = copy_value(a, &v->items[i]);
    } else if (v->kind == JSON_OBJECT) {
        ret.members = arena_calloc(a, v->n, sizeof(*ret.members));
        for (uint32_t i = 0; i < v->n; i++)
            ret.members[i] =
                (struct json_member){copy_valid_text(a, json_string(&v->members[i].key)),
                                     copy_value(a, &v->members[i].value)};
    }
    return ret;
}

/* Adds a member, or replaces its value. Objects are merged member by member. */
static void merge_member(struct arena *a, struct json *to, struct str key, const struct json *v)
{
    struct json *old = NULL;

    for (uint32_t i = 0; i < to->n && !old; i++)
        if (str_eq(json_string(&to->members[i].key), key))
            old = &to->members[i].value;
    if (json_is_null(v))
        return;
    if (!old) {
        json_put(a, to, "", json_empty(JSON_OBJECT));
        to->members[to->n - 1].key = copy_valid_text(a, key);
        old = &to->members[to->n - 1].value;
    }
    if (!json_is(v, JSON_OBJECT))
        *old = copy_value(a, v);
    else if (old->kind != JSON_OBJECT)
        *old = json_empty(JSON_OBJECT); /* a copy of its own, which may grow by json_put */
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++)
        merge_member(a, old, json_string(&v->members[i].key), &v->members[i].value);
}

/* Reports whether a member has that value already: every chunk of a stream may repeat it. */
static bool has_equal(const struct json *of, struct str name, const struct json *v)
{
    const struct json *had = json_get_str(of, name);

    return had && json_equal(had, v);
}

/* Reports whether LiteLLM's object, which has much other data, has a signature. */
static bool has_signature(const struct json *v)
{
    for (uint32_t i = 0; json_is(v, JSON_OBJECT) && i < v->n; i++)
        if (str_starts(json_string(&v->members[i].key), STR("thought_signature")))
            return true;
    return false;
}

static bool is_kept(const char *name, const struct json *v)
{
    if (strcmp(name, "provider_specific_fields") == 0)
        return has_signature(v);
    if (strcmp(name, "extra_content") == 0)
        return json_is(v, JSON_OBJECT) && v->n > 0;
    return json_string(v).len > 0;
}

static void keep_members(struct upstream_signed *s, const struct json *from,
                         const char *const *names, size_t n, struct json **to)
{
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_get(from, names[i]);

        if (!is_kept(names[i], v) || (*to && has_equal(*to, str_cstr(names[i]), v)))
            continue;
        if (!*to) {
            *to = ARENA_NEW(&s->arena, struct json);
            **to = json_empty(JSON_OBJECT);
        }
        s->bytes += json_text_bytes(v, SIZE_MAX);
        merge_member(&s->arena, *to, str_cstr(names[i]), v);
    }
}

/* --- lists --- */

/* Returns the name of its text member; NULL: it has none. */
static const char *text_key(const struct json *item)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (json_is(json_get(item, texts[i]), JSON_STRING))
            return texts[i];
    return NULL;
}

static bool members_agree(const struct json *a, const struct json *b, const char *key)
{
    const struct json *x = json_get(a, key), *y = json_get(b, key);

    return json_is_null(x) || json_is_null(y) || json_equal(x, y);
}

/* Reports whether the item continues the last one: same type, index and id, as far as both have
 * them, with text that may continue. */
static bool continues_item(const struct signed_item *last, const struct json *item, const char *key)
{
    if (json_string(json_get(item, "data")).len > 0 || !last->key)
        return false;
    if (key &&
        (strcmp(key, last->key) != 0 || (last->sealed && json_string(json_get(item, key)).len > 0)))
        return false;
    return members_agree(last->members, item, "type") &&
           members_agree(last->members, item, "index") && members_agree(last->members, item, "id");
}

static struct signed_item *append_item(struct upstream_signed *s, struct signed_list *l)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 4;
        l->at = mem_realloc_array(l->at, l->cap, sizeof(*l->at));
    }
    l->at[l->n] = (struct signed_item){.members = ARENA_NEW(&s->arena, struct json)};
    *l->at[l->n].members = json_empty(JSON_OBJECT);
    return &l->at[l->n++];
}

/* Adds an item. The text of a content's parts counts as the answer's. */
static void add_item(struct upstream_signed *s, struct signed_list *l, const struct json *item)
{
    bool content = l == &s->lists[SIGNED_LISTS - 1];
    const char *key = text_key(item);
    struct signed_item *to = l->n > 0 ? &l->at[l->n - 1] : NULL;

    if (!to || !continues_item(to, item, key))
        to = append_item(s, l);
    to->key = to->key ? to->key : key;
    to->sealed = to->sealed || thought_item_seal(item).len > 0;
    for (uint32_t i = 0; i < item->n; i++) {
        struct str name = json_string(&item->members[i].key);

        if (key && str_eq_c(name, key)) {
            buf_add_str(&to->text, json_string(&item->members[i].value));
            s->bytes += content ? 0 : json_string(&item->members[i].value).len;
        } else if (!has_equal(to->members, name, &item->members[i].value)) {
            merge_member(&s->arena, to->members, name, &item->members[i].value);
            s->bytes += content ? 0 : json_text_bytes(&item->members[i].value, SIZE_MAX);
        }
    }
}

/* Adds a list. `content` is usually a text, which is not read here. */
static int add_list(struct upstream_signed *s, size_t which, const struct json *list,
                    const char *path, struct err *e)
{
    bool content = which == SIGNED_LISTS - 1;

    if (!content && !json_is_null(list) && list->kind != JSON_ARRAY)
        return err_set(e, ERR_ENGINE_INVALID,
                       "the engine's answer is invalid: %s.%s must be a list", path,
                       lists[which].source);
    for (size_t i = 0; json_at(list, i); i++) {
        if (!json_is(json_at(list, i), JSON_OBJECT))
            return err_set(e, ERR_ENGINE_INVALID,
                           "the engine's answer is invalid: %s.%s[%zu] must be an object", path,
                           lists[which].source, i);
        add_item(s, &s->lists[which], json_at(list, i));
    }
    return 0;
}

int upstream_signed_message(struct upstream_signed *s, const struct json *message, const char *path,
                            struct err *e)
{
    for (size_t i = 0; i < SIGNED_LISTS; i++)
        if (add_list(s, i, json_get(message, lists[i].source), path, e) < 0)
            return -1;
    keep_members(s, message, of_message, ARRAY_LEN(of_message), &s->members);
    return 0;
}

void upstream_signed_call(struct upstream_signed *s, const struct json *entry, size_t call)
{
    const struct json *function = json_get(entry, "function");

    while (s->n_calls <= call && s->n_calls < SIGNED_CALLS_MAX) {
        if (s->n_calls == s->cap_calls) {
            s->cap_calls = s->cap_calls ? s->cap_calls * 2 : 4;
            s->calls = mem_realloc_array(s->calls, s->cap_calls, sizeof(*s->calls));
        }
        s->calls[s->n_calls++] = NULL;
    }
    if (call >= s->n_calls)
        return;
    keep_members(s, entry, of_call, ARRAY_LEN(of_call), &s->calls[call]);
    keep_members(s, function, of_call, ARRAY_LEN(of_call), &s->calls[call]);
}

void upstream_signed_thought(const struct json *message, struct buf *out)
{
    for (size_t i = 0; i < SIGNED_LISTS - 1 && out->len == 0; i++) {
        const struct json *list = json_get(message, lists[i].source);

        for (size_t k = 0; json_at(list, k); k++) {
            const char *key = text_key(json_at(list, k));

            if (key)
                buf_add_str(out, json_string(json_get(json_at(list, k), key)));
        }
    }
}

/* --- sending seals --- */

static void send_seal(const struct upstream_out *out, struct str seal, bool signs_text)
{
    struct json m = json_empty(JSON_OBJECT), v = json_empty(JSON_OBJECT);

    json_put(out->arena, &v, "seal", json_make_string(arena_str(out->arena, seal)));
    json_put(out->arena, &v, "signs_text",
             (struct json){.kind = JSON_BOOL, .flags = signs_text ? JSON_TRUE : 0});
    json_put(out->arena, &m, "sealed", v);
    json_push(out->arena, out->list, m);
}

/* Sends a seal of the message itself, if no list has any. */
static void send_own_seal(struct upstream_signed *s, bool thought, const struct upstream_out *out)
{
    static const char *const names[] = {"reasoning_opaque", "encrypted_content"};

    for (size_t i = 0; i < ARRAY_LEN(names) && !s->seals_from; i++) {
        struct str seal = json_string(json_get(s->members, names[i]));

        if (seal.len == 0)
            continue;
        s->seals_from = SIGNED_LISTS + 1;
        send_seal(out, seal, thought);
    }
}

void upstream_signed_send(struct upstream_signed *s, bool thought, const struct upstream_out *out)
{
    for (int i = 0; i < SIGNED_LISTS; i++) {
        struct signed_list *l = &s->lists[i];

        if (s->seals_from && s->seals_from != i + 1)
            continue;
        for (size_t k = 0; k < l->n; k++) {
            struct signed_item *item = &l->at[k];

            if (!item->sealed || item->told)
                continue;
            item->told = true;
            s->seals_from = i + 1;
            send_seal(out, thought_item_seal(item->members), item->key != NULL);
        }
    }
    send_own_seal(s, thought, out);
}

/* --- writing --- */

static void write_item(const struct signed_item *item, struct json_out *o)
{
    struct buf clean = {0};

    surrogates_add_whole(buf_str(&item->text), &clean);
    json_out_obj(o);
    for (uint32_t i = 0; i < item->members->n; i++)
        json_out_member_of(o, json_string(&item->members->members[i].key),
                           &item->members->members[i].value);
    if (item->key)
        json_out_member_str(o, item->key, buf_str(&clean).p ? buf_str(&clean) : STR(""));
    json_out_end_obj(o);
    buf_done(&clean);
}

/* Reports whether a list is kept, which it is for its signatures. */
static bool list_is_kept(const struct signed_list *l, size_t which)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->at[i].sealed || which == 0)
            return true;
    return false;
}

static void write_signed_message(const struct upstream_signed *s, struct json_out *o)
{
    json_out_obj(o);
    for (size_t i = 0; i < SIGNED_LISTS; i++) {
        if (!list_is_kept(&s->lists[i], i))
            continue;
        json_out_member_arr(o, lists[i].name);
        for (size_t k = 0; k < s->lists[i].n; k++)
            write_item(&s->lists[i].at[k], o);
        json_out_end_arr(o);
    }
    for (uint32_t i = 0; s->members && i < s->members->n; i++)
        json_out_member_of(o, json_string(&s->members->members[i].key),
                           &s->members->members[i].value);
    json_out_end_obj(o);
}

static bool has_nothing(const struct upstream_signed *s)
{
    for (size_t i = 0; i < SIGNED_LISTS; i++)
        if (list_is_kept(&s->lists[i], i))
            return false;
    for (size_t i = 0; i < s->n_calls; i++)
        if (s->calls[i])
            return false;
    return !s->members;
}

void upstream_signed_write(const struct upstream_signed *s, struct json_out *o)
{
    if (has_nothing(s)) {
        json_out_null(o);
        return;
    }
    json_out_obj(o);
    json_out_key(o, "message");
    write_signed_message(s, o);
    json_out_member_arr(o, "calls");
    for (size_t i = 0; i < s->n_calls; i++) {
        if (s->calls[i])
            json_out_value(o, s->calls[i]);
        else
            json_out_null(o);
    }
    json_out_end_arr(o);
    json_out_end_obj(o);
}
