/* Copies messages and other values (message.h). */

#include "worker/session/forest/message.h"

#include "common/codec/json.h"

enum { WORD_MAX = 12 };

/* Returns a static string for the words of nearly every message, which need no copy. */
static const char *copy_word(struct arena *a, struct str s)
{
    static const struct str words[] = {
        STR_LIT("role"),   STR_LIT("content"),      STR_LIT("user"),       STR_LIT("assistant"),
        STR_LIT("tool"),   STR_LIT("text"),         STR_LIT("type"),       STR_LIT("function"),
        STR_LIT("id"),     STR_LIT("tool_call_id"), STR_LIT("tool_calls"), STR_LIT("name"),
        STR_LIT("system"), STR_LIT("arguments")};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_eq(s, words[i]))
            return words[i].p;
    return arena_cstr(a, s);
}

/* Copies deeply, except the words of nearly every message. */
static void copy_into(struct arena *a, const struct json *v, struct json *ret)
{
    *ret = *v;
    switch ((enum json_kind)v->kind) {
    case JSON_NULL:
    case JSON_BOOL:
        break;
    case JSON_NUMBER:
    case JSON_STRING:
        ret->text = v->n <= WORD_MAX ? copy_word(a, json_text(v)) : arena_cstr(a, json_text(v));
        break;
    case JSON_ARRAY:
        ret->items = arena_calloc(a, v->n, sizeof(*v->items));
        for (uint32_t i = 0; i < v->n; i++)
            copy_into(a, &v->items[i], &ret->items[i]);
        break;
    case JSON_OBJECT:
        ret->members = arena_calloc(a, v->n, sizeof(*v->members));
        for (uint32_t i = 0; i < v->n; i++) {
            copy_into(a, &v->members[i].key, &ret->members[i].key);
            copy_into(a, &v->members[i].value, &ret->members[i].value);
        }
        break;
    }
}

const struct json *message_copy(struct arena *a, const struct json *v)
{
    struct json *ret = ARENA_NEW(a, struct json);

    copy_into(a, v, ret);
    return ret;
}

const struct json *message_copy_text(struct arena *a, struct str text)
{
    struct arena tmp = {.sum = a->sum};
    const struct json *parsed;
    const struct json *ret =
        text.p && json_parse(&tmp, text, &parsed, NULL) == 0 ? message_copy(a, parsed) : NULL;

    arena_done(&tmp);
    return ret;
}
