/*
 * Signed members are found by the number of the assistant message; those of a tool call by its id,
 * else by its number. content_parts is the gateway's own name for content that arrived as a list of
 * parts: the parts replace their text again.
 */
#include "worker/plane/call/upstream_messages.h"

#include "common/base/buf.h"
#include "common/codec/json.h"

static const char parts_name[] = "content_parts";

/* Reports whether the text equals the text of the parts. */
static bool says_the_same(const struct json *parts, struct str text)
{
    struct buf all = {0};
    bool same;

    for (size_t i = 0; json_at(parts, i); i++) {
        struct str type = json_string(json_get(json_at(parts, i), "type"));

        if (str_eq_c(type, "text") || str_eq_c(type, "output_text"))
            buf_add_str(&all, json_string(json_get(json_at(parts, i), "text")));
        else if (str_eq_c(type, "refusal"))
            buf_add_str(&all, json_string(json_get(json_at(parts, i), "refusal")));
    }
    same = str_eq(str_trim(buf_str(&all)), str_trim(text));
    buf_done(&all);
    return same;
}

/* Writes the members that `own` lacks. */
static void write_missing(struct json_out *o, const struct json *own, const struct json *members)
{
    for (uint32_t i = 0; json_is(members, JSON_OBJECT) && i < members->n; i++) {
        struct str name = json_string(&members->members[i].key);

        if (str_eq_c(name, parts_name) || str_eq_c(name, "tool_calls") ||
            !json_is_null(json_get_str(own, name)))
            continue;
        json_out_member_of(o, name, &members->members[i].value);
    }
}

/* Returns the signed data of a tool call: found by its id, or by its number if the call has no id
 * of its own. */
static const struct json *signed_call(const struct json *calls, const struct json *call, size_t at)
{
    struct str id = json_string(json_get(call, "id"));

    for (size_t i = 0; json_at(calls, i) && id.len > 0; i++)
        if (str_eq(json_string(json_get(json_at(calls, i), "id")), id))
            return json_at(calls, i);
    return json_at(calls, at);
}

static void write_calls_with_signed(struct json_out *o, const struct json *calls,
                                    const struct json *signed_calls)
{
    json_out_arr(o);
    for (size_t i = 0; json_at(calls, i); i++) {
        const struct json *call = json_at(calls, i);

        if (!json_is(call, JSON_OBJECT)) {
            json_out_value(o, call);
            continue;
        }
        json_out_obj(o);
        for (uint32_t k = 0; k < call->n; k++) {
            if (json_is_null(&call->members[k].value))
                continue;
            json_out_member_of(o, json_string(&call->members[k].key), &call->members[k].value);
        }
        write_missing(o, call, signed_call(signed_calls, call, i));
        json_out_end_obj(o);
    }
    json_out_end_arr(o);
}

static bool is_replaced(const struct json_member *m, const struct json *members)
{
    return json_is_null(&m->value) && !json_is_null(json_get_str(members, json_string(&m->key)));
}

static void write_with_signed(struct json_out *o, const struct json *m, const struct json *members)
{
    const struct json *own = json_get(m, parts_name);
    const struct json *parts = own ? own : json_get(members, parts_name);
    const struct json *calls = json_get(members, "tool_calls");
    struct str content = json_string(json_get(m, "content"));

    json_out_obj(o);
    for (uint32_t i = 0; i < m->n; i++) {
        struct str name = json_string(&m->members[i].key);
        const struct json *v = &m->members[i].value;

        if (str_eq_c(name, parts_name) || is_replaced(&m->members[i], members))
            continue;
        json_out_key_str(o, name);
        if (str_eq_c(name, "content") && json_is(parts, JSON_ARRAY) &&
            says_the_same(parts, content))
            json_out_value(o, parts);
        else if (str_eq_c(name, "tool_calls") && json_is(v, JSON_ARRAY))
            write_calls_with_signed(o, v, calls);
        else
            json_out_value(o, v);
    }
    write_missing(o, m, members);
    json_out_end_obj(o);
}

static bool needs_care(const struct json *m, const struct json *members)
{
    return json_is(m, JSON_OBJECT) && (json_is(members, JSON_OBJECT) || json_get(m, parts_name));
}

void upstream_messages_write(struct json_out *o, const struct json *messages,
                             const struct json *signed_answers)
{
    size_t n = 0;

    if (!json_is(messages, JSON_ARRAY)) {
        json_out_value(o, messages);
        return;
    }
    json_out_arr(o);
    for (uint32_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i], *members = NULL;

        if (str_eq_c(json_string(json_get(m, "role")), "assistant"))
            members = json_at(signed_answers, n++);
        if (needs_care(m, members))
            write_with_signed(o, m, members);
        else
            json_out_value(o, m);
    }
    json_out_end_arr(o);
}
