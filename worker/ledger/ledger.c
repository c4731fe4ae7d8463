#include "worker/ledger/ledger.h"

#include "common/base/check.h"
#include "common/journal/journal.h"
#include "common/proc/ids.h"
#include "worker/residency/residency.h"

const struct place_journal *ledger_place(const struct call_env *env, struct str session_id)
{
    uint32_t index;

    if (ids_parse(session_id, &index) == 0) {
        for (size_t i = 0; i < env->n_journals; i++) {
            if (env->journals[i].index == index)
                return &env->journals[i];
        }
    }
    return &env->journals[0];
}

bool ledger_serves(const struct call_env *env, uint32_t index)
{
    for (size_t i = 0; i < env->n_journals; i++) {
        if (env->journals[i].index == index)
            return true;
    }
    return false;
}

void ledger_forget(struct call_env *env, void *ctx)
{
    for (size_t i = 0; i < env->n_journals; i++)
        journal_forget(env->journals[i].journal, ctx);
}

/* Notes lie in the journal of the commits that they speak of: there they come behind them. */
static void note_in(struct call_env *env, struct journal *j, uint32_t index)
{
    struct buf note = {0};
    struct err e = {0};

    deliveries_take_note(&env->deliveries, index, &note);
    if (note.len > 0 && journal_append(j, STR(JOURNAL_NOTE), buf_str(&note), NULL, NULL, &e))
        log_warn(NULL, "journal: deliveries were not noted", LOG_T("error", e.text));
    buf_done(&note);
}

void ledger_note_deliveries(struct call_env *env)
{
    for (size_t i = 0; i < env->n_journals && env->deliveries.notes.len > 0; i++)
        note_in(env, env->journals[i].journal, env->journals[i].index);
    if (env->deliveries.notes.len > 0)
        note_in(env, env->journals[0].journal, UINT32_MAX);
}

int ledger_write(struct call_env *env, struct str session_id, struct str record,
                 struct ledger_done done, struct err *e)
{
    struct err applied = {0};

    if (journal_append(ledger_place(env, session_id)->journal, session_id, record, done.fn,
                       done.ctx, e)) {
        metrics_count(env->page, METRIC_journal_errors, 1);
        if (e->kind == ERR_IO) /* nothing was recorded: the request may be sent again */
            e->kind = ERR_STORAGE_FAILED;
        return -1;
    }
    CHECK(session_apply(env->store, record, &applied) == 0);
    residency_watch(env);
    return 0;
}
