#include "worker/api/regroup.h"

#include "worker/api/fields.h"

static struct str role_of(const struct json *m)
{
    return json_string(json_get(m, "role"));
}

/* Who issued the calls of an assistant message that says nothing else; absent: nobody known. */
static struct str issuer(const struct json *m, struct regroup_owner owner)
{
    const struct json *first = json_at(json_get(m, "tool_calls"), 0);
    struct str id = json_string(json_get(first, "id"));

    return id.len ? owner.get(owner.ctx, id) : (struct str){0};
}

/* m with the calls of `more` behind its own. */
static struct json joined(struct arena *a, const struct json *m, const struct json *more)
{
    const struct json *const both[] = {json_get(m, "tool_calls"), json_get(more, "tool_calls")};
    struct json calls = json_empty(JSON_ARRAY);
    struct json all = json_empty(JSON_OBJECT);

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; json_at(both[k], i); i++)
            json_push(a, &calls, *json_at(both[k], i));
    for (uint32_t i = 0; i < m->n; i++) {
        const struct json_member *member = &m->members[i];
        struct str key = json_string(&member->key);

        json_put(a, &all, arena_cstr(a, key), str_eq_c(key, "tool_calls") ? calls : member->value);
    }
    return all;
}

const struct json *regroup_calls(struct arena *a, const struct json *messages,
                                 struct regroup_owner owner)
{
    struct json out = json_empty(JSON_ARRAY);
    struct str last = {0}; /* issuer of out's message `at`, behind which only results stand */
    uint32_t at = 0;

    for (uint32_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i];
        bool assistant = str_eq_c(role_of(m), "assistant");
        struct str who = assistant ? issuer(m, owner) : (struct str){0};

        if (who.len && str_eq(who, last) && text_blank(json_string(json_get(m, "content")))) {
            out.items[at] = joined(a, &out.items[at], m);
            continue;
        }
        json_push(a, &out, *m);
        if (assistant || !str_eq_c(role_of(m), "tool")) {
            last = who;
            at = out.n - 1;
        }
    }
    return out.n == messages->n ? messages : json_keep(a, out);
}
