/* The content of a session (forest.h): environments and the trie of messages.
 *
 *   env -- "system" -- "user" -- "assistant"   <- checkpoint, older checkpoint
 *                           `--- "assistant"   <- checkpoint
 *
 * A node is found by parent and message through one hash table for all nodes of the session
 * (buckets, chained). The matcher decides equality: two spellings of one message may be one node. A
 * client may send an assistant message back in a form different from the parsed one; by_echo finds
 * the node then. checkpoint.c has the tokens. */

#include "worker/session/forest/forest.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/codec/json.h"
#include "common/codec/json_build.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/text/request/chat.h"

enum { BUCKETS_FIRST = 32, NODES_A_BUCKET = 2, ECHO_ROOM = 64 << 10 };

void forest_init(struct forest *f, struct matcher mt)
{
    *f = (struct forest){.matcher = mt, .counting = mt, .arena = {.tight = true}};
}

/* The session frees the payloads. */
void forest_done(struct forest *f)
{
    vec_done(&f->envs);
    vec_done(&f->nodes);
    vec_done(&f->checkpoints);
    vec_done(&f->calls);
    vec_done(&f->by_number);
    vec_done(&f->seals);
    vec_done(&f->stops);
    free(f->buckets);
    map_done(&f->by_env);
    map_done(&f->by_response);
    map_done(&f->by_echo);
    map_done(&f->by_call);
    map_done(&f->by_hash);
    map_done(&f->by_key);
    arena_done(&f->arena);
}

void call_key_put(struct buf *said, const uint64_t body_hash[2], struct str key)
{
    buf_add(said, body_hash, 2 * sizeof(*body_hash));
    buf_add_str(said, key);
}

struct str forest_str(struct forest *f, struct str s)
{
    return s.p ? arena_str(&f->arena, s) : s;
}

/* Copies into the arena; bytes that are no UTF-8 become '?', because the text will be part of
 * JSON. */
struct str forest_text(struct forest *f, struct str s)
{
    char *copy;

    if (!s.p || utf8_valid(s))
        return forest_str(f, s);
    copy = arena_cstr(&f->arena, s);
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)copy[i] >= 0x80)
            copy[i] = '?';
    return str_of(copy, s.len);
}

/* Returns the part after the last '-' or '_', because clients write the prefix in their own way. */
struct str response_key(struct str id)
{
    size_t at = id.len;

    while (at > 0 && id.p[at - 1] != '-' && id.p[at - 1] != '_')
        at--;
    return str_sub(id, at, id.len);
}

/* --- environments --- */

static bool same_value(const struct json *a, const struct json *b)
{
    return a && b ? json_equal(a, b) : !a && !b;
}

/* Returns NULL for empty and null values, which count as absent. */
static const struct json *meaningful_or_null(const struct json *v)
{
    return json_is_null(v) || v->n == 0 ? NULL : v;
}

/* Computes, once for each key, whether tools or arguments are long. */
static bool are_long(struct env_key *key)
{
    if (!key->tools_hashed)
        long_tools_hash(key->tools, key->tools_hash);
    key->tools_hashed = true;
    return key->tools_hash[0] | key->tools_hash[1];
}

bool forest_same_tools(const struct prompt_env *g, struct env_key *key)
{
    if (are_long(key) || g->tools_hash[0] | g->tools_hash[1])
        return g->tools_hash[0] == key->tools_hash[0] && g->tools_hash[1] == key->tools_hash[1];
    return same_value(g->tools, meaningful_or_null(key->tools));
}

static bool is_env(const struct prompt_env *g, struct env_key *key)
{
    return forest_same_tools(g, key) && same_value(g->kwargs, meaningful_or_null(key->kwargs)) &&
           str_eq(g->pool, key->pool);
}

static struct str hash_key(const uint64_t *hash)
{
    return str_of((const char *)hash, sizeof(*hash));
}

static uint64_t hash_of_tools(struct env_key *key)
{
    const struct json *tools = meaningful_or_null(key->tools);

    if (are_long(key))
        return key->tools_hash[0];
    return tools ? message_value_hash(tools) : 0;
}

