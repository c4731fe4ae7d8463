/*
 * A line is one timeline: its messages from the root on (path) and the author of each
 * (track.authors). Lines are placed newest first:
 *
 *   keeper_of   looks up the line's whole path among the prefixes of kept lines, by a hash of
 *               texts without the environment, then compares the messages (covers)
 *   absorb      the keeper takes the authors that it lacks; the line is removed
 *   keep        otherwise: all prefixes of the line are entered, after those of newer keepers
 *
 * Entries of one prefix are a list, newest first, because a line belongs to the newest keeper. With
 * merge=token two copies of a message are equal only if they also have the same ids: a client's
 * copy is encoded and compared with what the model wrote.
 */
#include "worker/export/build/timeline_merge.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/codec/json.h"
#include "worker/export/build/track.h"
#include "worker/export/build/trajectory.h"
#include "worker/session/forest/branch.h"
#include "worker/session/forest/checkpoint.h"
#include "worker/session/forest/forest.h"
#include "worker/session/forest/message.h"
#include "worker/session/store/session_view.h"
#include "worker/text/model/model.h"
#include "worker/text/request/chat.h"

/* A kept timeline under one of its prefixes. */
struct prefix_entry {
    struct line *line;
    struct prefix_entry *next;      /* the next older keeper with this prefix */
    struct prefix_entry **next_end; /* in the first entry of a list: where the next one is linked */
};

struct line {
    struct track track;
    struct message_node **path;
    bool kept;
};

/* Messages that one merge_next walks over. */
enum { STEP_MESSAGES = 512 };

struct timeline_merge {
    const struct trajectory_input *in;
    struct timeline_merge_rule rule;
    struct arena *arena;
    struct matcher by_text;
    /* by node id: hash of the node's whole path, without its environment; 0: not computed */
    uint64_t *hashes;
    struct map prefixes;
    struct line *lines; /* in commit order */
    size_t n, left;     /* lines that are not placed yet: from index left - 1 down */
};

/* Returns a key of a node's path that does not depend on the environment. */
static uint64_t path_hash(struct timeline_merge *m, const struct message_node *n)
{
    struct message msg;
    uint64_t h;

    if (n->depth == 0)
        return 0x51ed270b0a1f39c1u;
    if (m->hashes[n->id])
        return m->hashes[n->id];
    message_read(&msg, n->msg.json, &m->by_text, m->arena);
    h = path_hash(m, n->parent) * 0x9e3779b97f4a7c15u;
    h ^= message_hash(&msg, &m->by_text);
    h ^= h >> 32;
    m->hashes[n->id] = h ? h : 1;
    return m->hashes[n->id];
}

static bool same_message(struct timeline_merge *m, const struct message_node *a,
                         const struct message_node *b)
{
    struct message x, y;

    message_read(&x, a->msg.json, &m->by_text, m->arena);
    message_read(&y, b->msg.json, &m->by_text, m->arena);
    return message_equal(&x, &y, &m->by_text);
}

static bool same_json(const struct json *a, const struct json *b)
{
    return a && b ? json_equal(a, b) : !a && !b;
}

/* --- ids of a message --- */

static bool same_ids(struct token_span a, struct token_span b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (a.at[i] != b.at[i])
            return false;
    return true;
}

/* Reports whether a client's copy of this message encodes to exactly the ids that the model wrote:
 * the rendering of the copy must end with them. */
static bool encodes_to(struct timeline_merge *m, const struct message_node *copy,
                       const struct checkpoint *author)
{
    struct json messages[2], *user;
    struct json_member member[2];
    struct json all = {.kind = JSON_ARRAY, .n = 2, .items = messages};
    struct chat chat = {.messages = &all};
    struct token_vec ids = {0};
    struct token_span end;
    bool same = false;
    struct err e;

    if (!m->in->model || !trajectory_recall(m->in, author))
        return false;
    end = (struct token_span){checkpoint_ids(author), author->n};
    user = &messages[0];
    *user = (struct json){.kind = JSON_OBJECT, .n = 2, .members = member};
    member[0] = (struct json_member){json_make_string(STR("role")), json_make_string(STR("user"))};
    member[1] = (struct json_member){json_make_string(STR("content")), json_make_string(STR("x"))};
    messages[1] = *copy->msg.json;
    if (model_canonical(m->in->model, m->in->scratch, &chat, &ids, &e) == 0) {
        size_t n = ids.n;

        if (author->cut) {
            const struct model_info *info = model_info(m->in->model);
            bool stop = false;

            while (n > 0 && !stop) {
                n--;
                for (size_t i = 0; i < info->n_stop_ids; i++)
                    stop |= ids.at[n] == info->stop_ids[i];
            }
        } else {
            while (n > 0 && ids.at[n - 1] != end.at[end.n - 1])
                n--;
        }
        same = n >= end.n && same_ids((struct token_span){ids.at + n - end.n, end.n}, end);
    }
    vec_done(&ids);
    return same;
}

static bool same_sampled(const struct timeline_merge *m, const struct checkpoint *x,
                         const struct checkpoint *y)
{
    return x->n == y->n && trajectory_recall(m->in, x) && trajectory_recall(m->in, y) &&
           same_ids((struct token_span){checkpoint_ids(x), x->n},
                    (struct token_span){checkpoint_ids(y), y->n});
}

