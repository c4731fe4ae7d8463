/* Prepares long messages of answers outside the loop: session_answer.h says which, and
 * new_messages.h in what form. */
#include <stdlib.h>

#include "common/base/cancel.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/helpers.h"
#include "worker/session/call/plan.h"
#include "worker/session/call/session_answer.h"
#include "worker/session/record/new_messages.h"
#include "worker/session/record/record.h"
#include "worker/session/store/store.h"

struct ready_answers *ready_answers_new(uint32_t n)
{
    struct ready_answers *all =
        mem_zalloc(sizeof(*all) + (size_t)n * sizeof(struct new_messages *));

    all->n = n;
    return all;
}

struct new_messages *ready_answers_get(const struct ready_answers *all, uint32_t answer)
{
    return all && answer < all->n ? all->at[answer] : NULL;
}

void ready_answers_free(struct ready_answers *all)
{
    for (uint32_t i = 0; all && i < all->n; i++)
        new_messages_free(all->at[i]);
    free(all);
}

/* A tool call takes as long to read, compare and hash as so many bytes. Messages that cost less
 * than the minimum are made with their record, however many there are. */
enum { CALL_BYTES = 256, ANSWER_LEAST = 4 << 10 };

static size_t work_of(const struct session_answer *a)
{
    const struct json *calls = json_get(a->message, "tool_calls");
    size_t n = json_is(calls, JSON_ARRAY) ? calls->n : 0;

    return json_text_bytes(a->message, SIZE_MAX) + n * CALL_BYTES;
}

/* JSON may have twice the bytes of its texts, and more with control characters. */
size_t session_long_messages(const struct session_answer *answers, size_t n, size_t max_bytes)
{
    size_t work = 0;

    for (size_t i = 0; i < n; i++) {
        size_t own = work_of(&answers[i]);

        work += own >= ANSWER_LEAST ? own : 0;
    }
    return work >= max_bytes / 2 ? work : 0;
}

/* Finds an equal message of the same call. */
static struct message_node *find_twin(const struct ready_answers *all, size_t n,
                                      const struct message_node *node, const struct matcher *mt)
{
    for (size_t i = 0; i < n; i++) {
        struct message_node *other = all->at[i] ? all->at[i]->nodes[0] : NULL;

        if (other && !other->recent && other->msg.hash == node->msg.hash &&
            message_equal(&other->msg, &node->msg, mt))
            return other;
    }
    return NULL;
}

void session_make_messages(struct session_plan *pub, struct session_answer *answers, size_t n)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    const struct matcher *mt = &p->session->forest.matcher;
    struct ready_answers *all = ready_answers_new((uint32_t)n);

    for (size_t i = 0; i < n; i++) {
        struct new_messages *m;
        struct record_in text;

        if (work_of(&answers[i]) < ANSWER_LEAST)
            continue;
        helpers_step(); /* each message has the time limit of a job */
        if (cancel_wanted())
            break;
        m = new_answer_make(answers[i].message, mt, p->arena->sum);
        if (!m)
            continue;
        text = record_in_of(buf_str(&m->texts));
        answers[i].message_text = record_str(&text);
        m->nodes[0]->recent = find_twin(all, i, m->nodes[0], mt);
        all->at[i] = m;
    }
    p->made.answers = all;
}
