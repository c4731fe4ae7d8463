#include "worker/plane/service/awaits.h"

#include "worker/ledger/ledger.h"
#include "worker/plane/service/service.h"

int await_durable(struct service *a, struct waiter *w, struct err *e)
{
    if (task_wait(w, e) == 0)
        return 0;
    ledger_forget(a->calls.ledger, w);
    return -1;
}