static uint64_t hash_of_env(struct env_key *key)
{
    const struct json *kwargs = meaningful_or_null(key->kwargs);
    uint64_t part[3] = {hash_of_tools(key), kwargs ? message_value_hash(kwargs) : 0,
                        str_hash(key->pool, 14)};

    return str_hash(str_of((const char *)part, sizeof(part)), 15) | 1;
}

/* Hashes the environment once for each key, because tools may be long. */
static uint64_t env_hash(struct env_key *key)
{
    if (!key->hash)
        key->hash = hash_of_env(key);
    return key->hash;
}

struct prompt_env *forest_env(struct forest *f, struct env_key *key)
{
    struct prompt_env *g = f->recent_env; /* the most likely one */
    uint64_t hash;

    if (g && !key->hash && is_env(g, key))
        return g;
    hash = env_hash(key);
    g = map_get(&f->by_env, hash_key(&hash));
    while (g && !is_env(g, key))
        g = g->alike;
    if (g)
        f->recent_env = g;
    return g;
}

/* The caller must know that the environment is new. */
struct prompt_env *forest_env_add(struct forest *f, struct env_key *key, struct arena *own)
{
    const struct json *tools = meaningful_or_null(key->tools),
                      *kwargs = meaningful_or_null(key->kwargs);
    struct prompt_env *g = ARENA_NEW(&f->arena, struct prompt_env);

    g->id = (uint32_t)f->envs.n;
    g->tools = tools && !own ? json_copy(&f->arena, tools) : tools;
    g->kwargs = kwargs && !own ? json_copy(&f->arena, kwargs) : kwargs;
    if (own)
        arena_absorb(&f->arena, own);
    g->pool = key->pool.len ? forest_text(f, key->pool) : (struct str){0};
    g->root.env = g;
    g->root.id = UINT32_MAX;
    g->hash = env_hash(key);
    memcpy(g->tools_hash, key->tools_hash, sizeof(g->tools_hash));
    g->alike = map_set(&f->by_env, hash_key(&g->hash), g);
    *vec_push(&f->envs) = f->recent_env = g;
    return g;
}

/* --- the trie --- */

static uint64_t key_of(const struct message_node *parent, uint64_t message)
{
    uint64_t h = (message ^ ((uint64_t)parent->env->id << 32 ^ parent->id)) * 0xd1b54a32d192ed03u;

    return h ^ (h >> 31);
}

/* Returns the bucket of the nodes with this hash. Nodes of a bucket that does not exist yet are in
 * the bucket that will be split. */
static struct message_node **bucket_of(const struct forest *f, uint64_t hash)
{
    size_t i = hash & (f->buckets_room - 1);

    return &f->buckets[i < f->n_buckets ? i : i - f->buckets_room / 2];
}

/* Finds a child by hash first, because comparing messages is expensive. Long messages have two
 * hashes: the brief one distinguishes most. A whole text is hashed only if a stored one has the
 * same length. */
static struct message_node *find_child_by_hash(const struct forest *f,
                                               const struct message_node *parent, uint64_t hash,
                                               const struct message *m)
{
    struct message_node *n;
    uint64_t whole = 0;

    if (!f->n_buckets)
        return NULL;
    for (n = *bucket_of(f, hash); n; n = n->chained) {
        if (n->hash != hash || n->parent != parent)
            continue;
        if (n->msg.hash && !whole)
            whole = message_hash(m, &f->counting);
        if ((!n->msg.hash || n->msg.hash == whole) && message_equal(&n->msg, m, &f->counting))
            return n;
    }
    return NULL;
}

/* Reports whether hashes that both have prove a difference. */
static bool differs_for_certain(const struct message *a, const struct message *b)
{
    return a->hash && b->hash && a->hash != b->hash;
}

