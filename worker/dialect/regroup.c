/*
 * Regroups answers (regroup.h). Some clients send one assistant message per call:
 *
 *   assistant(call 1)  tool(1)  assistant(call 2)  tool(2)
 *   becomes  assistant(call 1, call 2)  tool(1)  tool(2)
 *
 * if one answer issued both ids (owner.get) and the later messages have no other content. Others
 * send the text as a message of its own. It joins the calls after it if it is the whole text of the
 * answer that issued them (owner.text):
 *
 *   assistant(text)  assistant(call)   becomes  assistant(text, call)
 *
 * The history then equals the tokens that the model generated, and matches its checkpoint.
 */

#include "worker/dialect/regroup.h"

#include "common/base/check.h"
#include "common/codec/json_build.h"
#include "worker/dialect/known_body.h"
#include "worker/dialect/request_fields.h"

static const char THOUGHT[] = "reasoning_content";

/* The members of a message that regrouping reads, found in one pass. */
struct message_view {
    const struct json *role, *calls, *content;
};

static struct message_view view_message(const struct json *m)
{
    static const struct str names[] = {STR_LIT("role"), STR_LIT("tool_calls"), STR_LIT("content")};
    const struct json *at[ARRAY_LEN(names)];

    json_get_each(m, names, ARRAY_LEN(names), at);
    return (struct message_view){at[0], at[1], at[2]};
}

/* Returns the id of the answer that issued the message's first call; absent if it is unknown. */
static struct str find_issuer(const struct message_view *g, struct regroup_owner owner)
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

/* Replaces *m with a copy whose calls can grow. Returns its list of calls. */
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
    CHECK(ret); /* m has calls, since an issuer was found */
    *ret = calls;
    *m = all;
    return ret;
}

/* Looks only for `tool_calls`. */
bool regroup_wanted(const struct json *messages, const struct known_messages *known)
{
    bool found = known && known->with_calls > 0;

    for (uint32_t i = known ? known->n : 0; messages && i < messages->n && !found; i++)
        found = json_get(&messages->items[i], "tool_calls") != NULL;
    return found;
}

/* Total bytes of text that are checked for being blank. After that, a message with text is not
 * regrouped. Texts are counted in order, so that a longer history gives the same result. */
enum { REGROUP_BLANKS_MAX = 512 << 10 };

static bool is_blank_within(struct str text, size_t *room)
{
    if (text.len > *room)
        return false;
    *room -= text.len;
    return text_blank(text);
}

/* Reports whether the message is a text of the assistant without calls. */
static bool is_bare_text(const struct message_view *g)
{
    return !g->calls && str_eq_c(json_string(g->role), "assistant") &&
           json_string(g->content).len > 0;
}

/* Reports whether the text is that of the answer that issued the calls of g. */
static bool is_text_of(struct str text, const struct message_view *g, struct regroup_owner owner)
{
    struct str answer = find_issuer(g, owner);

    return answer.len && str_eq(text, owner.text(owner.ctx, answer));
}

/* Returns a copy of the message `text` with the calls of m, and with the thoughts of both. */
static struct json join_text(struct arena *a, const struct json *text, const struct json *m)
{
    struct str had = json_string(json_get(text, THOUGHT)), more = json_string(json_get(m, THOUGHT));
    struct json all = json_empty(JSON_OBJECT);
    struct grown thought = {0};

    if (str_eq(had, more))
        more.len = 0;
    for (uint32_t i = 0; i < text->n; i++) {
        struct str name = json_string(&text->members[i].key);

        if (!more.len || !str_eq_c(name, THOUGHT))
            json_put(a, &all, arena_cstr(a, name), text->members[i].value);
    }
    if (more.len) {
        grown_add(a, &thought, had);
        grown_add(a, &thought, more);
        json_put(a, &all, THOUGHT, json_make_string(grown_str(&thought)));
    }
    json_put(a, &all, "tool_calls", *json_get(m, "tool_calls"));
    return all;
}

/* Moves calls to the message before them if it is their answer's text. */
static const struct json *join_texts(struct arena *a, const struct json *messages,
                                     struct regroup_owner owner)
{
    struct json out = json_empty(JSON_ARRAY); /* the new messages; used after the first move */
    struct str before = {0};                  /* the message before, if it is a bare text */
    bool moves = false;

    for (uint32_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i];
        struct message_view g = view_message(m);

        if (before.len && g.calls && !json_string(g.content).len && is_text_of(before, &g, owner)) {
            for (uint32_t k = 0; k < i && !moves; k++)
                json_push(a, &out, messages->items[k]);
            moves = true;
            out.items[out.n - 1] = join_text(a, &messages->items[i - 1], m);
        } else if (moves) {
            json_push(a, &out, *m);
        }
        before = is_bare_text(&g) ? json_string(g.content) : (struct str){0};
    }
    return moves ? json_keep(a, out) : messages;
}

/* Moves calls to the last assistant message of the same issuer, if only tool results are in
 * between. */
const struct json *regroup_calls(struct arena *a, const struct json *messages,
                                 struct regroup_owner owner)
{
    struct json out = json_empty(JSON_ARRAY); /* the new messages; used after the first move */
    struct str last = {0};     /* issuer of message `at`, if only tool results follow it */
    struct json *calls = NULL; /* that message's growing calls, or NULL */
    uint32_t at = 0;
    size_t room = REGROUP_BLANKS_MAX;
    bool moves = false;

    messages = join_texts(a, messages, owner);
    for (uint32_t i = 0; i < messages->n; i++) {
        const struct json *m = &messages->items[i];
        struct message_view g = view_message(m);
        bool assistant = str_eq_c(json_string(g.role), "assistant");
        struct str who = assistant ? find_issuer(&g, owner) : (struct str){0};

        if (who.len && str_eq(who, last) && is_blank_within(json_string(g.content), &room)) {
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
