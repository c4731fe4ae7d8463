/* If the task is cancelled before the answer, the answer frees the question. */
#include "worker/ledger/store_question.h"

#include <stdlib.h>

#include "common/base/mem.h"

struct store_question {
    struct waiter waiter;
    store_answer_fn use; /* NULL: the task was cancelled */
    void *ctx;
    enum store_verdict verdict;
};

struct store_question *store_question_new(store_answer_fn use, void *ctx)
{
    struct store_question *q = mem_zalloc(sizeof(*q));

    q->use = use;
    q->ctx = ctx;
    return q;
}

static void on_store_answer(void *ctx, const struct store_answer *a)
{
    struct store_question *q = ctx;

    if (!q->use) {
        free(q);
        return;
    }
    q->verdict = a->verdict;
    q->use(q->ctx, a);
    waiter_wake(&q->waiter);
}

struct store_call store_question_call(struct store_question *q)
{
    return (struct store_call){on_store_answer, q};
}

enum store_verdict store_question_await(struct store_question *q)
{
    enum store_verdict verdict;
    struct err e;

    if (task_wait(&q->waiter, &e)) {
        q->use = NULL;
        return STORE_LOST;
    }
    verdict = q->verdict;
    free(q);
    return verdict;
}
