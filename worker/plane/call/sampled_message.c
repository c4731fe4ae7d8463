/* Makes the message of a sampled answer as JSON (sampled_answer.h). */
#include "common/base/arena.h"
#include "common/codec/json.h"
#include "worker/plane/call/sampled_answer.h"

/* --- the message as a tree; every object gets its space in advance --- */

static struct json object_of(struct arena *a, size_t room)
{
    return (struct json){.kind = JSON_OBJECT,
                         .members = arena_calloc(a, room, sizeof(struct json_member))};
}

static void member_add(struct json *o, const char *key, struct json value)
{
    o->members[o->n++] = (struct json_member){json_make_string(str_cstr(key)), value};
}

static struct json text_of(struct arena *a, const struct buf *b)
{
    return json_make_string(arena_str(a, buf_str(b)));
}

static void add_members(struct json *o, const struct json *from)
{
    for (uint32_t i = 0; json_is(from, JSON_OBJECT) && i < from->n; i++)
        o->members[o->n++] = from->members[i];
}

static uint32_t count_members(const struct json *v)
{
    return json_is(v, JSON_OBJECT) ? v->n : 0;
}

/* Returns one tool call of the message, with its signed members. */
static struct json call_json(const struct sampled_call *c, const struct json *signed_members,
                             struct arena *a)
{
    struct json function = object_of(a, 2);
    struct json call = object_of(a, 3 + count_members(signed_members));

    member_add(&function, "name", text_of(a, &c->name));
    member_add(&function, "arguments", text_of(a, &c->args));
    member_add(&call, "id", text_of(a, &c->id));
    member_add(&call, "type", json_make_string(STR("function")));
    member_add(&call, "function", function);
    add_members(&call, signed_members);
    return call;
}

/* The message is what the client received and will send back. */
const struct json *sampled_answer_message(const struct sampled_answer *a, struct arena *arena)
{
    const struct json *own = json_get(a->signed_members, "message");
    const struct json *of_calls = json_get(a->signed_members, "calls");
    struct json *m = ARENA_NEW(arena, struct json);
    struct json calls = {.kind = JSON_ARRAY};

    *m = object_of(arena, 4 + count_members(own));
    member_add(m, "role", json_make_string(STR("assistant")));
    member_add(m, "content", text_of(arena, &a->text));
    if (a->reasoning.len > 0)
        member_add(m, "reasoning_content", text_of(arena, &a->reasoning));
    add_members(m, own);
    if (a->n_calls == 0)
        return m;
    calls.items = arena_calloc(arena, a->n_calls, sizeof(*calls.items));
    for (size_t i = 0; i < a->n_calls; i++)
        calls.items[calls.n++] = call_json(&a->calls[i], json_at(of_calls, i), arena);
    member_add(m, "tool_calls", calls);
    return m;
}
