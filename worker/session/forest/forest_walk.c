/* Walks down the trie (forest.h): finds how many of a request's messages are known. A walk begins
 * at the root, or where an earlier walk with the same messages ended, so that a turn of a long
 * conversation compares only new messages. The walk is done in parts, because each message may be
 * long. */

#include <string.h>

#include "common/codec/json.h"
#include "worker/session/forest/forest.h"
#include "worker/text/request/chat.h"

/* Counts the bytes of a message beside its tool calls that are blank: they do not count but must be
 * read. */
static size_t blank_bytes(const struct message *m, size_t enough)
{
    if (!m->calls || m->content.len > 0)
        return 0;
    return json_text_bytes(json_get(m->json, "content"), enough);
}

/* Estimates the bytes that comparing the message reads. */
static size_t compared_bytes(const struct message *m, size_t enough)
{
    return m->content.len + m->reasoning.len + blank_bytes(m, enough) +
           (m->list ? json_text_bytes(m->list, enough) : 0) +
           (m->calls ? json_text_bytes(m->calls, enough) : 0);
}

/* Arguments that are parsed and compared as values, with members in any order, cost so many times
 * their bytes of text. */
enum { WALK_ARGS_COST = 32 };

static bool spend_room(struct walk_room *room, const struct message *m)
{
    size_t n = compared_bytes(m, room->bytes);

    if (room->messages == 0 || (n >= room->bytes && !room->first)) {
        room->messages = 0;
        return false;
    }
    room->first = false;
    room->messages--;
    room->bytes -= MIN_OF(n, room->bytes);
    return true;
}

void forest_walk_begin(const struct json *messages, struct walk *ret)
{
    *ret = (struct walk){.n = messages->n};
}

/* Returns the reading whose stretch contains message n - 1, or 0 if none is known. */
static uint64_t reading_of(const struct chat_known *known, uint32_t n)
{
    if (n <= known->from)
        return 0;
    for (uint32_t i = 0; i < known->n; i++)
        if (n <= known->at[i].end)
            return known->at[i].reading;
    return 0;
}

void forest_walk_begin_known(const struct forest *f, const struct prompt_env *g,
                             const struct json *messages, const struct chat_known *known,
                             struct walk *ret)
{
    forest_walk_begin(messages, ret);
    if (known->messages != messages)
        return;
    ret->known = known;
    ret->shape = f->shape;
    for (size_t i = 0; i < WALK_ENDS && f->ends[i].node; i++) {
        const struct walk_end *end = &f->ends[i];

        if (end->shape == f->shape && end->node->env == g && end->node->depth <= messages->n &&
            end->node->depth > ret->n_matched &&
            reading_of(known, end->node->depth) == end->reading) {
            ret->last = ret->began = end->node;
            ret->n_matched = end->node->depth;
        }
    }
}

/* Records a walk in the slot of the walk that it continues, or in the oldest slot. */
void forest_walk_remember(struct forest *f, const struct walk *w)
{
    uint64_t reading = w->known && w->last ? reading_of(w->known, w->n_matched) : 0;
    size_t i = 0;

    /* the nodes of the walk's first part may have changed */
    if (reading == 0 || w->shape != f->shape)
        return;
    while (i < WALK_ENDS - 1 && f->ends[i].node && f->ends[i].shape == f->shape &&
           f->ends[i].node != w->last && f->ends[i].node != w->began)
        i++;
    memmove(&f->ends[1], &f->ends[0], i * sizeof(f->ends[0]));
    f->ends[0] = (struct walk_end){reading, f->shape, w->last};
}

struct message_node *walk_node(const struct walk *w, uint32_t n)
{
    struct message_node *node = w->last;

    while (node->depth > n)
        node = node->parent;
    return node;
}

bool forest_walk_on(struct forest *f, struct prompt_env *g, const struct json *messages,
                    struct arena *a, struct walk_room *room, struct walk *w)
{
    struct message_node *at = w->last ? w->last : &g->root;
    size_t parsed = 0;

    f->counting.parsed = &parsed;
    for (; at && w->n_matched < w->n; w->n_matched += at != NULL) {
        message_read(&w->unmatched, &messages->items[w->n_matched], &f->matcher, a);
        if (!spend_room(room, &w->unmatched))
            break;
        at = forest_find_echo(f, at, &w->unmatched);
        if (at)
            w->last = at;
        room->bytes -= MIN_OF(WALK_ARGS_COST * parsed, room->bytes);
        parsed = 0;
    }
    f->counting.parsed = NULL;
    return !at || w->n_matched == w->n;
}