struct message_node *forest_find_child(struct forest *f, struct message_node *parent,
                                       const struct message *m)
{
    struct message_node *n = parent->recent;

    /* The conversation that was extended last is nearly always the one that is sent again, and
     * comparing bytes is cheaper than hashing them. */
    if (!n)
        return NULL;
    if (!differs_for_certain(&n->msg, m) && message_equal(&n->msg, m, &f->counting))
        return n;
    n = find_child_by_hash(f, parent, key_of(parent, message_brief(m, &f->counting)), m);
    if (n)
        parent->recent = n;
    return n;
}

/* Limits of the search among answers with an echo's key (the newest node's bytes do not count),
 * because a session may have thousands that call the same tool. */
enum { ECHO_NODES = 64, ECHO_BYTES = 512 << 10, ECHO_CALLS = 8192 };

enum { STOPS_MAX = 16 }; /* stop strings that a session's echoes are searched for */

/* Arguments that are parsed and compared as values, with members in any order, cost so many times
 * their bytes of text, per candidate. */
enum { ECHO_ARGS_COST = 8 };

struct echo_look {
    const struct message *m;
    struct message_args args; /* arguments of m */
    bool ids;                 /* an answer has the id of the message's first tool call */
    uint32_t nodes;           /* number of nodes that were compared, */
    uint32_t calls;           /* of answers and of tool calls that were similar, */
    size_t bytes;             /* of bytes of their texts, */
    size_t thoughts;          /* and of their thoughts */
};

void forest_enter_call(struct forest *f, struct str id, struct checkpoint *t)
{
    f->longest_call = MAX_OF(f->longest_call, id.len);
    f->shape += map_set(&f->by_call, id, t) != NULL; /* the id named a different answer before */
}

void forest_enter_calls(struct forest *f, size_t from)
{
    for (size_t i = from; i < f->checkpoints.n; i++) {
        struct checkpoint *t = f->checkpoints.at[i];
        const struct json *calls = json_get(t->message, "tool_calls");

        for (uint32_t k = 0; json_at(calls, k); k++) {
            struct str id = json_string(json_get(json_at(calls, k), "id"));

            if (id.len)
                forest_enter_call(f, id, t);
        }
    }
}

struct checkpoint *forest_issuer(struct forest *f, struct str id)
{
    return id.len > 0 && id.len <= f->longest_call ? map_get(&f->by_call, id) : NULL;
}

/* Finds the answer that issued the ids of m's tool calls, by the first one. Returns NULL if that
 * answer follows a different message, or if its names differ and `renamed` is false. */
static struct message_node *find_issued(struct forest *f, const struct message_node *parent,
                                        struct echo_look *l, bool renamed)
{
    struct str id = json_string(json_get(json_at(l->m->calls, 0), "id"));
    const struct checkpoint *t = forest_issuer(f, id);
    struct message_node *n = t ? t->node : NULL;
    enum message_beside beside;
    struct str bare;

    l->ids = t != NULL;
    if (!n || n->parent != parent || !n->newest ||
        message_ids_alike(t->message, l->m, renamed) != l->m->calls->n)
        return NULL;
    beside = message_beside(&n->msg, l->m, &f->matcher, &bare);
    return message_beside_is(beside, t->message, bare, &l->thoughts) ? n : NULL;
}

/* Compares by the ids of the node's answers. These answers differ only in ids and thoughts, so the
 * rest of the message is compared once, and the thought only if the ids are equal. */
static bool has_ids_of(const struct forest *f, const struct message_node *n, struct echo_look *l)
{
    struct str bare;
    enum message_beside beside = message_beside(&n->msg, l->m, &f->matcher, &bare);

    for (const struct checkpoint *t = n->newest;
         t && beside != BESIDE_OTHER && l->calls < ECHO_CALLS && l->thoughts < ECHO_BYTES;
         t = t->older) {
        uint32_t alike = message_ids_alike(t->message, l->m, false);

        l->calls += 1 + alike;
        if (alike != l->m->calls->n)
            continue;
        if (message_beside_is(beside, t->message, bare, &l->thoughts))
            return true;
    }
    return false;
}

