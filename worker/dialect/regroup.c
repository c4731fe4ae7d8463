/*
 * Regroups answers (regroup.h). Some clients send one assistant message per call:
 *
 *   assistant(call 1)  tool(1)  assistant(call 2)  tool(2)
 *   becomes  assistant(call 1, call 2)  tool(1)  tool(2)
 *
 * if one answer issued both ids (owner.get) and the later messages have no other content. Others
 * send the text, or the thought, as a message of its own. It joins the calls after it if it is that
 * of the answer that issued them (owner.message):
 *
 *   assistant(thought)  assistant(text)  assistant(call)   becomes  assistant(thought, text, call)
 *
 * Items of Responses do not say where an answer ends. A message that was made of them is split
 * after the text of the answer that its calls' answer follows (owner.before):
 *
 *   assistant(text 1, text 2, call 2)  becomes  assistant(text 1)  assistant(text 2, call 2)
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

/* --- an answer's parts in messages of their own, and two answers in one message --- */

struct joining {
    struct arena *a;
    struct regroup_owner owner;
    struct json out; /* the new messages; used after the first change */
    bool changes;
    size_t room; /* bytes of texts that may still be compared without their white space */
};

static struct str content_of(const struct json *m)
{
    return json_string(json_get(m, "content"));
}

static struct str thought_of(const struct json *m)
{
    return json_string(json_get(m, THOUGHT));
}

/* Reports whether the message is the assistant's, without calls. */
static bool is_bare(const struct message_view *g)
{
    return !g->calls && str_eq_c(json_string(g->role), "assistant");
}

/* Compares without the white space around the texts, which some clients remove. */
static bool same_words(struct joining *j, struct str s, struct str t)
{
    if (s.len == t.len)
        return str_eq(s, t);
    if (s.len + t.len > j->room)
        return false;
    j->room -= s.len + t.len;
    return str_eq(str_trim(s), str_trim(t));
}

/* Reports whether `part` is the text of the answer, or a thought alone, which is the answer's. m
 * has the answer's calls. A part is not the answer's if the answer follows an equal message. */
static bool belongs_to_answer(struct joining *j, const struct json *part, const struct json *m,
                              struct str answer)
{
    const struct json *all = j->owner.message(j->owner.ctx, answer);
    const struct json *before = j->owner.before(j->owner.ctx, answer);
    struct str text = content_of(part), thought = thought_of(part);

    if (before && same_words(j, text, content_of(before)) &&
        (text.len > 0 || same_words(j, thought, thought_of(before))))
        return false;
    if (text.len > 0)
        return content_of(m).len == 0 && same_words(j, text, content_of(all));
    return thought.len > 0 && same_words(j, thought, thought_of(all));
}

/* Makes {"role", "content", THOUGHT} and m's other members. */
static struct json make_message(struct arena *a, struct str text, struct str thought,
                                const struct json *m)
{
    static const char *const made[] = {"role", "content", THOUGHT};
    struct json ret = json_message(a, STR("assistant"), json_make_string(text));

    if (thought.len)
        json_put(a, &ret, THOUGHT, json_make_string(thought));
    for (uint32_t i = 0; m && i < m->n; i++)
        if (!str_is_one_of(json_string(&m->members[i].key), made, ARRAY_LEN(made)))
            json_put(a, &ret, arena_cstr(a, json_string(&m->members[i].key)), m->members[i].value);
    return ret;
}

/* Returns m with the text and the thought of the message before it. */
static struct json join_two(struct arena *a, const struct json *part, const struct json *m)
{
    struct str text = content_of(part), had = thought_of(part), more = thought_of(m);
    struct grown thought = {0};

    if (!text.len)
        text = content_of(m);
    grown_add(a, &thought, had);
    if (!str_eq(had, more))
        grown_add(a, &thought, more);
    return make_message(a, text, grown_str(&thought), m);
}

/* Copies the first n messages to the output before its first change. */
static void begin_change(struct joining *j, const struct json *messages, uint32_t n)
{
    for (uint32_t i = 0; i < n && !j->changes; i++)
        json_push(j->a, &j->out, messages->items[i]);
    j->changes = true;
}

/* Joins message i, which has an answer's calls, to the messages before it that are its answer's.
 * `bare` is the number of bare messages before it. Returns false if none is. */
static bool join_bare(struct joining *j, const struct json *messages, uint32_t i, uint32_t bare,
                      struct str answer)
{
    struct json m = messages->items[i];
    uint32_t n = 0;

    while (n < bare && belongs_to_answer(j, &messages->items[i - n - 1], &m, answer)) {
        m = join_two(j->a, &messages->items[i - n - 1], &m);
        n++;
    }
    if (n == 0)
        return false;
    begin_change(j, messages, i);
    j->out.n -= n;
    json_push(j->a, &j->out, m);
    return true;
}

/* Makes two messages of message i if it begins with the text of the answer that its answer follows.
 * Returns false if it does not. */
static bool split_answers(struct joining *j, const struct json *messages, uint32_t i,
                          struct str answer)
{
    const struct json *m = &messages->items[i];
    const struct json *all = j->owner.message(j->owner.ctx, answer);
    struct str before = content_of(j->owner.before(j->owner.ctx, answer));
    struct str text = content_of(m), thought = thought_of(m);
    size_t own = thought_of(all).len;

    if (!str_starts(text, before))
        before = before.len <= j->room ? str_trim(before) : (struct str){0};
    if (str_trim(before).len == 0 || !str_starts(text, before) ||
        !same_words(j, str_sub(text, before.len, text.len), content_of(all)))
        return false;
    if (!str_ends(thought, thought_of(all)))
        own = thought.len;
    begin_change(j, messages, i);
    json_push(j->a, &j->out,
              make_message(j->a, before, str_sub(thought, 0, thought.len - own), NULL));
    json_push(j->a, &j->out,
              make_message(j->a, str_sub(text, before.len, text.len),
                           str_sub(thought, thought.len - own, thought.len), m));
    return true;
}

/* Makes each answer with calls one message. */
static const struct json *join_texts(struct arena *a, const struct json *messages,
                                     struct regroup_owner owner)
{
    struct joining j = {
        .a = a, .owner = owner, .out = json_empty(JSON_ARRAY), .room = REGROUP_BLANKS_MAX};
    uint32_t bare = 0; /* number of bare messages right before message i */

    for (uint32_t i = 0; i < messages->n; i++) {
        struct message_view g = view_message(&messages->items[i]);
        bool splits = owner.items && json_string(g.content).len > 0;
        struct str answer = {0};

        if (g.calls && (bare > 0 || splits))
            answer = find_issuer(&g, owner);
        if (!(answer.len && bare > 0 && join_bare(&j, messages, i, bare, answer)) &&
            !(answer.len && splits && split_answers(&j, messages, i, answer)) && j.changes)
            json_push(a, &j.out, messages->items[i]);
        bare = is_bare(&g) ? bare + 1 : 0;
    }
    return j.changes ? json_keep(a, j.out) : messages;
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
