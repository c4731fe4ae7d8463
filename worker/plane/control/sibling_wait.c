#include "worker/plane/control/sibling_wait.h"

#include "common/net/http_fetch.h"
#include "common/os/task.h"
#include "worker/plane/control/sibling.h"
#include "worker/plane/service/service.h"

/* A request to a sibling or node, and the answer. */
struct asking {
    struct waiter answered;
    struct sibling_answer *answer;
};

static void on_answer(void *ctx, int status, struct str body, const struct err *e)
{
    struct asking *q = ctx;

    q->answer->status = status;
    buf_add_str(&q->answer->body, body);
    if (e)
        q->answer->err = *e;
    waiter_wake(&q->answered);
}

int sibling_wait(struct service *a, const uint32_t *index, const uint32_t *slot,
                 const struct sibling_question *q, struct sibling_answer *ret, struct err *e)
{
    struct siblings *s = siblings_of(a);
    struct asking asked = {.answer = ret};
    struct http_fetch *f;

    buf_clear(&ret->body);
    *ret = (struct sibling_answer){.body = ret->body};
    f = slot ? sibling_ask_node(s, *slot, q, on_answer, &asked)
             : sibling_ask(s, *index, q, on_answer, &asked);
    if (!f)
        return 0;
    if (task_wait(&asked.answered, e) == 0)
        return 0;
    http_fetch_cancel(f);
    return -1;
}