static bool same_tokens(struct timeline_merge *m, const struct line *a, const struct line *s,
                        uint32_t i)
{
    const struct checkpoint *x = a->track.authors[i], *y = s->track.authors[i];

    if ((x && x->n == 0) || (y && y->n == 0))
        return true; /* captured as text: comparing texts is enough */
    if (x && y)
        return x == y || same_sampled(m, x, y);
    if (!x && !y)
        return true; /* the texts are equal, and we have encoded both */
    return x ? encodes_to(m, s->path[i], x) : encodes_to(m, a->path[i], y);
}

/* --- absorbing --- */

static bool covers_line(struct timeline_merge *m, const struct line *a, const struct line *s)
{
    const struct prompt_env *g = a->track.head->node->env, *h = s->track.head->node->env;
    uint32_t n = a->track.head->node->depth;

    if (s->track.head->node->depth < n)
        return false;
    if (!m->rule.ignore_tools && g != h && !same_json(g->tools, h->tools))
        return false;
    for (uint32_t i = n; i-- > 0;) {
        if (a->path[i] == s->path[i])
            break; /* and all before it, too */
        if (!same_message(m, a->path[i], s->path[i]))
            return false;
    }
    for (uint32_t i = 0; i < n && m->rule.tokens; i++)
        if (!same_tokens(m, a, s, i))
            return false;
    return true;
}

static struct str prefix_key(struct timeline_merge *m, const struct message_node *n)
{
    uint64_t *k = arena_alloc(m->arena, sizeof(*k));

    *k = path_hash(m, n);
    return str_of((const char *)k, sizeof(*k));
}

static struct line *keeper_of(struct timeline_merge *m, const struct line *a)
{
    for (struct prefix_entry *x = map_get(&m->prefixes, prefix_key(m, a->track.head->node)); x;
         x = x->next)
        if (covers_line(m, a, x->line))
            return x->line;
    return NULL;
}

static void keep_line(struct timeline_merge *m, struct line *l)
{
    l->kept = true;
    for (uint32_t i = 0; i < l->track.head->node->depth; i++) {
        struct str key = prefix_key(m, l->path[i]);
        struct prefix_entry *first = map_get(&m->prefixes, key),
                            *x = ARENA_NEW(m->arena, struct prefix_entry);

        x->line = l;
        if (first) {
            *first->next_end = x;
            first->next_end = &x->next;
        } else {
            x->next_end = &x->next;
            (void)map_set(&m->prefixes, key, x);
        }
    }
}

static void absorb_line(const struct line *a, struct line *s)
{
    for (uint32_t i = 0; i < a->track.head->node->depth; i++)
        if (!s->track.authors[i])
            s->track.authors[i] = a->track.authors[i];
}

static void line_init(struct timeline_merge *m, struct line *l)
{
    struct checkpoint *head = l->track.head;
    uint32_t depth = head->node->depth;

    l->track.authors = arena_calloc(m->arena, depth, sizeof(struct checkpoint *));
    l->track.authors[depth - 1] = head;
    l->path = arena_calloc(m->arena, depth, sizeof(struct message_node *));
    for (struct message_node *n = head->node; n->depth > 0; n = n->parent)
        l->path[n->depth - 1] = n;
}

struct timeline_merge *merge_new(const struct trajectory_input *in,
                                 const struct timeline_merge_rule *rule, const uint8_t *skip,
                                 struct arena *a)
{
    struct timeline_merge *m = ARENA_NEW(a, struct timeline_merge);
    struct branch_vec all = {0};

    *m = (struct timeline_merge){
        .in = in, .rule = *rule, .arena = a, .by_text = {.kind = MATCHER_CANONICAL}};
    session_checkpoints(in->session, &all);
    m->hashes = mem_calloc(session_view(in->session).n_nodes + 1, sizeof(*m->hashes));
    m->lines = arena_calloc(a, all.n, sizeof(*m->lines));
    for (size_t i = 0; i < all.n; i++)
        if ((!skip || !skip[all.at[i].head->id]) && session_keeps_pool(in->session, all.at[i].head))
            m->lines[m->n++].track = (struct track){
                .head = all.at[i].head, .whole = all.at[i].head, .seq = all.at[i].seq};
    m->left = m->n;
    vec_done(&all);
    return m;
}

static void place_line(struct timeline_merge *m, struct line *l)
{
    struct line *keeper;

    if (!l->track.head->node) { /* a completion has no messages */
        l->kept = true;
        return;
    }
    line_init(m, l);
    keeper = keeper_of(m, l);
    if (keeper)
        absorb_line(l, keeper);
    else
        keep_line(m, l);
}

bool merge_next(struct timeline_merge *m)
{
    size_t done = 0;

    while (m->left > 0 && done < STEP_MESSAGES) { /* the newest first */
        struct line *l = &m->lines[--m->left];

        done += (size_t)(l->track.head->node ? l->track.head->node->depth : 1) *
                (m->rule.tokens ? 16 : 1);
        place_line(m, l);
    }
    return m->left > 0;
}

void merge_survivors(const struct timeline_merge *m, struct track_vec *out)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->lines[i].kept)
            *vec_push(out) = m->lines[i].track;
}

void merge_done(struct timeline_merge *m)
{
    if (!m)
        return;
    free(m->hashes);
    map_done(&m->prefixes);
}
