#include "worker/turn/ledger.h"

#include "common/base/check.h"

struct journal *ledger_journal(const struct turn_env *env, struct str session_id)
{
    uint32_t index;

    if (ids_parse(session_id, &index) == 0) {
        for (size_t i = 0; i < env->n_journals; i++) {
            if (env->journals[i].index == index)
                return env->journals[i].journal;
        }
    }
    return env->journals[0].journal;
}

void ledger_forget(struct turn_env *env, void *ctx)
{
    for (size_t i = 0; i < env->n_journals; i++)
        journal_forget(env->journals[i].journal, ctx);
}

/* Notes lie in the journal of the commits that they speak of: there they come behind them. */
static void note_in(struct turn_env *env, struct journal *j, uint32_t index)
{
    struct buf note = {0};
    struct err e = {0};

    deliveries_take_note(&env->deliveries, index, &note);
    if (note.len > 0 && journal_append(j, STR(JOURNAL_NOTE), buf_str(&note), NULL, NULL, &e))
        log_warn(NULL, "journal: deliveries were not noted", LOG_T("error", e.text));
    buf_done(&note);
}

void ledger_note_deliveries(struct turn_env *env)
{
    for (size_t i = 0; i < env->n_journals && env->deliveries.notes.n > 0; i++)
        note_in(env, env->journals[i].journal, env->journals[i].index);
    if (env->deliveries.notes.n > 0)
        note_in(env, env->journals[0].journal, UINT32_MAX);
}

static int on_restored(void *ctx, struct str session_id, struct str payload, struct err *e)
{
    struct turn_env *env = ctx;

    (void)session_id;
    return session_apply(env->store, payload, e);
}

struct session *ledger_restore(struct turn_env *env, struct str session_id, uint64_t now_ms)
{
    struct err e = {0};
    bool ended;

    if (!session_restorable(env->store, session_id, now_ms))
        return NULL;
    session_restore_begin(env->store, now_ms);
    if (journal_read(ledger_journal(env, session_id), session_id, on_restored, env, &e))
        log_error(&(struct log_scope){.session = session_id}, "a finalized session cannot be read",
                  LOG_T("error", e.text));
    session_restore_end(env->store);
    return session_find_any(env->store, session_id, &ended);
}

int ledger_write(struct turn_env *env, struct str session_id, struct str record,
                 struct ledger_done done, struct err *e)
{
    struct err applied = {0};

    if (journal_append(ledger_journal(env, session_id), session_id, record, done.fn, done.ctx, e)) {
        metrics_count(env->page, METRIC_journal_errors, 1);
        return -1;
    }
    CHECK(session_apply(env->store, record, &applied) == 0);
    return 0;
}
