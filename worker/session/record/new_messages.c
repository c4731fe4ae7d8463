/* Prepares the new messages of a long request in the two forms in which its session keeps them
 * (new_messages.h). */
#include "worker/session/record/new_messages.h"

#include <stdlib.h>

#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "worker/session/forest/forest.h"
#include "worker/session/record/record.h"

/* Bytes for each message besides the message itself. */
enum { EACH = sizeof(struct message_node *) + sizeof(size_t) };

static void count_message_bytes(atomic_size_t *sum, size_t bytes)
{
    if (sum)
        atomic_fetch_add_explicit(sum, bytes, memory_order_relaxed);
}

static struct new_messages *begin_messages(uint32_t from, uint32_t n, atomic_size_t *sum)
{
    struct new_messages *m = mem_zalloc(sizeof(*m));

    *m = (struct new_messages){
        .from = from, .n = n, .copy = {.tight = true, .sum = sum}, .sum = sum};
    m->nodes = mem_calloc(n, sizeof(struct message_node *));
    m->starts = mem_calloc(n, sizeof(size_t));
    count_message_bytes(sum, (size_t)n * EACH);
    return m;
}

/* Makes the node of message i, with its message read from its text. Returns -1 if the text is not
 * valid. */
static int read_message_node(struct new_messages *m, uint32_t i, struct str text,
                             const struct matcher *mt)
{
    struct message_node *node = ARENA_NEW(&m->copy, struct message_node);
    struct message *ret = &node->msg;
    const struct json *copy = message_copy_text(&m->copy, text);

    if (!copy)
        return -1;
    message_read(ret, copy, mt, &m->copy);
    ret->brief = message_brief(ret, mt);
    ret->hash = message_hash(ret, mt);
    m->has_images = m->has_images || message_shows_images(ret);
    m->nodes[i] = node;
    return cancel_wanted() ? -1 : 0; /* a cancelled job would have hashed arguments as text */
}

/* Writes the text of a message, and makes the copy that is read back from it. */
static int make_message_node(struct new_messages *m, uint32_t i, const struct json *given,
                             const struct matcher *mt)
{
    size_t cap = m->texts.cap, from = m->texts.len;
    struct record_in r;

    m->starts[i] = from;
    record_put_json(&m->texts, given);
    count_message_bytes(m->sum, m->texts.cap - cap);
    r = record_in_of(str_sub(buf_str(&m->texts), from, SIZE_MAX));
    return read_message_node(m, i, record_str(&r), mt);
}

struct new_messages *new_messages_make(const struct json *messages, uint32_t from,
                                       const struct matcher *mt, atomic_size_t *sum)
{
    struct new_messages *m = begin_messages(from, messages->n - from, sum);

    for (uint32_t i = 0; i < m->n; i++)
        if (make_message_node(m, i, &messages->items[from + i], mt) != 0) {
            new_messages_free(m);
            return NULL;
        }
    return m;
}

struct new_messages *new_messages_read(struct record_in texts, uint32_t n, const struct matcher *mt,
                                       atomic_size_t *sum)
{
    struct new_messages *m = begin_messages(0, n, sum);

    for (uint32_t i = 0; i < n; i++) {
        struct str text = record_str(&texts);

        if (!text.p || read_message_node(m, i, text, mt) != 0) {
            new_messages_free(m);
            return NULL;
        }
    }
    return m;
}

/* Marks the messages as those of answers. Accepts and returns NULL. */
static struct new_messages *as_answer(struct new_messages *m)
{
    if (m)
        m->nodes[0]->echo = message_echo_hash(&m->nodes[0]->msg);
    return m;
}

struct new_messages *new_answer_make(const struct json *message, const struct matcher *mt,
                                     atomic_size_t *sum)
{
    struct json one = *message;
    const struct json list = {.kind = JSON_ARRAY, .n = 1, .items = &one};

    return as_answer(new_messages_make(&list, 0, mt, sum));
}

struct new_messages *new_answer_read(struct str text, const struct matcher *mt, atomic_size_t *sum)
{
    struct new_messages *m = begin_messages(0, 1, sum);

    if (read_message_node(m, 0, text, mt) == 0)
        return as_answer(m);
    new_messages_free(m);
    return NULL;
}

struct str new_messages_texts(const struct new_messages *m, uint32_t k)
{
    CHECK(k > 0 && k <= m->n);
    return str_sub(buf_str(&m->texts), m->starts[m->n - k], SIZE_MAX);
}

struct message_node *new_messages_hang(struct new_messages *m, uint32_t n, struct forest *f,
                                       struct message_node *at)
{
    CHECK(n <= m->n);
    if (n > 0)
        arena_absorb(&f->arena, &m->copy);
    f->has_images = f->has_images || m->has_images;
    return forest_hang(f, at, m->nodes + (m->n - n), n);
}

void new_messages_free(struct new_messages *m)
{
    if (!m)
        return;
    count_message_bytes(m->sum, 0 - (m->texts.cap + (size_t)m->n * EACH));
    buf_done(&m->texts);
    arena_done(&m->copy);
    free(m->nodes);
    free(m->starts);
    free(m);
}
