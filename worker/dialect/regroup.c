/* Regrouping of parallel calls (regroup.h). Some clients send one assistant message per call:
 *
 *   assistant(call 1)  tool(1)  assistant(call 2)  tool(2)
 *   becomes  assistant(call 1, call 2)  tool(1)  tool(2)
 *
 * if one answer issued both ids (owner.get) and the later messages contain nothing else. So the
 * history equals what the model generated and finds its checkpoint again. */

#include "worker/dialect/regroup.h"

#include "common/base/check.h"
#include "common/codec/json_build.h"
#include "worker/dialect/known_body.h"
#include "worker/dialect/request_fields.h"

/* What regrouping looks at in a message, in one go: there may be many. */
struct glance {
    const struct json *role, *calls, *content;
};

static struct glance glance_at(const struct json *m)
{
    static const struct str names[] = {STR_LIT("role"), STR_LIT("tool_calls"), STR_LIT("content")};
    const struct json *at[ARRAY_LEN(names)];

    json_get_each(m, names, ARRAY_LEN(names), at);
    return (struct glance){at[0], at[1], at[2]};
}

/* Finds the answer that issued the calls of an assistant message without other content; absent:
 * unknown. */
static struct str find_issuer(const struct glance *g, struct regroup_owner owner)
{
    struct str id = json_string(json_get(json_at(g->calls, 0), "id"));

    return id.len ? owner.get(owner.ctx, id) : (struct str){0};
}

static void push_calls(struct arena *a, struct json *calls, const struct json *of)
{
    const struct json *more = json_get(of, "tool_calls");

    for (size_t i = 0; json_at(more, i); i++)
        json_push(a, calls, *json_at(more, i));
}

/* Makes *m a copy of itself whose calls can grow; returns where they stand in it. */
static struct json *make_growing(struct arena *a, struct json *m)
{
    struct json all = json_empty(JSON_OBJECT), calls = json_empty(JSON_ARRAY);
    struct json *ret = NULL;

    push_calls(a, &calls, m);
    for (uint32_t i = 0; i < m->n; i++)
        json_put(a, &all, arena_cstr(a, json_string(&m->members[i].key)), m->members[i].value);
    for (uint32_t i = 0; i < all.n; i++)
        if (str_eq_c(json_string(&all.members[i].key), "tool_calls"))
            ret = &all.members[i].value;
    CHECK(ret); /* m has calls: an issuer was found */
    *ret = calls;
    *m = all;
    return ret;
}

/* One pass that looks for `tool_calls` only, as most histories have nothing to regroup. */
bool regroup_wanted(const struct json *messages, const struct known_messages *known)
{
    unsigned with_calls = known ? known->with_calls : 0;

    for (uint32_t i = known ? known->n : 0; messages && i < messages->n && with_calls < 2; i++)
        with_calls += json_get(&messages->items[i], "tool_calls") != NULL;
    return with_calls >= 2;
}

/* Of texts that are looked at for anything but blanks, all together: behind them a message with
 * text stays where it is. The same for a history that has grown, as they are counted in order. */
enum { REGROUP_BLANKS_MAX = 512 << 10 };

static bool says_nothing(struct str text, size_t *room)
{
    if (text.len > *room)
        return false;
    *room -= text.len;
    return text_blank(text);
}

/* Goes through the messages once. Calls move to the last assistant message of the same issuer,
 * as long as only tool results stand between. */
const struct json *regroup_calls(struct arena *a, const struct json *messages,
                                 struct regroup_owner owner)
{
    struct json out = json_empty(JSON_ARRAY); /* the messages, once something moves */
    struct str last = {0};     /* issuer of out's message `at`, behind which only results stand */
    struct json *calls = NULL; /* calls of that message, once they grow: each is moved once */
    uint32_t at = 0;
    size_t room = REGROUP_BLANKS_MAX;
    bool moves = false;

    for (uint32_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i];
        struct glance g = glance_at(m);
        bool assistant = str_eq_c(json_string(g.role), "assistant");
        struct str who = assistant ? find_issuer(&g, owner) : (struct str){0};

        if (who.len && str_eq(who, last) && says_nothing(json_string(g.content), &room)) {
            for (uint32_t k = 0; k < i && !moves; k++)
                json_push(a, &out, messages->items[k]);
            moves = true;
            calls = calls ? calls : make_growing(a, &out.items[at]);
            push_calls(a, calls, m);
            continue;
        }
        if (moves)
            json_push(a, &out, *m);
        if (assistant || !str_eq_c(json_string(g.role), "tool")) {
            last = who;
            calls = NULL;
            at = moves ? out.n - 1 : i;
        }
    }
    return moves ? json_keep(a, out) : messages;
}