/* Reports whether the message may be one of the node's answers in a client's own form. */
static bool is_echo_of(const struct forest *f, const struct message_node *n, struct echo_look *l)
{
    struct matcher counting = f->matcher;
    size_t parsed = 0;
    bool ret;

    if (l->ids && has_ids_of(f, n, l))
        return true;
    counting.parsed = &parsed;
    ret = message_echoes_words(&n->msg, l->m, &counting, &l->args);
    l->bytes += ECHO_ARGS_COST * parsed;
    if (f->counting.parsed)
        *f->counting.parsed += parsed;
    return ret;
}

static bool goes_on(struct echo_look *l, const struct message_node *n)
{
    if (l->nodes > 0)
        l->bytes +=
            l->m->content.len + n->msg.content.len + json_text_bytes(n->msg.calls, ECHO_BYTES);
    return l->nodes++ < ECHO_NODES && l->bytes < ECHO_BYTES;
}

/* Answers with equal names are tried before those with only equal ids, because an upstream may have
 * issued one id twice. */
static struct message_node *find_echo(struct forest *f, struct message_node *parent, uint64_t key,
                                      struct echo_look *l)
{
    struct message_node *n = find_issued(f, parent, l, false);

    if (n)
        return n;
    for (n = map_get(&f->by_echo, hash_key(&key)); n; n = n->echoed) {
        if (n->parent != parent || !n->newest)
            continue;
        if (!goes_on(l, n))
            break;
        if (is_echo_of(f, n, l))
            return n;
    }
    return l->ids ? find_issued(f, parent, l, true) : NULL;
}

static uint64_t echo_key(const struct message_node *parent, uint64_t hash)
{
    return key_of(parent, hash) | 1;
}

void forest_note_stop(struct forest *f, const struct checkpoint *t)
{
    struct str stop = str_trim(checkpoint_stop(t));
    bool known = stop.len == 0 || f->matcher.kind != MATCHER_CANONICAL || f->stops.n == STOPS_MAX;

    for (size_t i = 0; i < f->stops.n && !known; i++)
        known = str_eq(f->stops.at[i], stop);
    if (!known)
        *vec_push(&f->stops) = forest_str(f, stop);
}

/* Finds an answer whose text the client has completed by the stop string that ended it. */
static struct message_node *find_stopped(const struct forest *f, const struct message_node *parent,
                                         struct echo_look *l)
{
    struct str text = str_trim(l->m->content);
    struct message cut = *l->m;

    for (size_t i = 0; i < f->stops.n && !cut.calls; i++) {
        struct str stop = f->stops.at[i];
        struct message_node *n;
        uint64_t key;

        if (!str_ends(text, stop))
            continue;
        cut.content = str_sub(text, 0, text.len - stop.len);
        key = echo_key(parent, message_echo_hash(&cut));
        for (n = map_get(&f->by_echo, hash_key(&key)); n; n = n->echoed) {
            if (n->parent != parent || !n->newest)
                continue;
            if (!goes_on(l, n))
                return NULL;
            if (str_eq(str_trim(checkpoint_stop(n->newest)), stop) &&
                message_echoes_words(&n->msg, &cut, &f->matcher, &l->args))
                return n;
        }
    }
    return NULL;
}

struct message_node *forest_find_begun(struct forest *f, const struct message_node *parent,
                                       const struct message *m, struct str *ret_added)
{
    struct str text = str_sub(m->content, 0, f->longest_said + ECHO_ROOM);
    struct echo_look look = {.m = m};
    struct message cut = *m;

    if (m->calls || m->list || !str_eq_c(m->role, "assistant"))
        return NULL;
    for (size_t i = 0; i < f->stops.n; i++) {
        size_t at = str_find(text, f->stops.at[i], 0);
        struct message_node *n;
        uint64_t key;

        if (at == SIZE_MAX)
            continue;
        cut.content = str_sub(text, 0, at);
        key = echo_key(parent, message_echo_hash(&cut));
        for (n = map_get(&f->by_echo, hash_key(&key)); n; n = n->echoed) {
            if (n->parent != parent || !n->newest)
                continue;
            if (!goes_on(&look, n))
                return NULL;
            if (message_begins_with(m, n->newest, ret_added))
                return n;
        }
    }
    return NULL;
}

