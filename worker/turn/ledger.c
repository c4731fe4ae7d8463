#include "worker/turn/ledger.h"

#include "common/base/check.h"

int ledger_write(struct turn_env *env, struct str session_id, struct str record,
                 void (*durable)(void *ctx), void *ctx, struct err *e)
{
    struct err applied = {0};

    if (journal_append(env->journal, session_id, record, durable, ctx, e)) {
        metrics_count(env->page, METRIC_journal_errors, 1);
        return -1;
    }
    CHECK(session_apply(env->store, record, &applied) == 0);
    return 0;
}
