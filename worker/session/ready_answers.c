/* Long messages of answers, made ready beside the loop: session_answer.h says of which, and
 * new_messages.h for what. */
#include <stdlib.h>

#include "common/base/cancel.h"
#include "common/base/mem.h"
#include "common/codec/json.h"
#include "common/os/helpers.h"
#include "worker/session/new_messages.h"
#include "worker/session/plan.h"
#include "worker/session/record.h"
#include "worker/session/session_answer.h"
#include "worker/session/store.h"

struct ready_answers *ready_answers_new(uint32_t first, uint32_t n)
{
    struct ready_answers *all =
        mem_zalloc(sizeof(*all) + (size_t)n * sizeof(struct new_messages *));

    all->first = first;
    all->n = n;
    return all;
}

struct new_messages *ready_answers_get(const struct ready_answers *all, uint32_t answer)
{
    if (!all || answer < all->first || answer - all->first >= all->n)
        return NULL;
    return all->at[answer - all->first];
}

void ready_answers_free(struct ready_answers *all)
{
    for (uint32_t i = 0; all && i < all->n; i++)
        new_messages_free(all->at[i]);
    free(all);
}

/* JSON may have twice the bytes of its texts, and more of control characters. */
static size_t may_be_long(const struct session_answer *a, size_t max_bytes)
{
    size_t bytes = json_text_bytes(a->message, SIZE_MAX);

    return bytes >= max_bytes / 2 ? bytes : 0;
}

size_t session_long_messages(const struct session_answer *answers, size_t n, size_t max_bytes)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += may_be_long(&answers[i], max_bytes);
    return bytes;
}

void session_make_messages(struct session_plan *pub, struct session_answer *answers, size_t n,
                           size_t max_bytes)
{
    struct plan *p = CONTAINER_OF(pub, struct plan, pub);
    struct ready_answers *all = ready_answers_new(0, (uint32_t)n);

    for (size_t i = 0; i < n; i++) {
        struct new_messages *m;
        struct record_in text;

        if (may_be_long(&answers[i], max_bytes) == 0)
            continue;
        helpers_step(); /* each has the time of a job */
        if (cancel_wanted())
            break;
        m = new_answer_make(answers[i].message, &p->session->forest.matcher, p->arena->sum);
        if (!m)
            continue;
        text = record_in_of(buf_str(&m->texts));
        answers[i].message_text = record_str(&text);
        if (answers[i].message_text.len > max_bytes) {
            all->at[i] = m;
            continue;
        }
        answers[i].message_text = (struct str){0};
        new_messages_free(m);
    }
    p->made.answers = all;
}