/* Like forest_find_child, but also finds answers that a client sent back in its own form. */
struct message_node *forest_find_echo(struct forest *f, struct message_node *parent,
                                      const struct message *m)
{
    struct message_node *n = forest_find_child(f, parent, m);
    struct echo_look look = {0};
    uint64_t key;

    if (n || f->matcher.kind != MATCHER_CANONICAL || !str_eq_c(m->role, "assistant") ||
        m->content.len > 2 * f->longest_said + ECHO_ROOM)
        return n;
    key = echo_key(parent, message_echo_hash(m));
    look.m = m;
    n = find_echo(f, parent, key, &look);
    if (!n)
        n = find_stopped(f, parent, &look);
    message_args_done(&look.args);
    return n;
}

static bool notes_echo(const struct forest *f, const struct message_node *n)
{
    return !n->echo && f->matcher.kind == MATCHER_CANONICAL;
}

/* `hash` is message_echo_hash of the node's message. */
static void enter_echo(struct forest *f, struct message_node *n, uint64_t hash)
{
    f->longest_said = MAX_OF(f->longest_said, json_text_bytes(n->msg.json, SIZE_MAX));
    n->echo = echo_key(n->parent, hash);
    n->echoed = map_set(&f->by_echo, hash_key(&n->echo), n);
}

void forest_enter_echo(struct forest *f, struct message_node *n)
{
    if (notes_echo(f, n))
        enter_echo(f, n, message_echo_hash(&n->msg));
}

/* Makes space for one more node by adding one bucket, which gets its nodes from the bucket that
 * had them. The cost of a node is thus the same in a large forest (linear hashing: Litwin, VLDB
 * 1980). */
static void grow_buckets(struct forest *f)
{
    struct message_node **from, **fresh;

    if (f->n_buckets == 0) {
        f->buckets = mem_calloc(BUCKETS_FIRST, sizeof(struct message_node *));
        f->n_buckets = f->buckets_room = BUCKETS_FIRST;
        return;
    }
    if (f->n_buckets == f->buckets_room) {
        f->buckets_room *= 2;
        f->buckets = mem_realloc_array(f->buckets, f->buckets_room, sizeof(struct message_node *));
    }
    from = &f->buckets[f->n_buckets - f->buckets_room / 2];
    fresh = &f->buckets[f->n_buckets++];
    *fresh = NULL;
    while (*from) {
        struct message_node *n = *from;

        if (bucket_of(f, n->hash) == fresh) {
            *from = n->chained;
            n->chained = *fresh;
            *fresh = n;
        } else {
            from = &n->chained;
        }
    }
}

static void reserve_nodes(struct forest *f, uint32_t n)
{
    vec_reserve(&f->nodes, n);
    while ((size_t)f->n_buckets * NODES_A_BUCKET < f->nodes.n + n)
        grow_buckets(f);
}

/* Makes a node, whose message and hashes are set, the newest child. No equal child may exist. */
static void link_node(struct forest *f, struct message_node *parent, struct message_node *n)
{
    struct message_node **bucket;

    n->id = (uint32_t)f->nodes.n;
    n->depth = parent->depth + 1;
    n->parent = parent;
    n->env = parent->env;
    n->hash = key_of(parent, message_brief(&n->msg, &f->matcher));
    if (json_is(n->msg.json, JSON_OBJECT)) {
        n->members = n->msg.json->members;
        n->n_members = n->msg.json->n;
    }
    /* earlier lookups of the other children did not see this one */
    f->shape += parent->recent != NULL;
    *vec_push(&f->nodes) = n;
    bucket = bucket_of(f, n->hash);
    n->chained = *bucket;
    *bucket = n;
    parent->recent = n;
}

/* Makes a node, whose message is set, the newest child. No equal child may exist. */
static void hang_node(struct forest *f, struct message_node *parent, struct message_node *n)
{
    f->has_images = f->has_images || message_shows_images(&n->msg);
    if (message_is_long(&n->msg))
        n->msg.hash = message_hash(&n->msg, &f->matcher);
    reserve_nodes(f, 1);
    link_node(f, parent, n);
}

struct message_node *forest_hang(struct forest *f, struct message_node *at,
                                 struct message_node *const *nodes, uint32_t n)
{
    reserve_nodes(f, n);
    for (uint32_t i = 0; i < n; i++) {
        struct message_node *known = forest_find_child(f, at, &nodes[i]->msg);

        if (!known)
            link_node(f, at, nodes[i]);
        at->latest = known ? known : nodes[i];
        at = at->latest;
    }
    return at;
}

struct message_node *forest_hang_answer(struct forest *f, struct message_node *parent,
                                        struct message_node *ready)
{
    uint64_t hash = ready->echo;
    struct message_node *twin = ready->recent, *n;

    ready->echo = 0;
    ready->recent = NULL;
    n = twin ? (twin->parent ? twin : twin->latest) : NULL;
    if (n && n->parent == parent)
        parent->recent = parent->latest = n;
    else
        n = forest_hang(f, parent, &ready, 1);
    if (n != ready)
        ready->latest = n;
    f->has_images = f->has_images || message_shows_images(&n->msg);
    if (notes_echo(f, n))
        enter_echo(f, n, hash);
    return n;
}

/* Finds or makes the child. `own`: the message is in the forest's arena already. A new node is
 * allocated right before its text, so that a walk that compares texts reads memory in one
 * direction. */
static struct message_node *find_or_make_child(struct forest *f, struct message_node *parent,
                                               const struct json *message, bool own)
{
    struct arena tmp = {0};
    struct message m;
    struct message_node *n;

    message_read(&m, message, &f->matcher, &tmp);
    n = forest_find_child(f, parent, &m);
    if (!n) {
        n = ARENA_NEW(&f->arena, struct message_node);
        message_read(&n->msg, own ? message : json_copy(&f->arena, message), &f->matcher,
                     &f->arena);
        hang_node(f, parent, n);
    }
    parent->latest = n;
    arena_done(&tmp);
    return n;
}

struct message_node *forest_child(struct forest *f, struct message_node *parent,
                                  const struct json *message)
{
    return find_or_make_child(f, parent, message, false);
}

struct message_node *forest_child_of_own(struct forest *f, struct message_node *parent,
                                         const struct json *message)
{
    return find_or_make_child(f, parent, message, true);
}

struct str node_text(const struct message_node *node)
{
    struct str text = json_string(json_get(node->msg.json, "content"));

    return text.p ? text : node->msg.content;
}

/* Each node points to its parent, which in an idle session costs a cache miss each time. Because
 * most nodes were made one after the other, the parents are prefetched. */
enum { FETCHED_AHEAD = 16 };

struct json *forest_messages(const struct forest *f, const struct message_node *node,
                             uint32_t extra, struct arena *a)
{
    struct json *v = ARENA_NEW(a, struct json);
    uint32_t depth = node ? node->depth : 0;

    v->kind = JSON_ARRAY;
    v->n = depth + extra;
    v->items = arena_alloc(a, ((size_t)v->n + 1) * sizeof(*v->items));
    memset(v->items + depth, 0, (extra + (size_t)1) * sizeof(*v->items));
    for (; node && node->depth > 0; node = node->parent) {
        if (f && node->id >= FETCHED_AHEAD)
            __builtin_prefetch(f->nodes.at[node->id - FETCHED_AHEAD]);
        v->items[node->depth - 1] =
            node->members
                ? (struct json){.kind = JSON_OBJECT, .n = node->n_members, .members = node->members}
                : *node->msg.json;
    }
    return v;
}

struct json *node_messages(const struct message_node *node, struct arena *a)
{
    return forest_messages(NULL, node, 0, a);
}
